"""Messages that come one at a time, as most programs send them: each different, each waited for.

The load is that of real clients, in programs of their own (`peers/clients`, in Go): amqp091-go
for queues, franz-go for topics. A round is a message from just before it is published until it
is both confirmed and with its consumer. What counts as well is the broker's processor time for
one of them, which the noise of a machine changes less than its rate.
"""

import json
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path

from bench.brokers import Broker, Contestant
from bench.meter import Sample, tree_cpu_s
from bench.scenarios import Arena, Measured, Scenario, topic_of
from bench.table import PEER, RABBITMQ, Row
from bench.wire import Refused

CLIENTS = Path(__file__).parent / "peers" / "clients"
BUILT = Path(__file__).parent.parent / "build" / "clients"
CONNECTIONS, CONNECTIONS_QUICK = (1, 20, 200), (20,)
IN_FLIGHT = (1, 20)
PAIRS, PAIRS_QUICK = (20, 200), (20,)
QUEUES, TOPICS = "one at a time, AMQP", "one at a time, Kafka"
WARM_UP_S, LENGTH_S = 1.0, 3.0


def one_at_a_time_scenarios(quick: bool) -> Iterator[Scenario]:
    connections = CONNECTIONS_QUICK if quick else CONNECTIONS
    for durable, many, in_flight in product((False, True), connections, IN_FLIGHT):
        kind = "durable" if durable else "transient"
        label = f"{kind}, {_many(many, 'connection')}, {in_flight} in flight"
        measure = partial(queues, label, many, in_flight, durable)
        name = f"{QUEUES}/{label}"
        yield Scenario(name, measure, peer=RABBITMQ, fsync_only=not durable, go=True)
    for many in PAIRS_QUICK if quick else PAIRS:
        label = f"{_many(many, 'producer')}, {_many(many, 'consumer')}"
        yield Scenario(f"{TOPICS}/{label}", partial(topics, label, many), peer=PEER, go=True)


def queues(
    label: str, many: int, in_flight: int, durable: bool, arena: Arena, contestant: Contestant
) -> Measured:
    broker = arena.shared(contestant, warm_up_queues)
    yield from rows(QUEUES, label, _amqp(broker, many, in_flight, durable))


def topics(label: str, many: int, arena: Arena, contestant: Contestant) -> Measured:
    broker = arena.shared(contestant, warm_up_topics)
    yield from rows(TOPICS, label, _kafka(broker, many))


def warm_up_queues(broker: Broker, seconds: float) -> None:
    for durable in (False, True):
        _amqp(broker, 20, 20, durable, seconds / 2)


def warm_up_topics(broker: Broker, seconds: float) -> None:
    _kafka(broker, 20, seconds)


def build() -> str | None:
    """Build the clients; returns why there are none when that fails."""
    if shutil.which("go") is None:
        return "no go on the path"
    command = ["go", "build", "-mod=readonly", "-o", f"{BUILT}/", "./..."]
    done = subprocess.run(command, cwd=CLIENTS, capture_output=True, text=True)
    return None if done.returncode == 0 else done.stderr.strip()


def _amqp(
    broker: Broker, many: int, in_flight: int, durable: bool, length_s: float = LENGTH_S
) -> "Figures":
    arguments = ["--url", f"amqp://guest:guest@{broker.amqp_address}/"]
    arguments += ["--connections", str(many), "--in-flight", str(in_flight)]
    return run(broker, "amqp", [*arguments, f"--durable={durable}".lower()], length_s)


def _kafka(broker: Broker, many: int, length_s: float = LENGTH_S) -> "Figures":
    with topic_of(broker, many) as topic:
        arguments = ["--broker", broker.address, "--topic", topic, "--pairs", str(many)]
        return run(broker, "kafka", arguments, length_s)


class Figures:
    """What one run found out."""

    def __init__(self, said: str, processor_s: float) -> None:
        found = json.loads(said)
        self.rate: float = found["rounds"] / found["seconds"]
        self.p99_ms: float = found["p99_ms"]
        self.cost_us = processor_s / found["rounds"] * 1e6


def run(
    broker: Broker, program: str, arguments: Sequence[str], length_s: float = LENGTH_S
) -> Figures:
    """The client says when its window begins and ends, and is through within a minute."""
    times = [f"--warm-up={WARM_UP_S}s", f"--length={length_s}s"]
    with subprocess.Popen(
        [BUILT / program, *arguments, *times],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        spent: list[float] = []
        for line in process.stdout:
            if line.startswith("{"):
                return Figures(line, spent[1] - spent[0])
            spent.append(tree_cpu_s(broker.pid))
        raise Refused(process.stderr.read().strip())


def rows(section: str, label: str, figures: Figures) -> Measured:
    yield Row(section, label, "msg/s"), Sample(figures.rate)
    yield Row(f"{section}: p99", label, "ms"), Sample(figures.p99_ms)
    yield Row(f"{section}: cost", label, "µs"), Sample(figures.cost_us)


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
