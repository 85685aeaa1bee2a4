"""What is measured of MQTT: messages as thick as they come and one at a time, many connections,
many subscriptions, and a session that outlives its connection."""

import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from bench import one_at_a_time
from bench.brokers import Broker, Contestant
from bench.meter import Sample
from bench.mqtt_load import Load, through
from bench.mqtt_wire import ACK_BYTES, MQTT, Language, check_login, dial, login, read_exactly
from bench.mqtt_wire import NATS as NATS_LANGUAGE
from bench.mqtt_wire import REDIS as REDIS_LANGUAGE
from bench.scenarios import KIB, Arena, Measured, Scenario, size_name
from bench.table import MOSQUITTO, NATS, REDIS, REFERENCES, Row

SECTION, COST = "mqtt", "mqtt: cost"
SINGLES = "one at a time, MQTT"
COUNTS = {(0, 100): 200_000, (0, KIB): 100_000, (1, 100): 100_000, (1, KIB): 60_000}
FAN_OUT, FANNED = 50, 20_000
TOPICS = 100
SUBSCRIPTIONS_FEW, SUBSCRIPTIONS_MANY = 100, 100_000
SUBSCRIPTIONS_EACH = 1_000  # Of one connection.
NAMES, PUBLISHED = 1_000, 100_000
CONNECTIONS, CONNECTIONS_IDLE, DIALLED_AT_ONCE = 200, 10_000, 200
KEEP_ALIVE_S = 600
MORE = f"a message, {SUBSCRIPTIONS_MANY:,} subscriptions : {SUBSCRIPTIONS_FEW}"
Measure = Callable[[Arena, Contestant], Measured]
LANGUAGES: dict[str, Language] = {NATS: NATS_LANGUAGE, REDIS: REDIS_LANGUAGE}


def mqtt_scenarios(quick: bool) -> Iterator[Scenario]:
    part = 2 if quick else 1

    def scenario(name: str, measure: Measure, *, references: bool = False) -> Scenario:
        beside = REFERENCES if references else ()
        path = f"{SECTION}/{name}"
        return Scenario(path, measure, peer=MOSQUITTO, fsync_only=True, references=beside)

    for (qos, size), count in COUNTS.items():
        label = f"1 to 1, QoS {qos}, {size_name(size)}"
        load = Load(count // part, b"x" * size, qos=qos)
        yield scenario(label, partial(flow, label, load), references=not qos)
    label = f"1 to {FAN_OUT}, QoS 0, 100 B"
    load = Load(FANNED // part, b"x" * 100, subscribers=FAN_OUT)
    yield scenario(label, partial(flow, label, load), references=True)
    for qos in (0, 1):
        label = f"{TOPICS} topics in turn, QoS {qos}, 100 B"
        topics = [f"bench/topic/{number:03}" for number in range(TOPICS)]
        load = Load(COUNTS[qos, 100] // part, b"x" * 100, topics, ["bench/topic/#"], qos)
        yield scenario(label, partial(flow, label, load), references=not qos)
    label = "durable session, QoS 1, 100 B"
    load = Load(COUNTS[1, 100] // part, b"x" * 100, qos=1, durable=True)
    yield scenario(label, partial(flow, label, load))
    yield scenario("subscriptions", partial(subscriptions, PUBLISHED // part))
    yield scenario("idle connections", idle)
    for qos in (0, 1):
        label = f"{CONNECTIONS} connections, subscriber of QoS {qos}"
        measure = partial(singles, label, qos)
        yield Scenario(f"{SINGLES}/{label}", measure, peer=MOSQUITTO, fsync_only=True, go=True)


def flow(label: str, load: Load, arena: Arena, contestant: Contestant) -> Measured:
    language = LANGUAGES.get(contestant.name, MQTT)
    broker = arena.shared(contestant, warm_up if language is MQTT else no_warm_up)
    load = replace(load, language=language)
    yield from _rows(label, through(broker.mqtt_port, broker.pid, load, _name()))


def _rows(label: str, sample: Sample) -> Measured:
    yield Row(SECTION, label, "msg/s"), sample
    assert sample.broker is not None
    yield Row(COST, label, "µs"), Sample(sample.broker / sample.value * 1e6)


def subscriptions(count: int, arena: Arena, contestant: Contestant) -> Measured:
    """The same messages, on a thousand names, to one who has subscribed to a hundred filters;
    with nobody else there, and with as many others as make a hundred thousand."""
    costs = {}
    names = [f"site/{number % 100:05}/{number // 100:02}" for number in range(NAMES)]
    filters = [f"site/{number:05}/+" for number in range(SUBSCRIPTIONS_FEW)]
    with contestant.running(arena.directory()) as broker:
        warm_up(broker, contestant.warm_up_s)
        others: list[socket.socket] = []
        for number in (SUBSCRIPTIONS_FEW, SUBSCRIPTIONS_MANY):
            if number > SUBSCRIPTIONS_FEW:
                began = time.perf_counter()
                others = _subscribed(broker, range(SUBSCRIPTIONS_FEW, number))
                took_s = time.perf_counter() - began
                yield Row(SECTION, f"until there are {number:,}", "s"), Sample(took_s)
            load = Load(count, b"x" * 100, names, filters)
            sample = through(broker.mqtt_port, broker.pid, load, _name())
            assert sample.broker is not None
            costs[number] = sample.broker / sample.value
            yield from _rows(f"{number:,} subscriptions, {NAMES:,} names", sample)
        for each in others:
            each.close()
    ratio = costs[SUBSCRIPTIONS_MANY] / costs[SUBSCRIPTIONS_FEW]
    yield Row(SECTION, MORE, "x"), Sample(ratio)


def _subscribed(broker: Broker, numbers: Sequence[int]) -> list[socket.socket]:
    found = []
    for start in range(0, len(numbers), SUBSCRIPTIONS_EACH):
        some = numbers[start : start + SUBSCRIPTIONS_EACH]
        found.append(MQTT.connect(broker.mqtt_port, f"{_name()}-{start}"))
        MQTT.subscribe(found[-1], [f"site/{number:05}/+" for number in some], 0)
    return found


def idle(arena: Arena, contestant: Contestant) -> Measured:
    """Clients that have logged in and say nothing."""
    with contestant.running(arena.directory()) as broker:
        warm_up(broker, contestant.warm_up_s)
        before, began = broker.rss_mib(), time.perf_counter()
        sockets: list[socket.socket] = []
        try:
            for _ in range(0, CONNECTIONS_IDLE, DIALLED_AT_ONCE):
                new = [dial(broker.mqtt_port) for _ in range(DIALLED_AT_ONCE)]
                for number, each in enumerate(new, len(sockets)):
                    each.sendall(login(f"idle-{number:05}", keep_alive_s=KEEP_ALIVE_S))
                sockets += new
                for each in new:
                    check_login(read_exactly(each, ACK_BYTES))
            took_s = time.perf_counter() - began
            each_kib = (broker.rss_mib() - before) * KIB / CONNECTIONS_IDLE
        finally:
            for each in sockets:
                each.close()
    label = f"{CONNECTIONS_IDLE:,} idle connections"
    yield Row(SECTION, f"{label}: until all are there", "s"), Sample(took_s)
    yield Row(SECTION, f"{label}: memory of each", "KiB"), Sample(each_kib)


def singles(label: str, qos: int, arena: Arena, contestant: Contestant) -> Measured:
    broker = arena.shared(contestant, warm_up)
    arguments = ["--broker", f"127.0.0.1:{broker.mqtt_port}", "--connections", str(CONNECTIONS)]
    figures = one_at_a_time.run(broker, "mqtt", [*arguments, f"--subscriber-qos={qos}"])
    yield from one_at_a_time.rows(SINGLES, label, figures)


def warm_up(broker: Broker, seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for qos in (0, 1):
            load = Load(20_000, b"x" * 100, qos=qos)
            through(broker.mqtt_port, broker.pid, load, _name())


def no_warm_up(broker: Broker, seconds: float) -> None:
    """Do nothing: those who do not speak MQTT are compiled."""


def _name() -> str:
    return f"bench-{time.monotonic_ns()}"
