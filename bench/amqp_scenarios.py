"""What is measured of queues: messages through one, deep ones, copies, many bindings and keys."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from bench import amqp_load
from bench.amqp_load import BLOCK_MESSAGES, DURABLE, TRANSIENT, Kind
from bench.amqp_wire import publication
from bench.brokers import Broker, Contestant
from bench.meter import Sample
from bench.scenarios import KIB, Arena, Measured, Scenario, size_name
from bench.table import RABBITMQ, Row

COUNTS = {  # A second's worth or two, about, of what the slower one does.
    (TRANSIENT, 100): 200_000,
    (TRANSIENT, KIB): 150_000,
    (DURABLE, 100): 60_000,
    (DURABLE, KIB): 60_000,
}
DEPTH_SHALLOW, DEPTH_DEEP = 10_000, 10_000_000
DEPTH_MODEST = 500_000  # For a quick look, and for RabbitMQ, which would need ten minutes.
DRAINED_MIN = 500_000  # A shallow queue is filled and drained so often that it adds up to this.
DEEPER = "{}, {:,} waiting : {:,}"
COPIES, COPIED = 100, 2_000
BINDINGS, KEYS, ROUTED = 10_000, 1_000, 100_000
KEYED = {TRANSIENT: 100_000, DURABLE: 60_000}


def queue_scenarios(quick: bool) -> Iterator[Scenario]:
    part = 2 if quick else 1
    for (kind, size), count in COUNTS.items():
        name = f"queues/{kind.name}, {size_name(size)}"
        measure = partial(flow, kind, size, count // part)
        yield Scenario(name, measure, peer=RABBITMQ, fsync_only=not kind.durable)
    yield Scenario("routing/copies", copies, peer=RABBITMQ, fsync_only=True)
    yield Scenario("routing/bindings", bindings, peer=RABBITMQ, fsync_only=True)
    for kind, count in KEYED.items():
        name = f"routing/keys, {kind.name}"
        yield Scenario(name, partial(keys, kind, count // part), peer=RABBITMQ, fsync_only=True)
    deep = DEPTH_MODEST if quick else DEPTH_DEEP
    yield Scenario("depth/drain", partial(depth, deep), peer=RABBITMQ, fsync_only=True, once=True)


def flow(kind: Kind, size: int, count: int, arena: Arena, contestant: Contestant) -> Measured:
    broker = arena.shared(contestant, warm_up)
    with queues_of(broker, 1, kind.durable) as queues:
        messages = [publication("", queues[0], bytes(size), kind.durable)] * BLOCK_MESSAGES
        sample = amqp_load.through(broker, kind, queues, messages, count, size)
    yield Row("queues", f"{kind.name}, {size_name(size)}", "msg/s"), sample


def copies(arena: Arena, contestant: Contestant) -> Measured:
    """A message to one queue, and to a hundred: what a delivery costs."""
    broker = arena.shared(contestant, warm_up)
    rates = {}
    for number, count in ((1, COPIED * COPIES), (COPIES, COPIED)):
        with queues_of(broker, number) as queues, exchange_of(broker, "fanout") as exchange:
            with broker.amqp() as connection:
                for queue in queues:
                    connection.bind(queue, exchange, [""])
            messages = [publication(exchange, "", bytes(100), False)] * BLOCK_MESSAGES
            sample = amqp_load.through(broker, TRANSIENT, queues, messages, count, 100)
        rates[number] = sample.value
        many = "1 queue" if number == 1 else f"{number} queues"
        yield Row("routing", f"fanout to {many}, 100 B", "msg/s"), sample
    label = f"a delivery, {COPIES} queues : 1"
    yield Row("routing", label, "x"), Sample(rates[1] / rates[COPIES])


def bindings(arena: Arena, contestant: Contestant) -> Measured:
    """The same messages, under a thousand keys, to one queue by one binding, and by one of
    ten thousand."""
    broker = arena.shared(contestant, warm_up)
    rates = {}
    for number in (1, BINDINGS):
        patterns = [f"stock.{each:05}.*" for each in range(number)] if number > 1 else ["stock.#"]
        with queues_of(broker, 1) as queues, exchange_of(broker, "topic") as exchange:
            with broker.amqp() as connection:
                connection.bind(queues[0], exchange, patterns)
            messages = [
                publication(exchange, f"stock.{each:05}.price", bytes(100), False)
                for each in range(0, BINDINGS, BINDINGS // KEYS)
            ]
            sample = amqp_load.through(broker, TRANSIENT, queues, messages, ROUTED, 100)
        rates[number] = sample.value
        many = "1 binding" if number == 1 else f"{number:,} bindings"
        yield Row("routing", f"topic, {many}, {KEYS:,} keys, 100 B", "msg/s"), sample
    label = f"a message, {BINDINGS:,} bindings : 1"
    yield Row("routing", label, "x"), Sample(rates[1] / rates[BINDINGS])


def keys(kind: Kind, count: int, arena: Arena, contestant: Contestant) -> Measured:
    """To one queue, under one key, and under a thousand, no two in a row the same."""
    broker = arena.shared(contestant, warm_up)
    rates = {}
    for number in (1, KEYS):
        names = [f"key-{each:05}" for each in range(number)]
        with (
            queues_of(broker, 1, kind.durable) as queues,
            exchange_of(broker, "direct") as exchange,
        ):
            with broker.amqp() as connection:
                connection.bind(queues[0], exchange, names)
            messages = [
                publication(exchange, names[each % number], bytes(100), kind.durable)
                for each in range(KEYS)
            ]
            sample = amqp_load.through(broker, kind, queues, messages, count, 100)
        rates[number] = sample.value
        many = "1 key" if number == 1 else f"{number:,} keys"
        yield Row("routing", f"direct, {many}, {kind.name}, 100 B", "msg/s"), sample
    label = f"a message, {KEYS:,} keys : 1, {kind.name}"
    yield Row("routing", label, "x"), Sample(rates[1] / rates[KEYS])


def depth(deep: int, arena: Arena, contestant: Contestant) -> Measured:
    """A durable queue is filled with so many and drained, prefetch and acknowledgements as
    ever; in a broker of its own, whose memory is read when the queue is full."""
    if contestant.name == RABBITMQ:
        deep = min(deep, DEPTH_MODEST)
    times, resident = {}, {}
    with contestant.running(arena.directory()) as broker:
        for count in (DEPTH_SHALLOW, deep):
            rounds = max(DRAINED_MIN // count, 1)
            seconds = 0.0
            for _ in range(rounds):
                with queues_of(broker, 1, durable=True) as queues:
                    message = publication("", queues[0], bytes(100), persistent=True)
                    filled = amqp_load.fill(broker, message, count, 100)
                    resident[count] = broker.rss_mib()
                    seconds += amqp_load.drain(broker, queues[0], count)
            times[count] = seconds / (rounds * count)
            yield Row("depth", f"filled to {count:,}", "msg/s"), filled
            drained = filled._replace(value=1 / times[count], mb_per_second=None)
            yield Row("depth", f"drained, {count:,} waiting", "msg/s"), drained
            yield Row("depth", f"memory, {count:,} waiting", "MiB"), Sample(resident[count])
    for what, found in (("a message drained", times), ("memory", resident)):
        label = DEEPER.format(what, deep, DEPTH_SHALLOW)
        yield Row("depth", label, "x"), Sample(found[deep] / found[DEPTH_SHALLOW])


def warm_up(broker: Broker, seconds: float) -> None:
    end = time.monotonic() + seconds
    while True:
        for kind in (TRANSIENT, DURABLE):
            with queues_of(broker, 1, kind.durable) as queues:
                messages = [publication("", queues[0], bytes(100), kind.durable)] * BLOCK_MESSAGES
                amqp_load.through(broker, kind, queues, messages, 20_000, 100)
        if time.monotonic() > end:
            return


@contextmanager
def queues_of(broker: Broker, count: int, durable: bool = False) -> Iterator[Sequence[str]]:
    """Queues for one run, whose names are equally long. No name is used twice."""
    stamp = f"{time.monotonic_ns():020}"
    names = [f"bench-{stamp}-{number:03}" for number in range(count)]
    with broker.amqp() as connection:
        for name in names:
            connection.declare_queue(name, durable)
        yield names
        for name in names:
            connection.delete_queue(name)


@contextmanager
def exchange_of(broker: Broker, kind: str) -> Iterator[str]:
    name = f"bench-{time.monotonic_ns():020}"
    with broker.amqp() as connection:
        connection.declare_exchange(name, kind)
        yield name
        connection.delete_exchange(name)
