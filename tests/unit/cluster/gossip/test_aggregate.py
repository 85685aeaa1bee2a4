"""Every node comes to the average, and what one adds another one gives, whatever is lost."""

from statistics import pvariance

import pytest

from entrepot.cluster.gossip.aggregate import Aggregation
from entrepot.cluster.gossip.peers import Others, Uniform
from entrepot.lab.world import Rounds, SeededEntropy


def world_of(values: list[float], *, lost: int = 0) -> tuple[list[Aggregation], Rounds]:
    entropy = SeededEntropy(3)
    machines = [
        Aggregation(value, Uniform(Others(len(values), node), entropy), counts=node == 0)
        for node, value in enumerate(values)
    ]
    return machines, Rounds(machines, loses=lambda *_: entropy.below(100) < lost)


def test_two_nodes_meet_in_the_middle() -> None:
    (one, other), _ = world_of([10.0, 20.0])
    ((_, question),) = one.tick(0)
    ((_, answer),) = other.receive(0, question, 0)
    one.receive(1, answer, 0)
    assert (one.mean, other.mean) == (15.0, 15.0)
    assert (one.minimum, one.maximum, other.minimum, other.maximum) == (10.0, 20.0, 10.0, 20.0)


@pytest.mark.parametrize("lost", [0, 20])
def test_average_sum_count_minimum_maximum(lost: int) -> None:
    values = [float(number * number % 97) for number in range(100)]
    machines, world = world_of(values, lost=lost)
    for _ in range(60 if lost else 40):
        world.run_round()
    for machine in machines:
        assert machine.mean == pytest.approx(sum(values) / 100, rel=1e-4)
        assert machine.count == pytest.approx(100, rel=1e-3)
        assert machine.total == pytest.approx(sum(values), rel=1e-3)
        assert (machine.minimum, machine.maximum) == (min(values), max(values))


def test_the_sum_stays_when_answers_are_lost() -> None:
    """An exchange whose answer was lost is done when the question is repeated, and once."""
    (one, other), _ = world_of([10.0, 20.0])
    ((_, question),) = one.tick(0)
    ((_, answer),) = other.receive(0, question, 0)
    ((_, again),) = one.tick(1)
    assert again == question
    assert other.receive(0, again, 1) == ((0, answer),)
    one.receive(1, answer, 1)
    one.receive(1, answer, 1)  # It comes twice.
    assert (one.mean, other.mean) == (15.0, 15.0)


def test_the_variance_falls_as_in_theory() -> None:
    entropy = SeededEntropy(1)
    machines = [
        Aggregation(float(node), Uniform(Others(500, node), entropy)) for node in range(500)
    ]
    world = Rounds(machines, in_turn=True)
    before = pvariance([machine.mean for machine in machines])
    for _ in range(10):
        world.run_round()
    after = pvariance([machine.mean for machine in machines])
    assert (after / before) ** (1 / 10) == pytest.approx(0.303, abs=0.03)


def test_an_epoch_begins_anew_for_all() -> None:
    machines, world = world_of([1.0, 2.0, 3.0])
    for _ in range(20):
        world.run_round()
    machines[1].restart(8.0)
    for _ in range(40):
        world.run_round()
    assert [machine.epoch for machine in machines] == [1, 1, 1]
    assert [machine.mean for machine in machines] == pytest.approx([4.0] * 3)
    assert [machine.maximum for machine in machines] == [8.0] * 3
