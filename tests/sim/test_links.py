"""Queue managers that crash again and again, and mistakes that must be found."""

import pytest

from entrepot.log.policy import Durability
from sim.history import Violation
from sim.link_world import link_world
from sim.loop import run


@pytest.mark.parametrize(
    "number", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (0, 1, 5))]
)
def test_what_is_confirmed_comes_to_the_last_manager_once(number: int) -> None:
    result = run(number, link_world(4.0))
    assert result.confirmed > 0
    assert result.crashes > 0


@pytest.mark.slow
@pytest.mark.parametrize("durability", [Durability.OS, Durability.INTERVAL])
def test_kills_with_less_durability(durability: Durability) -> None:
    result = run(0, link_world(4.0, durability=durability))
    assert result.confirmed > 0
    assert result.crashes > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_seeds() -> None:
    for seed in range(1_000, 1_040):
        run(seed, link_world(6.0))


def test_one_seed_gives_one_trace() -> None:
    assert run(5, link_world(1.0)).trace == run(5, link_world(1.0)).trace


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "found"), [("new-ids", "came more than once"), ("early", "confirmed, and never came")]
)
def test_a_planted_mistake_is_found(bug: str, found: str) -> None:
    def until_found() -> None:
        for seed in range(10):
            run(seed, link_world(6.0, bug=bug))

    with pytest.raises(Violation, match=found):
        until_found()
