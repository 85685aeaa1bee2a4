"""Typed entries on a real broker: matching by type and fields, leases, services that are found."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import entrepot
from entrepot.client.errors import ClientError
from entrepot.testing import Broker, broker
from tests.end_to_end.test_client import connect, eventually

WAIT_S = 20.0
SERVICE = """
import entrepot, sys, time
from tests.end_to_end.test_entries import Printer
client = entrepot.Client(sys.argv[1], sys.argv[2])
lookup = client.entries("lookup")
lookup.keep(Printer("first floor", "http://one", colour=True), lease_s=2)
print("kept", flush=True)
time.sleep(600)
"""


@dataclass
class Service:
    where: str | None = None
    address: str | None = None


@dataclass
class Printer(Service):
    colour: bool | None = None


@dataclass
class Scanner(Service):
    dpi: int | None = None


class NoEntry:
    pass


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started
        assert "Traceback" not in started.log_path.read_text()


@pytest.fixture
def client(server: Broker) -> Iterator[entrepot.Client]:
    with connect(server) as made:
        yield made


def test_typed_entries(client: entrepot.Client, server: Broker) -> None:
    entries = client.entries("typed", Printer)
    entries.write(Scanner("cellar", "http://a", 600))
    entries.write(Printer("attic", "http://b", True))
    with connect(server) as other:
        same = other.entries("typed", Printer)
        found = same.read(Printer(colour=True), WAIT_S)
        assert found == Printer("attic", "http://b", True)
        assert same.read(Service(where="attic"), WAIT_S) == found  # A subclass, and known here.
        # Of a type that is not known here it is what was asked for.
        assert same.read(Service("cellar"), WAIT_S) == Service("cellar", "http://a")
        for nothing in (Printer(colour=False), Scanner("attic"), Service("roof")):
            with pytest.raises(TimeoutError):
                same.read(nothing, 0)
        told: list[Any] = []
        watch = same.notify(told.append, Service)
        entries.write(Service("hall", "http://c"))
        eventually(lambda: told == [Service("hall", "http://c")])
        watch.stop()
        assert {type(same.take(Service, WAIT_S)) for _ in range(3)} <= {Service, Printer, Scanner}
        with pytest.raises(TimeoutError):
            same.take(Service, 0)
    for wrong in (Printer("attic", "http://b", 1), Scanner(dpi="many"), Printer, NoEntry()):  # type: ignore[arg-type]
        with pytest.raises((ClientError, TypeError)):
            entries.write(wrong)
    with pytest.raises(ClientError, match="no dataclass"):
        entries.read(NoEntry, 0)
    with pytest.raises(ClientError, match="two types"):
        client.entries("typed", Printer, type("Printer", (Service,), {}))


def test_a_lease_is_renewed(client: entrepot.Client, server: Broker) -> None:
    space = client.space("renewing")
    short = space.write("short", lease_s=1.5)
    long = space.write("long", lease_s=1.5)
    for_ever = space.write("for ever")
    assert space.renew(for_ever, 1)
    for _ in range(4):
        time.sleep(0.5)
        assert space.renew(long, 1.5)
    assert not space.renew(short, 60)  # It was over.
    with connect(server) as other:  # Also for somebody who reads all of it now.
        same = other.space("renewing")
        with pytest.raises(TimeoutError):
            same.take("short", timeout_s=0)
        assert space.renew(long, 60)
        assert same.take("long", timeout_s=WAIT_S) == ("long",)
        eventually(lambda: not space.renew(long, 60))
        with connect(server) as last:
            again = last.space("renewing")
            assert again.take("for ever", timeout_s=WAIT_S) == ("for ever",)
            eventually(lambda: len(again) == 0)


def test_a_service_is_found_while_it_lives(server: Broker) -> None:
    host, port = server.endpoints["amqp"]
    command = [sys.executable, "-c", SERVICE, f"{host}:{port}", server.bootstrap]
    with connect(server) as client:
        lookup = client.entries("lookup", Printer)
        process = subprocess.Popen(command, stdout=subprocess.PIPE)
        try:
            wanted = Printer(colour=True)
            assert lookup.read(wanted, 60).address == "http://one"
            time.sleep(3)  # Longer than a lease.
            assert lookup.read(wanted, 0).where == "first floor"
            mine = lookup.keep(Scanner("hall"), lease_s=60)
            assert lookup.read(Scanner, WAIT_S).where == "hall"
            mine.stop()
        finally:
            process.kill()
            process.wait()

        def is_gone(template: Any) -> bool:
            try:
                lookup.read(template, 0)
            except TimeoutError:
                return True
            return False

        eventually(lambda: is_gone(wanted))
        assert is_gone(Scanner)
