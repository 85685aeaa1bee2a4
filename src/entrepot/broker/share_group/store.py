"""What must survive of share groups: `__share_group_state`, a compacted topic.

    group and topic     how many of the topic's partitions the group reads
    partition           what of it is settled: see `settlements`

A group's topic is known by a number made of both names, because keys should be short.
Everything that changed in one turn of the loop is appended as one batch.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Iterable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple
from uuid import UUID

import msgspec

from entrepot.broker.settlements import Settlements, lane_of
from entrepot.core import batch, limits
from entrepot.core.errors import StorageError
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock
from entrepot.core.record import Record

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker
    from entrepot.broker.stream import Stream

log = logging.getLogger("entrepot.share")

TOPIC = "__share_group_state"

_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * limits.MIB)}
_NAME = 16  # A kind of record. Those of `settlements` are below.
_NAME_KEY = Struct(">B16s")
_RETRY_MS = 1_000


class ShareName(NamedTuple):
    group: str
    topic: UUID
    partition: int


class _Name(msgspec.Struct):
    group: str
    topic: UUID
    partitions: int


class Store:
    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._stream: Stream | None = None
        self._dirty: dict[PartitionId, Settlements] = {}
        self._records: dict[bytes, Record] = {}  # To be appended; the newest for each key.
        self._is_woken = False  # `_flush` is about to be called.
        self._offset_end = 0  # Of what was appended.
        self._waiting: list[asyncio.Future[None]] = []  # For the next flush.
        self._retry: asyncio.TimerHandle | None = None

    # --- life

    def open(self) -> dict[ShareName, Settlements]:
        """What was kept. Raises StorageError when it is damaged: nothing is guessed."""
        topic = self._broker.topics.get(TOPIC)
        if topic is None:
            return {}
        self._stream = self._broker.stream(topic, 0)
        if self._stream.partition.refused:
            raise StorageError(f"share groups are damaged: {self._stream.partition.stopped}")
        names: dict[UUID, _Name] = {}
        lanes: dict[PartitionId, Settlements] = {}
        for data in self._stream.partition.batches():
            for record in batch.records(data):
                assert record.key is not None
                if record.key[0] == _NAME:
                    _fold_name(names, record.key, record.value)
                else:
                    lane = lane_of(record.key)
                    if lane not in lanes:
                        lanes[lane] = Settlements(lane)
                    lanes[lane].apply(record.key, record.value)
        kept: dict[ShareName, Settlements] = {}
        for identity, name in names.items():
            for number in range(name.partitions):
                lane = PartitionId(identity, number)
                kept[ShareName(name.group, name.topic, number)] = lanes.get(lane) or Settlements(
                    lane
                )
        return kept

    def close(self) -> None:
        if self._retry is not None:
            self._retry.cancel()

    async def prepare(self) -> None:
        """See to it that there is the topic. Raises StorageError."""
        if self._stream is None:
            topic = await self._broker.internal_topic(TOPIC, 1, _SETTINGS)
            self._stream = self._broker.stream(topic, 0)

    # --- keeping

    def name(self, group: str, topic: UUID, partition_count: int) -> None:
        """The group reads so many partitions of it."""
        value = msgspec.json.encode(_Name(group, topic, partition_count))
        self._put(Record(_NAME_KEY.pack(_NAME, _identity(group, topic).bytes), value))

    def mark(self, settlements: Settlements) -> None:
        """Something was noted in them."""
        self._dirty[settlements.lane] = settlements
        self._wake()

    def forget(self, group: str, topic: UUID, lanes: Iterable[Settlements]) -> None:
        """The group no longer reads it."""
        for each in lanes:
            self._dirty.pop(each.lane, None)
            for record in each.take_deletions():
                self._put(record)
        self._put(Record(_NAME_KEY.pack(_NAME, _identity(group, topic).bytes), None))

    async def kept(self) -> None:
        """Wait until all that was said so far is permanent. Raises StorageError."""
        if self._dirty or self._records:
            flushed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(flushed)
            self._wake()
            await flushed
        stream = self._stream
        if stream is None or self._offset_end <= stream.partition.high_watermark:
            return
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: StorageError | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        stream.when_committed(self._offset_end, finish)
        await done

    def _put(self, record: Record) -> None:
        assert record.key is not None
        self._records[record.key] = record
        self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._flush)

    def _flush(self) -> None:
        self._is_woken = False
        dirty, self._dirty = self._dirty, {}
        for settlements in dirty.values():
            for record in settlements.take_records():
                assert record.key is not None
                self._records[record.key] = record
        error = self._append() if self._records else None
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if not each.done():
                each.set_result(None) if error is None else each.set_exception(error)

    def _append(self) -> StorageError | None:
        """What cannot be appended now is tried again: it will be needed whatever comes."""
        assert self._stream is not None, "prepare() comes first"
        data = batch.build(list(self._records.values()), now_ms=self._clock.now_ms())
        try:
            self._offset_end = self._stream.write(data).offset_end
        except StorageError as error:
            log.warning("what share groups settled is not kept yet: %s", error)
            if self._stream.partition.stopped is None:
                self._is_woken = True
                loop = asyncio.get_running_loop()
                self._retry = loop.call_later(_RETRY_MS / 1_000, self._flush)
            return error
        self._records.clear()
        return None


def new_settlements(name: ShareName) -> Settlements:
    return Settlements(PartitionId(_identity(name.group, name.topic), name.partition))


def _identity(group: str, topic: UUID) -> UUID:
    digest = hashlib.blake2b(topic.bytes + group.encode("utf-8", "surrogatepass"), digest_size=16)
    return UUID(bytes=digest.digest())


def _fold_name(names: dict[UUID, _Name], key: bytes, value: bytes | None) -> None:
    identity = UUID(bytes=_NAME_KEY.unpack(key)[1])
    if value is None:
        names.pop(identity, None)
    else:
        names[identity] = msgspec.json.decode(value, type=_Name)
