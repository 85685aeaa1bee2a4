"""Prints what one broker does at once: messages, bytes and clients, their latency and its cost.

    python -m bench.figures [--seconds 20]

Each row is a broker of its own. A producer keeps a rate, on many partitions, and a consumer reads
all of it, both with confluent-kafka in this process; other clients are connected meanwhile and say
next to nothing. Latency is from just before `produce` to the consumer's hands. Cost is the broker's
processor time, as a part of a core. The rates of LinkedIn and Netflix are those that they have
published, divided by the number of their brokers. `docs/reference/figures.md` has what it printed.
"""

from __future__ import annotations

import resource
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from struct import Struct

import click
import confluent_kafka
from confluent_kafka import admin as admin_api
from kio.schema.api_versions.v3.request import ApiVersionsRequest

from bench.meter import tree_cpu_s
from entrepot.core import limits
from entrepot.testing import Broker, broker
from tests.end_to_end.bare import request_frame

TOPIC = "figures"
WAIT_S = 60.0
TICK_S = 0.01
_STAMP = Struct(">qq")  # When it was produced, in ns, and its number.


@dataclass(frozen=True, slots=True)
class Load:
    name: str
    rate: int  # Messages a second.
    size: int
    partitions: int
    clients: int  # Connected besides.


LINKEDIN = Load("LinkedIn, a broker's share", 24_800, 100, 571, 0)
NETFLIX = Load("Netflix, a broker's share", 6_400, 2_700, 100, 0)
CLIENTS = Load("many clients", 5_000, 100, 10, 2_000)
LOADS = (LINKEDIN, NETFLIX, CLIENTS)


@dataclass(frozen=True, slots=True)
class Figures:
    messages: int
    seconds: float
    size: int
    lost: int
    clients: int  # Who were answered at the end.
    cpu_s: float
    latencies_ms: list[float]  # Sorted.

    @property
    def rate(self) -> float:
        return self.messages / self.seconds

    @property
    def median_ms(self) -> float:
        return statistics.median(self.latencies_ms)

    @property
    def p99_ms(self) -> float:
        return self.latencies_ms[int(0.99 * len(self.latencies_ms))]

    def cores_at(self, rate: float) -> float:
        """Return how much of a core the broker would need for that many messages a second."""
        return rate * self.cpu_s / self.messages


def measure(load: Load, seconds: float) -> Figures:
    with ExitStack() as stack:
        server = stack.enter_context(broker())
        _create(server, load.partitions)
        idle = stack.enter_context(_clients(server, load.clients))
        settings = {"bootstrap.servers": server.bootstrap, "linger.ms": 5, "log_level": 0}
        producer = confluent_kafka.Producer(settings | {"partitioner": "random"})
        consumer = stack.enter_context(_consumer(server, load.partitions))
        before_s = tree_cpu_s(server.pid)
        latencies_ms, taken_s = _run(load, seconds, producer, consumer)
        cpu_s = tree_cpu_s(server.pid) - before_s
        answered = sum(_ask(each) for each in idle)
    count = int(load.rate * seconds)
    lost = count - len(latencies_ms)
    return Figures(count, taken_s, load.size, lost, answered, cpu_s, sorted(latencies_ms))


def _run(
    load: Load,
    seconds: float,
    producer: confluent_kafka.Producer,
    consumer: confluent_kafka.Consumer,
) -> tuple[list[float], float]:
    """Return the latencies, in ms, and how long it took until the last was acknowledged."""
    count, sent, rest = int(load.rate * seconds), 0, bytes(load.size - _STAMP.size)
    latencies_ms: list[float] = []
    seen: set[int] = set()
    begun_s = time.perf_counter()
    while sent < count:
        due = min(count, int((time.perf_counter() - begun_s) * load.rate))
        for number in range(sent, due):
            producer.produce(TOPIC, _STAMP.pack(time.perf_counter_ns(), number) + rest)
        sent = max(sent, due)
        producer.poll(0)
        _take(consumer, latencies_ms, seen)
    assert producer.flush(WAIT_S) == 0
    taken_s = time.perf_counter() - begun_s
    while len(seen) < count and time.perf_counter() - begun_s < seconds + WAIT_S:
        _take(consumer, latencies_ms, seen)
    assert len(seen) == len(latencies_ms)  # None came twice.
    return latencies_ms, taken_s


def _take(consumer: confluent_kafka.Consumer, latencies_ms: list[float], seen: set[int]) -> None:
    for message in consumer.consume(10_000, TICK_S):
        assert message.error() is None, message.error()
        begun_ns, number = _STAMP.unpack_from(message.value())
        latencies_ms.append((time.perf_counter_ns() - begun_ns) / 1e6)
        seen.add(number)


def _create(server: Broker, partitions: int) -> None:
    admin = admin_api.AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([admin_api.NewTopic(TOPIC, partitions)])[TOPIC].result(WAIT_S)


@contextmanager
def _consumer(server: Broker, partitions: int) -> Iterator[confluent_kafka.Consumer]:
    settings = {"bootstrap.servers": server.bootstrap, "group.id": "figures", "log_level": 0}
    consumer = confluent_kafka.Consumer(settings | {"enable.auto.commit": False})
    places = [confluent_kafka.TopicPartition(TOPIC, each, 0) for each in range(partitions)]
    consumer.assign(places)
    consumer.consume(1, 1.0)
    try:
        yield consumer
    finally:
        consumer.close()


@contextmanager
def _clients(server: Broker, count: int) -> Iterator[list[socket.socket]]:
    """Connect so many clients, of which each is answered once before anything else happens."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, count + 1_000)), hard))
    with ExitStack() as stack:
        found = []
        for _ in range(count):
            one = socket.create_connection(server.endpoints["kafka"], WAIT_S)
            found.append(stack.enter_context(one))
        assert sum(_ask(each) for each in found) == count
        yield found


def _ask(client: socket.socket) -> bool:
    client.sendall(
        request_frame(
            ApiVersionsRequest(client_software_name="figures", client_software_version="1")
        )
    )
    with client.makefile("rb") as answers:
        size = int.from_bytes(answers.read(4))
        return size > 0 and len(answers.read(size)) == size


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--seconds", default=20.0, show_default=True, help="How long each row is.")
def main(seconds: float) -> None:
    """Measure one broker under the loads of the table."""
    click.echo(
        "| | messages/s | MiB/s | partitions | clients | latency, ms: median | 99 % | cores |\n"
        "|---|--:|--:|--:|--:|--:|--:|--:|"
    )
    for load in LOADS:
        found = measure(load, seconds)
        mib = found.rate * found.size / limits.MIB
        click.echo(
            f"| {load.name}, {load.size:,} B | {found.rate:,.0f} | {mib:.1f} | {load.partitions} "
            f"| {found.clients + 2:,} | {found.median_ms:.1f} | {found.p99_ms:.1f} "
            f"| {found.cores_at(load.rate):.2f} |"
        )
        if found.lost:
            raise click.ClickException(f"{found.lost} of {found.messages} were lost")


if __name__ == "__main__":
    main()
