"""What the examples of links have in common: brokers, linked to each other, and their queues."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection

import pika

from entrepot.testing import Broker, broker

WAIT_S = 180  # For machines that have much else to do.


@contextmanager
def linked(links: Mapping[str, Sequence[str]]) -> Iterator[dict[str, Broker]]:
    """Start a broker for each name, which has links to some others."""
    ports = dict(zip(links, _free_ports(len(links)), strict=True))
    with ExitStack() as stack:
        made = {}
        for name, neighbours in links.items():
            settings = {
                "ports.amqp": ports[name],
                "ports.http": 0,
                "manager.name": name,
                "link": [{"to": to, "address": f"localhost:{ports[to]}"} for to in neighbours],
            }
            made[name] = stack.enter_context(broker(settings=settings))
        yield made


def _free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


@contextmanager
def channel(server: Broker) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        made = connection.channel()
        made.confirm_delivery()
        yield made


def knows(server: Broker, manager: str) -> bool:
    """Whether its routing table has that manager."""
    api = HTTPConnection(server.http_address, timeout=WAIT_S)
    api.request("GET", "/api/routes", headers={"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="})
    found = api.getresponse().read()
    api.close()
    return f'"manager":"{manager}"'.encode() in found.replace(b" ", b"")


def eventually(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def emptied(server: Broker, queue: str, count: int) -> list[str]:
    """Wait for so many messages of a queue, and return all that are there."""
    found: list[str] = []
    with channel(server) as getting:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            method, _, body = getting.basic_get(queue, auto_ack=True)
            if method is not None:
                found.append(body.decode())
            elif len(found) >= count:
                break
            else:
                time.sleep(0.05)
    return found
