"""A link from entrepot to a real RabbitMQ: what is put here for a queue there arrives.

RabbitMQ is killed with kill -9 while messages are put, and comes back with its data. It knows
nothing of links, so each message comes at least once; where it came twice, its id is the same.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika

from bench.amqp_broker import rabbitmq_settings
from bench.brokers import free_ports, spawn, stop_process
from entrepot.testing import Broker, broker

WAIT_S = 120
COUNT, KILLS = 300, 3


class RabbitMQ:
    """One that can be killed and started again, with the same data and port."""

    def __init__(self, server: Path, directory: Path) -> None:
        self.port, mapper, distribution = free_ports(3)
        self._server, self._directory = server, directory
        self._environment = dict(os.environ) | dict(
            rabbitmq_settings(directory, self.port, mapper, distribution)
        )
        self._mapper, _ = spawn(["epmd"], directory, subprocess.DEVNULL, self._environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        said = self._directory / "stdout"
        with open(said, "wb") as output:
            self._process, _ = spawn(
                [str(self._server)], self._directory, output.fileno(), self._environment
            )
        eventually(lambda: b"broker... completed" in said.read_bytes())

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Kill the virtual machine; what was started is a shell that waits for it."""
        os.kill(int((self._directory / "pid").read_text()), number)
        assert self._process is not None
        self._process.wait()

    def close(self) -> None:
        if self._process is not None:
            stop_process(self._process)
        stop_process(self._mapper)

    @contextmanager
    def channel(self) -> Iterator[Any]:
        parameters = pika.ConnectionParameters("127.0.0.1", self.port)
        with pika.BlockingConnection(parameters) as connection:
            yield connection.channel()


def eventually(is_so: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError
        time.sleep(0.05)


def link(server: Broker, *words: str) -> str:
    command = [sys.executable, "-m", "entrepot.cli", "link", *words, "--http", server.http_address]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@contextmanager
def channel(server: Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        made = connection.channel()
        made.confirm_delivery()
        yield made


def whole(server: Broker, peer: RabbitMQ) -> None:
    """A message keeps its properties, and gets the two headers of a link."""
    sent = pika.BasicProperties(
        content_type="text/plain",
        correlation_id="question",
        delivery_mode=2,
        priority=3,
        headers={"colour": "blue", "list": [1, {"a": b"\0"}]},
    )
    with peer.channel() as there, channel(server) as here:
        there.queue_declare("whole", durable=True)
        here.basic_publish("", "whole@rabbit", b"hello\0\xff", sent, mandatory=True)
        found: list[Any] = []

        def is_there() -> bool:
            method, properties, body = there.basic_get("whole", auto_ack=True)
            found[:] = [properties, body]
            return method is not None

        eventually(is_there)
        properties, body = found
        assert body == b"hello\0\xff"
        for name in ("content_type", "correlation_id", "delivery_mode", "priority"):
            assert getattr(properties, name) == getattr(sent, name), name
        assert properties.headers.pop("x-link-hops") == 1
        assert properties.headers.pop("x-deduplication-header")
        assert properties.headers == sent.headers
    assert "at least once" in link(server, "list")


def killed(server: Broker, peer: RabbitMQ) -> None:
    """Nothing is lost while RabbitMQ is killed; what comes twice has one id."""
    with peer.channel() as there:
        there.queue_declare("orders", durable=True)
    peer.kill(signal.SIGTERM)  # It writes what was declared some seconds later, or when it ends.
    peer.start()
    persistent = pika.BasicProperties(delivery_mode=2)
    with channel(server) as here:
        for number in range(COUNT):
            if number % (COUNT // KILLS) == COUNT // KILLS // 2:
                peer.kill()
            if number % (COUNT // KILLS) == COUNT // KILLS - 1:
                peer.start()
            here.basic_publish("", "orders@rabbit", str(number).encode(), persistent)
    ids: dict[str, set[str]] = {}

    def are_there() -> bool:
        with peer.channel() as there:
            while (got := there.basic_get("orders", auto_ack=True))[0] is not None:
                identity = got[1].headers["x-deduplication-header"]
                ids.setdefault(got[2].decode(), set()).add(identity)
        return len(ids) == COUNT

    eventually(are_there)
    assert ids.keys() == {str(number) for number in range(COUNT)}
    assert all(len(each) == 1 for each in ids.values())


def unknown(server: Broker, peer: RabbitMQ) -> None:
    """A message for a queue that RabbitMQ does not have is a dead letter here."""
    with channel(server) as here:
        here.basic_publish("", "nothing@rabbit", b"x", mandatory=True)
        found: list[Any] = []

        def is_there() -> bool:
            method, properties, _ = here.basic_get("link.undeliverable", auto_ack=True)
            found[:] = [properties]
            return method is not None

        eventually(is_there)
        assert found[0].headers["x-death"][0]["queue"] == "link.rabbit"


CHECKS = {
    "RabbitMQ as a neighbour: a message keeps its properties": whole,
    "RabbitMQ as a neighbour: killed three times, nothing is lost": killed,
    "RabbitMQ as a neighbour: a queue that it does not have": unknown,
}


def main() -> None:
    if sys.argv[1:] == ["--list"]:
        print(*CHECKS, sep="\n")
        return
    with tempfile.TemporaryDirectory() as name:
        peer = RabbitMQ(Path(sys.argv[1]), Path(name))
        try:
            peer.start()
            settings = {"ports.amqp": 0, "ports.http": 0, "manager.name": "here"}
            with broker(settings=settings) as server:
                link(server, "add", "rabbit", f"127.0.0.1:{peer.port}")
                for title, check in CHECKS.items():
                    try:
                        check(server, peer)
                    except Exception as error:
                        print(f"FAIL {title}: {error!r}")
                    else:
                        print(f"PASS {title}", flush=True)
        finally:
            peer.close()


if __name__ == "__main__":
    main()
