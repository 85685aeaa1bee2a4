"""The controller: decides who leads each partition. A state machine without time, files or waiting.

It is told what the coordinator has and what changes there, and returns transactions. Each of them
expects that its node is still the controller and that the partition is as it was seen. So what a
controller decides that was deposed without knowing, or that saw too little, is not done; the
change it missed comes with the watch, and it decides again.

A leader is one of those in sync, or nobody: whoever else led would lose what was committed. The
first replica is preferred, and leads again when it is in sync again. The last one in sync stays in
the set when it dies, because only it may have everything. Only of a topic whose settings say that
being there is worth a loss (`unclean.leader.election.enable`) any replica leads then.

A partition that moves has arrived when all who will hold it are in sync. Until then those who did
hold it, too.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import NamedTuple

import msgspec

from entrepot.cluster.state import (
    CATALOG,
    CONTROLLER,
    NOBODY,
    NODES,
    PARTITIONS,
    Assignment,
    Node,
    encode,
    read_assignment,
    read_node,
    read_partition_key,
)
from entrepot.core.coordinator import Expected, Put
from entrepot.core.names import TopicId

UNCLEAN = "unclean.leader.election.enable"
_TOPICS = f"{CATALOG}topic:"


class Decision(NamedTuple):
    """A transaction for the coordinator."""

    expected: list[Expected]
    changes: list[Put]


class Known(NamedTuple):
    """A partition as the coordinator has it."""

    assignment: Assignment
    revision: int


class _Topic(msgspec.Struct):
    """What the controller needs of a topic."""

    id: TopicId
    settings: dict[str, str] = {}

    @property
    def is_unclean(self) -> bool:
        return self.settings.get(UNCLEAN) == "true"


class Controller:
    def __init__(self, revision: int) -> None:
        self._revision = revision  # Of the key that says we are the controller.
        self._nodes: dict[int, Node] = {}
        self._partitions: dict[str, Known] = {}
        self._topics: dict[str, TopicId] = {}  # Those that any replica may lead, by key.
        self._to_check: dict[str, None] = {}  # Partitions about which something has changed.

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
                self._partitions.pop(key, None)
                self._to_check.pop(key, None)
            else:
                self._partitions[key] = Known(read_assignment(value), revision)
                self._to_check[key] = None
        elif key.startswith(_TOPICS):
            topic = None if value is None else msgspec.json.decode(value, type=_Topic)
            before = self._topics.pop(key, None)
            if topic is not None and topic.is_unclean:
                self._topics[key] = topic.id
            if before != self._topics.get(key):
                self._to_check = dict.fromkeys(self._partitions)

    def decide(self) -> list[Decision]:
        """Return the transactions that put right what has changed. Each is of one partition, so
        that one that fails holds up no other."""
        decisions = []
        to_check, self._to_check = self._to_check, {}
        unclean = dict.fromkeys(self._topics.values())
        for key in to_check:
            assignment, revision = self._partitions[key]
            is_unclean = bool(unclean) and read_partition_key(key).topic in unclean
            wanted = settle(assignment, self._nodes, is_unclean=is_unclean)
            if wanted != assignment:
                expected = [Expected(CONTROLLER, self._revision), Expected(key, revision)]
                decisions.append(Decision(expected, [Put(key, encode(wanted))]))
        return decisions


def settle(
    assignment: Assignment, alive: Container[int], *, is_unclean: bool = False
) -> Assignment:
    """Return who should hold a partition when these nodes are alive."""
    replicas, in_sync = assignment.replicas, assignment.in_sync
    target, origin, epoch = assignment.target, assignment.origin, assignment.leader_epoch
    left = tuple(node for node in in_sync if node in alive)
    if target and all(node in left for node in target):
        replicas, left = target, tuple(node for node in left if node in target)
        target = origin = ()
    leader = next((node for node in replicas if node in left), NOBODY)
    if leader == NOBODY and is_unclean:
        leader = next((node for node in replicas if node in alive), NOBODY)
        left = () if leader == NOBODY else (leader,)
    if leader != assignment.leader:
        epoch += 1
    if not left:  # The last leader may be the only one that has everything.
        left = (assignment.leader,) if assignment.leader in in_sync else in_sync
    return Assignment(replicas, left, leader, epoch, target, origin)


def move(assignment: Assignment, target: Sequence[int]) -> Assignment:
    """Return the assignment with which a partition begins to move to these nodes."""
    origin = assignment.origin or assignment.replicas
    kept = (node for node in (*origin, *assignment.in_sync) if node not in target)
    replicas = (*target, *dict.fromkeys(kept))
    return msgspec.structs.replace(
        assignment, replicas=replicas, target=tuple(target), origin=origin
    )


def stay(assignment: Assignment) -> Assignment | None:
    """Return the assignment of a partition that moves no more; None if none of those who held it
    is in sync."""
    assert assignment.origin
    left = tuple(node for node in assignment.in_sync if node in assignment.origin)
    if not left:
        return None
    leader, epoch = assignment.leader, assignment.leader_epoch
    if leader not in (*left, NOBODY):
        leader, epoch = left[0], epoch + 1
    return Assignment(assignment.origin, left, leader, epoch)
