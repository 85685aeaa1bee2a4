"""What is measured. A scenario is run on each contestant in turn and yields rows of the table.

Scenarios about starting and memory start brokers of their own; the others share one broker
per contestant, warmed up: a Java broker that has just started does a third of what it can.
"""

import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench import groups, librdkafka, raw
from bench.brokers import Broker, Contestant
from bench.groups import Protocol
from bench.meter import Sample
from bench.table import PEER, Row
from bench.wire import await_partitions, batch, create_topics, delete_topics

Measured = Iterator[tuple[Row, Sample]]
WarmUp = Callable[[Broker, float], None]
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
LATENCY_RATE = 1_000
TOPICS, PARTITIONS = 1_000, 4
TICK_BATCHES, TICK_REPEATS = 1_000, 20
IDLE_GROUPS, IDLE_GROUP_SIZE, IDLE_WINDOW_S = 100, 100, 12
TAKEOVER_GROUP_SIZE, TAKEOVER_PARTITIONS, TAKEOVER_SESSION_MS = 100, 1_000, 6_000
TAKEOVER_BEAT_S = 0.5  # Short: members learn of a rebalance by their next heartbeat.


class Arena:
    """The brokers that scenarios share, and the directories they work in."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._shared: dict[str, Broker] = {}
        self._warm: set[tuple[str, WarmUp]] = set()
        self._stack = ExitStack()
        self._counter = itertools.count()

    def shared(self, contestant: Contestant, warm_up: WarmUp | None = None) -> Broker:
        """Started at first use, and warmed up for each kind of load at its first use."""
        name, warm_up = contestant.name, warm_up or kafka_warm_up
        if name not in self._shared:
            running = contestant.running(self.directory(f"shared {name}"))
            self._shared[name] = self._stack.enter_context(running)
        if (name, warm_up) not in self._warm:
            self._warm.add((name, warm_up))
            warm_up(self._shared[name], contestant.warm_up_s)
        return self._shared[name]

    def directory(self, name: str = "") -> Path:
        """The directory of that name, which keeps what is in it; without one, a new one."""
        path = self._root / (name or f"scratch {next(self._counter)}")
        path.mkdir(exist_ok=True)
        return path

    def close(self) -> None:
        self._stack.close()


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str  # section/what
    measure: Callable[[Arena, Contestant], Measured]
    quick: bool = True  # Whether it is part of a quick run.
    peer_once: bool = False  # It takes the peer minutes, and no comparison depends on it.
    fsync_only: bool = False  # It writes so little that durability os would say the same.
    peer: str = PEER  # Beside whom it is run.
    once: bool = False  # It takes minutes, and what it compares is within the run.
    go: bool = False  # Its client is written in Go.
    references: tuple[str, ...] = ()  # Others that take part and are not compared with.


class Load(NamedTuple):
    """One combination for `throughput`."""

    size: int
    acks: str
    codec: str
    partitions: int

    @property
    def messages(self) -> int:
        """A second's worth, about."""
        return 400_000 if self.size < KIB else 160_000

    def __str__(self) -> str:
        many = "1 partition" if self.partitions == 1 else f"{self.partitions} partitions"
        return f"{size_name(self.size)}, acks={self.acks}, {self.codec}, {many}"


def scenarios(quick: bool) -> list[Scenario]:
    """In the order of the run: what is asked most comes first, in case time runs out."""
    part = 2 if quick else 1  # A quick run also moves less.
    everything = [
        Scenario("start/empty", start),
        *_throughputs(KIB, part),
        Scenario("latency/1 KiB", partial(latency, KIB, 15 / part)),
        Scenario("latency/100 B", partial(latency, 100, 15 / part)),
        Scenario("raw/16 KiB, 5", partial(raw_load, 16 * KIB, 5, 8192 // part)),
        Scenario("raw/16 KiB, 64", partial(raw_load, 16 * KIB, 64, 8192 // part)),
        Scenario("raw/1 MiB, 5", partial(raw_load, MIB, 5, 256 // part)),
        Scenario("tick/16 KiB", partial(tick, 16 * KIB)),
        Scenario("tick/1 KiB", partial(tick, KIB)),
        Scenario("transactions/1 KiB", partial(transform, KIB, 20_000 // part)),
        *_groups(),
        Scenario("topics/many", many_topics, quick=False, peer_once=True),
        Scenario("memory/growth", partial(memory, GIB), quick=False, peer_once=True),
        *_throughputs(100, part),
    ]
    return [each for each in everything if each.quick or not quick]


def _throughputs(size: int, part: int) -> Iterator[Scenario]:
    for acks, codec, partitions in itertools.product(("1", "all"), ("none", "lz4"), (1, 4)):
        load = Load(size, acks, codec, partitions)
        measure = partial(throughput, load, load.messages // part)
        yield Scenario(f"throughput/{load}", measure, quick=acks == "all" and partitions == 1)


def _groups() -> Iterator[Scenario]:
    for protocol in (groups.CLASSIC, groups.MODERN):
        idle = partial(idle_members, protocol)
        name = f"groups/idle, {protocol.name}"
        yield Scenario(name, idle, quick=False, peer_once=True, fsync_only=True)
        name = f"groups/takeover, {protocol.name}"
        yield Scenario(name, partial(takeover, protocol), quick=False, fsync_only=True)


def start(arena: Arena, contestant: Contestant) -> Measured:
    with contestant.running(arena.directory()) as broker:
        yield Row("start", "ready", "s"), Sample(broker.start_s)
        time.sleep(0.5)  # What it does just after counts too.
        yield Row("start", "memory", "MiB"), Sample(broker.rss_mib())


def many_topics(arena: Arena, contestant: Contestant) -> Measured:
    directory = arena.directory(f"topics {contestant.name}")
    names = [f"topic-{i:04}" for i in range(TOPICS)]
    if not any(directory.iterdir()):
        with contestant.running(directory) as broker, broker.connect() as connection:
            for i in range(0, TOPICS, 100):
                create_topics(connection, names[i : i + 100], PARTITIONS)
    with contestant.running(directory) as broker:
        with broker.connect() as connection:
            await_partitions(connection, names, PARTITIONS)
        yield Row("topics", "start after a clean stop", "s"), Sample(broker.age_s())
        elapsed = librdkafka.produce_everywhere(broker, names, PARTITIONS)
        yield Row("topics", "one message to every partition", "s"), Sample(elapsed)
        yield Row("topics", "memory", "MiB"), Sample(broker.rss_mib())


def memory(size: int, arena: Arena, contestant: Contestant) -> Measured:
    each = raw.batch_of(64 * KIB)
    count = size // len(each.data)
    resident = []
    with contestant.running(arena.directory()) as broker:
        with broker.connect() as connection:
            create_topics(connection, ["memory"], 1)
        for half in range(2):
            raw.produce(broker, "memory", each, count, 16, offset=half * count * each.records)
            raw.fetch(broker, "memory", each, (half + 1) * count, MIB)
            resident.append(broker.rss_mib())
    first, second = resident
    yield Row("memory", f"after {size_name(size)}", "MiB"), Sample(first)
    yield Row("memory", f"after {size_name(2 * size)}", "MiB"), Sample(second)
    yield Row("memory", "twice the data : half", "x"), Sample(second / first)


def throughput(load: Load, count: int, arena: Arena, contestant: Contestant) -> Measured:
    broker = arena.shared(contestant)
    with topic_of(broker, load.partitions) as topic:
        produced = librdkafka.produce(broker, topic, *load, count)
        yield Row("throughput", f"{load}, produce", "msg/s"), produced
        consumed = librdkafka.consume(broker, topic, load.partitions, load.size, count)
        yield Row("throughput", f"{load}, consume", "msg/s"), consumed


def raw_load(
    size: int, in_flight: int, count: int, arena: Arena, contestant: Contestant
) -> Measured:
    broker = arena.shared(contestant)
    each = raw.batch_of(size)
    label = f"{size_name(size)} batches"
    with topic_of(broker, 1) as topic:
        produced = raw.produce(broker, topic, each, count, in_flight)
        yield Row("raw", f"{label}, produce, {in_flight} in flight", "msg/s"), produced
        fetched = raw.fetch(broker, topic, each, count, size)
        yield Row("raw", f"{label}, fetch, 1 in flight", "msg/s"), fetched


def latency(size: int, seconds: float, arena: Arena, contestant: Contestant) -> Measured:
    broker = arena.shared(contestant)
    with topic_of(broker, 1) as topic:
        times = librdkafka.latency(broker, topic, size, LATENCY_RATE, seconds)
    cuts = statistics.quantiles(times, n=100)
    yield Row("latency", f"{size_name(size)}, p50", "ms"), Sample(cuts[49])
    yield Row("latency", f"{size_name(size)}, p99", "ms"), Sample(cuts[98])


def tick(size: int, arena: Arena, contestant: Contestant) -> Measured:
    """The same batches at once, each for a partition of its own, and all for one partition.

    A partition takes one batch per request. So each is a request; and beside that, what the
    protocol allows at its best for either: all partitions in one request, and one batch of
    as many bytes.
    """
    broker = arena.shared(contestant)
    small = batch([bytes(size)])
    large = batch([bytes(size)] * (MIB // (size + 10)))  # A batch is at most 1 MiB.
    times = round(TICK_BATCHES * len(small) / len(large))
    everywhere = range(TICK_BATCHES)
    with (
        topic_of(broker, TICK_BATCHES) as topic,
        raw.Tick(broker, topic, [[(each, small)] for each in everywhere]) as wide,
        raw.Tick(broker, topic, [[(0, small)]] * TICK_BATCHES) as narrow,
        raw.Tick(broker, topic, [[(each, small) for each in everywhere]]) as one_request,
        raw.Tick(broker, topic, [[(0, large)]] * times) as one_batch,
    ):
        wide.commit()  # The first one creates files.
        ticks = (wide, narrow, one_request, one_batch)
        found = [[tick.commit() for tick in ticks] for _ in range(TICK_REPEATS)]
    milliseconds = [statistics.median(each) for each in zip(*found, strict=True)]
    name = f"{size_name(size)} each"
    labels = (f"{TICK_BATCHES:,} partitions", "1 partition")
    for label, elapsed in zip(
        (*labels, f"{labels[0]}, one request", f"{labels[1]}, one batch"),
        milliseconds,
        strict=True,
    ):
        yield Row("tick", f"{name}, {label}", "ms"), Sample(elapsed)
    ratio = milliseconds[0] / milliseconds[1]
    yield Row("tick", f"{name}, wide : narrow", "x"), Sample(ratio)


def transform(size: int, count: int, arena: Arena, contestant: Contestant) -> Measured:
    broker = arena.shared(contestant)
    each = librdkafka.CHUNK_TRANSFORMED
    label = f"{size_name(size)}, consume-transform-produce, {each} in a transaction"
    with topic_of(broker, 1) as source, topic_of(broker, 1) as target:
        librdkafka.produce(broker, source, size, "all", "none", 1, count)
        sample = librdkafka.transform(broker, source, target, size, count - each)
        librdkafka.count_committed(broker, target, count)
    yield Row("transactions", label, "msg/s"), sample


def idle_members(protocol: Protocol, arena: Arena, contestant: Contestant) -> Measured:
    with contestant.running(arena.directory()) as broker:
        cores = groups.idle_cores(
            broker, protocol, IDLE_GROUPS, IDLE_GROUP_SIZE, contestant.warm_up_s, IDLE_WINDOW_S
        )
    label = f"{IDLE_GROUPS * IDLE_GROUP_SIZE:,} idle members, {protocol.name}"
    yield Row("groups", label, "cores"), Sample(cores)


def takeover(protocol: Protocol, arena: Arena, contestant: Contestant) -> Measured:
    with contestant.running(arena.directory(), TAKEOVER_SESSION_MS) as broker:
        seconds = groups.takeover_s(
            broker,
            protocol,
            TAKEOVER_GROUP_SIZE,
            TAKEOVER_PARTITIONS,
            TAKEOVER_SESSION_MS,
            TAKEOVER_BEAT_S,
        )
    label = f"1 of {TAKEOVER_GROUP_SIZE} members gone, {protocol.name}"
    yield Row("groups", label, "s"), Sample(seconds)


@contextmanager
def topic_of(broker: Broker, partitions: int) -> Iterator[str]:
    """A topic for one run. Names are not used twice: old files may still be on their way out."""
    name = f"bench-{time.monotonic_ns()}"
    with broker.connect() as connection:
        create_topics(connection, [name], partitions)
        yield name
        delete_topics(connection, [name])


def kafka_warm_up(broker: Broker, seconds: float) -> None:
    """Every kind of load in turn, at least once, until the time is over."""
    end = time.monotonic() + seconds
    while True:
        for codec in ("none", "lz4"):
            with topic_of(broker, 1) as topic:
                librdkafka.produce(broker, topic, KIB, "all", codec, 1, 100_000)
                librdkafka.consume(broker, topic, 1, KIB, 100_000)
        for size, count in ((16 * KIB, 2_000), (MIB, 50)):
            each = raw.batch_of(size)
            with topic_of(broker, 1) as topic:
                raw.produce(broker, topic, each, count, 5)
                raw.fetch(broker, topic, each, count, size)
        if time.monotonic() > end:
            return


def size_name(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (KIB, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"
