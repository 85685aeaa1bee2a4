"""A node is added, another drained and taken away, while clients write; unclean elections."""

import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import NewTopic

from tests.cluster.lecture_table import read
from tests.cluster.test_queues import connect, home_of, publish, until
from tests.cluster.world import World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]
SETTINGS = {
    "cluster.session_timeout_ms": 2_000, "cluster.replica_lag_time_max_ms": 2_000,
    "cluster.min_insync_replicas": 2,
}  # fmt: skip


def test_a_node_is_drained_while_it_is_written_to(tmp_path: Path) -> None:
    with World(tmp_path, 4, SETTINGS) as world:
        admin = world.admin()
        for made in admin.create_topics([NewTopic("t", 1, 3), NewTopic("many", 6, 3)]).values():
            made.result(30)
        assert world.wait_healed(["t", "many"]) == ""
        writing = threading.Event()
        written: list[bytes] = []
        failures: list[object] = []
        writer = threading.Thread(target=write, args=(world, writing, written, failures))
        writer.start()
        leaving = world.metadata().topics["t"].partitions[0].leader
        said = entrepot(world, "cluster", "drain", str(leaving))
        assert "they are there" in said
        writing.set()
        writer.join(90)
        assert failures == []
        said = entrepot(world, "cluster", "nodes", "--json")
        nodes = [json.loads(line) for line in said.splitlines()]
        (gone,) = (each for each in nodes if each["node"] == leaving)
        assert (gone["leads"], gone["replicas"]) == (0, 0)
        world.kill(world.nodes[leaving - 1])
        seen = world.metadata().topics
        for name in ("t", "many"):
            for partition in seen[name].partitions.values():
                assert len(partition.replicas) == 3
                assert leaving not in partition.replicas
        assert read(world, "t") == written
        entrepot(world, "cluster", "reassign", "t:0", first_two(world, leaving))
        assert len(world.metadata().topics["t"].partitions[0].replicas) == 2
        assert read(world, "t") == written


def test_queues_leave_a_node_that_is_drained(tmp_path: Path) -> None:
    """All of them go where their ledgers go, and are served there, with what was in them."""
    two = {**SETTINGS, "cluster.replication_factor": 2, "cluster.min_insync_replicas": 1}
    with World(tmp_path, 3, two) as world:
        bodies = [b"%d" % number for number in range(50)]
        with connect(world.nodes[0]) as connection:
            connection.channel().queue_declare("work", durable=True)
            connection.channel().queue_declare("other", durable=True)
        publish(world.nodes[1], "work", bodies)
        until(lambda: "work" in world.metadata().topics)
        home = home_of(world, "work")
        entrepot(world, "topics", "create", "t", "--partitions", "6")
        assert "they are there" in entrepot(world, "cluster", "drain", str(home.number))
        until(lambda: not _held_by(world, home.number))
        publish(home, "work", [b"after"])  # It is a node still, and forwards.
        assert home_of(world, "work") is not home
        world.kill(home)
        node = next(node for node in world.nodes if node is not home)
        with connect(node) as connection:
            channel = connection.channel()
            got = [channel.basic_get("work", auto_ack=True)[2] for _ in range(51)]
        assert got == [*bodies, b"after"]


def _held_by(world: World, node: int) -> list[str]:
    return [
        name
        for name, topic in world.metadata().topics.items()
        if any(node in each.replicas for each in topic.partitions.values())
    ]


def test_a_partition_goes_only_where_it_fits(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "node-3").mkdir()
    (tmp_path / "node-3" / "data").symlink_to(small_disk)
    found = os.statvfs(small_disk)
    more = {"retention.bytes": str(found.f_blocks * found.f_frsize + 1)}
    with World(tmp_path, 3, SETTINGS) as world:
        admin = world.admin()
        admin.create_topics([NewTopic("two", 6, 2, config=more)])["two"].result(30)
        assert world.wait_healed(["two"]) == ""
        for partition in world.metadata().topics["two"].partitions.values():
            assert sorted(partition.replicas) == [1, 2]
        refused = [
            (NewTopic("three", 1, 3, config=more), KafkaError.INVALID_REPLICATION_FACTOR),
            (
                NewTopic("there", 1, replica_assignment=[[3, 1]], config=more),
                KafkaError.INVALID_REPLICA_ASSIGNMENT,
            ),
        ]
        for topic, code in refused:
            with pytest.raises(KafkaException) as caught:
                admin.create_topics([topic])[topic.topic].result(30)
            assert caught.value.args[0].code() == code
            assert "retention.bytes" in caught.value.args[0].str()
        with pytest.raises(AssertionError, match="does not fit on the disk of broker 3"):
            entrepot(world, "cluster", "reassign", "two:0", "3,1")


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """Return a directory on a disk that is smaller than the others."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as directory:
        sizes = [os.statvfs(each) for each in (directory, tempfile.gettempdir())]
        small, large = (each.f_blocks * each.f_frsize for each in sizes)
        if small >= large:
            pytest.skip("/dev/shm is not smaller than the disk")
        yield Path(directory)


def first_two(world: World, but: int) -> str:
    return ",".join([str(node.number) for node in world.nodes if node.number != but][:2])


def test_unclean_elections_only_where_a_topic_says_so(tmp_path: Path) -> None:
    with World(tmp_path, 3, SETTINGS) as world:
        unclean = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        admin = world.admin()
        new = [
            NewTopic("clean", 1, replica_assignment=[[1, 2]], config={"min.insync.replicas": "1"}),
            NewTopic("unclean", 1, replica_assignment=[[1, 2]], config=unclean),
        ]
        for made in admin.create_topics(new).values():
            made.result(30)
        assert world.wait_healed(["clean", "unclean"]) == ""
        world.kill(world.nodes[1])
        wait(world, lambda led: led["clean"][1] == led["unclean"][1] == [1])
        world.kill(world.nodes[0])
        world.begin(world.nodes[1])
        wait(world, lambda led: led == {"clean": (-1, [1]), "unclean": (2, [2])})
        world.begin(world.nodes[0])
        assert world.wait_healed(["clean", "unclean"]) == ""


def wait(world: World, is_so: object) -> None:
    import time

    deadline = time.monotonic() + 60
    while True:
        try:
            topics = world.metadata().topics
            led = {
                name: (topics[name].partitions[0].leader, topics[name].partitions[0].isrs)
                for name in ("clean", "unclean")
            }
            if is_so(led):  # type: ignore[operator]
                return
        except Exception as error:
            led = {"error": (str(error), [])}  # type: ignore[dict-item]
        assert time.monotonic() < deadline, led
        time.sleep(0.2)


def write(
    world: World, ending: threading.Event, written: list[bytes], failures: list[object]
) -> None:
    producer = Producer(
        {"bootstrap.servers": world.bootstrap, "enable.idempotence": True, **world.client}
    )
    while not ending.is_set() or len(written) < 200:
        value = str(len(written)).encode()
        written.append(value)
        producer.produce(
            "t", value, on_delivery=lambda error, _: failures.append(error) if error else None
        )
        producer.poll(0.005)
    assert producer.flush(60) == 0


def entrepot(world: World, *words: str) -> str:
    command = [sys.executable, "-m", "entrepot.cli", *words, "--bootstrap-server", world.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
