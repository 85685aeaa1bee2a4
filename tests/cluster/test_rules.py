"""Rules that transform messages are every node's, and outlive the node they were given to."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.cluster.harness import SETTINGS
from tests.cluster.world import Node, World, has_etcd
from tests.end_to_end.test_transform import end, read, start_runner, transform

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(not has_etcd(), reason="needs etcd"),
]
COUNT = 60


def home_of(world: World) -> Node:
    """Return the node that the queues are at, and with them those who change rules."""
    partition = world.metadata().topics["__queue_ledgers"].partitions[0]
    return next(node for node in world.nodes if node.number == partition.leader)


def test_rules_survive_a_lost_node(tmp_path: Path) -> None:
    """G-05."""
    with World(tmp_path, 3, SETTINGS) as world:
        one, two, _ = world.nodes
        transform(one.broker, "add-format", "text", "json")
        transform(one.broker, "add-format", "other", "json")
        rule = ("topic:orders", "text", "topic:copies", "other", "--rename", "nr=number")
        transform(two.broker, "add-rule", "copy", *rule)
        home = home_of(world)
        left = [node for node in world.nodes if node is not home]
        listed = transform(home.broker, "list", "--json")
        runner = start_runner(left[0].broker)
        try:
            producer = Producer({"bootstrap.servers": world.bootstrap})

            def produce(numbers: range) -> None:
                for number in numbers:
                    producer.produce("orders", json.dumps({"nr": number}), partition=0)
                assert producer.flush(60) == 0

            produce(range(COUNT // 2))
            assert len(read(left[1].broker, "copies", 5)) == 5
            world.kill(home)
            assert transform(left[1].broker, "list", "--json") == listed
            produce(range(COUNT // 2, COUNT))
            found = read(left[1].broker, "copies", COUNT, is_all=True)
        finally:
            end(runner)
    assert [json.loads(each.value()) for each in found] == [{"number": n} for n in range(COUNT)]
