"""Where partitions go that a node holds."""

from __future__ import annotations

import pytest

from entrepot.broker.held import Stands, moves_off
from entrepot.core.errors import InvalidAssignment
from entrepot.core.steps import finish


def test_each_goes_to_the_node_that_holds_least() -> None:
    others = {2: Stands("", "b"), 3: Stands("", "c")}
    held = [("p", "p", [1]), ("q", "q", [1]), ("r", "r", [2]), ("s", "s", [3, 2])]
    assert finish(moves_off(1, others, held)) == {"p": [3], "q": [2]}


def test_replicas_stay_on_different_machines_and_in_different_racks() -> None:
    others = {2: Stands("x", "b"), 3: Stands("x", "c"), 4: Stands("y", "d"), 5: Stands("y", "d")}
    held = [("p", "p", [1, 2]), ("q", "q", [1, 4]), ("r", "r", [4, 5])]
    moves = finish(moves_off(1, others, held))
    assert moves["p"][1] in (4, 5)
    assert moves["q"][1] in (2, 3)
    assert finish(moves_off(1, {4: others[4], 5: others[5], 3: Stands("y", "c")}, held))["q"] == [
        4,
        3,
    ]


def test_there_must_be_enough_others() -> None:
    with pytest.raises(InvalidAssignment):
        finish(moves_off(1, {2: Stands("", "")}, [("p", "p", [1, 2])]))
