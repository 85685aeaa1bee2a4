"""Nodes share a topic's partitions, its producers and its consumers; groups of them all see it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import NewTopic

from tests.cluster.world import World, has_etcd

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]
T = TypeVar("T")

NODES, PARTITIONS, EACH = 3, 6, 400
PATIENCE_S = 90.0


class Member:
    """A member of a group, which begins at some node, and what it got."""

    def __init__(self, group: str, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0}
        self._consumer = Consumer(settings | {"auto.offset.reset": "earliest"})
        self._consumer.subscribe(["shared"])
        self.values: list[bytes] = []

    @property
    def partitions(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def take(self) -> None:
        for message in self._consumer.consume(1_000, 0.1):
            if message.error() is None:
                self.values.append(message.value())

    def close(self) -> None:
        self._consumer.close()


def test_producers_and_consumers_share_the_work(tmp_path: Path) -> None:
    """Proves AD-03: partitions over nodes, copies on all, several producers, and consumers who
    agree on who takes what."""
    with World(tmp_path, NODES) as world:
        admin = world.admin()
        admin.create_topics([NewTopic("shared", PARTITIONS, NODES)])["shared"].result(30)
        assert world.wait_healed(["shared"]) == ""
        partitions = world.metadata().topics["shared"].partitions.values()
        assert Counter(each.leader for each in partitions) == {1: 2, 2: 2, 3: 2}
        assert all(sorted(each.isrs) == [1, 2, 3] for each in partitions)
        places = [f"127.0.0.1:{node.proxy_port}" for node in world.nodes]
        workers = [Member("workers", place) for place in places]
        alone = Member("another group", places[0])
        members = [*workers, alone]
        shares = until(members, lambda: [each.partitions for each in workers], is_shared)
        write(places)
        wanted = {f"{node}:{number}".encode() for node in places for number in range(EACH)}
        until(
            members,
            lambda: sum(len(each.values) for each in members),
            lambda count: count >= 2 * len(wanted),
        )
        for each in members:
            each.close()
    assert sorted(map(len, shares)) == [2, 2, 2]
    assert all(each.values for each in workers)
    assert sorted(value for each in workers for value in each.values) == sorted(wanted)
    assert sorted(alone.values) == sorted(wanted)


def is_shared(shares: list[set[int]]) -> bool:
    return set().union(*shares) == {*range(PARTITIONS)} == {*range(sum(map(len, shares)))}


def until(members: list[Member], look: Callable[[], T], is_so: Callable[[T], bool]) -> T:
    """Let the members take what comes until something is so. Return what was seen then."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so(seen := look()):
        assert time.monotonic() < deadline, seen
        for each in members:
            each.take()
    return seen


def write(places: list[str]) -> None:
    """Write with a producer at each node, at once."""
    producers = [Producer({"bootstrap.servers": place, "log_level": 0}) for place in places]
    for number in range(EACH):
        for place, producer in zip(places, producers, strict=True):
            producer.produce("shared", f"{place}:{number}", key=str(number))
    assert [producer.flush(60) for producer in producers] == [0] * NODES
