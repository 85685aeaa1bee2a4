"""Defines the parts of the broker that other modules of this package are given.

`Broker` implements both. A module that stores its state in a topic, or in the catalog, takes one
of these instead of the whole broker: its type then says what it uses, it can be tested with a
stand-in, and it does not depend on `broker.broker`, which makes it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Protocol

from entrepot.broker.catalog import Topic
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.faults import Faults
from entrepot.core.record import Record


class TopicStorage(Protocol):
    """Finds topics and their partitions, and makes the broker's own topics."""

    @property
    def faults(self) -> Faults:
        """Return where internal errors are reported."""

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Return all topics by name."""

    def topic(self, name: str) -> Topic:
        """Return a topic. Raises UnknownTopic."""

    def served_partition(self, topic: Topic, index: int) -> ServedPartition:
        """Return a partition of a topic. Raises UnknownTopic."""

    def served_partitions(self, topic: Topic) -> list[ServedPartition]:
        """Return all partitions of a topic. Raises UnknownTopic."""

    async def internal_topic(
        self, name: str, partition_count: int, settings: Mapping[str, str]
    ) -> Topic:
        """Return one of the broker's own topics. It is made when it is first needed."""


class CatalogChanges(Protocol):
    """Appends records to the catalog's partition."""

    def append_change(self, *records: Record) -> None:
        """Append records, all or none. The caller must apply them. Raises StorageError."""

    def changes_committed(self) -> Awaitable[None]:
        """Wait until all that was appended so far is permanent. Raises StorageError."""
