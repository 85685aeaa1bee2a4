"""Who holds the partitions of a cluster, and what is wrong with any of them."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import suppress
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from entrepot.broker.replication import Cluster, Holders
from entrepot.core.errors import UnknownTopic
from entrepot.core.names import PartitionId

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker


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


def all_held(broker: Broker, cluster: Cluster) -> Iterator[Held]:
    """Yield all partitions, with those of the broker's own topics, as far as they are known."""
    for topic in list(broker.catalog.all_topics()):
        for number in range(topic.partition_count):
            with suppress(UnknownTopic):  # It may be deleted by now.
                holders = cluster.holders(PartitionId(topic.id, number))
                if holders is not None:
                    served = broker.served_partition(topic, number)
                    yield Held(topic.name, number, holders, served.config.in_sync_min)
