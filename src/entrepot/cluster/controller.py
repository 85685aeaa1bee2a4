"""The controller: decides who leads each partition. A state machine without time, files or waiting.

It is told what the coordinator has and what changes there, and returns transactions. Each of them
expects that its node is still the controller and that the partition is as it was seen. So what a
controller decides that was deposed without knowing, or that saw too little, is not done; the
change it missed comes with the watch, and it decides again.

A leader is one of those in sync, or nobody: whoever else led would lose what was committed. The
first replica is preferred, and leads again when it is in sync again; unless the partition is led
with another one, whose leader is preferred then. The last one in sync stays in the set when it
dies, because only it may have everything.
"""

from __future__ import annotations

from collections.abc import Container
from typing import NamedTuple

from msgspec.structs import replace

from entrepot.cluster.state import (
    CONTROLLER,
    NOBODY,
    NODES,
    PARTITIONS,
    Assignment,
    Node,
    encode,
    read_assignment,
    read_node,
)
from entrepot.core.coordinator import Expected, Put


class Decision(NamedTuple):
    """A transaction for the coordinator."""

    expected: list[Expected]
    changes: list[Put]


class Known(NamedTuple):
    """A partition as the coordinator has it."""

    assignment: Assignment
    revision: int


class Controller:
    def __init__(self, revision: int) -> None:
        self._revision = revision  # Of the key that says we are the controller.
        self._nodes: dict[int, Node] = {}
        self._partitions: dict[str, Known] = {}
        self._to_check: dict[str, None] = {}  # Partitions about which something has changed.
        self._followers: dict[str, dict[str, None]] = {}  # By key: those that are led with it.

    def told(self, key: str, value: bytes | None, revision: int) -> None:
        """Take in an entry of the coordinator, or a change; None means: it is gone."""
        if key.startswith(NODES):
            if value is None:
                self._nodes.pop(int(key.removeprefix(NODES)), None)
            else:
                node = read_node(value)
                self._nodes[node.id] = node
            self._to_check = dict.fromkeys(self._partitions)
        elif key.startswith(PARTITIONS):
            if value is None:
                gone = self._partitions.pop(key, None)
                self._to_check.pop(key, None)
                if gone is not None and gone.assignment.led_with:
                    self._followers[gone.assignment.led_with].pop(key, None)
            else:
                assignment = read_assignment(value)
                self._partitions[key] = Known(assignment, revision)
                self._to_check[key] = None
                if assignment.led_with:
                    self._followers.setdefault(assignment.led_with, {})[key] = None
                self._to_check.update(self._followers.get(key, {}))

    def decide(self) -> list[Decision]:
        """Return the transactions that put right what has changed. Each is of one partition, so
        that one that fails holds up no other."""
        decisions = []
        to_check, self._to_check = self._to_check, {}
        for key in to_check:
            assignment, revision = self._partitions[key]
            wanted = settle(assignment, self._nodes, self._preferred(assignment))
            if wanted != assignment:
                expected = [Expected(CONTROLLER, self._revision), Expected(key, revision)]
                decisions.append(Decision(expected, [Put(key, encode(wanted))]))
        return decisions

    def _preferred(self, assignment: Assignment) -> int:
        found = self._partitions.get(assignment.led_with)
        return NOBODY if found is None else found.assignment.leader


def settle(assignment: Assignment, alive: Container[int], preferred: int = NOBODY) -> Assignment:
    """Return who should hold a partition when these nodes are alive.

    `preferred` is the leader of the partition that this one is led with, if there is one. If that
    cannot lead, or is not known, whoever leads this one goes on.
    """
    in_sync, epoch = assignment.in_sync, assignment.leader_epoch
    left = tuple(node for node in in_sync if node in alive)
    wanted = assignment.replicas
    if assignment.led_with:
        wanted = (preferred, assignment.leader, *wanted)
    leader = next((node for node in wanted if node in left), NOBODY)
    if leader != assignment.leader:
        epoch += 1
    if not left:  # The last leader may be the only one that has everything.
        left = (assignment.leader,) if assignment.leader in in_sync else in_sync
    return replace(assignment, in_sync=left, leader=leader, leader_epoch=epoch)
