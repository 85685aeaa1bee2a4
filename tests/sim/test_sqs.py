"""Clients of SQS and a broker that crashes, and mistakes that must be found."""

import pytest

from entrepot.log.policy import Durability
from sim.history import Violation
from sim.loop import run
from sim.sqs_world import sqs_world


@pytest.mark.parametrize(
    "number", [2, *(pytest.param(number, marks=pytest.mark.slow) for number in (0, 1, 4))]
)
def test_what_is_hidden_is_hidden_and_what_is_deleted_is_gone(number: int) -> None:
    result = run(number, sqs_world(4.0))
    assert min(result.sent, result.deliveries, result.deleted, result.crashes) > 0


@pytest.mark.slow
@pytest.mark.parametrize("durability", [Durability.OS, Durability.INTERVAL])
def test_kills_with_less_durability(durability: Durability) -> None:
    assert run(1, sqs_world(6.0, durability=durability)).deleted > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_seeds() -> None:
    for seed in range(1_000, 1_006):
        run(seed, sqs_world(8.0))


def test_one_seed_gives_one_trace() -> None:
    assert run(5, sqs_world(1.0)).trace == run(5, sqs_world(1.0)).trace


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bug", "first"), [("short", 0), ("stale", 0), ("unsynced", 13), ("forgetful", 7)]
)
def test_a_planted_mistake_is_found(bug: str, first: int) -> None:
    def until_found() -> None:
        for seed in range(first, first + 20):
            run(seed, sqs_world(10.0, bug=bug))

    with pytest.raises(Violation):
        until_found()
