"""Who holds the partitions of a cluster, and what is wrong with any of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from typing import NamedTuple, TypeVar

from entrepot.broker.replication import Holders
from entrepot.core.errors import InvalidAssignment
from entrepot.core.steps import Steps

K = TypeVar("K")

_STEP = 100


class Problem(StrEnum):
    OFFLINE = "offline"  # Nobody leads it: it is neither read nor written.
    TOO_FEW_IN_SYNC = "too-few-in-sync"  # What is written with acks=all is refused.
    UNDER_REPLICATED = "under-replicated"  # A replica is not in sync.


class Held(NamedTuple):
    """A partition, and who holds it."""

    topic: str
    number: int
    holders: Holders
    in_sync_min: int

    def problem(self, alive: Container[int]) -> Problem | None:
        """Return what is wrong with it, the worst first. None means: nothing."""
        holders = self.holders
        if holders.leader not in alive:
            return Problem.OFFLINE
        if len(holders.in_sync) < min(self.in_sync_min, len(holders.replicas)):
            return Problem.TOO_FEW_IN_SYNC
        if len(holders.in_sync) < len(holders.replicas):
            return Problem.UNDER_REPLICATED
        return None


class Stands(NamedTuple):
    """Where a node is; what is empty is not known, or a place of its own."""

    rack: str
    machine: str


def moves_off(
    node: int, others: Mapping[int, Stands], held: Iterable[tuple[K, str, Sequence[int]]]
) -> Steps[dict[K, list[int]]]:
    """Return where all that a node holds can go: each partition to another rack and machine than
    its other replicas, if there is one, and of these nodes to the one that holds least. `held` are
    all partitions, what people call them, and their replicas.

    Raises InvalidAssignment where there are not enough others.
    """
    counts, leaving = dict.fromkeys(others, 0), list[tuple[K, str, list[int]]]()
    for number, (partition, name, replicas) in enumerate(held):
        for each in replicas:
            if each in counts:
                counts[each] += 1
        if node in replicas:
            leaving.append((partition, name, [each for each in replicas if each != node]))
        if number % _STEP == 0:
            yield
    moves = {}
    for number, (partition, name, kept) in enumerate(leaving):
        free = [each for each in others if each not in kept]
        if not free:
            raise InvalidAssignment(
                f"{name} has {len(kept) + 1} copies, and there are only {len(others)} other nodes"
            )
        chosen = min(free, key=partial(_badness, kept, others, counts))
        counts[chosen] += 1
        moves[partition] = [*kept, chosen]
        if number % _STEP == 0:
            yield
    return moves


def _badness(
    kept: Sequence[int], others: Mapping[int, Stands], counts: Mapping[int, int], node: int
) -> tuple[bool, bool, int]:
    """Return what is bad about a node as the place of another replica, the worst first."""
    stands = others[node]
    used = [others[each] for each in kept if each in others]
    has_rack = bool(stands.rack) and any(each.rack == stands.rack for each in used)
    has_machine = bool(stands.machine) and any(each.machine == stands.machine for each in used)
    return has_rack, has_machine, counts[node]
