"""Prints what STOMP and AMQP 1.0 cost here and in RabbitMQ with its plugins.

    python -m bench.stomp_amqp10

Pipelined: one client sends persistent messages as fast as it can, another takes them, and the row
is from the first to the last. One at a time: each of twenty clients sends a message to a queue of
its own, waits until that is confirmed and has come back, and sends the next. STOMP is spoken by
raw sockets, AMQP 1.0 by qpid-proton, which is slow beside either broker: there the processor time
of the broker says more than the rate.

What a RECEIPT says is not the same everywhere, so STOMP has three rows for clients that wait: their
own subscription takes each message and acknowledges nothing, or acknowledges each, or nobody takes
them. RabbitMQ writes nothing in the first, as it hands each message on at once, and in the others
syncs each before its RECEIPT (`strace -c -f -e trace=fsync,fdatasync` counts 0 and 1,000 syncs for
1,000 messages). The last column says it. Compare `os` with the first, and `fsync` with the others.

RabbitMQ is the one of Debian, with rabbitmq_stomp and rabbitmq_amqp1_0; without it there are our
rows only. The brokers take turns. Our rows end with how many times its rate ours is and, behind a
slash, how many times our processor time its is.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pika
import proton
from proton.handlers import MessagingHandler
from proton.reactor import Container
from proton.utils import BlockingConnection

from bench import rates
from bench.amqp_broker import RabbitMQ, rabbitmq_settings
from bench.brokers import START_S_MAX, free_ports, spawn, stop_process
from bench.meter import tree_cpu_s
from entrepot.testing import broker

BODY = "x" * 100
CLIENTS = 20
WAIT_S = 120.0
RABBITMQ = max(
    Path("/usr/lib/rabbitmq/lib").glob("rabbitmq_server-*/sbin/rabbitmq-server"), default=None
)
_numbers = itertools.count()


class Server(NamedTuple):
    pid: int
    stomp: int
    amqp: int
    queues: str = ""  # What addresses of queues begin with, in AMQP 1.0.


# --- STOMP


class Stomp:
    def __init__(self, port: int) -> None:
        self._port = port

    async def open(self) -> "Stomp":
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self._port)
        self.send("CONNECT", "accept-version:1.2", "host:/", "login:guest", "passcode:guest")
        assert (await self.frame()).startswith(b"CONNECTED")
        return self

    def send(self, command: str, *headers: str, body: str = "") -> None:
        self.writer.write("\n".join((command, *headers, "", body)).encode() + b"\0")

    async def frame(self) -> bytes:
        return (await self.reader.readuntil(b"\0")).lstrip(b"\n")


async def stomp_pipelined(server: Server, count: int) -> None:
    queue = f"/queue/bench-{next(_numbers)}"
    sender, receiver = await Stomp(server.stomp).open(), await Stomp(server.stomp).open()
    receiver.send("SUBSCRIBE", "id:1", f"destination:{queue}", "ack:client", "prefetch-count:1000")
    block = b"".join(
        f"SEND\ndestination:{queue}\npersistent:true\n\n{BODY}\0".encode() for _ in range(100)
    )

    async def send() -> None:
        for _ in range(count // 100):
            sender.writer.write(block)
            await sender.writer.drain()

    async def receive() -> None:
        for number in range(1, count + 1):
            frame = await receiver.frame()
            if number % 100 == 0:
                acknowledge(receiver, frame)

    await asyncio.gather(send(), receive())
    sender.writer.close()
    receiver.writer.close()


async def stomp_one_at_a_time(server: Server, count: int, *, ack: str | None) -> None:
    """Without `ack` nobody is subscribed: each client waits for its receipts only."""

    async def client() -> None:
        peer, queue = await Stomp(server.stomp).open(), f"/queue/bench-{next(_numbers)}"
        if ack is not None:
            peer.send("SUBSCRIBE", "id:1", f"destination:{queue}", f"ack:{ack}")
        for number in range(count // CLIENTS):
            receipt = f"receipt:{number}"
            peer.send("SEND", f"destination:{queue}", "persistent:true", receipt, body=BODY)
            frames = [await peer.frame()]
            if ack is not None:
                frames.append(await peer.frame())
            if ack == "client-individual":
                acknowledge(peer, next(each for each in frames if each.startswith(b"MESSAGE")))
        peer.writer.close()

    await asyncio.gather(*(client() for _ in range(CLIENTS)))


def acknowledge(peer: Stomp, frame: bytes) -> None:
    head = frame.partition(b"\n\n")[0].decode().split("\n")
    [ack] = [line for line in head if line.startswith("ack:")]
    peer.send("ACK", f"id:{ack[4:]}")


# --- AMQP 1.0


def declared(server: Server) -> str:
    """Return the address of a new queue."""
    name = f"bench-{next(_numbers)}"
    parameters = pika.ConnectionParameters("127.0.0.1", server.amqp)
    with pika.BlockingConnection(parameters) as connection:
        connection.channel().queue_declare(name, durable=True)
    return f"{server.queues}{name}"


class Flood(MessagingHandler):
    """Sends as much as there is credit for, and takes it all."""

    def __init__(self, url: str, queue: str, count: int) -> None:
        super().__init__(prefetch=1_000)
        self._url, self._queue, self._count = url, queue, count
        self._sent = self._received = self._accepted = 0

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self._url, allowed_mechs="PLAIN", reconnect=False)
        event.container.create_receiver(connection, self._queue)
        event.container.create_sender(connection, self._queue)

    def on_sendable(self, event: Any) -> None:
        while event.sender.credit and self._sent < self._count:
            event.sender.send(proton.Message(body=BODY, durable=True))
            self._sent += 1

    def on_message(self, event: Any) -> None:
        self._received += 1
        self._end(event)

    def on_accepted(self, event: Any) -> None:
        self._accepted += 1
        self._end(event)

    def _end(self, event: Any) -> None:
        if self.is_whole:
            event.connection.close()

    @property
    def is_whole(self) -> bool:
        return self._received == self._accepted == self._count

    def on_transport_error(self, event: Any) -> None:
        raise ConnectionError(event.transport.condition)


async def amqp10_pipelined(server: Server, count: int) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{server.amqp}"
    flood = Flood(url, declared(server), count)
    await asyncio.to_thread(Container(flood).run)
    assert flood.is_whole, "the connection was lost"


async def amqp10_one_at_a_time(server: Server, count: int) -> None:
    url = f"amqp://guest:guest@127.0.0.1:{server.amqp}"
    queues = [declared(server) for _ in range(CLIENTS)]

    def client(queue: str) -> None:
        connection = BlockingConnection(url, timeout=WAIT_S, allowed_mechs="PLAIN")
        receiver, sender = connection.create_receiver(queue), connection.create_sender(queue)
        for _ in range(count // CLIENTS):
            sender.send(proton.Message(body=BODY, durable=True))
            receiver.receive(timeout=WAIT_S)
            receiver.accept()
        connection.close()

    with ThreadPoolExecutor(CLIENTS) as threads:
        await asyncio.to_thread(lambda: list(threads.map(client, queues)))


# --- brokers


@contextlib.contextmanager
def ours(durability: str) -> Iterator[Server]:
    with broker(durability=durability) as started:
        ports = started.endpoints
        yield Server(started.pid, int(ports["stomp"][1]), int(ports["amqp"][1]))


@contextlib.contextmanager
def rabbit(program: Path) -> Iterator[Server]:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        port, mapper_port, distribution, stomp = free_ports(4)
        settings = dict(rabbitmq_settings(directory, port, mapper_port, distribution))
        (directory / "rabbitmq.conf").write_text(f"stomp.listeners.tcp.1 = 127.0.0.1:{stomp}\n")
        plugins = "[rabbitmq_stomp,rabbitmq_amqp1_0].\n"
        (directory / "enabled_plugins").write_text(plugins)
        environment = {**os.environ, **settings}
        mapper, _ = spawn(["epmd"], directory, subprocess.DEVNULL, environment)
        said = directory / "stdout"
        with open(said, "wb") as output:
            process, started = spawn([str(program)], directory, output.fileno(), environment)
        try:
            while b"broker... completed" not in said.read_bytes():
                assert time.perf_counter() - started < START_S_MAX, said.read_text()
                time.sleep(0.05)
            pid = int((directory / "pid").read_text())
            peer = RabbitMQ(process, mapper, pid, port, started)
        except BaseException:
            stop_process(process)
            stop_process(mapper)
            raise
        try:
            yield Server(pid, stomp, port, "/amq/queue/")
        finally:
            peer.stop()


ROWS: dict[str, tuple[Callable[[Server, int], Any], int]] = {
    "STOMP, pipelined": (stomp_pipelined, 20),
    "STOMP, 20 clients one at a time": (partial(stomp_one_at_a_time, ack="auto"), 4),
    "STOMP, 20 that acknowledge": (partial(stomp_one_at_a_time, ack="client-individual"), 4),
    "STOMP, 20 that only send": (partial(stomp_one_at_a_time, ack=None), 4),
    "AMQP 1.0, pipelined": (amqp10_pipelined, 10),
    "AMQP 1.0, 20 clients one at a time": (amqp10_one_at_a_time, 2),
}


_WRITTEN, _SYNCED = "written, not synced", "synced to disk"
_CONFIRMED = {"os": _WRITTEN, "fsync": _SYNCED}


def confirmed(label: str, contestant: str) -> str:
    """Return what a broker has done with a message when its RECEIPT comes."""
    if not label.startswith("STOMP, 20"):
        return ""
    handed_on = "handed on, not written" if label.endswith("one at a time") else _SYNCED
    return _CONFIRMED.get(contestant, handed_on)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000, help="times a factor of the row")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", default="", help="only rows whose name contains this")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = {
            "os": stack.enter_context(ours("os")),
            "fsync": stack.enter_context(ours("fsync")),
        }
        if RABBITMQ is None:
            print("RabbitMQ is not installed: nothing to compare with")
        else:
            servers["RabbitMQ"] = stack.enter_context(rabbit(RABBITMQ))
        peers = [name for name in servers if name not in rates.OURS]
        print(f"{rates.heading(peers)}  when the RECEIPT comes")
        for label, (work, factor) in ROWS.items():
            if options.rows not in label:
                continue
            count, found = options.messages * factor, dict[str, list[tuple[float, float]]]()
            for _ in range(options.runs):
                for name, server in servers.items():
                    cpu_s, start = tree_cpu_s(server.pid), time.perf_counter()
                    asyncio.run(asyncio.wait_for(work(server, count), WAIT_S))
                    took = time.perf_counter() - start
                    cost = (tree_cpu_s(server.pid) - cpu_s) / count * 1e6
                    found.setdefault(name, []).append((count / took, cost))
            width = len(rates.heading(peers))
            for name, line in zip(found, rates.rows(label, found, peers), strict=True):
                print(f"{line:{width}}  {confirmed(label, name)}", flush=True)


if __name__ == "__main__":
    main()
