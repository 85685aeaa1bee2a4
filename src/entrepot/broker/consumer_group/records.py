"""The records of `__consumer_offsets`, in which groups are stored. The formats are Kafka's.

A key begins with the number of its kind, a value with the version of its layout; a null
value deletes the key. In keys, and in the values of the classic protocol, sizes have a fixed
width; the modern protocol's values have sizes as varints, and tagged fields.

    1 an offset           group topic partition     5 a member's subscription  group member
    2 a classic group     group                     6 the target's epoch       group
    3 a modern group      group                     7 a member's target        group member
                                                    8 a member's assignment    group member
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import IntEnum
from struct import Struct, error, pack
from typing import Any, NamedTuple
from uuid import UUID

from entrepot.core.errors import Corruption
from entrepot.core.record import Record

Assignment = Mapping[UUID, tuple[int, ...]]  # Topic id -> partition numbers, both ascending.


class GroupRecordKind(IntEnum):  # Persisted: Kafka's numbers.
    OFFSET = 1
    CLASSIC_GROUP = 2
    GROUP_EPOCH = 3
    SUBSCRIPTION = 5
    TARGET_EPOCH = 6
    TARGET = 7
    CURRENT = 8


class Key(NamedTuple):
    kind: GroupRecordKind
    group: str
    name: str = ""  # The member's id or the topic's name; empty if the kind has neither.
    partition: int = -1


class CommittedOffset(NamedTuple):
    offset: int
    leader_epoch: int  # -1 means: the client did not say.
    metadata: str
    commit_ms: int
    record_offset: int = -1  # The offset of this record in `__consumer_offsets`; not stored in it.


class StoredMember(NamedTuple):
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_ms: int
    session_ms: int
    subscription: bytes
    assignment: bytes


class StoredGroup(NamedTuple):
    """A classic group as of its last generation."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_ms: int  # When the state last changed; -1 means: not known.
    members: tuple[StoredMember, ...]


class GroupEpoch(NamedTuple):
    epoch: int
    topics_hash: int  # Hash of the topics of this epoch, to see when they change.


class Subscription(NamedTuple):
    """The subscription of a member of a modern group."""

    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]  # In ascending order.
    regex: str | None
    rebalance_ms: int
    assignor: str | None

    @property
    def size(self) -> int:
        """Return about how many bytes it takes."""
        return sum(map(len, self.topics)) + len(self.regex or "")


class Current(NamedTuple):
    """The state of a member of a modern group: its epoch and its partitions."""

    epoch: int
    previous_epoch: int
    state: int
    assigned: Assignment
    revoking: Assignment


Value = CommittedOffset | StoredGroup | GroupEpoch | Subscription | int | Assignment | Current
Row = tuple[Key, Value | None]


def encode(row: Row) -> Record:
    key, value = row
    output = _Writer()
    output.number(_INT16, key.kind)
    output.string(key.group)
    if key.kind in _NAMED:
        output.string(key.name)
    if key.kind is GroupRecordKind.OFFSET:
        output.number(_INT32, key.partition)
    if value is None:
        return Record(bytes(output.data), None)
    body = _Writer()
    version, write, _ = _VALUES[key.kind]
    body.number(_INT16, version)
    write(body, value)
    return Record(bytes(output.data), bytes(body.data))


def decode(record: Record) -> Row | None:
    """Decode a record; None for a kind that is not used here. Raises Corruption."""
    key = decode_key(record.key or b"")
    return None if key is None else (key, decode_value(key, record.value))


def decode_key(data: bytes) -> Key | None:
    try:
        reader = _Reader(data)
        number = reader.number(_INT16)
        if number not in _VALUES:
            return None
        kind = GroupRecordKind(number)
        group = reader.string()
        name = reader.string() if kind in _NAMED else ""
        partition = reader.number(_INT32) if kind is GroupRecordKind.OFFSET else -1
        return Key(kind, group, name, partition)
    except _DAMAGE as damage:
        raise Corruption(f"a key about consumer groups does not parse: {damage}") from None


def decode_value(key: Key, data: bytes | None) -> Value | None:
    if data is None:
        return None
    version, _, read = _VALUES[key.kind]
    try:
        reader = _Reader(data)
        if reader.number(_INT16) != version:
            raise Corruption(f"{key}: another version than {version}")
        value: Value = read(reader)
        return value
    except _DAMAGE as damage:
        raise Corruption(f"{key}: does not parse: {damage}") from None


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Return the topics in a classic consumer's metadata; None when it cannot be decoded.

    Every version of the metadata begins with its number and the topics.
    """
    try:
        data = _Reader(metadata)
        data.number(_INT16)
        count = data.number(_INT32)
        if count * 2 > len(metadata):
            return None
        return tuple(data.string() for _ in range(count))
    except _DAMAGE:
        return None


def assigned_partitions(assignment: bytes) -> dict[str, tuple[int, ...]]:
    """Return the partitions of each topic in a classic consumer's assignment; none when it cannot
    be decoded.

    Every version of it begins with its number and these.
    """
    found: dict[str, tuple[int, ...]] = {}
    try:
        data = _Reader(assignment)
        data.number(_INT16)
        for _ in range(min(data.number(_INT32), len(assignment))):
            topic, count = data.string(), data.number(_INT32)
            numbers = data.take(count * _INT32.size)
            found[topic] = tuple(number for (number,) in _INT32.iter_unpack(numbers))
    except _DAMAGE:
        return {}
    return found


# --- the layouts

_DAMAGE = (error, IndexError, UnicodeDecodeError)
_INT8, _INT16, _INT32, _INT64 = Struct(">b"), Struct(">h"), Struct(">i"), Struct(">q")
_OFFSET = Struct(">qih")  # An offset, its leader epoch, and how long the metadata is.


class _Writer:
    def __init__(self) -> None:
        self.data = bytearray()

    def number(self, layout: Struct, value: int) -> None:
        self.data += layout.pack(value)

    def string(self, text: str | None) -> None:
        if text is None:
            self.number(_INT16, -1)
        else:
            data = text.encode()
            self.number(_INT16, len(data))
            self.data += data

    def blob(self, data: bytes) -> None:
        self.number(_INT32, len(data))
        self.data += data

    def size(self, value: int) -> None:
        """Write a number as an unsigned varint. For a size that is the size plus one; 0 means
        null."""
        while value > 0x7F:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def compact(self, text: str | None) -> None:
        data = b"" if text is None else text.encode()
        self.size(0 if text is None else len(data) + 1)
        self.data += data

    def tags(self, *fields: tuple[int, bytes]) -> None:
        self.size(len(fields))
        for tag, data in fields:
            self.size(tag)
            self.size(len(data))
            self.data += data


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def number(self, layout: Struct) -> int:
        (value,) = layout.unpack_from(self._data, self._position)
        self._position += layout.size
        return int(value)

    def numbers(self, layout: Struct) -> tuple[int, ...]:
        position = self._position
        self._position += layout.size
        return layout.unpack_from(self._data, position)

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise IndexError(f"{size} bytes at {self._position} of {len(self._data)}")
        found, self._position = self._data[self._position : end], end
        return found

    def nullable(self) -> str | None:
        size = self.number(_INT16)
        return None if size < 0 else self.take(size).decode()

    def string(self) -> str:
        return self.take(self.number(_INT16)).decode()

    def blob(self) -> bytes:
        return self.take(self.number(_INT32))

    def size(self) -> int:
        value = shift = 0
        while shift < 35:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
        return value

    def compact_nullable(self) -> str | None:
        size = self.size()
        return None if size == 0 else self.take(size - 1).decode()

    def compact(self) -> str:
        return self.take(self.size() - 1).decode()

    def tags(self) -> dict[int, bytes]:
        return {self.size(): self.take(self.size()) for _ in range(self.size())}


def _write_offset(to: _Writer, value: CommittedOffset) -> None:
    to.number(_INT64, value.offset)
    to.number(_INT32, value.leader_epoch)
    to.string(value.metadata)
    to.number(_INT64, value.commit_ms)


def _read_offset(data: _Reader) -> CommittedOffset:
    offset, leader_epoch, size = data.numbers(_OFFSET)
    return CommittedOffset(offset, leader_epoch, data.take(size).decode(), data.number(_INT64))


def _write_group(to: _Writer, value: StoredGroup) -> None:
    to.string(value.protocol_type)
    to.number(_INT32, value.generation)
    to.string(value.protocol)
    to.string(value.leader)
    to.number(_INT64, value.state_ms)
    to.number(_INT32, len(value.members))
    for member in value.members:
        to.string(member.id)
        to.string(member.instance_id)
        to.string(member.client_id)
        to.string(member.client_host)
        to.number(_INT32, member.rebalance_ms)
        to.number(_INT32, member.session_ms)
        to.blob(member.subscription)
        to.blob(member.assignment)


def _read_group(data: _Reader) -> StoredGroup:
    head = data.string(), data.number(_INT32), data.nullable(), data.nullable()
    state_ms = data.number(_INT64)
    members = (
        StoredMember(
            data.string(),
            data.nullable(),
            data.string(),
            data.string(),
            data.number(_INT32),
            data.number(_INT32),
            data.blob(),
            data.blob(),
        )
        for _ in range(data.number(_INT32))
    )
    return StoredGroup(*head, state_ms, tuple(members))


def _write_group_epoch(to: _Writer, value: GroupEpoch) -> None:
    to.number(_INT32, value.epoch)
    to.tags((0, _INT64.pack(value.topics_hash)))


def _read_group_epoch(data: _Reader) -> GroupEpoch:
    epoch = data.number(_INT32)
    (topics_hash,) = _INT64.unpack(data.tags().get(0, bytes(8)))
    return GroupEpoch(epoch, topics_hash)


def _write_subscription(to: _Writer, value: Subscription) -> None:
    to.compact(value.instance_id)
    to.compact(value.rack_id)
    to.compact(value.client_id)
    to.compact(value.client_host)
    to.size(len(value.topics) + 1)
    for topic in value.topics:
        to.compact(topic)
    to.compact(value.regex)
    to.number(_INT32, value.rebalance_ms)
    to.compact(value.assignor)
    to.tags()


def _read_subscription(data: _Reader) -> Subscription:
    names = data.compact_nullable(), data.compact_nullable(), data.compact(), data.compact()
    topics = tuple(data.compact() for _ in range(data.size() - 1))
    regex = data.compact_nullable()
    return Subscription(*names, topics, regex, data.number(_INT32), data.compact_nullable())


def _write_epoch(to: _Writer, value: int) -> None:
    to.number(_INT32, value)
    to.tags()


def _read_epoch(data: _Reader) -> int:
    return data.number(_INT32)


def _write_assignment(to: _Writer, value: Assignment) -> None:
    to.size(len(value) + 1)
    for topic, partitions in value.items():
        to.data += topic.bytes
        to.size(len(partitions) + 1)
        to.data += pack(f">{len(partitions)}ib", *partitions, 0)  # The last byte: no tagged fields.


def _read_assignment(data: _Reader) -> Assignment:
    found: dict[UUID, tuple[int, ...]] = {}
    for _ in range(data.size() - 1):
        topic = UUID(bytes=data.take(16))
        count = data.size() - 1
        found[topic] = Struct(f">{count}i").unpack(data.take(4 * count))
        data.tags()
    return found


def _write_target(to: _Writer, value: Assignment) -> None:
    _write_assignment(to, value)
    to.tags()


def _write_current(to: _Writer, value: Current) -> None:
    to.number(_INT32, value.epoch)
    to.number(_INT32, value.previous_epoch)
    to.number(_INT8, value.state)
    _write_assignment(to, value.assigned)
    _write_assignment(to, value.revoking)
    to.tags()


def _read_current(data: _Reader) -> Current:
    numbers = data.number(_INT32), data.number(_INT32), data.number(_INT8)
    return Current(*numbers, _read_assignment(data), _read_assignment(data))


_NAMED = (
    GroupRecordKind.OFFSET,
    GroupRecordKind.SUBSCRIPTION,
    GroupRecordKind.TARGET,
    GroupRecordKind.CURRENT,
)
# The version of each value, how it is written, how it is read.
_VALUES: dict[int, tuple[int, Callable[[_Writer, Any], None], Callable[[_Reader], Any]]] = {
    GroupRecordKind.OFFSET: (3, _write_offset, _read_offset),
    GroupRecordKind.CLASSIC_GROUP: (3, _write_group, _read_group),
    GroupRecordKind.GROUP_EPOCH: (0, _write_group_epoch, _read_group_epoch),
    GroupRecordKind.SUBSCRIPTION: (0, _write_subscription, _read_subscription),
    GroupRecordKind.TARGET_EPOCH: (0, _write_epoch, _read_epoch),
    GroupRecordKind.TARGET: (0, _write_target, _read_assignment),
    GroupRecordKind.CURRENT: (0, _write_current, _read_current),
}
