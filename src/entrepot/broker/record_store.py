"""Records of an internal, compacted topic: the newest of each key counts.

What is put in one turn of the event loop is appended together at its end. A failed write is
retried, with the newest record of each key, until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from entrepot.broker.ports import TopicStorage
from entrepot.broker.served_partition import ServedPartition
from entrepot.core import batch, limits
from entrepot.core.errors import InvalidBatch, NotLeader, PeerError, StorageError
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.log.partition import Waiter

log = logging.getLogger("entrepot.records")

_SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(4 * limits.MIB),  # Small segments are compacted sooner.
    "delete.retention.ms": "60000",  # Only a start reads tombstones.
}
_RETRY_S = 1.0


class RecordStore:
    def __init__(self, topics: TopicStorage, clock: Clock, topic: str) -> None:
        self._topics = topics
        self._clock = clock
        self._topic = topic
        self._served: ServedPartition | None = None
        self._unwritten: dict[bytes, Record] = {}
        self._offset_end = 0  # The end of what was written.
        self._waiters: list[Waiter] = []
        self._writing: asyncio.Handle | None = None
        self._preparing: asyncio.Future[None] | None = None  # Kept, so that it is not collected.
        # Why nothing is written any more: the partition is damaged or stopped, or the broker ends.
        self.failure: StorageError | None = None

    # --- life

    def open(self, apply: Callable[[Record], None]) -> None:
        """Call `apply` with all records, if the topic exists. The log must be ready.

        If the topic is damaged, `failure` says so, and what was read counts.
        """
        topic = self._topics.topics.get(self._topic)
        if topic is None:
            return
        self._served = self._topics.served_partition(topic, 0)
        partition = self._served.partition
        self._offset_end = partition.offset_end
        try:
            self._served.check_leads()
            self._served.check_knows_end()
        except PeerError as error:  # A moment's trouble: nothing is damaged.
            self.failure = StorageError(f"{self._topic} cannot be read now: {error}")
            log.warning("%s", self.failure)
            return
        try:
            partition.check_served()
            for data in partition.batches():
                for record in batch.records(data):
                    if record.key is not None:
                        apply(record)
        except (StorageError, InvalidBatch, OSError) as error:
            partition.refuse(str(error))
            self.failure = StorageError(f"{self._topic} is damaged: {partition.stopped}")
            log.error("%s", self.failure)

    async def _prepare_and_write(self) -> None:
        """Create the topic, and write what was put meanwhile."""
        try:
            topic = await self._topics.internal_topic(self._topic, 1, _SETTINGS)
        except Exception as error:
            if not isinstance(error, StorageError):
                self._topics.faults.caught(f"{self._topic} is not created", error)
            waiters, self._waiters = self._waiters, []
            self._tell(waiters, StorageError(f"{self._topic}: {error}"))
            self._writing = asyncio.get_running_loop().call_later(_RETRY_S, self._write)
        else:
            self._served = self._topics.served_partition(topic, 0)
            if self.failure is None:
                self._write()
            else:
                waiters, self._waiters = self._waiters, []
                self._tell(waiters, self.failure)

    def close(self) -> None:
        """Write what is left, before the log is closed."""
        if self._writing is not None:
            self._writing.cancel()
            if self._served is not None:
                self._write()
        if self._writing is not None:  # The write failed, and will not be retried.
            self._writing.cancel()
        self.failure = StorageError("the broker is stopping")

    def abandon(self) -> None:
        """Write nothing any more: another node has these records."""
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        self.failure = NotLeader("another node has the queues")
        self._unwritten.clear()
        waiters, self._waiters = self._waiters, []
        self._tell(waiters, self.failure)

    # --- use

    def put(self, *records: Record) -> None:
        """Write these records at the end of this turn. A record without a value deletes its key."""
        if self.failure is None:
            for record in records:
                assert record.key is not None
                self._unwritten[record.key] = record
            if self._writing is None and records and self._preparing_is_done:
                self._writing = asyncio.get_running_loop().call_soon(self._write)

    @property
    def _preparing_is_done(self) -> bool:
        return self._preparing is None or self._preparing.done()

    def when_committed(self, waiter: Waiter) -> None:
        """Call the waiter once all that was put so far is permanent, or could not be written."""
        if self.failure is not None:
            waiter(self.failure)
        elif self._unwritten:
            self._waiters.append(waiter)
        elif self._served is None:
            waiter(None)
        else:
            self._served.when_safe(self._offset_end, waiter)

    def _write(self) -> None:
        self._writing = None
        if self._served is None:
            self._preparing = asyncio.ensure_future(self._prepare_and_write())
            return
        waiters, self._waiters = self._waiters, []
        try:
            self._append()
        except StorageError as error:
            self._failed(error)
            self._tell(waiters, error)
        except Exception as error:
            self._topics.faults.caught(f"records of {self._topic} are not written", error)
            self.failure = StorageError("stopped after an internal error")
            self._unwritten.clear()
            self._tell(waiters, self.failure)
        else:
            for waiter in waiters:
                self._guard(self.when_committed, waiter)

    def _tell(self, waiters: list[Waiter], error: StorageError) -> None:
        for waiter in waiters:
            self._guard(waiter, error)

    def _guard(self, call: Callable[..., None], *arguments: object) -> None:
        """Call one of those who wait. One that fails keeps nobody else from being called."""
        self._topics.faults.guard(f"telling of records in {self._topic}", call, *arguments)

    def _append(self) -> None:
        """Write all records in batches, all or none of them. More may be put meanwhile, by those
        who are told that the partition stops, or what is permanent."""
        assert self._served is not None
        written = [*self._unwritten.values()]
        if not written:
            return
        now_ms = self._clock.now_ms()
        batches: list[bytes] = []
        records: list[Record] = []
        size = 0
        for record in written:
            added = len(record.key or b"") + len(record.value or b"")
            if records and size + added > limits.QUEUE_BATCH_BYTES:
                batches.append(batch.build(records, now_ms=now_ms))
                records, size = [], 0
            records.append(record)
            size += added
        batches.append(batch.build(records, now_ms=now_ms))
        self._offset_end = self._served.write(*batches).offset_end
        for record in written:
            if self._unwritten[record.key or b""] is record:
                del self._unwritten[record.key or b""]

    def _failed(self, error: StorageError) -> None:
        """Try again later, for a full disk may have room again; unless the partition is stopped."""
        assert self._served is not None
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None
        if self._served.partition.stopped is not None:
            log.error("%s takes no more records: %s", self._topic, error)
            self.failure = error
            self._unwritten.clear()
        else:
            loop = asyncio.get_running_loop()
            self._writing = loop.call_later(_RETRY_S, self._write)
