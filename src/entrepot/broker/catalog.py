"""What there is: topics, their settings, and the few numbers a node must not forget.

The catalog is a fold over the internal partition `__catalog`: one record per
change, keyed by what it speaks of, the newest counting. A change is applied when
it is appended and answered when it is permanent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import msgspec

from entrepot.core.names import PartitionId, TopicId, TopicName
from entrepot.core.record import Record

CATALOG_NAME = "__catalog"
# The broker's own topics, present or to come.
INTERNAL_NAMES = frozenset((CATALOG_NAME, "__consumer_offsets", "__transaction_state"))
CATALOG_ID = PartitionId(UUID(int=0x0E47E907), 0)


@dataclass(frozen=True, slots=True)
class Topic:
    name: TopicName
    id: TopicId
    partition_count: int
    settings: dict[str, str] = field(default_factory=dict)  # Only what was set on it.


class _TopicValue(msgspec.Struct):
    id: UUID
    partitions: int
    settings: dict[str, str]


class View(Protocol):
    def apply(self, name: str, value: bytes | None, /) -> None: ...


class Catalog:
    def __init__(self, views: Mapping[str, View] | None = None) -> None:
        """Records of the kinds in `views` are theirs to fold."""
        self._views = views or {}
        self.topics: dict[str, Topic] = {}
        self.version = 0  # Another one whenever topics have changed.
        self.by_id: dict[TopicId, Topic] = {}
        self.offset_starts: dict[PartitionId, int] = {}  # Where records were deleted by request.
        self.producer_id_next = 0
        self.cluster_id = ""

    def apply(self, record: Record) -> None:
        """Fold one record."""
        assert record.key is not None
        kind, _, name = record.key.decode().partition(":")
        if kind == "topic":
            self._apply_topic(TopicName(name), record.value)
        elif kind == "start":
            topic, _, index = name.partition(":")
            identity = PartitionId(UUID(topic), int(index))
            assert record.value is not None
            self.offset_starts[identity] = int(record.value)
        elif kind == "producer-id-next":
            assert record.value is not None
            self.producer_id_next = int(record.value)
        elif kind == "cluster-id":
            assert record.value is not None
            self.cluster_id = record.value.decode()
        elif kind in self._views:
            self._views[kind].apply(name, record.value)

    def _apply_topic(self, name: TopicName, value: bytes | None) -> None:
        self.version += 1
        old = self.topics.get(name)
        if old is not None:
            del self.by_id[old.id]
        if value is None:
            assert old is not None
            del self.topics[name]
            for index in range(old.partition_count):
                self.offset_starts.pop(PartitionId(old.id, index), None)
            return
        found = msgspec.json.decode(value, type=_TopicValue)
        topic = Topic(name, found.id, found.partitions, found.settings)
        self.topics[name] = self.by_id[topic.id] = topic


# The records, one function each.


def topic_record(topic: Topic) -> Record:
    value = _TopicValue(topic.id, topic.partition_count, topic.settings)
    return Record(f"topic:{topic.name}".encode(), msgspec.json.encode(value))


def topic_deleted_record(name: TopicName) -> Record:
    return Record(f"topic:{name}".encode(), None)


def start_record(partition: PartitionId, offset: int) -> Record:
    return Record(f"start:{partition.topic}:{partition.number}".encode(), str(offset).encode())


def producer_id_record(next_id: int) -> Record:
    return Record(b"producer-id-next:", str(next_id).encode())


def cluster_id_record(cluster_id: str) -> Record:
    return Record(b"cluster-id:", cluster_id.encode())
