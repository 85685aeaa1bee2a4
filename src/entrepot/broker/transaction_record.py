"""The records of `__transaction_state`, in which transactions are stored. The format is Kafka's.

    key     version 0 (2), the transactional id (2 and its bytes)
    value   version 1 (2), producer id (8), epoch (2), timeout (4), state (1),
            topics, or null when the state is Empty:
              name, partitions (4 each), no tagged fields
            when it was last changed (8) and started (8), then as tagged fields, when set:
            0 the producer id before (8), 1 the next one (8), 2 the transaction version (2)

The sizes of topics, names and partitions, plus one, and those of tagged fields are varints:
seven bits a byte, the lowest first. A null value deletes the transactional id.
"""

from __future__ import annotations

import struct
from itertools import groupby
from struct import Struct

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import NONE, ProducerIdentity, Transaction, TransactionStatus
from entrepot.core.errors import Corruption
from entrepot.core.record import Record

_INT16, _INT32, _INT64 = Struct(">h"), Struct(">i"), Struct(">q")
_HEAD = Struct(">hqhib")
_TIMES = Struct(">qq")
_KEY_VERSION, _VALUE_VERSION = 0, 1
_TAG_ID_BEFORE, _TAG_ID_NEXT, _TAG_VERSION = 0, 1, 2


def transaction_record(transaction: Transaction) -> Record:
    """Return the record that stores a transaction."""
    state, producer = transaction.state, transaction.producer
    head = _HEAD.pack(
        _VALUE_VERSION, producer.id, producer.epoch, transaction.timeout_ms, transaction.state
    )
    topics = _size(0) if state is TransactionStatus.EMPTY else _topics(list(transaction.partitions))
    times = _TIMES.pack(transaction.updated_ms, transaction.started_ms)
    value = head + topics + times + _tags(transaction)
    return Record(_key(transaction.transactional_id), value)


def forgotten_record(transactional_id: str) -> Record:
    """Return the record that deletes a transactional id."""
    return Record(_key(transactional_id), None)


def read_record(record: Record) -> tuple[str, Transaction | None]:
    """Return the transactional id and its state; None when it is deleted. Raises Corruption."""
    try:
        key = _Reader(record.key or b"")
        if key.number(_INT16) != _KEY_VERSION:
            raise Corruption("a record about transactions has a key of another version")
        transactional_id = key.take(key.number(_INT16)).decode()
        value = record.value
        return transactional_id, None if value is None else _read_value(transactional_id, value)
    except (struct.error, ValueError) as damage:
        raise Corruption(f"a record about transactions does not parse: {damage}") from None


def _key(transactional_id: str) -> bytes:
    text = transactional_id.encode()
    return _INT16.pack(_KEY_VERSION) + _INT16.pack(len(text)) + text


def _topics(places: list[TopicPartition]) -> bytes:
    topics = [(topic, list(group)) for topic, group in groupby(sorted(places), lambda p: p.topic)]
    parts = [_size(len(topics) + 1)]
    for topic, group in topics:
        name = topic.encode()
        parts += (_size(len(name) + 1), name, _size(len(group) + 1))
        parts += (_INT32.pack(place.partition) for place in group)
        parts.append(_size(0))
    return b"".join(parts)


def _tags(transaction: Transaction) -> bytes:
    fields = []
    if transaction.id_before != NONE:
        fields.append((_TAG_ID_BEFORE, _INT64.pack(transaction.id_before)))
    if transaction.id_next != NONE:
        fields.append((_TAG_ID_NEXT, _INT64.pack(transaction.id_next)))
    if transaction.version:
        fields.append((_TAG_VERSION, _INT16.pack(transaction.version)))
    parts = (_size(tag) + _size(len(data)) + data for tag, data in fields)
    return _size(len(fields)) + b"".join(parts)


def _size(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def _read_value(transactional_id: str, value: bytes) -> Transaction:
    data = _Reader(value)
    version = data.number(_INT16)
    if version != _VALUE_VERSION:
        raise Corruption(f"transaction {transactional_id!r} is in a layout of version {version}")
    producer = ProducerIdentity(data.number(_INT64), data.number(_INT16))
    timeout_ms, state = data.number(_INT32), TransactionStatus(data.take(1)[0])
    partitions: dict[TopicPartition, None] = {}
    for _ in range(max(data.size(), 1) - 1):
        topic = data.take(data.size() - 1).decode()
        for _ in range(data.size() - 1):
            partitions[TopicPartition(topic, data.number(_INT32))] = None
        data.tags()
    updated_ms, started_ms = data.number(_INT64), data.number(_INT64)
    tags = data.tags()
    none = _INT64.pack(NONE)
    return Transaction(
        transactional_id,
        producer,
        timeout_ms,
        updated_ms,
        state,
        id_before=_INT64.unpack(tags.get(_TAG_ID_BEFORE, none))[0],
        id_next=_INT64.unpack(tags.get(_TAG_ID_NEXT, none))[0],
        partitions=partitions,
        started_ms=started_ms,
        version=_INT16.unpack(tags.get(_TAG_VERSION, _INT16.pack(0)))[0],
    )


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    def take(self, size: int) -> bytes:
        end = self._position + size
        if size < 0 or end > len(self._data):
            raise ValueError(f"{size} bytes at {self._position} of {len(self._data)}")
        found, self._position = self._data[self._position : end], end
        return found

    def number(self, layout: Struct) -> int:
        (value,) = layout.unpack(self.take(layout.size))
        return int(value)

    def size(self) -> int:
        value = shift = 0
        while (byte := self.take(1)[0]) > 0x7F:
            value |= (byte & 0x7F) << shift
            shift += 7
        return value | byte << shift

    def tags(self) -> dict[int, bytes]:
        return {self.size(): self.take(self.size()) for _ in range(self.size())}
