"""The controller's world over some seeds, and that it notices a controller that is wrong."""

from collections.abc import Container
from typing import Any

import pytest

from entrepot.cluster import controller
from entrepot.cluster.controller import Controller, Decision, settle
from entrepot.cluster.state import NOBODY, Assignment
from sim.controller_world import Violation, simulate

SEEDS = range(40)


def test_nothing_is_violated(seed: int) -> None:
    simulate(seed)


def is_caught(seeds: range = SEEDS) -> bool:
    for seed in seeds:
        try:
            simulate(seed)
        except Violation:
            return True
    return False


def test_one_seed_has_one_history() -> None:
    once = simulate(3)
    assert once == simulate(3)
    assert once.changes > 20  # Six partitions, and what became of them.


def test_a_controller_that_is_not_fenced_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = Controller.decide

    def unfenced(self: Controller) -> list[Decision]:
        return [Decision([], changes) for _, changes in decide(self)]

    monkeypatch.setattr(Controller, "decide", unfenced)
    # Rare: what two controllers decide of the same facts is the same.
    assert is_caught(range(15, 150))


def test_a_leader_in_the_same_epoch_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def careless(assignment: Assignment, alive: Container[int], *_: Any, **__: Any) -> Assignment:
        wanted = settle(assignment, alive)
        return Assignment(wanted.replicas, wanted.in_sync, wanted.leader, assignment.leader_epoch)

    monkeypatch.setattr(controller, "settle", careless)
    assert is_caught()


def test_a_leader_that_was_not_in_sync_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def unclean(assignment: Assignment, alive: Container[int], *_: Any, **__: Any) -> Assignment:
        wanted = settle(assignment, alive)
        others = [node for node in wanted.replicas if node in alive]
        if wanted.leader == NOBODY and others:
            epoch = assignment.leader_epoch + 1
            return Assignment(wanted.replicas, (others[0],), others[0], epoch)
        return wanted

    monkeypatch.setattr(controller, "settle", unclean)
    assert is_caught()
