"""Groups of both protocols on a node that crashes, with members that come, go and die.

`python -m sim --world consumer-groups --seeds 1000` runs many more.
"""

import pytest

from entrepot.log.policy import Durability
from sim.consumer_group_world import BUGS, consumer_groups
from sim.history import Violation
from sim.loop import run


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 151, 235))]
)
def test_groups_keep_their_promises(number: int) -> None:
    """Proves K-03, K-05 and K-06."""
    result = run(number, consumer_groups(4.0))
    assert result.acked > 0
    assert result.reads >= 2 * result.acked
    assert result.commits > 0
    assert result.rebalances > 4
    assert result.crashes > 0
    assert result.faults > 0


@pytest.mark.parametrize(
    "durability", [Durability.OS, pytest.param(Durability.INTERVAL, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 3))]
)
def test_groups_with_less_durability(number: int, durability: Durability) -> None:
    """Killed, they keep all of their promises."""
    result = run(number, consumer_groups(2.0, durability=durability))
    assert result.acked > 0
    assert result.commits > 0
    assert result.crashes > 0


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_many_seeds() -> None:
    for seed in range(1_000, 1_100):
        run(seed, consumer_groups(6.0))


def test_one_seed_gives_one_trace() -> None:
    result = run(7, consumer_groups(2.0))
    assert run(7, consumer_groups(2.0)) == result
    assert run(8, consumer_groups(2.0)).trace != result.trace


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    def simulate() -> None:
        for seed in range(10):
            run(seed, consumer_groups(6.0, bug=bug))

    with pytest.raises(Violation):
        simulate()
