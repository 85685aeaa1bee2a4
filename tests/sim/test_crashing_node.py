"""A whole server on a simulated disk and network that crash again and again.

`make sim SEEDS=1000` runs many more; a seed that fails there is added here.
"""

import pytest

from entrepot.log.policy import Durability
from sim.crashing_node import crashing_node
from sim.history import Violation
from sim.loop import run


@pytest.mark.parametrize(
    "number", [0, *(pytest.param(number, marks=pytest.mark.slow) for number in (1, 2, 1_139))]
)
def test_nothing_acknowledged_is_lost_changed_or_reordered(number: int) -> None:
    result = run(number, crashing_node(4.0))
    assert result.acked > 0
    assert result.reads > 0
    assert result.crashes > 0
    assert result.faults > 0


@pytest.mark.parametrize(
    "durability", [Durability.OS, pytest.param(Durability.INTERVAL, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "number", [0, 1, *(pytest.param(number, marks=pytest.mark.slow) for number in (2, 3))]
)
def test_less_durability_loses_nothing_by_kills_and_ends_by_power_failures(
    number: int, durability: Durability
) -> None:
    result = run(number, crashing_node(1.2, durability=durability))
    assert (result.losses > 0) == (number % 2 == 0)
    assert result.acked > 0
    assert result.reads > 0
    assert result.crashes > 0


@pytest.mark.slow
@pytest.mark.timeout(1_500)
def test_many_seeds() -> None:
    for seed in range(1_000, 1_100):
        run(seed, crashing_node(6.0))


@pytest.mark.slow
def test_one_seed_gives_one_trace() -> None:
    result = run(7, crashing_node(2.0))
    assert run(7, crashing_node(2.0)) == result
    assert run(8, crashing_node(2.0)).trace != result.trace


def test_a_disk_that_only_pretends_to_sync_is_found_out() -> None:
    for seed in range(3):
        with pytest.raises(Violation):
            run(seed, crashing_node(3.0, sync_is_noop=True))
