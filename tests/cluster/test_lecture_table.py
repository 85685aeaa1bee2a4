"""What replication promises, by the lecture's table, from real processes."""

import time
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.cluster.lecture_table import ACKS, DEAD, MINIMUMS, TAKEN, produce, read, table, text
from tests.cluster.world import World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]
SETTINGS = {"cluster.session_timeout_ms": 2_000, "cluster.replica_lag_time_max_ms": 2_000}
TOPIC = "t"


def test_the_table_comes_out(tmp_path: Path) -> None:
    found = table(tmp_path)
    assert len(found) == len(MINIMUMS) * len(DEAD) * len(ACKS)
    assert all(row.is_right for row in found), text(found)


def test_without_a_replica_in_sync_it_is_unavailable_and_not_wrong(tmp_path: Path) -> None:
    with World(tmp_path, 3, SETTINGS) as world:
        admin = world.admin()
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(30)
        assert produce(world, TOPIC, "all", b"all have it") == TAKEN
        last, *others = world.nodes
        for node in others:
            world.kill(node)
        leader_of(world, last.number, in_sync=[last.number])
        assert produce(world, TOPIC, "all", b"the last one has it") == TAKEN
        world.kill(last)
        for node in others:
            world.begin(node)
        leader_of(world, -1, in_sync=[last.number])
        assert produce(world, TOPIC, "1", b"nobody takes it") != TAKEN
        world.begin(last)
        assert world.wait_healed([TOPIC]) == ""
        assert produce(world, TOPIC, "all", b"all have this, too") == TAKEN
        there = read(world, TOPIC)
        assert there == [b"all have it", b"the last one has it", b"all have this, too"]


def leader_of(world: World, number: int, *, in_sync: list[int]) -> None:
    """Wait until the node leads, and so many are in sync."""
    seen: tuple[int, list[int]] = (0, [])
    deadline = time.monotonic() + 60
    while seen != (number, in_sync):
        assert time.monotonic() < deadline, seen
        time.sleep(0.1)
        try:
            info = world.metadata().topics[TOPIC].partitions[0]
        except Exception:  # Nobody answers: librdkafka's, of several kinds.
            continue
        seen = info.leader, sorted(info.isrs)
