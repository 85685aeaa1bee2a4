"""Produce (key 0), v3 to v13, assembled by hand: the busiest message there is.

Records are never copied: a request's are views of its frame.

v5: log start offset in the answer. v8: what was wrong with which record. v9: flexible
encoding. v10: hints about the current leader, which we do not give. v13: topics by id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from entrepot.core.errors import MalformedFrame
from entrepot.core.ports import Buffer
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
    read_uvarint,
    uuid_bytes,
    uuid_from,
)

VERSION_LOG_START = 5
VERSION_RECORD_ERRORS = 8
VERSION_FLEXIBLE = Api.PRODUCE.flexible_from
VERSION_TOPIC_ID = 13

_ACKS_TIMEOUT = Struct(">hi")
_RESULT_V3 = Struct(">ihqq")  # Partition, error code, first offset, append time.
_RESULT_V5 = Struct(">ihqqq")  # And log start offset.
_ONE_V3 = Struct(">hhiih")  # Transaction, acks, timeout, topics, size of the name.
_ONE_V3_PARTITION = Struct(">iii")  # Partitions, the partition, size of its records.
_ONE = 2  # How the flexible encoding writes that an array has one element.
_ONE_V9 = Struct(">BhiBB")  # The same,
_ONE_V9_PARTITION = Struct(">Bi")  # but the size of the records is a varint.
_ONE_V13 = Struct(">BhiB16sBi")  # Both, with an id for the name.
_ENDS = b"\0\0\0"  # No tags of partition, topic and request.
# Partitions, the partition's result, its record errors and message, no tags; throttle, no tags.
_ONE_RESULT = Struct(">BihqqqBBBBiB")
_TOPIC_BYTES_MIN = 2
_PARTITION_BYTES_MIN = 5


class ProducePartition(NamedTuple):
    """The records for one partition. Its topic has a name before v13 and an id from then on."""

    topic_name: str | None
    topic_id: UUID | None
    partition_index: int
    records: Buffer | None


@dataclass(slots=True)
class ProduceRequest:
    transactional_id: str | None
    acks: int  # 0 means: send no answer. 1 and -1 mean: answer when it is permanent.
    timeout_ms: int
    partitions: list[ProducePartition]  # The partitions of one topic follow one another.


class ProduceResult(NamedTuple):
    """Says whether one partition's records were stored, and where."""

    partition_index: int
    error_code: int = 0
    offset_first: int = -1
    append_time_ms: int = -1  # -1 means: the timestamps are the producer's.
    log_start: int = -1
    record_errors: Sequence[
        tuple[int, str | None]
    ] = ()  # The number of a record in its batch, and what is wrong with it.
    error_message: str | None = None


class ProduceTopic(NamedTuple):
    name: str | None
    id: UUID | None
    results: Sequence[ProduceResult]


def decode_request(version: int, frame: memoryview, position: int) -> ProduceRequest:
    """Read a request at once. Raises MalformedFrame."""
    return finish(decode_request_steps(version, frame, position))


def decode_request_steps(version: int, frame: memoryview, position: int) -> Steps[ProduceRequest]:
    """Read a request in steps, one for each partition. Raises MalformedFrame."""
    reader = _reader(version, frame, position)
    try:
        transactional_id = reader.nullable_string()
        acks, timeout_ms = reader.unpack(_ACKS_TIMEOUT)
        partitions: list[ProducePartition] = []
        for _ in range(reader.count(_TOPIC_BYTES_MIN)):
            name, topic_id = _read_topic(reader, version)
            for _ in range(reader.count(_PARTITION_BYTES_MIN)):
                (index,) = reader.unpack(INT32)
                records = reader.nullable_data()
                reader.skip_tags()
                partitions.append(ProducePartition(name, topic_id, index, records))
                yield
            reader.skip_tags()
        reader.skip_tags()
    except DAMAGE as error:
        raise MalformedFrame(f"produce request v{version}: {error}") from None
    return ProduceRequest(transactional_id, acks, timeout_ms, partitions)


def decode_one(version: int, frame: memoryview, position: int) -> ProduceRequest | None:
    """Read a request for one partition and without a transaction, as nearly all are, in a few
    calls. None means: read it with the general function, which also says what is wrong."""
    name: str | None = None
    topic_id: UUID | None = None
    try:
        if version >= VERSION_TOPIC_ID:
            null, acks, timeout_ms, topics, key, partitions, index = _ONE_V13.unpack_from(
                frame, position
            )
            topic_id = uuid_from(key)
            position += _ONE_V13.size
        elif version >= VERSION_FLEXIBLE:
            null, acks, timeout_ms, topics, size = _ONE_V9.unpack_from(frame, position)
            end = position + _ONE_V9.size + size - 1
            name = str(frame[position + _ONE_V9.size : end], "utf-8")
            partitions, index = _ONE_V9_PARTITION.unpack_from(frame, end)
            position = end + _ONE_V9_PARTITION.size
            if not 0 < size < 0x80:
                return None
        else:
            return _decode_one_legacy(frame, position)
        if (null, topics, partitions) != (0, _ONE, _ONE):
            return None
        records_size, position = read_uvarint(frame, position)
        end = position + max(records_size - 1, 0)
        if frame[end : end + len(_ENDS)] != _ENDS:
            return None
        records = frame[position:end] if records_size else None
    except (*DAMAGE, MalformedFrame):
        return None
    partition = ProducePartition(name, topic_id, index, records)
    return ProduceRequest(None, acks, timeout_ms, [partition])


def _decode_one_legacy(frame: memoryview, position: int) -> ProduceRequest | None:
    null, acks, timeout_ms, topics, size = _ONE_V3.unpack_from(frame, position)
    start = position + _ONE_V3.size
    end = start + max(size, 0)
    partitions, index, records_bytes = _ONE_V3_PARTITION.unpack_from(frame, end)
    records = end + _ONE_V3_PARTITION.size
    if (null, topics, partitions) != (-1, 1, 1) or size < 0:
        return None
    if not 0 <= records_bytes <= len(frame) - records:
        return None
    name = str(frame[start:end], "utf-8")
    data = frame[records : records + records_bytes]
    return ProduceRequest(None, acks, timeout_ms, [ProducePartition(name, None, index, data)])


def encode_response(version: int, topics: Sequence[ProduceTopic], throttle_ms: int = 0) -> bytes:
    write = CompactWriter if version >= VERSION_FLEXIBLE else LegacyWriter
    parts = [write.length(len(topics))]
    for topic in topics:
        if version >= VERSION_TOPIC_ID:
            parts.append(uuid_bytes(topic.id))
        else:
            assert topic.name is not None
            parts.append(write.string(topic.name))
        parts.append(write.length(len(topic.results)))
        parts += (_result_bytes(version, result, write) for result in topic.results)
        parts.append(write.NO_TAGS)
    parts += (INT32.pack(throttle_ms), write.NO_TAGS)
    return b"".join(parts)


def encode_one(
    version: int, topic: str | UUID, result: ProduceResult, throttle_ms: int = 0
) -> bytes:
    """Write an answer of one partition, as nearly all are."""
    index, code, offset_first, append_time_ms, log_start, errors, message = result
    if version < VERSION_FLEXIBLE or errors or message is not None:
        name, identity = (topic, None) if isinstance(topic, str) else (None, topic)
        return encode_response(version, [ProduceTopic(name, identity, [result])], throttle_ms)
    key = CompactWriter.string(topic) if isinstance(topic, str) else topic.bytes
    return b"\2" + key + _ONE_RESULT.pack(
        _ONE, index, code, offset_first, append_time_ms, log_start, 1, 0, 0, 0, throttle_ms, 0
    )  # fmt: skip


def _result_bytes(version: int, result: ProduceResult, write: type[Writer]) -> bytes:
    index, error_code, offset_first, append_time_ms, log_start, errors, message = result
    if version < VERSION_LOG_START:
        return _RESULT_V3.pack(index, error_code, offset_first, append_time_ms)
    head = _RESULT_V5.pack(index, error_code, offset_first, append_time_ms, log_start)
    if version < VERSION_RECORD_ERRORS:
        return head
    head += write.length(len(errors))
    for number, why in errors:
        head += INT32.pack(number) + write.nullable_string(why) + write.NO_TAGS
    return head + write.nullable_string(message) + write.NO_TAGS


def encode_request(version: int, request: ProduceRequest) -> bytes:
    write = CompactWriter if version >= VERSION_FLEXIBLE else LegacyWriter
    by_topic = [
        (topic, list(group))
        for topic, group in groupby(request.partitions, key=lambda each: each[:2])
    ]
    parts: list[Buffer] = [
        write.nullable_string(request.transactional_id),
        _ACKS_TIMEOUT.pack(request.acks, request.timeout_ms),
        write.length(len(by_topic)),
    ]
    for (name, topic_id), partitions in by_topic:
        if version >= VERSION_TOPIC_ID:
            parts.append(uuid_bytes(topic_id))
        else:
            assert name is not None
            parts.append(write.string(name))
        parts.append(write.length(len(partitions)))
        for partition in partitions:
            records = partition.records
            parts.append(INT32.pack(partition.partition_index))
            parts.append(write.length(None if records is None else len(records)))
            parts += (records or b"", write.NO_TAGS)
        parts.append(write.NO_TAGS)
    parts.append(write.NO_TAGS)
    return b"".join(parts)


def decode_response(
    version: int, frame: memoryview, position: int
) -> tuple[list[ProduceTopic], int]:
    """Return the topics, and how many ms the client is asked to wait. Raises MalformedFrame."""
    reader = _reader(version, frame, position)
    try:
        topics = []
        for _ in range(reader.count(_TOPIC_BYTES_MIN)):
            name, topic_id = _read_topic(reader, version)
            results = [_read_result(reader, version) for _ in range(reader.count(_RESULT_V3.size))]
            reader.skip_tags()
            topics.append(ProduceTopic(name, topic_id, results))
        (throttle_ms,) = reader.unpack(INT32)
        reader.skip_tags()
    except DAMAGE as error:
        raise MalformedFrame(f"produce response v{version}: {error}") from None
    return topics, throttle_ms


def _reader(version: int, frame: memoryview, position: int) -> Reader:
    return (CompactReader if version >= VERSION_FLEXIBLE else LegacyReader)(frame, position)


def _read_topic(reader: Reader, version: int) -> tuple[str | None, UUID | None]:
    if version >= VERSION_TOPIC_ID:
        return None, reader.uuid()
    return reader.string(), None


def _read_result(reader: Reader, version: int) -> ProduceResult:
    layout = _RESULT_V5 if version >= VERSION_LOG_START else _RESULT_V3
    result = ProduceResult(*reader.unpack(layout))
    if version >= VERSION_RECORD_ERRORS:
        errors = []
        for _ in range(reader.count(_PARTITION_BYTES_MIN)):
            (number,) = reader.unpack(INT32)
            errors.append((number, reader.nullable_string()))
            reader.skip_tags()
        result = result._replace(record_errors=errors, error_message=reader.nullable_string())
    reader.skip_tags()
    return result
