"""Replicas that cannot go on where they were: behind the leader's start, damaged, compacted."""

from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import NewTopic

from tests.cluster.lecture_table import read
from tests.cluster.world import World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]
SETTINGS = {"cluster.session_timeout_ms": 2_000, "cluster.replica_lag_time_max_ms": 2_000}
SMALL = {"segment.bytes": "16384", "file.delete.delay.ms": "0"}
COMPACT = {
    "cleanup.policy": "compact", "segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}  # fmt: skip


def test_they_are_copied_again(tmp_path: Path) -> None:
    with World(tmp_path, 3, SETTINGS) as world:
        admin = world.admin()
        topics = {"removed": SMALL, "damaged": SMALL, "compacted": COMPACT}
        new = [NewTopic(name, 1, 3, config=config) for name, config in topics.items()]
        for made in admin.create_topics(new).values():
            made.result(30)
        write(world, [*topics], range(50))
        assert world.wait_healed([*topics]) == ""
        follower = world.nodes[-1]
        world.kill(follower)
        flip(follower.broker.data_dir / "partitions" / "damaged-0" / f"{0:020d}.log")
        write(world, [*topics], range(50, 600))
        low = admin.delete_records([TopicPartition("removed", 0, 505)])
        for done in low.values():
            done.result(30)
        wait_compacted(world, "compacted")
        world.begin(follower)
        assert world.wait_healed([*topics]) == ""
        before = {name: read(world, name) for name in topics}
        assert len(before["removed"]) == 600 - 505
        assert len(before["damaged"]) == 600
        said = follower.broker.log_path.read_text()
        assert "partitions/removed-0 is copied again" in said
        assert "partitions/damaged-0 is copied again, from offset 0 on" in said
        for node in world.nodes[:-1]:  # Now it leads.
            world.kill(node)
        assert read(world, "damaged") == before["damaged"]
        assert read(world, "removed") == before["removed"]
        assert latest(read(world, "compacted")) == latest(before["compacted"])


def write(world: World, topics: list[str], numbers: range) -> None:
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": world.bootstrap, "acks": "all", "log_level": 0,
            "enable.idempotence": True, "message.timeout.ms": 60_000,
        }
    )  # fmt: skip
    for number in numbers:
        for topic in topics:
            value = f"{number % 7}:{number}".encode()
            producer.produce(
                topic,
                value + b" " * 100,
                key=b"%d" % (number % 7),
                on_delivery=lambda error, _: failures.append(str(error)) if error else None,
            )
        if number % 5 == 0:
            assert producer.flush(60) == 0
    assert producer.flush(60) == 0
    assert failures == []


def latest(values: list[bytes | None]) -> dict[bytes, bytes]:
    """The last value of each key, which it begins with."""
    return {value.partition(b":")[0]: value for value in values if value is not None}


def wait_compacted(world: World, topic: str) -> None:
    def is_compacted() -> bool:
        return len(read(world, topic)) < 400

    for _ in range(100):
        if is_compacted():
            return
    raise AssertionError("it is not compacted")


def flip(path: Path) -> None:
    """Change a bit of the file, as a bad disk does."""
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
