"""What the Python client costs, beside the bare protocol it speaks.

    python -m bench.python_client [--durability os]

Messages of 100 bytes, durable and confirmed. Pipelined: `put_many`, then `batches`; beside the
same bytes made beforehand, on a bare socket. One at a time: `put` and `get` of both clients,
each waited for; beside the same frames on a bare socket that blocks. Medians, with the lowest and
the highest of the rounds. The broker is a process of its own.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import uvloop

import entrepot
from entrepot.testing import Broker, broker
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.frames import PROTOCOL_HEADER, FrameBuffer, method_frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, confirm, connection, decode, queue
from entrepot.wire.amqp.properties import PERSISTENT, BasicProperties, encode
from entrepot.wire.amqp.scan import Acks, Content, MethodFrame

BODY = b"x" * 100
PIPELINED, ALONE, ROUNDS = 100_000, 500, 3
FRAME_BYTES = 131_072


class Bare:
    """A blocking socket with frames that were made beforehand."""

    def __init__(self, server: Broker) -> None:
        self._socket = socket.create_connection(server.endpoints["amqp"])
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._inbox = FrameBuffer(is_client=True)
        self._socket.sendall(PROTOCOL_HEADER)
        self._until(connection.Start)
        self.say(0, connection.StartOk({}, "PLAIN", b"\0guest\0guest"))
        self._until(connection.Tune)
        self.say(0, connection.TuneOk(1, FRAME_BYTES, 0), connection.Open("/"))
        self._inbox.tune(FRAME_BYTES)
        self._until(connection.OpenOk)
        self.ask(channel.Open(), channel.OpenOk)
        self.ask(confirm.Select(), confirm.SelectOk)

    def say(self, number: int, *methods: Method) -> None:
        self._socket.sendall(b"".join(method_frame(number, each) for each in methods))

    def ask(self, method: Method, kind: type[Method]) -> None:
        self.say(1, method)
        self._until(kind)

    def declare(self, name: str) -> None:
        self.ask(queue.Declare(queue=name, durable=True), queue.DeclareOk)

    def put_all(self, name: str, count: int) -> None:
        data = _publish(name) * 1_000
        for _ in range(count // 1_000):
            self._socket.sendall(data)
        self._until_acked(count)

    def put(self, data: bytes) -> None:
        self._socket.sendall(data)
        while not any(isinstance(each, Acks) for each in self._read()):
            pass

    def get(self, data: bytes, tag: int) -> None:
        self._socket.sendall(data)
        while not any(isinstance(each, Content) for each in self._read()):
            pass
        self._socket.sendall(method_frame(1, basic.Ack(tag)))

    def get_all(self, name: str, count: int) -> None:
        """Count bytes only: nothing is decoded."""
        self.ask(basic.Qos(prefetch_count=10_000), basic.QosOk)
        self.say(1, basic.Consume(queue=name, consumer_tag="c", nowait=True))
        head = encode(BasicProperties(delivery_mode=PERSISTENT))
        method = basic.Deliver(consumer_tag="c", routing_key=name)
        each = len(b"".join(content(1, method, head, BODY, FRAME_BYTES)))
        left, acked, size = count * each, 0, 5_000 * each
        mark = left - size
        while left > 0:
            left -= len(self._socket.recv(262_144))
            while left <= mark and acked < count:
                acked += 5_000
                mark -= size
                self.say(1, basic.Ack(acked, multiple=True))

    def _until_acked(self, tag: int) -> None:
        while True:
            for each in self._read():
                if isinstance(each, Acks) and each.tags[-1] >= tag:
                    return

    def _read(self) -> list[object]:
        size = self._socket.recv_into(self._inbox.writable())
        assert size, "the broker has closed the connection"
        return [*self._inbox.received(size)]

    def _until(self, kind: type[Method]) -> None:
        while True:
            for each in self._read():
                if isinstance(each, MethodFrame) and isinstance(decode(each.payload), kind):
                    return

    def close(self) -> None:
        self._socket.close()


def _publish(name: str) -> bytes:
    head = encode(BasicProperties(delivery_mode=PERSISTENT))
    method = basic.Publish(routing_key=name, mandatory=True)
    return b"".join(content(1, method, head, BODY, FRAME_BYTES))


def main() -> None:
    parser = argparse.ArgumentParser(description="The Python client beside the bare protocol.")
    parser.add_argument("--durability", default="fsync", choices=("fsync", "interval", "os"))
    durability = parser.parse_args().durability
    load = Path("/proc/loadavg").read_text().split()[0]
    print(f"durability {durability}, load before {load}, median [lowest..highest] of {ROUNDS}\n")
    with broker(durability=durability) as server:
        pipelined(server)
        alone(server)


def pipelined(server: Broker) -> None:
    host, port = server.endpoints["amqp"]
    rates: dict[str, list[float]] = {}

    async def client() -> None:
        async with entrepot.AsyncClient(f"{host}:{port}") as made:
            bodies = [BODY] * PIPELINED
            await made.declare_queue("pipelined")
            with timed(rates, "put, AsyncClient", PIPELINED):
                await made.put_many("pipelined", bodies)
            got = 0
            with timed(rates, "get, AsyncClient", PIPELINED):
                async for batch in made.batches("pipelined"):
                    got += len(batch)
                    if got >= PIPELINED:
                        break
            await made.delete_queue("pipelined")

    for _ in range(ROUNDS):
        bare = Bare(server)
        bare.declare("bare")
        with timed(rates, "put, bare protocol", PIPELINED):
            bare.put_all("bare", PIPELINED)
        with timed(rates, "get, bare protocol", PIPELINED):
            bare.get_all("bare", PIPELINED)
        bare.close()
        uvloop.run(client())
    show("pipelined, messages/s", rates, lambda rate: f"{rate:,.0f}", larger_is_better=True)


def alone(server: Broker) -> None:
    host, port = server.endpoints["amqp"]
    took: dict[str, list[float]] = {}

    async def in_loop() -> None:
        async with entrepot.AsyncClient(f"{host}:{port}") as made:
            await made.put("alone", BODY)
            await made.get("alone", 5)
            with each_of(took, "put, AsyncClient"):
                for _ in range(ALONE):
                    await made.put("alone", BODY)
            with each_of(took, "get, AsyncClient"):
                for _ in range(ALONE):
                    await made.get("alone", 5)

    def blocking() -> None:
        with entrepot.Client(f"{host}:{port}") as made:
            made.put("alone", BODY)
            made.get("alone", 5)
            with each_of(took, "put, Client"):
                for _ in range(ALONE):
                    made.put("alone", BODY)
            with each_of(took, "get, Client"):
                for _ in range(ALONE):
                    made.get("alone", 5)

    for _ in range(ROUNDS):
        bare = Bare(server)
        bare.declare("alone")
        put, get = _publish("alone"), method_frame(1, basic.Get(queue="alone"))
        with each_of(took, "put, bare protocol"):
            for _ in range(ALONE):
                bare.put(put)
        with each_of(took, "get, bare protocol"):
            for tag in range(ALONE):
                bare.get(get, tag + 1)
        bare.close()
        uvloop.run(in_loop())
        blocking()
    show("one at a time, us", took, lambda us: f"{us:,.0f}", larger_is_better=False)


@contextlib.contextmanager
def timed(found: dict[str, list[float]], name: str, count: int) -> Iterator[None]:
    started = time.perf_counter()
    yield
    found.setdefault(name, []).append(count / (time.perf_counter() - started))


@contextlib.contextmanager
def each_of(found: dict[str, list[float]], name: str) -> Iterator[None]:
    started = time.perf_counter()
    yield
    found.setdefault(name, []).append((time.perf_counter() - started) / ALONE * 1e6)


def show(
    title: str,
    found: dict[str, list[float]],
    form: Callable[[float], str],
    *,
    larger_is_better: bool,
) -> None:
    print(title)
    for name, values in found.items():
        verb = name.partition(",")[0]
        bare = statistics.median(found[f"{verb}, bare protocol"])
        median = statistics.median(values)
        ratio = median / bare
        spread = f"[{form(min(values))}..{form(max(values))}]"
        print(f"  {name:<22} {form(median):>10} {spread:>22}  {ratio:.2f} of the bare protocol")
    better = "larger" if larger_is_better else "smaller"
    print(f"  ({better} is better)\n")


if __name__ == "__main__":
    main()
