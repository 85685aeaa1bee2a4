"""Where the state of groups is kept: `__consumer_offsets`, an ordinary topic.

A group's records are all in one partition, chosen as Kafka chooses it, so they have an
order. What a request changed is appended at once and known to be permanent later;
`when_kept` waits for exactly the records of one group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from entrepot.broker.consumer_group.records import Key, Row, decode_key, decode_value, encode
from entrepot.core import batch, limits
from entrepot.core.errors import InvalidBatch, StorageError
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.log.partition import Waiter

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker
    from entrepot.broker.stream import Stream

log = logging.getLogger("entrepot.groups")

TOPIC = "__consumer_offsets"
PARTITIONS = 8
# Small segments: what is compacted is folded faster at the next start.
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * limits.MIB)}
_COMMIT_MARK = 1  # The type of a control record that ends a transaction well.


class Kept(NamedTuple):
    """A row found in the log, or the end of a transaction."""

    row: Row | None
    offset: int
    producer_id: int  # -1: not in a transaction.
    committed: bool = False  # How the transaction ended, when there is no row,
    partition: int = -1  # and where: it ends in each partition by itself.


class Store:
    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._streams: list[Stream] = []
        self._creating: asyncio.Future[None] | None = None
        self._ends: dict[str, int] = {}  # By group: the end of what was appended for it.

    # --- life

    def open(self) -> None:
        """Find the topic, if there is one."""
        topic = self._broker.topics.get(TOPIC)
        if topic is not None:
            count = topic.partition_count
            self._streams = [self._broker.stream(topic, index) for index in range(count)]

    @property
    def is_ready(self) -> bool:
        return bool(self._streams)

    async def prepare(self) -> None:
        """Make the topic when it is first needed. Who asked may go meanwhile; others wait."""
        if self._creating is None:
            self._creating = asyncio.ensure_future(self._create())
            self._creating.add_done_callback(self._created)
        await asyncio.shield(self._creating)

    async def _create(self) -> None:
        await self._broker.internal_topic(TOPIC, PARTITIONS, _SETTINGS)
        self.open()

    def _created(self, done: asyncio.Future[None]) -> None:
        self._creating = None
        if not done.cancelled() and (error := done.exception()) is not None:
            log.warning("consumer groups cannot be kept: %s", error)

    def read(self) -> Iterator[Kept]:
        """Everything there is, in order for each group.

        Of a partition that is damaged nothing: it is refused.
        """
        for number, stream in enumerate(self._streams):
            try:
                found = list(self._read(number, stream))
            except (StorageError, InvalidBatch, OSError) as error:
                stream.partition.refuse(str(error))
            else:
                yield from found

    def _read(self, partition: int, stream: Stream) -> Iterator[Kept]:
        keys: dict[bytes, Key | None] = {}  # Most records are about what others were about.
        stream.partition.check_served()
        for data in stream.partition.batches():
            header = batch.read_header(data)
            producer_id = header.producer_id if header.is_transactional else -1
            for record in batch.records(data):
                if header.is_control:
                    assert record.key is not None
                    committed = int.from_bytes(record.key[2:4], "big") == _COMMIT_MARK
                    yield Kept(None, record.offset, producer_id, committed, partition)
                    continue
                name = record.key or b""
                if name not in keys:
                    keys[name] = decode_key(name)
                key = keys[name]
                if key is not None:
                    row = key, decode_value(key, record.value)
                    yield Kept(row, record.offset, producer_id)

    def is_refused(self, group: str) -> bool:
        """Whether what was kept of the group cannot be read."""
        return bool(self._streams) and self._streams[self.partition_of(group)].partition.refused

    def check_readable(self, group: str) -> None:
        """Raises StorageError when what was kept of the group cannot be read."""
        if self._streams:
            self._streams[self.partition_of(group)].partition.check_served()

    @property
    def refusal(self) -> str | None:
        """Why some groups are not known; None when all are."""
        partitions = (stream.partition for stream in self._streams)
        return next((each.stopped for each in partitions if each.refused), None)

    # --- use

    def partition_of(self, group: str) -> int:
        return _java_hash(group) % (len(self._streams) or PARTITIONS)

    def append(
        self, group: str, rows: Sequence[Row], producer: tuple[int, int] | None = None
    ) -> int:
        """Returns the first record's offset. Raises StorageError, and nothing is kept."""
        return self.append_records(group, [encode(row) for row in rows], producer)

    def append_records(
        self, group: str, records: Sequence[Record], producer: tuple[int, int] | None = None
    ) -> int:
        """The same, of rows that are encoded."""
        stream = self._streams[self.partition_of(group)]
        producer_id, producer_epoch = producer or (-1, -1)
        if producer is not None:
            stream.check_ended(*producer)
        data = batch.build(
            records,
            now_ms=self._clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            sequence_first=-1 if producer is None else 0,
            transactional=producer is not None,
        )
        appended = stream.write(data)
        self._ends[group] = appended.offset_end
        return appended.offset_first

    def is_kept(self, group: str) -> bool:
        """Whether all that was appended for the group is permanent."""
        end = self._ends.get(group)
        if end is None:
            return True
        if self._streams[self.partition_of(group)].partition.high_watermark < end:
            return False
        del self._ends[group]
        return True

    def when_kept(self, group: str, waiter: Waiter) -> None:
        """Call at once, or when it is permanent, or with an error when it will not be."""
        if self.is_kept(group):
            waiter(None)
        else:
            partition = self._streams[self.partition_of(group)].partition
            partition.when_committed(self._ends[group], waiter)

    async def kept(self, group: str) -> None:
        """Raises StorageError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: StorageError | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        self.when_kept(group, finish)
        await done


def _java_hash(text: str) -> int:
    """The size of Java's hash of a string, as Kafka takes it."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[position : position + 2], "big")) & 0xFFFFFFFF
    return min(value, 2**32 - value) % 2**31
