"""The catalog: topics and queues with their settings, and a few persistent numbers.

The catalog is folded from the internal partition `__catalog`: one record for each change, keyed
by what it is about; the newest counts. A change takes effect when it is appended and is
answered when it is permanent.
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
HIDDEN_PREFIX = "$queue-"  # How the names of hidden topics' directories begin. Persisted.
# The names of internal topics, whether they exist or not.
INTERNAL_NAMES = frozenset(
    (
        CATALOG_NAME,
        "__consumer_offsets",
        "__queue_ledgers",
        "__retained",
        "__sessions",
        "__share_group_state",
        "__transaction_state",
    )
)
_CHANGES_KEPT = 10_000  # Names of changed topics kept for `changed_since`.
CATALOG_ID = PartitionId(UUID(int=0x0E47E907), 0)


@dataclass(frozen=True, slots=True)
class Topic:
    name: TopicName
    id: TopicId
    partition_count: int
    settings: dict[str, str] = field(default_factory=dict)  # Only what was set on the topic.
    # It holds a queue's messages: it can be read by offset, and nothing else.
    is_queue: bool = False
    is_hidden: bool = False  # Only its virtual host sees it, and it may have any name.

    @property
    def directory_name(self) -> str:
        """Return the name for directories. That of a hidden topic is no legal topic name."""
        return f"{HIDDEN_PREFIX}{self.id}" if self.is_hidden else self.name


@dataclass(frozen=True, slots=True)
class StoredQueue:
    """A durable queue, or a stream that is not visible as a topic."""

    vhost: str
    name: str
    topic: Topic  # Holds its messages.
    auto_delete: bool = False
    settings: QueueSettings | None = None  # None means: an older release stored only its arguments.
    arguments: FrozenTable = ()  # As the protocol that declared it names them.


class _TopicValue(msgspec.Struct):
    id: UUID
    partitions: int
    settings: dict[str, str]


def read_topic(name: str, value: bytes) -> Topic:
    """Return the topic of a record's value, as `topic_record` makes it."""
    found = msgspec.json.decode(value, type=_TopicValue)
    return Topic(TopicName(name), found.id, found.partitions, found.settings)


def read_queue(vhost: str, name: str, value: bytes) -> StoredQueue:
    """Return the queue of a record's value, as `queue_record` makes it."""
    facts = json.loads(value)
    topic = Topic(
        TopicName(name),
        UUID(facts["id"]),
        facts["partitions"],
        facts["settings"],
        is_queue=facts["is_queue"],
        is_hidden=facts["is_hidden"],
    )
    settings, arguments = facts.get("queue_settings"), from_json(facts["arguments"])
    if settings is not None:
        settings = msgspec.convert(settings, QueueSettings)
    return StoredQueue(vhost, name, topic, facts["auto_delete"], settings, arguments)


class CatalogView(Protocol):
    def apply(self, name: str, value: bytes | None, /) -> None: ...


class Catalog:
    def __init__(self, views: Mapping[str, CatalogView] | None = None) -> None:
        """Create an empty catalog. Records of the kinds in `views` are passed to these."""
        self._views = views or {}
        self.topics: dict[str, Topic] = {}
        self.version = 0  # Counts up whenever a topic changes.
        # Names of changed topics, the latest last.
        self._changed: deque[str] = deque(maxlen=_CHANGES_KEPT)
        self.by_id: dict[TopicId, Topic] = {}
        self.queues: dict[tuple[str, str], StoredQueue] = {}  # By virtual host and name.
        self.hidden: dict[TopicId, Topic] = {}  # Those that are not in `topics`.
        # Directories of all topics there are or were. Files elsewhere belong to a topic whose
        # record is lost.
        self.directory_names: dict[str, None] = {}
        # Start offsets set by requests that deleted records.
        self.offset_starts: dict[PartitionId, int] = {}
        self.producer_id_next = 0
        self.cluster_id = ""

    def apply(self, record: Record) -> None:
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
        """Return the topics created, deleted or changed since a version; None if that is too
        long ago."""
        count = self.version - version
        if count > len(self._changed):
            return None
        return dict.fromkeys(islice(reversed(self._changed), count))

    def _note_change(self, name: str) -> None:
        self.version += 1
        self._changed.append(name)

    def all_topics(self) -> Iterator[Topic]:
        """Yield all topics, the hidden ones too."""
        stored = (queue.topic for queue in self.queues.values())
        return chain(self.topics.values(), (topic for topic in stored if topic.is_hidden))

    def _apply_topic(self, name: TopicName, value: bytes | None) -> None:
        if value is None:
            self._remove_topic(name)
            return
        self._add_topic(read_topic(name, value))

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
            elif gone is not None:
                self.hidden.pop(gone.topic.id, None)
            return
        stored = self.queues[vhost, name] = read_queue(vhost, name, value)
        topic = stored.topic
        self.directory_names[topic.directory_name] = None
        if topic.is_hidden:
            self.hidden[topic.id] = topic
        else:
            self._add_topic(topic)


def is_topic_name(name: str) -> bool:
    """Return whether a queue of that name could also be a topic."""
    try:
        check_topic_name(name)
    except InvalidName:
        return False
    return True


# The catalog's records: one function makes each.


def topic_record(topic: Topic) -> Record:
    value = _TopicValue(topic.id, topic.partition_count, topic.settings)
    return Record(f"topic:{topic.name}".encode(), msgspec.json.encode(value))


def topic_deleted_record(name: TopicName) -> Record:
    return Record(f"topic:{name}".encode(), None)


def queue_record(queue: StoredQueue) -> Record:
    """Return the record of a queue, as JSON in ASCII: bytes that are not Unicode become
    surrogates."""
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
