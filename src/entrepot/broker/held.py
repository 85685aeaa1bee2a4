"""Who holds the partitions of a cluster, and what is wrong with any of them."""

from __future__ import annotations

from collections.abc import Container
from enum import StrEnum
from typing import NamedTuple

from entrepot.broker.replication import Holders


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
