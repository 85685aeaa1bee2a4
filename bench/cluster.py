"""Three nodes of ours beside three nodes of Apache Kafka, on this machine, in turns.

    python -m bench.cluster                  all of it, some 15 minutes
    python -m bench.cluster --quick          fewer messages, one run
    python -m bench.cluster --rows failover --runs 5
    python -m bench.cluster --only Kafka

Every topic has three copies and `min.insync.replicas=2`, every producer acks=all. Kafka's nodes are
brokers and controllers at once, with its defaults; ours have an etcd with one member beside them.
Both have the same session timeout. The rows:

- produce, consume: confluent-kafka, 1 KiB, six partitions, as in `bench`.
- failover: one partition; its leader is killed with -9 while a producer goes on. From the kill to
  the first acknowledgement of a record that was produced after it.
- idle: 1,000 partitions with three copies and no clients; processor time of each node.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from bench import brokers, librdkafka
from bench.meter import process_cpu_s
from bench.table import align, number
from bench.targets import Verdict, verdicts
from entrepot.cli.local_etcd import LocalEtcd

NODES = (1, 2, 3)
SESSION_MS = 6_000
PARTITIONS = 6
IDLE_TOPICS, IDLE_PARTITIONS = 10, 100
IDLE_CORES_MAX = 0.1
PRODUCE, CONSUME = "produce, acks=all", "consume"
FAILOVER = "leader killed: until a write is acknowledged"
IDLE = "1,000 partitions idle: the busiest node"
_SIZE = 1_024
_WAIT_S = 120.0
_CALM_S = 15.0  # Before the idle cost is measured.
_IDLE_S = 20.0
_BEFORE_KILL_S = 3.0
_KAFKA_PROPERTIES = """\
process.roles=broker,controller
node.id={node}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
controller.quorum.voters={voters}
log.dirs={logs}
broker.session.timeout.ms={session_ms}
"""


class Node(Protocol):
    """What a started broker says of itself."""

    @property
    def pid(self) -> int: ...

    @property
    def address(self) -> str: ...

    def stop(self) -> None: ...


class Cluster(NamedTuple):
    """Three running nodes, by their numbers, and what else runs for them."""

    nodes: dict[int, Node]
    others: Sequence[int] = ()  # Process ids, of etcd.

    @property
    def address(self) -> str:
        return ",".join(node.address for node in self.nodes.values())

    @property
    def pid(self) -> int:
        return self.nodes[1].pid

    def cpu_s(self) -> float:
        pids = [*(node.pid for node in self.nodes.values()), *self.others]
        return sum(map(process_cpu_s, pids))

    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.address, "log_level": 0})


Readings = dict[tuple[str, str], dict[str, list[float]]]  # By row and unit, then by name.
Start = Callable[[Path], contextlib.AbstractContextManager[Cluster]]


# --- starting


@contextlib.contextmanager
def ours(durability: str, directory: Path) -> Iterator[Cluster]:
    etcd = LocalEtcd(directory / "etcd")
    etcd.start()
    nodes: dict[int, Node] = {}
    try:
        etcd.wait()
        for number_ in NODES:
            place = directory / f"node-{number_}"
            place.mkdir()
            settings = [
                f"node_id={number_}", f'cluster.coordinator=["{etcd.url}"]',
                f"cluster.session_timeout_ms={SESSION_MS}",
            ]  # fmt: skip
            nodes[number_] = brokers.start_entrepot(durability, place, settings=settings)
        assert etcd.process is not None
        cluster = Cluster(nodes, [etcd.process.pid])
        _wait_known(cluster)
        yield cluster
    finally:
        for node in nodes.values():
            node.stop()
        if etcd.process is not None:
            etcd.process.terminate()
            etcd.process.wait()


@contextlib.contextmanager
def kafka(jars: Path, directory: Path) -> Iterator[Cluster]:
    ports = brokers.free_ports(2 * len(NODES))
    voters = ",".join(
        f"{node}@127.0.0.1:{port}" for node, port in zip(NODES, ports[3:], strict=True)
    )
    processes: dict[int, brokers.Broker] = {}
    try:
        for node, port, controller in zip(NODES, ports, ports[3:], strict=False):
            place = directory / f"node-{node}"
            place.mkdir()
            properties = place / "server.properties"
            text = _KAFKA_PROPERTIES.format(
                node=node, port=port, controller=controller, voters=voters,
                logs=place / "logs", session_ms=SESSION_MS,
            )  # fmt: skip
            properties.write_text(text)
            brokers.format_storage(jars, properties, is_standalone=False)
            command = [
                "java", *brokers.KAFKA_JVM, "-cp", f"{jars}/*", "kafka.Kafka", str(properties),
            ]  # fmt: skip
            with (place / "stdout").open("ab") as output:
                process, started = brokers.spawn(command, place, output.fileno())
            processes[node] = brokers.Broker(process, port, started)
        cluster = Cluster(cast("dict[int, Node]", processes))
        _wait_known(cluster)
        time.sleep(brokers.KAFKA_WARM_UP_S)
        yield cluster
    finally:
        for each in processes.values():
            each.stop()


def _wait_known(cluster: Cluster) -> None:
    """Wait until each node knows all."""
    deadline = time.monotonic() + _WAIT_S
    for node in cluster.nodes.values():
        while True:
            with contextlib.suppress(Exception):  # librdkafka's, of several kinds.
                admin = AdminClient({"bootstrap.servers": node.address, "log_level": 0})
                if len(admin.list_topics(timeout=5).brokers) == len(NODES):
                    break
            if time.monotonic() > deadline:
                raise brokers.StartFailed(f"{node.address} does not know the others")
            time.sleep(0.2)


def _create(cluster: Cluster, name: str, partitions: int) -> None:
    config = {"min.insync.replicas": "2"}
    admin = cluster.admin()
    made = admin.create_topics([NewTopic(name, partitions, 3, config=config)])
    made[name].result(_WAIT_S)
    deadline = time.monotonic() + _WAIT_S
    while True:
        seen = cluster.admin().list_topics(name, timeout=10).topics[name].partitions.values()
        if len(seen) == partitions and all(len(each.isrs) == 3 for each in seen):
            return
        if time.monotonic() > deadline:
            raise brokers.StartFailed(f"{name} has not all its copies")
        time.sleep(0.2)


# --- the rows


class Reading(NamedTuple):
    row: str
    unit: str
    value: float


def throughput(cluster: Cluster, messages: int) -> Iterator[Reading]:
    _create(cluster, "throughput", PARTITIONS)
    broker = cast("brokers.Broker", cluster)
    before, begun = cluster.cpu_s(), time.monotonic()
    sample = librdkafka.produce(broker, "throughput", _SIZE, "all", "none", PARTITIONS, messages)
    yield Reading(PRODUCE, "messages/s", sample.value)
    spent, took = cluster.cpu_s() - before, time.monotonic() - begun
    yield Reading("produce: all nodes", "cores", spent / took)
    sample = librdkafka.consume(broker, "throughput", PARTITIONS, _SIZE, messages)
    yield Reading(CONSUME, "messages/s", sample.value)


def failover(cluster: Cluster, messages: int) -> Iterator[Reading]:
    """Kill the leader of a partition; the node stays dead."""
    _create(cluster, "failover", 1)
    acknowledged: list[float] = []  # When what was produced at that time was, after the kill.
    killed_s = 0.0

    def delivered(at_s: float, error: KafkaError | None, message: Message) -> None:
        if error is None and killed_s and at_s > killed_s:
            acknowledged.append(time.monotonic())

    settings = {
        "bootstrap.servers": cluster.address, "acks": "all", "enable.idempotence": True,
        "linger.ms": 0, "log_level": 0, "reconnect.backoff.max.ms": 200,
        "retry.backoff.ms": 20, "topic.metadata.refresh.fast.interval.ms": 50,
    }  # fmt: skip
    producer = Producer(settings)
    kill_s, deadline = time.monotonic() + _BEFORE_KILL_S, time.monotonic() + _WAIT_S
    while not acknowledged and time.monotonic() < deadline:
        now_s = time.monotonic()
        if not killed_s and now_s > kill_s:
            found = cluster.admin().list_topics("failover", timeout=10).topics["failover"]
            os.kill(cluster.nodes[found.partitions[0].leader].pid, signal.SIGKILL)
            killed_s = time.monotonic()
            now_s = killed_s + 1e-6
        producer.produce("failover", b"x", on_delivery=partial(delivered, now_s))
        producer.poll(0.005)
    if not acknowledged:
        raise brokers.StartFailed("nothing was acknowledged after the kill")
    yield Reading(FAILOVER, "s", acknowledged[0] - killed_s)
    producer.purge()


def idle(cluster: Cluster, messages: int) -> Iterator[Reading]:
    admin, config = cluster.admin(), {"min.insync.replicas": "2"}
    for index in range(IDLE_TOPICS):
        topic = NewTopic(f"idle-{index}", IDLE_PARTITIONS, 3, config=config)
        for made in admin.create_topics([topic]).values():
            made.result(_WAIT_S)
    time.sleep(_CALM_S)
    pids = [node.pid for node in cluster.nodes.values()]
    before = [*map(process_cpu_s, [*pids, *cluster.others])]
    time.sleep(_IDLE_S)
    spent = [
        (after - each) / _IDLE_S
        for each, after in zip(before, map(process_cpu_s, [*pids, *cluster.others]), strict=True)
    ]
    yield Reading(IDLE, "cores", max(spent[: len(pids)]))
    yield Reading("1,000 partitions idle: all, etcd too", "cores", sum(spent))


ROWS = {"throughput": throughput, "failover": failover, "idle": idle}


# --- the table


def table(readings: Readings, names: Sequence[str]) -> str:
    others = [name for name in names if name != "Kafka"]
    lines = [["", *names, *(f"{name} / Kafka" for name in others)]]
    for (row, unit), found in readings.items():
        medians = {name: statistics.median(values) for name, values in found.items()}
        line = [f"{row}, {unit}"]
        for name in names:
            values = found.get(name)
            spread = "" if not values else f" [{number(min(values))}..{number(max(values))}]"
            line.append(f"{number(medians[name])}{spread}" if values else "-")
        for name in others:
            ratio = medians[name] / medians["Kafka"] if {name, "Kafka"} <= medians.keys() else None
            line.append("-" if ratio is None else f"{ratio:.2f}x")
        lines.append(line)
    return align(lines)


def targets(readings: Readings) -> Iterator[Verdict]:
    """What has to be reached, each by durability `os` beside Kafka."""
    medians = {
        row: {name: statistics.median(values) for name, values in found.items()}
        for (row, _), found in readings.items()
    }
    for row, limit, more_is_better in (
        (PRODUCE, 1.0, True),
        (CONSUME, 1.0, True),
        (FAILOVER, 1.5, False),
    ):
        found = medians.get(row, {})
        bound = "at least" if more_is_better else "at most"
        target = f"{row}: {bound} {limit} times Kafka's"
        if {"os", "Kafka"} <= found.keys():
            ratio = found["os"] / found["Kafka"]
            reached = ratio >= limit if more_is_better else ratio <= limit
            yield Verdict(target, f"{ratio:.2f}", reached)
        else:
            yield Verdict(target, "-", None)
    for name, cores in medians.get(IDLE, {}).items():
        if name != "Kafka":
            target = f"{IDLE}, {name}: under {IDLE_CORES_MAX} of a core"
            yield Verdict(target, number(cores), cores < IDLE_CORES_MAX)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="fewer messages, one run")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--rows", choices=ROWS, action="append", default=[])
    parser.add_argument("--only", action="append", default=[], help="these, of: os, fsync, Kafka")
    options = parser.parse_args()
    contestants: dict[str, Start] = {
        "os": partial(ours, "os"),
        "fsync": partial(ours, "fsync"),
    }
    jars = brokers.fetch(brokers.KAFKA_HOME, "Apache Kafka")
    if isinstance(jars, Path):
        contestants["Kafka"] = partial(kafka, jars)
        print(f"Apache Kafka {brokers.kafka_version(jars)}, three KRaft nodes, its defaults")
    else:
        print(jars)
    names = [name for name in contestants if not options.only or name in options.only]
    messages = 60_000 if options.quick else 300_000
    readings: Readings = {}
    failures: list[str] = []
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as root:
        print(brokers.machine(Path(root)), flush=True)
    for run in range(1 if options.quick else options.runs):
        for row in options.rows or ROWS:
            for name in (*names[run % len(names) :], *names[: run % len(names)]):
                print(f"run {run + 1}: {row}, {name}", file=sys.stderr, flush=True)
                with tempfile.TemporaryDirectory(prefix="bench-cluster-") as place:
                    try:
                        with contestants[name](Path(place)) as cluster:
                            for what, unit, value in ROWS[row](cluster, messages):
                                found = readings.setdefault((what, unit), {})
                                found.setdefault(name, []).append(value)
                    except Exception as error:
                        failures.append(f"{row}, {name}: {error}")
    print(table(readings, names))
    print()
    print(verdicts(targets(readings)))
    print("\n".join(failures))
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
