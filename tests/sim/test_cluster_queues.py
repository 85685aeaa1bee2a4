"""Queues of a cluster where everything goes wrong, and mistakes that must be found.

Proves R-22 and S-03 on simulated disks, networks and a simulated coordinator. A seed that fails
elsewhere is added.
"""

from collections.abc import Iterable

import pytest

from entrepot.log.policy import Durability
from sim.cluster_queue_world import cluster_queue_world
from sim.history import Violation
from sim.loop import run


@pytest.mark.parametrize(
    # 20015: a home that knew that its lease was gone handed out what another one had settled.
    "number",
    [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2, 3, 20_015))],
)
def test_confirmed_is_there_and_settled_stays_settled(number: int) -> None:
    result = run(number, cluster_queue_world(12.0))
    assert result.confirmed > 0
    assert result.settled > 0
    assert result.crashes > 0
    assert result.changes > 0


@pytest.mark.slow
@pytest.mark.parametrize("durability", [Durability.OS, Durability.INTERVAL])
def test_kills_with_less_durability(durability: Durability) -> None:
    result = run(1, cluster_queue_world(12.0, durability=durability))
    assert result.confirmed > 0
    assert result.crashes > 0


def is_caught(bug: str, seeds: Iterable[int]) -> bool:
    for seed in seeds:
        try:
            run(seed, cluster_queue_world(12.0, bug=bug))
        except Violation:
            return True
    return False


@pytest.mark.pure
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("bug", ["confirms-alone", "old-ledgers"])
def test_a_mistake_is_caught(bug: str) -> None:
    assert is_caught(bug, range(100))
