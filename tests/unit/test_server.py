"""What a broker refuses to start with, and that passwords are hashed beside the loop."""

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from entrepot.config import build
from entrepot.core.errors import StoreUnavailable
from entrepot.core.ports import World
from entrepot.server import StartError, exception_handler, world
from entrepot.workers import password_worker, store_worker
from tests import certificates


def doors(tmp_path: Path, **document: Any) -> World:
    return world(build({"data_dir": str(tmp_path / "data"), **document}, "test"))


SASL = {"authentication": "sasl"}


@pytest.mark.parametrize(
    ("host", "more"),
    [
        ("127.0.0.1", {}),
        ("127.8.8.8", {}),
        ("::1", {}),
        ("localhost", {}),
        ("0.0.0.0", {"security": SASL}),
        ("0.0.0.0", {"security": {"insecure": True}}),
        ("0.0.0.0", {"ports": {"kafka": "off", "mqtt": "off"}}),
    ],
)
def test_what_may_be_listened_on(tmp_path: Path, host: str, more: dict[str, Any]) -> None:
    doors(tmp_path, host=host, **more)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "broker.example.org"])
@pytest.mark.parametrize(
    "more", [{}, {"security": {"authorization": True}}, {"ports": {"kafka": "off"}}]
)
def test_other_machines_are_not_let_in_by_accident(
    tmp_path: Path, host: str, more: dict[str, Any]
) -> None:
    with pytest.raises(StartError, match=r"whoever reaches the port .* --insecure") as caught:
        doors(tmp_path, host=host, **more)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_a_certificate_of_a_client_is_a_name(tmp_path: Path) -> None:
    own = certificates.make(tmp_path, "own", subject="/CN=node")
    files = {"certificate": own.certificate, "key": own.key}
    ports = {"kafka": "off", "kafka_tls": 0, "mqtt": "off", "mqtt_tls": 0}
    with pytest.raises(StartError, match="--insecure"):
        doors(tmp_path, host="0.0.0.0", ports=ports, tls=files)
    asking = {**files, "client_ca": own.certificate}
    assert doors(tmp_path, host="0.0.0.0", ports=ports, tls=asking).tls_net is not None
    with pytest.raises(StartError, match="--insecure"):
        doors(tmp_path, host="0.0.0.0", ports={"kafka_tls": 0}, tls=asking)


def test_without_a_tls_port_there_is_no_tls(tmp_path: Path) -> None:
    assert doors(tmp_path).tls_net is None


@pytest.mark.parametrize("port", ["kafka_tls", "amqp_tls", "mqtt_tls"])
@pytest.mark.parametrize("tls", [{}, {"certificate": "x.pem"}, {"key": "x.key"}])
def test_a_tls_port_needs_its_files(tmp_path: Path, tls: dict[str, str], port: str) -> None:
    with pytest.raises(StartError, match=rf"ports\.{port} needs tls\.certificate and tls\.key"):
        doors(tmp_path, ports={port: 0}, tls=tls)


def test_files_that_are_no_certificates(tmp_path: Path) -> None:
    own = certificates.make(tmp_path, "own", subject="/CN=node")
    other = certificates.make(tmp_path, "other", subject="/CN=other")
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("not a certificate")
    for certificate, key, client_ca in (
        (str(tmp_path / "nosuch.pem"), own.key, None),
        (str(garbage), own.key, None),
        (own.certificate, other.key, None),
        (own.certificate, own.key, str(garbage)),
    ):
        tls = {"certificate": certificate, "key": key}
        if client_ca is not None:
            tls["client_ca"] = client_ca
        with pytest.raises(StartError, match=r"^tls: .+\(.*\.pem.*\)$"):
            doors(tmp_path, ports={"kafka_tls": 0}, tls=tls)


def test_the_loop_goes_on_while_a_password_is_hashed() -> None:
    async def body() -> None:
        started, go_on = threading.Event(), threading.Event()

        def slow() -> str:
            started.set()
            assert go_on.wait(10)
            return threading.current_thread().name

        worker = password_worker()
        first = asyncio.ensure_future(_awaited(worker(slow)))
        second = asyncio.ensure_future(_awaited(worker(lambda: "second")))
        await asyncio.to_thread(started.wait, 10)
        await asyncio.sleep(0.01)
        assert not first.done()
        assert not second.done(), "there is one thread"
        go_on.set()
        assert (await first).startswith("passwords")
        assert await second == "second"

    asyncio.run(body())


def test_the_loop_goes_on_while_a_store_is_slow() -> None:
    async def body() -> None:
        go_on = threading.Event()
        worker = store_worker()
        slow = asyncio.ensure_future(_awaited(worker(lambda: go_on.wait(10))))
        assert await worker(lambda: "checked") == "checked", "others need not wait for it"
        with pytest.raises(StoreUnavailable, match="away"):
            await worker(_fail)
        assert not slow.done()
        abandoned = asyncio.ensure_future(_awaited(worker(lambda: go_on.wait(10))))
        await asyncio.sleep(0.01)
        abandoned.cancel()
        go_on.set()
        assert await slow is True

    asyncio.run(body())


def _fail() -> None:
    raise StoreUnavailable("away")


async def _awaited(work: Any) -> Any:
    return await work


def test_a_mistake_that_no_guard_caught_is_counted_and_the_loop_goes_on(tmp_path: Path) -> None:
    faults = doors(tmp_path).faults

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(exception_handler(faults))
        loop.call_soon([].pop)
        task = loop.create_task(asyncio.sleep(0.01))
        await task

    asyncio.run(main())
    assert faults.count == 1


@pytest.mark.parametrize(
    ("security", "address", "is_allowed"),
    [
        ({}, "file:///anywhere", True),
        ({"authorization": True}, "file:///anywhere", False),
        ({"authorization": True, "tiers": ["file:///archive"]}, "file:///archive", True),
        ({"tiers": ["file:///archive/"]}, "file:///archive/deeper", True),
        ({"tiers": ["file:///archive"]}, "file:///archives", False),
        ({"tiers": ["file:///archive"]}, "file:///archive/../etc", False),
        ({"tiers": ["file:///archive", "s3://bucket"]}, "s3://bucket2/x", False),
        ({"tiers": []}, "file:///archive", False),
    ],
)
def test_where_tiers_may_be(
    tmp_path: Path, security: dict[str, Any], address: str, is_allowed: bool
) -> None:
    open_store = doors(tmp_path, security=security).open_store
    if is_allowed:
        open_store(address)
    else:
        with pytest.raises(StoreUnavailable):
            open_store(address)
