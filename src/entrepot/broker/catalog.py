"""What there is: topics and queues, their settings, and the few numbers not to forget.

The catalog is a fold over the internal partition `__catalog`: one record per
change, keyed by what it speaks of, the newest counting. A change is applied when
it is appended and answered when it is permanent.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Protocol
from uuid import UUID

import msgspec

from entrepot.broker.queue.settings import QueueSettings
from entrepot.core.errors import InvalidName
from entrepot.core.names import PartitionId, TopicId, TopicName, check_topic_name
from entrepot.core.record import Record
from entrepot.core.value import FrozenTable, from_json

CATALOG_NAME = "__catalog"
# The broker's own topics, present or to come.
INTERNAL_NAMES = frozenset(
    (
        CATALOG_NAME,
        "__consumer_offsets",
        "__queue_ledgers",
        "__share_group_state",
        "__transaction_state",
    )
)
RESERVED_PREFIX = "amq."  # Of names that AMQP's brokers give, and nobody else.
_CHANGES_KEPT = 10_000  # Of topics, for who follows them.
CATALOG_ID = PartitionId(UUID(int=0x0E47E907), 0)


@dataclass(frozen=True, slots=True)
class Topic:
    name: TopicName
    id: TopicId
    partition_count: int
    settings: dict[str, str] = field(default_factory=dict)  # Only what was set on it.
    is_queue: bool = False  # What is in it is a queue's: by offset it can be read, and no more.
    is_hidden: bool = False  # Known to its virtual host only. Its name may be anything.

    @property
    def directory_name(self) -> str:
        """No legal name of a topic, for one that is hidden."""
        return f"$queue-{self.id}" if self.is_hidden else self.name


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """A queue that survives, or a stream that is not a topic for everybody."""

    vhost: str
    name: str
    topic: Topic  # Where its messages are.
    auto_delete: bool = False
    settings: QueueSettings | None = None  # None: an older release wrote its arguments only.
    arguments: FrozenTable = ()  # In the words of the protocol that declared it.


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
        self.version = 0  # One more whenever a topic has changed.
        self._changed: deque[str] = deque(maxlen=_CHANGES_KEPT)  # Names, the last at the end.
        self.by_id: dict[TopicId, Topic] = {}
        self.queues: dict[tuple[str, str], StoredQueue] = {}  # By virtual host and name.
        # Of topics that are or were: files in others belong to a topic whose record is lost.
        self.directory_names: dict[str, None] = {}
        self.offset_starts: dict[PartitionId, int] = {}  # Where records were deleted by request.
        self.producer_id_next = 0
        self.cluster_id = ""

    def apply(self, record: Record) -> None:
        """Fold one record."""
        assert record.key is not None
        kind, _, name = record.key.decode().partition(":")
        if kind == "topic":
            self._apply_topic(TopicName(name), record.value)
        elif kind == "queue":
            self._apply_queue(name, record.value)
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

    def changed_since(self, version: int) -> Iterable[str] | None:
        """The names of topics that came, went or changed since; None when it is too long ago."""
        count = self.version - version
        if count > len(self._changed):
            return None
        return dict.fromkeys(islice(reversed(self._changed), count))

    def _note_change(self, name: str) -> None:
        self.version += 1
        self._changed.append(name)

    def all_topics(self) -> Iterator[Topic]:
        """The hidden ones, too."""
        stored = (queue.topic for queue in self.queues.values())
        return chain(self.topics.values(), (topic for topic in stored if topic.is_hidden))

    def _apply_topic(self, name: TopicName, value: bytes | None) -> None:
        if value is None:
            self._remove_topic(name)
            return
        found = msgspec.json.decode(value, type=_TopicValue)
        self._add_topic(Topic(name, found.id, found.partitions, found.settings))

    def _add_topic(self, topic: Topic) -> None:
        self._note_change(topic.name)
        self.directory_names[topic.directory_name] = None
        old = self.topics.get(topic.name)
        if old is not None:
            del self.by_id[old.id]
        self.topics[topic.name] = self.by_id[topic.id] = topic

    def _remove_topic(self, name: str) -> None:
        self._note_change(name)
        old = self.topics.pop(name)
        del self.by_id[old.id]
        for index in range(old.partition_count):
            self.offset_starts.pop(PartitionId(old.id, index), None)

    def _apply_queue(self, identity: str, value: bytes | None) -> None:
        vhost, name = json.loads(identity)
        if value is None:
            gone = self.queues.pop((vhost, name), None)
            if gone is not None and not gone.topic.is_hidden:
                self._remove_topic(name)
            return
        facts = json.loads(value)
        topic = Topic(
            name,
            UUID(facts["id"]),
            facts["partitions"],
            facts["settings"],
            is_queue=facts["is_queue"],
            is_hidden=facts["is_hidden"],
        )
        settings, arguments = facts.get("queue_settings"), from_json(facts["arguments"])
        if settings is not None:
            settings = msgspec.convert(settings, QueueSettings)
        self.queues[vhost, name] = StoredQueue(
            vhost, name, topic, facts["auto_delete"], settings, arguments
        )
        self.directory_names[topic.directory_name] = None
        if not topic.is_hidden:
            self._add_topic(topic)


def is_topic_name(name: str) -> bool:
    """Whether a queue of that name could be seen as a topic."""
    try:
        check_topic_name(name)
    except InvalidName:
        return False
    return not name.startswith(RESERVED_PREFIX)


# The records, one function each.


def topic_record(topic: Topic) -> Record:
    value = _TopicValue(topic.id, topic.partition_count, topic.settings)
    return Record(f"topic:{topic.name}".encode(), msgspec.json.encode(value))


def topic_deleted_record(name: TopicName) -> Record:
    return Record(f"topic:{name}".encode(), None)


def queue_record(queue: StoredQueue) -> Record:
    """JSON in ASCII: a name that is not Unicode is kept in surrogates."""
    topic = queue.topic
    facts = {
        "id": str(topic.id),
        "partitions": topic.partition_count,
        "settings": topic.settings,
        "is_queue": topic.is_queue,
        "is_hidden": topic.is_hidden,
        "auto_delete": queue.auto_delete,
        "queue_settings": msgspec.to_builtins(queue.settings),
        "arguments": queue.arguments,
    }
    return Record(_queue_key(queue.vhost, queue.name), json.dumps(facts).encode())


def queue_deleted_record(vhost: str, name: str) -> Record:
    return Record(_queue_key(vhost, name), None)


def _queue_key(vhost: str, name: str) -> bytes:
    return b"queue:" + json.dumps([vhost, name]).encode()


def start_record(partition: PartitionId, offset: int) -> Record:
    return Record(f"start:{partition.topic}:{partition.number}".encode(), str(offset).encode())


def producer_id_record(next_id: int) -> Record:
    return Record(b"producer-id-next:", str(next_id).encode())


def cluster_id_record(cluster_id: str) -> Record:
    return Record(b"cluster-id:", cluster_id.encode())
