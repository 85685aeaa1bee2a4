"""What share groups use of the broker."""

from __future__ import annotations

from typing import Protocol

from entrepot.broker.catalog import Catalog, Topic
from entrepot.broker.ports import TopicStorage
from entrepot.broker.replication import Cluster
from entrepot.broker.server_settings import Defaults
from entrepot.broker.turns import Turns
from entrepot.core.names import TopicId
from entrepot.core.record import Record


class GroupNames(Protocol):
    def has(self, group_id: str) -> bool:
        """Return whether a consumer group has this name."""


class ShareTopics(TopicStorage, Protocol):
    """Topics, that groups read and that get their dead letters; and where settings are stored."""

    @property
    def catalog(self) -> Catalog: ...

    @property
    def cluster(self) -> Cluster | None:
        """Return the cluster; None if the broker is alone."""

    @property
    def turns(self) -> Turns: ...

    @property
    def groups(self) -> GroupNames:
        """Return the consumer groups, which have no names in common with share groups."""

    @property
    def defaults(self) -> Defaults:
        """Return the default settings of topics."""

    async def change_catalog(self, *records: Record) -> None:
        """Append records to the catalog and apply them. Returns when that is permanent."""

    def topic_by_id(self, identity: TopicId) -> Topic:
        """Return a topic. Raises UnknownTopicId."""

    def check_foreign(self, name: str) -> None:
        """Raise InvalidName for one of the broker's own topics, and for a queue."""

    async def create_topic(self, name: str) -> Topic:
        """Create a topic with default settings. Raises a PeerError, StorageError."""
