"""A cluster of three nodes where everything goes wrong, and mistakes that must be found.

Proves M-04, M-06 and M-09 on simulated disks, networks and a simulated coordinator. A
seed that fails elsewhere is added.
"""

from collections.abc import Iterable

import pytest

from entrepot.log.policy import Durability
from sim.cluster_world import cluster_world
from sim.history import Violation
from sim.loop import run


@pytest.mark.parametrize(
    # 11: a replica whose sync had failed said that it had everything. 102, 148: a leader came back
    # after it had lost power, and led on in the same epoch. 7011: a log without an index of epochs
    # was taken for an empty one, and not cut. 7015: no file could be opened after a cut.
    "number",
    [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (11, 102, 148, 7_011, 7_015))],
)
def test_nothing_acknowledged_is_lost(number: int) -> None:
    result = run(number, cluster_world(15.0))
    assert result.acks > 0
    assert result.reads > 0
    assert result.crashes > 0
    assert result.changes > 0


@pytest.mark.slow
@pytest.mark.parametrize("durability", [Durability.OS, Durability.INTERVAL])
def test_kills_with_less_durability(durability: Durability) -> None:
    result = run(1, cluster_world(15.0, durability=durability))
    assert result.acks > 0
    assert result.crashes > 0


def test_one_seed_has_one_history() -> None:
    assert run(5, cluster_world(3.0)) == run(5, cluster_world(3.0))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_many_seeds() -> None:
    for seed in range(1_000, 1_015):
        run(seed, cluster_world(20.0))


def is_caught(bug: str, seeds: Iterable[int]) -> bool:
    for seed in seeds:
        try:
            run(seed, cluster_world(20.0, bug=bug))
        except Violation:
            return True
    return False


@pytest.mark.pure
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("bug", "first"), [("leader-alone", 19), ("unfenced-leader", 34), ("cut-at-watermark", 0)]
)
def test_a_mistake_is_caught(bug: str, first: int) -> None:
    assert is_caught(bug, range(first, first + 300))


@pytest.mark.pure
@pytest.mark.slow
def test_leaders_that_die_when_a_replica_cuts_are_no_mistake() -> None:
    assert not is_caught("cut-rightly", range(10))
