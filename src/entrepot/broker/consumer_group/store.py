"""The store of consumer groups: `__consumer_offsets`, an ordinary topic.

A group's records are all in one partition, chosen as Kafka chooses it, so they are ordered.
Changes are appended at once and permanent later; `when_kept` waits for the records of one
group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from entrepot.broker.consumer_group.records import Key, Row, decode_key, decode_value, encode
from entrepot.broker.ports import TopicStorage
from entrepot.broker.served_partition import ServedPartition
from entrepot.core import batch, limits
from entrepot.core.errors import InvalidBatch, StillLoading, StorageError
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.log.partition import Waiter
from entrepot.log.policy import Durability

log = logging.getLogger("entrepot.groups")

TOPIC = "__consumer_offsets"
PARTITIONS = 8
# Small segments are compacted sooner, and a compacted topic is read faster at a start.
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * limits.MIB)}
_COMMIT_MARK = 1  # The type of the control record that commits a transaction.


class Kept(NamedTuple):
    """A row read from the topic, or, with `row` None, the end of a transaction."""

    row: Row | None
    offset: int
    producer_id: int  # -1 means: not in a transaction.
    committed: bool = False  # How the transaction ended, when there is no row,
    partition: int = -1  # and in which partition: it has a marker in each.


class GroupStore:
    def __init__(self, topics: TopicStorage, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self._served: list[ServedPartition] = []
        self._creating: asyncio.Future[None] | None = None
        self.led: dict[int, None] = {}  # In a cluster: the partitions whose groups are here.
        # Group -> end offset of what was appended for it, until that is permanent.
        self._ends: dict[str, int] = {}

    # --- life

    def open(self) -> None:
        """Find the topic, if it exists."""
        topic = self._topics.topics.get(TOPIC)
        if topic is not None:
            self._served = self._topics.served_partitions(topic)

    @property
    def is_ready(self) -> bool:
        return bool(self._served)

    async def prepare(self) -> None:
        """Create the topic when it is first needed. It goes on when the caller is cancelled."""
        if self._creating is None:
            self._creating = asyncio.ensure_future(self._create())
            self._creating.add_done_callback(self._created)
        await asyncio.shield(self._creating)

    async def _create(self) -> None:
        await self._topics.internal_topic(TOPIC, PARTITIONS, _SETTINGS)
        self.open()

    def _created(self, done: asyncio.Future[None]) -> None:
        self._creating = None
        if not done.cancelled() and (error := done.exception()) is not None:
            log.warning("consumer groups cannot be kept: %s", error)

    def read(self) -> Iterator[Kept]:
        """Yield all rows, those of each group in order.

        A damaged partition is refused, and none of its rows are yielded.
        """
        for number, served in enumerate(self._served):
            if served.role is None:
                yield from self.read_partition(number)

    def read_partition(self, number: int) -> Iterator[Kept]:
        """Yield the rows of one partition; none if it is damaged."""
        served = self._served[number]
        try:
            found = list(self._read(number, served))
        except (StorageError, InvalidBatch, OSError) as error:
            served.partition.refuse(str(error))
        else:
            yield from found

    def _read(self, partition: int, served: ServedPartition) -> Iterator[Kept]:
        # A cache of decoded keys: most records have the key of an earlier one.
        keys: dict[bytes, Key | None] = {}
        served.partition.check_served()
        for data in served.partition.batches():
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
        """Return whether the group's records cannot be read."""
        return bool(self._served) and self._served[self.partition_of(group)].partition.refused

    def check_readable(self, group: str) -> None:
        """Raise StorageError when the group's records cannot be read, or another node has them."""
        if self._served:
            number = self.partition_of(group)
            served = self._served[number]
            served.partition.check_served()
            if served.role is not None:
                served.check_leads()
                if number not in self.led:
                    raise StillLoading(f"the groups of {served.partition.directory} are loading")

    def begin(self, number: int) -> None:
        """Keep the groups of a partition: this node leads it, and they are loaded."""
        self.led[number] = None

    def end(self, number: int) -> None:
        """Forget what was not permanent yet: another node leads the partition."""
        self.led.pop(number, None)
        for group in [group for group in self._ends if self.partition_of(group) == number]:
            del self._ends[group]

    @property
    def refusal(self) -> str | None:
        """Return why some groups cannot be read; None when all can."""
        partitions = (served.partition for served in self._served)
        return next((each.stopped for each in partitions if each.refused), None)

    # --- use

    def partition_of(self, group: str) -> int:
        return _java_hash(group) % (len(self._served) or PARTITIONS)

    def may_lose(self, group: str) -> bool:
        """Return whether a power failure may take the newest records of the group."""
        policy = self._served[self.partition_of(group)].partition.policy
        return policy.durability is not Durability.FSYNC

    def append(
        self, group: str, rows: Sequence[Row], producer: tuple[int, int] | None = None
    ) -> int:
        """Append rows. Return the offset of the first. Raises StorageError; then nothing is
        appended."""
        return self.append_records(group, [encode(row) for row in rows], producer)

    def append_records(
        self, group: str, records: Sequence[Record], producer: tuple[int, int] | None = None
    ) -> int:
        """Append encoded rows, as `append` does."""
        served = self._served[self.partition_of(group)]
        producer_id, producer_epoch = producer or (-1, -1)
        if producer is not None:
            served.check_ended(*producer)
        data = batch.build(
            records,
            now_ms=self._clock.now_ms(),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            sequence_first=-1 if producer is None else 0,
            transactional=producer is not None,
        )
        appended = served.write(data)
        self._ends[group] = appended.offset_end
        return appended.offset_first

    def has_partition(self, number: int) -> bool:
        return number < len(self._served)

    def is_kept(self, group: str) -> bool:
        """Return whether everything appended for the group is permanent."""
        end = self._ends.get(group)
        if end is None:
            return True
        if self._served[self.partition_of(group)].partition.high_watermark < end:
            return False
        del self._ends[group]
        return True

    def when_kept(self, group: str, waiter: Waiter) -> None:
        """Call the waiter when everything appended for the group is permanent, or cannot be."""
        if self.is_kept(group):
            waiter(None)
        else:
            partition = self._served[self.partition_of(group)].partition
            partition.when_committed(self._ends[group], waiter)

    async def kept(self, group: str) -> None:
        """Wait until everything appended for the group is permanent. Raises StorageError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: StorageError | None) -> None:
            if not done.done():
                done.set_result(None) if error is None else done.set_exception(error)

        self.when_kept(group, finish)
        await done


def _java_hash(text: str) -> int:
    """Return the absolute value of Java's hash of a string, as Kafka computes it."""
    value = 0
    data = text.encode("utf-16-be", "surrogatepass")
    for position in range(0, len(data), 2):
        value = (31 * value + int.from_bytes(data[position : position + 2], "big")) & 0xFFFFFFFF
    return min(value, 2**32 - value) % 2**31
