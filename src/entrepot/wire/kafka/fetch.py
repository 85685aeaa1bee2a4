"""Fetch (key 1), v4 to v18, assembled by hand, because the answer carries the log.

Records are never copied: an answer is a list of chunks, and those with records may still be in
a file.

v5: log start offsets. v7: fetch sessions. v9: leader epoch. v11: racks. v12: flexible
encoding, last fetched epoch. v13: topics by id. v15: the replica moves into a tag.
Tags that only replicas and their leaders use are passed over and not sent.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from struct import Struct
from typing import Any, NamedTuple
from uuid import UUID

from entrepot.core import limits
from entrepot.core.errors import MalformedFrame
from entrepot.core.ports import Chunk, FileRange
from entrepot.core.steps import Steps, finish
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.encoding import (
    DAMAGE,
    INT32,
    CompactReader,
    CompactWriter,
    LegacyReader,
    LegacyWriter,
    Reader,
    Writer,
    tagged,
    uuid_bytes,
    uuid_from,
    uvarint,
)

VERSION_LOG_START = 5
VERSION_SESSION = 7
VERSION_LEADER_EPOCH = 9
VERSION_RACK = 11
VERSION_FLEXIBLE = Api.FETCH.flexible_from
VERSION_TOPIC_ID = 13
VERSION_REPLICA_STATE = 15

_TAG_REPLICA_STATE = 1
_TOPIC_BYTES_MIN = 2

_BOUNDS = Struct(">iiib")  # Longest wait, least bytes, most bytes, isolation level.
_SESSION = Struct(">ii")  # Id, epoch.
_REPLICA = Struct(">iq")  # Id, epoch.
_ABORTED = Struct(">qq")  # Producer id, first offset.
_SESSION_ERROR = Struct(">hi")  # Error code, session id.


class FetchPartition(NamedTuple):
    """What a request asks of one partition."""

    partition_index: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    log_start_offset: int
    partition_max_bytes: int


class FetchTopic(NamedTuple):
    """The partitions of one topic. A topic has a name before v13 and an id from then on."""

    name: str | None
    id: UUID | None
    partitions: Sequence[FetchPartition]


class ForgottenTopic(NamedTuple):
    """Partitions that leave the session."""

    name: str | None
    id: UUID | None
    partitions: Sequence[int]


@dataclass(slots=True, kw_only=True)
class FetchRequest:
    replica_id: int = -1  # -1 means: the client is a consumer.
    replica_epoch: int = -1
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1  # -1 means: no session. 0 means: begin a new one.
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic] = field(default_factory=list)
    rack_id: str = ""


class FetchedPartition(NamedTuple):
    """What an answer says of one partition, with its records."""

    partition_index: int
    error_code: int = 0
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    aborted: Sequence[tuple[int, int]] | None = None  # Producer id, first offset.
    preferred_read_replica: int = -1
    records: Chunk | None = None


class FetchedTopic(NamedTuple):
    name: str | None
    id: UUID | None
    partitions: Sequence[FetchedPartition]


class FetchResponse(NamedTuple):
    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]


def decode_request(version: int, frame: memoryview, position: int) -> FetchRequest:
    """Read a request at once. Raises MalformedFrame."""
    request = decode_one(version, frame, position)
    if request is not None:
        return request
    return finish(decode_request_steps(version, frame, position))


def decode_request_steps(version: int, frame: memoryview, position: int) -> Steps[FetchRequest]:
    """Read a request in steps, one for each partition. Raises MalformedFrame."""
    reader = _reader(version, frame, position)
    try:
        replica = (-1, -1)
        if version < VERSION_REPLICA_STATE:
            replica = (reader.unpack(INT32)[0], -1)
        max_wait_ms, min_bytes, max_bytes, isolation_level = reader.unpack(_BOUNDS)
        session_id, session_epoch = 0, -1
        if version >= VERSION_SESSION:
            session_id, session_epoch = reader.unpack(_SESSION)
        topics = []
        for _ in range(reader.count(_TOPIC_BYTES_MIN)):
            topics.append((yield from _read_topic(reader, version)))
        forgotten = []
        if version >= VERSION_SESSION:
            for _ in range(reader.count(_TOPIC_BYTES_MIN)):
                forgotten.append(_read_forgotten(reader, version))
                yield
        rack_id = reader.string() if version >= VERSION_RACK else ""
        if version < VERSION_REPLICA_STATE:
            reader.skip_tags()
        else:
            tags = reader.tags({_TAG_REPLICA_STATE: _read_replica_state})
            replica = tags.get(_TAG_REPLICA_STATE, replica)
    except DAMAGE as error:
        raise MalformedFrame(f"fetch request v{version}: {error}") from None
    return FetchRequest(
        replica_id=replica[0],
        replica_epoch=replica[1],
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten=forgotten,
        rack_id=rack_id,
    )


def encode_response(
    version: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
) -> tuple[list[Chunk], int]:
    """Return the chunks of the message, none of them empty, and their size together."""
    if len(topics) == 1 and len(topics[0].partitions) == 1:
        chunks = _encode_one(version, topics[0], throttle_ms, error_code, session_id)
        if chunks is not None:
            return chunks
    told = {"throttle_ms": throttle_ms, "error_code": error_code, "session_id": session_id}
    return finish(encode_response_steps(version, topics, **told))


def encode_response_steps(
    version: int,
    topics: Sequence[FetchedTopic],
    *,
    throttle_ms: int = 0,
    error_code: int = 0,
    session_id: int = 0,
) -> Steps[tuple[list[Chunk], int]]:
    """Do what `encode_response` does, in steps, one for each partition."""
    write = _writer(version)
    chunks: list[Chunk] = []
    size = 0
    pending = [INT32.pack(throttle_ms)]  # What is not in a chunk yet.
    if version >= VERSION_SESSION:
        pending.append(_SESSION_ERROR.pack(error_code, session_id))
    pending.append(write.length(len(topics)))
    for topic in topics:
        pending.append(_topic_bytes(version, topic.name, topic.id, write))
        pending.append(write.length(len(topic.partitions)))
        for partition in topic.partitions:
            yield
            pending.append(_fetched_bytes(version, partition, write))
            records = partition.records
            records_bytes = None if records is None else _chunk_bytes(records)
            pending.append(write.length(records_bytes))
            if records is not None and records_bytes:
                head = b"".join(pending)
                pending.clear()
                chunks += (head, records)
                size += len(head) + records_bytes
            pending.append(write.NO_TAGS)
        pending.append(write.NO_TAGS)
    pending.append(write.NO_TAGS)
    if tail := b"".join(pending):
        chunks.append(tail)
    return chunks, size + len(tail)


def encode_request(version: int, request: FetchRequest) -> bytes:
    write = _writer(version)
    parts = []
    if version < VERSION_REPLICA_STATE:
        parts.append(INT32.pack(request.replica_id))
    parts.append(
        _BOUNDS.pack(
            request.max_wait_ms, request.min_bytes, request.max_bytes, request.isolation_level
        )
    )
    if version >= VERSION_SESSION:
        parts.append(_SESSION.pack(request.session_id, request.session_epoch))
    parts.append(write.length(len(request.topics)))
    for topic in request.topics:
        parts.append(_topic_bytes(version, topic.name, topic.id, write))
        parts.append(write.length(len(topic.partitions)))
        for partition in topic.partitions:
            parts += (_partition_bytes(version, partition), write.NO_TAGS)
        parts.append(write.NO_TAGS)
    if version >= VERSION_SESSION:
        parts.append(write.length(len(request.forgotten)))
        for gone in request.forgotten:
            parts.append(_topic_bytes(version, gone.name, gone.id, write))
            parts.append(write.length(len(gone.partitions)))
            parts += (*map(INT32.pack, gone.partitions), write.NO_TAGS)
    if version >= VERSION_RACK:
        parts.append(write.string(request.rack_id))
    replica = (request.replica_id, request.replica_epoch)
    if version >= VERSION_REPLICA_STATE and replica != (-1, -1):
        parts.append(tagged([(_TAG_REPLICA_STATE, _REPLICA.pack(*replica) + write.NO_TAGS)]))
    else:
        parts.append(write.NO_TAGS)
    return b"".join(parts)


def decode_response(version: int, frame: memoryview, position: int) -> FetchResponse:
    """Read an answer. Its records are views of the frame. Raises MalformedFrame."""
    reader = _reader(version, frame, position)
    try:
        (throttle_ms,) = reader.unpack(INT32)
        error_code, session_id = 0, 0
        if version >= VERSION_SESSION:
            error_code, session_id = reader.unpack(_SESSION_ERROR)
        topics = []
        for _ in range(reader.count(_TOPIC_BYTES_MIN)):
            name, topic_id = _read_topic_key(reader, version)
            count = reader.count(_fetched_layout(version).size)
            partitions = [_read_fetched(reader, version) for _ in range(count)]
            reader.skip_tags()
            topics.append(FetchedTopic(name, topic_id, partitions))
        reader.skip_tags()
    except DAMAGE as error:
        raise MalformedFrame(f"fetch response v{version}: {error}") from None
    return FetchResponse(throttle_ms, error_code, session_id, topics)


def _reader(version: int, frame: memoryview, position: int) -> Reader:
    return (CompactReader if version >= VERSION_FLEXIBLE else LegacyReader)(frame, position)


def _writer(version: int) -> type[Writer]:
    return CompactWriter if version >= VERSION_FLEXIBLE else LegacyWriter


# One partition, as in nearly all requests: the bytes of the general functions, in a few calls.

_ONE_V11 = Struct(">iiiibiiih")  # Replica, bounds, session, topics, size of the name.
_ONE_V11_END = Struct(">iiiqqiih")  # Partitions, the partition, forgotten topics, size of the rack.
_ONE_V13 = Struct(">iiibiiB16sBiiqiqi5s")  # All but the replica, by id; ends of the structures.
_JOINED_BYTES_MAX = 2 * limits.KIB  # Few records are copied, so that an answer is one buffer.
_ONE = 2  # How the flexible encoding writes that an array has one element.
_ENDS = b"\0\0\1\1\0"  # No tags of partition and topic, nothing forgotten, no rack, no tags.
_ONE_FETCHED_V11 = Struct(">ihiih")  # Throttle, error, session, topics, size of the name.
_ONE_FETCHED_V11_END = Struct(">iihqqqiii")  # Partitions, the partition, size of the records.
_ONE_FETCHED_V13 = Struct(">ihiB16sBihqqqBi")  # All that stands before the size of the records.


def decode_one(version: int, frame: memoryview, position: int) -> FetchRequest | None:
    """Read a request for one partition. None means: read it with the general function."""
    replica = -1
    try:
        if version >= VERSION_TOPIC_ID:
            if version < VERSION_REPLICA_STATE:
                (replica,) = INT32.unpack_from(frame, position)
                position += INT32.size
            wait, least, most, isolation, session, epoch, topics, key, partitions, *one, ends = (
                _ONE_V13.unpack_from(frame, position)
            )
            if (topics, partitions, ends) != (_ONE, _ONE, _ENDS):
                return None
            topic = FetchTopic(None, uuid_from(key), [FetchPartition._make(one)])
        elif version == VERSION_RACK:
            replica, wait, least, most, isolation, session, epoch, topics, size = (
                _ONE_V11.unpack_from(frame, position)
            )
            start = position + _ONE_V11.size
            end = start + max(size, 0)
            partitions, index, leader_epoch, offset, log_start, bytes_max, forgotten, rack = (
                _ONE_V11_END.unpack_from(frame, end)
            )
            if (topics, partitions, forgotten, rack) != (1, 1, 0, 0) or size < 0:
                return None
            partition = FetchPartition(index, leader_epoch, offset, -1, log_start, bytes_max)
            topic = FetchTopic(str(frame[start:end], "utf-8"), None, [partition])
        else:
            return None
    except DAMAGE:
        return None
    return FetchRequest(
        replica_id=replica,
        max_wait_ms=wait,
        min_bytes=least,
        max_bytes=most,
        isolation_level=isolation,
        session_id=session,
        session_epoch=epoch,
        topics=[topic],
    )


def _encode_one(
    version: int, topic: FetchedTopic, throttle_ms: int, error_code: int, session_id: int
) -> tuple[list[Chunk], int] | None:
    """Write an answer of one partition. None means: write it with the general function."""
    (partition,) = topic.partitions
    index, error, watermark, stable, log_start, aborted, replica, records = partition
    if records is None or aborted:
        return None
    size = _chunk_bytes(records)
    if version >= VERSION_TOPIC_ID:
        head = _ONE_FETCHED_V13.pack(
            throttle_ms, error_code, session_id, _ONE, uuid_bytes(topic.id), _ONE,
            index, error, watermark, stable, log_start, 0 if aborted is None else 1, replica,
        ) + uvarint(size + 1)  # fmt: skip
        tail = b"\0\0\0"
    elif version == VERSION_RACK:
        assert topic.name is not None
        name = topic.name.encode()
        head = _ONE_FETCHED_V11.pack(throttle_ms, error_code, session_id, 1, len(name)) + name
        head += _ONE_FETCHED_V11_END.pack(
            1, index, error, watermark, stable, log_start, -1 if aborted is None else 0,
            replica, size,
        )  # fmt: skip
        tail = b""
    else:
        return None
    whole = len(head) + size + len(tail)
    if size <= _JOINED_BYTES_MAX and isinstance(records, bytes):
        return [head + records + tail], whole
    return [head, records, tail] if tail else [head, records], whole


# Requests.

_PARTITION_V4 = Struct(">iqi")  # Partition, fetch offset, most bytes.
_PARTITION_V5 = Struct(">iqqi")  # Partition, fetch offset, log start offset, most bytes.
_PARTITION_V9 = Struct(">iiqqi")  # With the current leader epoch after the index.
_PARTITION_V12 = Struct(">iiqiqi")  # With the last fetched epoch after the fetch offset.


def _read_topic(reader: Reader, version: int) -> Steps[FetchTopic]:
    name, topic_id = _read_topic_key(reader, version)
    partitions = []
    for _ in range(reader.count(_PARTITION_V4.size)):
        yield
        if version >= VERSION_FLEXIBLE:
            partition = FetchPartition(*reader.unpack(_PARTITION_V12))
        elif version >= VERSION_LEADER_EPOCH:
            index, epoch, offset, start, max_bytes = reader.unpack(_PARTITION_V9)
            partition = FetchPartition(index, epoch, offset, -1, start, max_bytes)
        elif version >= VERSION_LOG_START:
            index, offset, start, max_bytes = reader.unpack(_PARTITION_V5)
            partition = FetchPartition(index, -1, offset, -1, start, max_bytes)
        else:
            index, offset, max_bytes = reader.unpack(_PARTITION_V4)
            partition = FetchPartition(index, -1, offset, -1, -1, max_bytes)
        reader.skip_tags()
        partitions.append(partition)
    reader.skip_tags()
    return FetchTopic(name, topic_id, partitions)


def _partition_bytes(version: int, partition: FetchPartition) -> bytes:
    index, epoch, offset, _, start, max_bytes = partition
    if version >= VERSION_FLEXIBLE:
        return _PARTITION_V12.pack(*partition)
    if version >= VERSION_LEADER_EPOCH:
        return _PARTITION_V9.pack(index, epoch, offset, start, max_bytes)
    if version >= VERSION_LOG_START:
        return _PARTITION_V5.pack(index, offset, start, max_bytes)
    return _PARTITION_V4.pack(index, offset, max_bytes)


def _read_forgotten(reader: Reader, version: int) -> ForgottenTopic:
    name, topic_id = _read_topic_key(reader, version)
    partitions = [reader.unpack(INT32)[0] for _ in range(reader.count(INT32.size))]
    reader.skip_tags()
    return ForgottenTopic(name, topic_id, partitions)


def _read_replica_state(reader: Reader) -> tuple[Any, ...]:
    replica = reader.unpack(_REPLICA)
    reader.skip_tags()
    return replica


def _read_topic_key(reader: Reader, version: int) -> tuple[str | None, UUID | None]:
    if version >= VERSION_TOPIC_ID:
        return None, reader.uuid()
    return reader.string(), None


def _topic_bytes(
    version: int, name: str | None, topic_id: UUID | None, write: type[Writer]
) -> bytes:
    if version >= VERSION_TOPIC_ID:
        return uuid_bytes(topic_id)
    assert name is not None
    return write.string(name)


# Answers.

_FETCHED_V4 = Struct(">ihqq")  # Partition, error code, high watermark, last stable offset.
_FETCHED_V5 = Struct(">ihqqq")  # And log start offset.


def _fetched_layout(version: int) -> Struct:
    return _FETCHED_V5 if version >= VERSION_LOG_START else _FETCHED_V4


def _fetched_bytes(version: int, partition: FetchedPartition, write: type[Writer]) -> bytes:
    """Write what stands before a partition's records."""
    index, error_code, high_watermark, stable, start, aborted, replica, _ = partition
    if version >= VERSION_LOG_START:
        head = _FETCHED_V5.pack(index, error_code, high_watermark, stable, start)
    else:
        head = _FETCHED_V4.pack(index, error_code, high_watermark, stable)
    if aborted is None:
        head += write.length(None)
    else:
        entries = [_ABORTED.pack(*each) + write.NO_TAGS for each in aborted]
        head += write.length(len(entries)) + b"".join(entries)
    return head + INT32.pack(replica) if version >= VERSION_RACK else head


def _read_fetched(reader: Reader, version: int) -> FetchedPartition:
    index, error_code, high_watermark, stable, *start = reader.unpack(_fetched_layout(version))
    count = reader.nullable_count(_ABORTED.size)
    aborted: list[tuple[int, int]] | None = None
    if count is not None:
        aborted = []
        for _ in range(count):
            producer_id, offset = reader.unpack(_ABORTED)
            reader.skip_tags()
            aborted.append((producer_id, offset))
    replica = reader.unpack(INT32)[0] if version >= VERSION_RACK else -1
    records = reader.nullable_data()
    reader.skip_tags()
    return FetchedPartition(
        index,
        error_code,
        high_watermark,
        stable,
        start[0] if start else -1,
        aborted,
        replica,
        records,
    )


def _chunk_bytes(chunk: Chunk) -> int:
    return chunk.size if isinstance(chunk, FileRange) else len(chunk)
