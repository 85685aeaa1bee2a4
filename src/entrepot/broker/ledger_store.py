"""The store of ledgers: a compacted internal topic with what was settled.

Queues have one, share groups another. All that was settled within a few milliseconds, in all
lanes, is appended together, and the commit may come a few milliseconds later: a settlement that
nobody waits for is no reason for a batch or a sync of its own. A message whose settlement is lost
in a crash is delivered again, which at-least-once allows; once the settlement is committed it never
is. What is settled by its delivery, and whatever else is recorded, as that a message is
deferred, is written at the end of the turn of the event loop.

A failed write is retried, with the newest record of each key, until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from uuid import UUID

from entrepot.broker.ports import TopicStorage
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.settlements import Settlements, is_settlement, lane_of
from entrepot.core import batch, limits
from entrepot.core.errors import InvalidBatch, NotLeader, StorageError
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.log.partition import Partition, Waiter

log = logging.getLogger("entrepot.ledgers")

LEDGER_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(1 * limits.MIB),  # Small segments are compacted sooner and read faster.
    "delete.retention.ms": "60000",  # Only a start reads tombstones.
}
_RETRY_S = 1.0


class LedgerStore:
    def __init__(self, topics: TopicStorage, clock: Clock, topic: str, whose: str) -> None:
        self._topics = topics
        self._clock = clock
        self._topic = topic
        self._whose = whose  # Who uses this store, for error texts.
        self._served: ServedPartition | None = None
        # Read at the start, until `settlements` hands them out.
        self._found: dict[PartitionId, Settlements] = {}
        self._dirty: dict[Settlements, None] = {}
        # Records to be written, by queue's id (or id of a group's topic) and by key. Empty after
        # a write unless it failed.
        self._unwritten: dict[UUID, dict[bytes, Record]] = {}
        self._offset_end = 0  # End offset of what was written.
        self._waiters: list[Waiter] = []
        self._writing: asyncio.Handle | None = None
        self._is_gathering = False  # Whether `_writing` waits for more settlements.
        self._may_wait = True  # Only settlements are to be written: nobody waits for their commit.
        # Why nothing is written any more: the partition has stopped, or the broker is stopping.
        self._failure: StorageError | None = None
        # Why the stored settlements cannot be read; None when they can.
        self.refused: str | None = None

    # --- life

    def open(self, others: Callable[[Record], None] | None = None) -> None:
        """Find the topic, if it exists, and read it. The log must be ready.

        Records that are not of settlements are passed to `others`. If the topic is damaged,
        `refused` says so: without it, everything would be delivered again.
        """
        topic = self._topics.topics.get(self._topic)
        if topic is None:
            return
        self._served = self._topics.served_partition(topic, 0)
        partition = self._served.partition
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
        """Create the topic, before the first lane that needs it. Raises StorageError."""
        self.check_readable()
        if self._served is None:
            topic = await self._topics.internal_topic(self._topic, 1, LEDGER_SETTINGS)
            self._served = self._topics.served_partition(topic, 0)

    def check_readable(self) -> None:
        """Raise StorageError when it is not known what was settled."""
        if self.refused is not None:
            raise StorageError(self.refused)

    def settlements(self, lane: PartitionId) -> Settlements:
        """Return the stored settlements of a lane. They can be asked for once."""
        return self._found.pop(lane, None) or Settlements(lane)

    def forget_others(self) -> None:
        """Delete the settlements that nobody has asked for: their lanes do not exist any more.

        Called when all lanes have asked. Written at once, with the lanes' corrections, before
        there are new messages.
        """
        found, self._found = self._found, {}
        for settlements in found.values():
            if not settlements.is_empty:
                self.forget(settlements)
        if self._writing is not None:
            self._writing.cancel()
            self._write()

    def close(self) -> None:
        """Write what is left, before the log is closed."""
        if self._writing is not None:
            self._writing.cancel()
            self._write()
        if self._writing is not None:  # The write failed, and will not be retried.
            self._writing.cancel()
        self._failure = StorageError("the broker is stopping")

    def abandon(self) -> None:
        """Write nothing any more: another node has the ledgers."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        self._failure = NotLeader("another node has the queues")
        self._dirty.clear()
        self._unwritten.clear()
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            self._call(waiter, self._failure)

    # --- use

    def mark(self, settlements: Settlements) -> None:
        """Write the changes of a lane's settlements at the end of this turn, and commit them."""
        if self._failure is None:
            self._dirty[settlements] = None
            self._write_soon()

    def mark_settled(self, settlements: Settlements) -> None:
        """Write what was settled in a lane within a few milliseconds. The commit may wait."""
        if self._failure is None:
            self._dirty[settlements] = None
            if self._writing is None:
                self._is_gathering = True
                delay_s = limits.COMMIT_DEFERRED_MS / 1_000
                self._writing = asyncio.get_running_loop().call_later(delay_s, self._write)

    def forget(self, settlements: Settlements) -> None:
        """Delete all records of a lane that is deleted."""
        if self._failure is None:
            self._dirty.pop(settlements, None)
            self._gather(settlements.lane.topic, settlements.take_deletions())
            self._write_soon()

    def put(self, identity: UUID, record: Record) -> None:
        """Write another record, about the queue or the group's topic with that id."""
        if self._failure is None:
            self._gather(identity, [record])
            self._write_soon()

    def when_committed(self, waiter: Waiter) -> None:
        """Call the waiter once everything marked so far is permanent, or could not be written."""
        if self._failure is not None:
            waiter(self._failure)
        elif self._dirty or self._unwritten:
            self._waiters.append(waiter)
            self.stop_gathering()
        elif self._served is None:
            waiter(None)
        else:
            self._served.when_safe(self._offset_end, waiter)
            self._served.hurry()

    # --- writing

    def _write_soon(self) -> None:
        """Write at the end of this turn, and commit that at once."""
        self._may_wait = False
        self.stop_gathering()
        if self._writing is None:
            self._writing = asyncio.get_running_loop().call_soon(self._write)

    def stop_gathering(self) -> None:
        """Write at the end of this turn if the write only waits for more settlements."""
        if self._is_gathering and self._writing is not None:
            self._is_gathering = False
            self._writing.cancel()
            self._writing = asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        self._writing, self._is_gathering = None, False
        dirty, self._dirty = self._dirty, {}
        waiters, self._waiters = self._waiters, []
        try:
            for settlements in dirty:
                self._gather(settlements.lane.topic, settlements.take_records())
            if self._unwritten:
                self._append()
            self._may_wait = True
        except StorageError as error:
            self._failed(error)
            for waiter in waiters:
                self._call(waiter, error)
            return
        except Exception as error:
            # What was settled and not written is lost: it will be delivered again.
            self._topics.faults.caught(f"what {self._whose} settled is not written", error)
            self._failure = StorageError("stopped after an internal error")
            self._unwritten.clear()
        for waiter in waiters:
            self._call(self.when_committed, waiter)

    def _call(self, waiter: Callable[..., None], *arguments: object) -> None:
        """Call a waiter. If it fails, the others are called all the same."""
        self._topics.faults.guard("telling of a settlement", waiter, *arguments)

    def _gather(self, identity: UUID, records: Iterable[Record]) -> None:
        for record in records:
            assert record.key is not None
            self._unwritten.setdefault(identity, {})[record.key] = record

    def _append(self) -> None:
        """Append the records, each queue's in one batch: a crash leaves all of them or none."""
        assert self._served is not None
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
        self._offset_end = self._served.write(*batches, may_wait=self._may_wait).offset_end
        self._unwritten.clear()

    def _failed(self, error: StorageError) -> None:
        """Try again later, for a full disk may have room again; unless the partition is stopped."""
        assert self._served is not None
        if self._served.partition.stopped is not None:
            log.error("what %s settle from now on will be handed out again: %s", self._whose, error)
            self._failure = error
            self._unwritten.clear()
        else:
            loop = asyncio.get_running_loop()
            self._writing = loop.call_later(_RETRY_S, self._write)
