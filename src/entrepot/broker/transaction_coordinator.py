"""The coordinator of this node's transactions, which are stored in `__transaction_state`.

The transitions are in `transaction`. A state takes effect when it is recorded; requests are
answered when that is permanent. A transaction ends in three steps, each permanent before the
next: the decision is recorded; a marker is written to every partition with its batches, all in
one commit; the end is recorded. After a crash in between, or a full disk, the rest is done at
the next start or retried.

Batches of a transaction that was never recorded cannot have been acknowledged; a start aborts
them. So a batch may be written together with the record that adds its partition to the
transaction, and one commit serves both.

With less than `fsync` nothing of this is permanent, and a power failure may take the last
records of any partition: a marker may be lost although the next transaction's beginning is not,
and that may have the same epoch. So after a power failure transactions with such a partition
are aborted, and their transactional ids and producer ids are forgotten.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import NamedTuple

from crc32c import crc32c

from entrepot.broker import transaction
from entrepot.broker.alarm import Alarm
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.store import TOPIC as OFFSETS
from entrepot.broker.deadlines import Deadlines
from entrepot.broker.ports import TopicStorage
from entrepot.broker.served_partition import ServedPartition, committed
from entrepot.broker.transaction import (
    NONE,
    PREPARED,
    ProducerIdentity,
    Transaction,
    TransactionStatus,
)
from entrepot.broker.transaction_record import forgotten_record, read_record, transaction_record
from entrepot.broker.turns import Turns, gathered
from entrepot.core import batch, limits
from entrepot.core.errors import (
    ConcurrentTransactions,
    FencedProducer,
    InvalidBatch,
    InvalidProducerMapping,
    InvalidTransactionTimeout,
    StorageError,
    TooManyTransactions,
    UnknownTopic,
)
from entrepot.core.marker import Marker, build_marker
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.core.steps import Steps
from entrepot.log.partition import Partition
from entrepot.log.policy import Durability

log = logging.getLogger("entrepot.transactions")

TOPIC = "__transaction_state"
PARTITIONS = 8
# Small segments: a start reads the whole topic, and the newest segment is never compacted.
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * limits.MIB)}
_RETRY_MS = 1_000  # First wait before markers that could not be written are tried again;
_RETRY_MS_MAX = 60_000  # it doubles each time, up to this.
# The deadlines' key for aborting transactions that were not recorded; no transactional id is empty.
_UNRECORDED = ""


class Recorded(NamedTuple):
    """A recorded state. It is permanent when the partition's watermark has reached the offset."""

    partition: Partition
    offset_end: int


class TransactionCoordinator:
    def __init__(
        self,
        topics: TopicStorage,
        turns: Turns,
        clock: Clock,
        new_producer_id: Callable[[], Awaitable[int]],
        ended: Callable[[int, bool, int | None], None],
    ) -> None:
        self._topics = topics
        self._turns = turns
        self._clock = clock
        self._new_producer_id = new_producer_id
        # Called with (producer id, committed, partition) at each end; partition None means:
        # everywhere. Otherwise only that partition of `__consumer_offsets`.
        self._ended = ended
        self._served: list[ServedPartition] = []  # The partitions of the topic, once it exists.
        self._transactions: dict[str, Transaction] = {}
        # By transactional id: tasks that write markers.
        self._ending: dict[str, asyncio.Task[None]] = {}
        # By transactional id: the wait before the next try, when markers could not be written.
        self._retry_ms: dict[str, int] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self._alarm = Alarm(clock, self._deadlines, self._ring, topics.faults)

    # --- life

    async def open(self, *, power_failed: bool) -> bool:
        """Restore the recorded states, and finish what a stop or a crash left undone.

        Return whether the consequences of a power failure are recorded, so that the next start need
        not repeat this.
        """
        if TOPIC in self._topics.topics:
            await self._prepare()
        for served in self._served:
            self._fold(served)
        is_recorded = not power_failed or self._forget_uncertain()
        for found in list(self._transactions.values()):
            self._watch(found)
        prepared = [t for t in self._transactions.values() if t.state in PREPARED]
        if prepared:
            await asyncio.wait([self._end(each) for each in prepared])
        for partition in self._abort_unrecorded():
            with contextlib.suppress(StorageError):
                await committed(partition, partition.offset_end)
        return is_recorded

    async def close(self) -> None:
        self._alarm.cancel()
        if self._ending:
            await asyncio.wait(list(self._ending.values()))

    async def _prepare(self) -> None:
        """Create the topic when it is first needed."""
        if not self._served:
            topic = await self._topics.internal_topic(TOPIC, PARTITIONS, _SETTINGS)
            self._served = self._topics.served_partitions(topic)

    def _fold(self, served: ServedPartition) -> None:
        folded: dict[str, Transaction] = {}
        try:
            served.partition.check_served()
            for data in served.partition.batches():
                for record in batch.records(data):
                    transactional_id, found = read_record(record)
                    if found is None:
                        folded.pop(transactional_id, None)
                    else:
                        folded[transactional_id] = found
        except (InvalidBatch, StorageError, OSError) as error:
            served.partition.refuse(str(error))  # Older states must not be acted on.
        else:
            self._transactions |= folded

    def _forget_uncertain(self) -> bool:
        """Forget transactions whose partitions may have lost records; their batches are then
        aborted as unknown.

        Return whether that could be recorded.
        """
        is_recorded = True
        for found in list(self._transactions.values()):
            served = [s for place in found.partitions for s in self._served_at(place)]
            served.append(self._served_partition_of(found.transactional_id))
            if all(each.partition.policy.durability is Durability.FSYNC for each in served):
                continue
            del self._transactions[found.transactional_id]
            try:
                self._append(found.transactional_id, forgotten_record(found.transactional_id))
            except StorageError as error:
                log.warning("transaction %s has to wait: %s", found.transactional_id, error)
                is_recorded = False
        return is_recorded

    def _abort_unrecorded(self) -> list[Partition]:
        """Abort transactions that are open in a partition and were never recorded.

        Return these partitions.
        """
        if any(served.partition.stopped is not None for served in self._served):
            return []  # It is not known what was recorded in that partition.
        owners = {t.producer.id: t for t in self._transactions.values()}
        touched: list[Partition] = []
        for topic in self._topics.topics.values():
            for index, served in enumerate(self._topics.served_partitions(topic)):
                place = TopicPartition(topic.name, index)
                for producer_id, found in list(served.isolation.open.items()):
                    owner = owners.get(producer_id)
                    is_known = owner is not None and transaction.owns_open_batches(
                        owner, place, found.epoch
                    )
                    if not is_known and served.partition.stopped is None:
                        self._abort_in(served, place, Marker(producer_id, found.epoch, False))
                        touched.append(served.partition)
        return touched

    def _abort_in(self, served: ServedPartition, place: TopicPartition, marker: Marker) -> None:
        log.info("%s: aborting a transaction nobody knows of", served.partition.directory)
        try:
            served.write(build_marker(marker, self._clock.now_ms()))
            if place.topic == OFFSETS:
                self._ended(marker.producer_id, False, place.partition)
        except StorageError as error:
            log.warning("it has to wait: %s", error)
            self._deadlines.set(_UNRECORDED, self._alarm.now() + _RETRY_MS)
            self._alarm.arm()

    # --- finding and recording

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        return self._transactions

    def _served_partition_of(self, transactional_id: str) -> ServedPartition:
        number = crc32c(transactional_id.encode()) % len(self._served)
        return self._served[number]

    @property
    def refusal(self) -> str | None:
        """Return why some transactions cannot be read; None when all can."""
        partitions = (served.partition for served in self._served)
        return next((each.stopped for each in partitions if each.refused), None)

    def check_readable(self, transactional_id: str) -> None:
        """Raise StorageError when the records about the transactional id are damaged."""
        if self._served:
            self._served_partition_of(transactional_id).partition.check_served()

    def get(self, transactional_id: str) -> Transaction | None:
        """Return the transaction, if there is one. Raises StorageError."""
        self.check_readable(transactional_id)
        return self._transactions.get(transactional_id)

    def _find(self, transactional_id: str) -> Transaction:
        found = self.get(transactional_id)
        if found is None:
            raise InvalidProducerMapping(f"nobody has the transactional id {transactional_id!r}")
        return found

    def _record(self, successor: Transaction) -> Recorded:
        """Record a state; it takes effect now. Raises StorageError; then nothing has changed."""
        recorded = self._append(successor.transactional_id, transaction_record(successor))
        before = self._transactions.get(successor.transactional_id)
        self._transactions[successor.transactional_id] = successor
        if before is None or before.state is not successor.state:
            self._watch(successor)
        return recorded

    def _append(self, transactional_id: str, record: Record) -> Recorded:
        served = self._served_partition_of(transactional_id)
        appended = served.write(batch.build([record], now_ms=self._clock.now_ms()))
        return Recorded(served.partition, appended.offset_end)

    # --- verbs

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, known: ProducerIdentity | None = None
    ) -> ProducerIdentity:
        """Take over the transactional id: abort its open transaction and fence its last owner.

        With TIMEOUT_NEVER its transactions stay open until they are ended by a request.
        """
        is_two_phase = timeout_ms == transaction.TIMEOUT_NEVER
        if not is_two_phase and not 0 < timeout_ms <= limits.TRANSACTION_TIMEOUT_MS_MAX:
            raise InvalidTransactionTimeout(
                f"a transaction takes 1 to {limits.TRANSACTION_TIMEOUT_MS_MAX} ms"
            )
        await self._prepare()
        current = self.get(transactional_id)
        if current is not None and current.state is TransactionStatus.ONGOING:
            transaction.check_initialise(current, known)
            await self._decide(transaction.abort_and_fence(current, self._clock.now_ms()))
            current, known = self._find(transactional_id), None
        spare_id = NONE
        if current is None or current.is_exhausted:
            spare_id = await self._new_producer_id()
            current = self.get(transactional_id)  # Another request may have changed it meanwhile.
        now_ms = self._clock.now_ms()
        if current is None:
            if len(self._transactions) >= limits.TRANSACTIONAL_IDS_MAX:
                raise TooManyTransactions("too many transactional ids")
            successor = transaction.begin(transactional_id, spare_id, timeout_ms, now_ms)
        elif current.state is TransactionStatus.ONGOING or (
            current.is_exhausted and spare_id == NONE
        ):
            raise ConcurrentTransactions("another producer takes the transactional id")
        else:
            successor = transaction.initialise(current, timeout_ms, known, spare_id, now_ms)
        await committed(*self._record(successor))
        return successor.producer

    async def add_partitions(
        self, transactional_id: str, producer: ProducerIdentity, places: Iterable[TopicPartition]
    ) -> None:
        """Add partitions to the transaction; return when that is permanent."""
        recorded = self.join(transactional_id, producer, places)
        if recorded is None:
            partition = self._served_partition_of(transactional_id).partition
            recorded = Recorded(partition, partition.offset_end)
        await committed(*recorded)

    def join(
        self, transactional_id: str, producer: ProducerIdentity, places: Iterable[TopicPartition]
    ) -> Recorded | None:
        """Add partitions to the transaction now; None when they were in it already."""
        current = self._find(transactional_id)
        successor = transaction.add(current, producer, places, self._clock.now_ms())
        return None if successor is None else self._record(successor)

    def check_member(
        self, transactional_id: str, producer: ProducerIdentity, place: TopicPartition
    ) -> None:
        """Raise unless the producer may write to the partition now."""
        transaction.check_member(self._find(transactional_id), producer, place)

    async def end(
        self, transactional_id: str, producer: ProducerIdentity, *, commit: bool, version: int
    ) -> ProducerIdentity:
        """End the transaction; return the producer's id and epoch from now on.

        Returns when readers of committed records see the end.
        """
        spare_id = NONE
        if version >= transaction.VERSION_EPOCHS and self._find(transactional_id).is_exhausted:
            spare_id = await self._new_producer_id()
        prepared = transaction.end(
            self._find(transactional_id),
            producer,
            commit=commit,
            version=version,
            spare_id=spare_id,
            now_ms=self._clock.now_ms(),
        )
        if prepared is not None:
            await self._decide(prepared)
            return transaction.complete(prepared, 0).producer
        partition = self._served_partition_of(transactional_id).partition
        await committed(partition, partition.offset_end)
        return self._find(transactional_id).producer

    async def transactional_ids(self) -> dict[int, str]:
        """Return the transactional id that each producer id belongs to."""
        found: dict[int, str] = {}

        def collect() -> Steps[None]:
            for each in list(self._transactions.values()):
                yield
                found[each.producer.id] = each.transactional_id

        await self._turns.run(collect())
        return found

    async def abort_batches(
        self, place: TopicPartition, producer: ProducerIdentity, transactional_id: str | None
    ) -> None:
        """Abort the transaction that a producer has open in a partition, if it has one.

        `transactional_id` is that of the producer, as far as known. A transaction that is recorded
        is aborted as a whole, and its owner fenced: aborted in one partition alone, it would be
        committed in the others. What is not recorded is aborted in this partition.
        """
        served = self._topics.served_partition(self._topics.topic(place.topic), place.partition)
        opened = served.isolation.open.get(producer.id)
        if opened is None:
            return
        if producer.epoch < opened.epoch:
            raise FencedProducer(f"producer {producer.id} has epoch {opened.epoch} there")
        current = None if transactional_id is None else self.get(transactional_id)
        if current is not None and current.producer.id == producer.id:
            transaction.check_open(current)
            if transaction.owns_open_batches(current, place, opened.epoch):
                log.info("transaction %s is aborted by request", current.transactional_id)
                await self._decide(transaction.abort_and_fence(current, self._clock.now_ms()))
                return
        self._abort_in(served, place, Marker(producer.id, opened.epoch, False))
        await committed(served.partition, served.partition.offset_end)

    # --- ending

    async def _decide(self, prepared: Transaction) -> None:
        """Record the decision and carry it out. Raises StorageError when the decision is not
        permanent."""
        recorded = self._record(prepared)
        ending = self._end(prepared)
        await committed(*recorded)
        await asyncio.wait((ending,))  # The decision stands even if markers have to be retried.

    def _end(self, prepared: Transaction) -> asyncio.Task[None]:
        """Carry out the decision in a task, which goes on when the request is cancelled."""
        task = asyncio.get_running_loop().create_task(self._carry_out(prepared))
        self._ending[prepared.transactional_id] = task
        task.add_done_callback(lambda done: done.cancelled() or done.result())
        return task

    async def _carry_out(self, prepared: Transaction) -> None:
        """Write the markers and record the end; on failure set a deadline to try again."""
        transactional_id = prepared.transactional_id
        partition = self._served_partition_of(transactional_id).partition
        try:
            await committed(partition, partition.offset_end)
            await self._write_markers(prepared)
            self._ended(prepared.producer.id, prepared.is_committed, None)
            self._record(transaction.complete(prepared, self._clock.now_ms()))
            self._retry_ms.pop(transactional_id, None)
        except Exception as error:
            if not isinstance(error, StorageError | OSError):
                self._topics.faults.caught(f"the end of transaction {transactional_id}", error)
            log.warning("transaction %s: its end has to wait: %s", transactional_id, error)
            before_ms = self._retry_ms.get(transactional_id, _RETRY_MS // 2)
            self._retry_ms[transactional_id] = min(2 * before_ms, _RETRY_MS_MAX)
            self._watch(prepared)
        finally:
            del self._ending[transactional_id]

    async def _write_markers(self, prepared: Transaction) -> None:
        """Write markers where the transaction is still open: an earlier attempt may have written
        some."""
        marker = Marker(*prepared.producer, committed=prepared.is_committed)
        data = build_marker(marker, self._clock.now_ms())
        failures: list[StorageError] = []
        partitions: list[Partition] = []

        def write() -> Steps[None]:
            for served in [s for place in prepared.partitions for s in self._served_at(place)]:
                yield
                try:
                    opened = served.isolation.open.get(marker.producer_id)
                    if opened is not None and transaction.ends_open_batches(prepared, opened.epoch):
                        served.write(data)
                    partitions.append(served.partition)
                except StorageError as error:
                    failures.append(error)

        await self._turns.run(write())
        await gathered(committed(each, each.offset_end) for each in partitions)
        if failures:
            raise failures[0]

    def _served_at(self, place: TopicPartition) -> list[ServedPartition]:
        """Return the partition in a list, which is empty when the topic was deleted."""
        try:
            return [self._topics.served_partition(self._topics.topic(place.topic), place.partition)]
        except UnknownTopic:
            return []

    # --- time

    def _watch(self, current: Transaction) -> None:
        """Set the deadline that fits the transaction's state."""
        if current.state is TransactionStatus.ONGOING and not current.has_timeout:
            self._deadlines.cancel(current.transactional_id)
            return
        if current.state is TransactionStatus.ONGOING:
            left_ms = current.started_ms + current.timeout_ms - self._clock.now_ms()
            after_ms = min(max(left_ms, 0), current.timeout_ms)
        elif current.state in PREPARED:
            after_ms = self._retry_ms.get(current.transactional_id, _RETRY_MS)
        else:
            after_ms = limits.TRANSACTIONAL_ID_IDLE_MS_MAX
        self._deadlines.set(current.transactional_id, self._alarm.now() + after_ms)
        self._alarm.arm()

    def _ring(self, transactional_id: str) -> None:
        """Act on a deadline that has come."""
        if transactional_id == _UNRECORDED:
            self._abort_unrecorded()
            return
        try:
            self._time_out(self._transactions[transactional_id])
        except StorageError as error:
            log.warning("transaction %s has to wait: %s", transactional_id, error)
            self._deadlines.set(transactional_id, self._alarm.now() + _RETRY_MS)

    def _time_out(self, current: Transaction) -> None:
        """Abort an open transaction, retry an unfinished end, or forget an unused transactional
        id."""
        transactional_id = current.transactional_id
        if current.state is TransactionStatus.ONGOING:
            log.info("transaction %s took too long and is aborted", transactional_id)
            prepared = transaction.abort_and_fence(current, self._clock.now_ms())
            self._record(prepared)
            self._end(prepared)
        elif current.state not in PREPARED:
            self._append(transactional_id, forgotten_record(transactional_id))
            del self._transactions[transactional_id]
        elif transactional_id in self._ending:
            self._watch(current)
        else:
            self._end(current)
