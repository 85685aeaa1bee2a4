"""Where it is kept what was settled: a compacted topic of the broker's own.

Queues have one, share groups another. All that was settled in one turn of the event loop, in
all lanes, is appended together at its end, and committed with everything else of that turn.
What a crash loses of it is handed out again, which at-least-once allows; what is kept never
comes again.

What cannot be written is tried again, the newest of each key, until the disk takes it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from entrepot.broker.settlements import Settlements, is_settlement, lane_of
from entrepot.core import batch, limits
from entrepot.core.errors import InvalidBatch, StorageError
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.log.partition import Partition, Waiter

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker
    from entrepot.broker.stream import Stream

log = logging.getLogger("entrepot.ledgers")

_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 * limits.MIB),  # Small ones are compacted sooner, and folded faster.
    "delete.retention.ms": "60000",  # Nobody but the next start reads a tombstone.
}
_RETRY_S = 1.0


class LedgerStore:
    def __init__(self, broker: Broker, clock: Clock, topic: str, whose: str) -> None:
        self._broker = broker
        self._clock = clock
        self._topic = topic
        self._whose = whose  # For texts.
        self._stream: Stream | None = None
        self._found: dict[PartitionId, Settlements] = {}  # At the start, until they are asked for.
        self._dirty: dict[Settlements, None] = {}
        # By queue, or a group's topic, and by key: what is to be written. More than for a
        # moment only when it failed.
        self._unwritten: dict[UUID, dict[bytes, Record]] = {}
        self._offset_end = 0  # Of what was written.
        self._waiters: list[Waiter] = []
        self._writing: asyncio.Handle | None = None
        # Why nothing is written any more: the partition has stopped, or the broker stops.
        self._failure: StorageError | None = None
        self.refused: str | None = None  # Why nobody knows what was settled.

    # --- life

    def open(self, others: Callable[[Record], None] | None = None) -> None:
        """Find the topic, if there is one, and fold it. The log is ready.

        Records that are not of settlements are for `others`. When it is damaged, `refused` says
        so: not knowing what was settled would be to hand out everything again.
        """
        topic = self._broker.topics.get(self._topic)
        if topic is None:
            return
        self._stream = self._broker.stream(topic, 0)
        partition = self._stream.partition
        self._offset_end = partition.offset_end
        try:
            self._fold(partition, others)
        except (StorageError, InvalidBatch, OSError) as error:
            partition.refuse(str(error))
            self.refused = f"what {self._whose} settled is damaged: {partition.stopped}"
            self._failure = StorageError(self.refused)
            self._found.clear()

    def _fold(self, partition: Partition, others: Callable[[Record], None] | None) -> None:
        partition.check_served()
        for data in partition.batches():
            for record in batch.records(data):
                assert record.key is not None
                if is_settlement(record.key):
                    lane = lane_of(record.key)
                    if lane not in self._found:
                        self._found[lane] = Settlements(lane)
                    self._found[lane].apply(record.key, record.value)
                elif others is not None:
                    others(record)

    async def prepare(self) -> None:
        """Make the topic, before the first lane is made that needs it. Raises StorageError."""
        self.check_readable()
        if self._stream is None:
            topic = await self._broker.internal_topic(self._topic, 1, _SETTINGS)
            self._stream = self._broker.stream(topic, 0)

    def check_readable(self) -> None:
        """Raises StorageError when nobody knows what was settled."""
        if self.refused is not None:
            raise StorageError(self.refused)

    def settlements(self, lane: PartitionId) -> Settlements:
        """What is known of the lane; each is asked for once."""
        return self._found.pop(lane, None) or Settlements(lane)

    def forget_others(self) -> None:
        """All lanes there are have asked: what is left is of lanes that are no more.

        Written at once, with what the lanes had to take back, before there is a new message.
        """
        found, self._found = self._found, {}
        for settlements in found.values():
            if not settlements.is_empty:
                self.forget(settlements)
        if self._writing is not None:
            self._writing.cancel()
            self._write()

    def close(self) -> None:
        """Write what is left, while the log still takes it."""
        if self._writing is not None:
            self._writing.cancel()
            self._write()
        if self._writing is not None:  # It failed, and there is no next time.
            self._writing.cancel()
        self._failure = StorageError("the broker is stopping")

    # --- use

    def mark(self, settlements: Settlements) -> None:
        """There may be something new to record."""
        if self._failure is None:
            self._dirty[settlements] = None
            self._write_soon()

    def forget(self, settlements: Settlements) -> None:
        """The lane is no more."""
        if self._failure is None:
            self._dirty.pop(settlements, None)
            self._gather(settlements.lane.topic, settlements.take_deletions())
            self._write_soon()

    def put(self, identity: UUID, record: Record) -> None:
        """Another record, about the queue or the group's topic of that number."""
        if self._failure is None:
            self._gather(identity, [record])
            self._write_soon()

    def when_committed(self, waiter: Waiter) -> None:
        """Call back once all that was marked so far is permanent, or could not be written."""
        if self._failure is not None:
            waiter(self._failure)
        elif self._dirty or self._unwritten:
            self._waiters.append(waiter)
        elif self._stream is None:
            waiter(None)
        else:
            self._stream.when_committed(self._offset_end, waiter)

    # --- once in a turn

    def _write_soon(self) -> None:
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._writing = None
        try:
            self._write_now()
        except Exception as error:
            # What was settled and is not written is not known any more: it comes again.
            self._broker.faults.caught(f"what {self._whose} settled is not written", error)
            self._failure = StorageError("stopped after an internal error")
            self._unwritten.clear()

    def _write_now(self) -> None:
        dirty, self._dirty = self._dirty, {}
        for settlements in dirty:
            self._gather(settlements.lane.topic, settlements.take_records())
        waiters, self._waiters = self._waiters, []
        if self._unwritten:
            try:
                self._append()
            except StorageError as error:
                self._failed(error)
                for waiter in waiters:
                    self._tell(waiter, error)
                return
        for waiter in waiters:
            self._tell(self.when_committed, waiter)

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        """One that fails keeps nobody else from being told."""
        self._broker.faults.guard("telling of a settlement", call, *arguments)

    def _gather(self, identity: UUID, records: Iterable[Record]) -> None:
        for record in records:
            assert record.key is not None
            self._unwritten.setdefault(identity, {})[record.key] = record

    def _append(self) -> None:
        """What belongs to one queue is in one batch: a crash leaves all of it or none."""
        assert self._stream is not None
        now_ms = self._clock.now_ms()
        batches: list[bytes] = []
        records: list[Record] = []
        size = 0
        for rows in self._unwritten.values():
            added = sum(len(each.value or b"") + len(each.key or b"") for each in rows.values())
            if records and size + added > limits.QUEUE_BATCH_BYTES:
                batches.append(batch.build(records, now_ms=now_ms))
                records, size = [], 0
            records += rows.values()
            size += added
        batches.append(batch.build(records, now_ms=now_ms))
        self._offset_end = self._stream.write(*batches).offset_end
        self._unwritten.clear()

    def _failed(self, error: StorageError) -> None:
        """A full disk may have room again. A partition that is stopped stays so."""
        assert self._stream is not None
        if self._stream.partition.stopped is not None:
            log.error("what %s settle from now on will be handed out again: %s", self._whose, error)
            self._failure = error
            self._unwritten.clear()
        else:
            loop = asyncio.get_running_loop()
            self._writing = loop.call_later(_RETRY_S, self._write)
