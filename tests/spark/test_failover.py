"""Spark reads from three nodes and writes to them while leaders and the driver are killed."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import cast

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")

from entrepot.spark.java import NoJava, find_java_home
from entrepot.testing import Broker
from tests.cluster.world import World, has_etcd
from tests.spark.exactly_once import SOURCE, TARGET, Trial, copies, wait_for_progress

RECORDS = 1_500
VICTIMS = ("source", "driver", "target")
SETTINGS = {
    "cluster.session_timeout_ms": 3_000,
    "cluster.replica_lag_time_max_ms": 3_000,
    "cluster.min_insync_replicas": 2,
}


class Nodes:
    """The cluster in the place of one broker: who is killed stays dead until the next one is."""

    def __init__(self, world: World, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self.bootstrap = world.bootstrap

    def kill_leader(self, topic: str) -> None:
        """Kill who leads one of the topic's partitions."""
        self._world.heal()
        assert self._world.wait_healed([SOURCE, TARGET]) == ""
        partitions = self._world.metadata().topics[topic].partitions
        leader = self._chance.choice([each.leader for each in partitions.values()])
        self._world.kill(next(node for node in self._world.nodes if node.number == leader))


@pytest.mark.slow
@pytest.mark.timeout(1_800)
@pytest.mark.skipif(not has_etcd(), reason="needs etcd")
def test_exactly_once_through_failovers(tmp_path: Path) -> None:
    try:
        find_java_home()
    except NoJava as error:
        pytest.skip(f"Spark needs Java: {error}")
    chance = random.Random(6)
    place = tmp_path / "driver"
    place.mkdir()
    with World(tmp_path / "nodes", 3, SETTINGS) as world:
        nodes = Nodes(world, chance)
        server = cast("Broker", nodes)
        trial = Trial(server, place, "topic", RECORDS, len(VICTIMS) + 1)
        try:
            for number, victim in enumerate(VICTIMS):
                trial.next_share(number)
                wait_for_progress(server, trial.driver)
                time.sleep(chance.uniform(0, 2))
                if victim == "driver":
                    trial.driver.kill()
                else:
                    nodes.kill_leader(SOURCE if victim == "source" else TARGET)
            before = copies(server).total()
            trial.next_share(len(VICTIMS))
            found = trial.finish()
        finally:
            trial.close()
    assert before < RECORDS, "all was done before the last kill"
    assert {number: found[number] for number in range(RECORDS) if found[number] != 1} == {}
    assert found.total() == RECORDS
