"""Every transaction of this node: decided in `transaction`, kept in `__transaction_state`.

A state counts when it is recorded and is told when that is permanent. A transaction ends
in three steps, each permanent before the next: the decision is recorded; a marker is
written to every partition that has its batches, all in one commit; the end is recorded.
A crash in between is made up for at the next start, and so is a disk that was full.

What a partition has of a transaction that was never recorded cannot have been answered;
a start aborts it. So a batch may be written together with the record of its partition
joining the transaction, and one commit serves both.

With less than `fsync` nothing of this is permanent, and a power failure takes the end of any
partition: a marker, and not the next transaction's beginning, which may have the same epoch.
So after one, no transaction goes on that was in such a partition: what is open is aborted, and
its transactional id is forgotten, with its producer id.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple

from crc32c import crc32c

from entrepot.broker import transaction
from entrepot.broker.alarm import Alarm
from entrepot.broker.consumer_group.offsets import Place
from entrepot.broker.consumer_group.store import TOPIC as OFFSETS
from entrepot.broker.deadlines import Deadlines
from entrepot.broker.stream import Stream, committed
from entrepot.broker.transaction import NONE, PREPARED, Producer, State, Transaction
from entrepot.broker.transaction_record import forgotten_record, read_record, transaction_record
from entrepot.broker.turns import gathered
from entrepot.core import batch, limits
from entrepot.core.errors import (
    ConcurrentTransactions,
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

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker

log = logging.getLogger("entrepot.transactions")

TOPIC = "__transaction_state"
PARTITIONS = 8
# Small segments: a start reads all there is, and the newest one is never compacted.
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * limits.MIB)}
_RETRY_MS = 1_000  # Until markers that could not be written are tried again,
_RETRY_MS_MAX = 60_000  # and twice as long each time, up to this.
_STRAYS = ""  # Among the deadlines: nobody's transactional id.


class Recorded(NamedTuple):
    """A state in the log. It is permanent when the watermark is there."""

    partition: Partition
    offset_end: int


class TransactionCoordinator:
    def __init__(
        self, broker: Broker, clock: Clock, ended: Callable[[int, bool, int | None], None]
    ) -> None:
        self._broker = broker
        self._clock = clock
        # Told of each end, by producer id: of all its offsets, or of those in one partition.
        self._ended = ended
        self._streams: list[Stream] = []  # Of the topic, once there is one.
        self._transactions: dict[str, Transaction] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}  # Those whose markers are on the way.
        self._retry_ms: dict[str, int] = {}  # Of those whose markers could not be written.
        self._deadlines: Deadlines[str] = Deadlines()
        self._alarm = Alarm(clock, self._deadlines, self._ring, broker.faults)

    # --- life

    async def open(self, *, power_failed: bool) -> bool:
        """Fold what was recorded, and finish what a stop or a crash left undone.

        Returns whether what a power failure has left is seen to, for the next start as well.
        """
        if TOPIC in self._broker.topics:
            await self._prepare()
        for stream in self._streams:
            self._fold(stream)
        is_seen_to = not power_failed or self._forget_uncertain()
        for found in list(self._transactions.values()):
            self._watch(found)
        prepared = [t for t in self._transactions.values() if t.state in PREPARED]
        if prepared:
            await asyncio.wait([self._end(each) for each in prepared])
        for partition in self._abort_strays():
            with contextlib.suppress(StorageError):
                await committed(partition, partition.offset_end)
        return is_seen_to

    async def close(self) -> None:
        self._alarm.cancel()
        if self._ending:
            await asyncio.wait(list(self._ending.values()))

    async def _prepare(self) -> None:
        """Find the topic, or make it when it is first needed."""
        if not self._streams:
            topic = await self._broker.internal_topic(TOPIC, PARTITIONS, _SETTINGS)
            count = topic.partition_count
            self._streams = [self._broker.stream(topic, index) for index in range(count)]

    def _fold(self, stream: Stream) -> None:
        folded: dict[str, Transaction] = {}
        try:
            stream.partition.check_served()
            for data in stream.partition.batches():
                for record in batch.records(data):
                    transactional_id, found = read_record(record)
                    if found is None:
                        folded.pop(transactional_id, None)
                    else:
                        folded[transactional_id] = found
        except (InvalidBatch, StorageError, OSError) as error:
            stream.partition.refuse(str(error))  # What is old must not be carried out.
        else:
            self._transactions |= folded

    def _forget_uncertain(self) -> bool:
        """Forget whose partitions may have lost something: what is open of them is then stray.

        Returns whether that could be recorded.
        """
        is_recorded = True
        for found in list(self._transactions.values()):
            streams = [s for place in found.partitions for s in self._streams_at(place)]
            streams.append(self._stream_of(found.transactional_id))
            if all(each.partition.policy.durability is Durability.FSYNC for each in streams):
                continue
            del self._transactions[found.transactional_id]
            try:
                self._append(found.transactional_id, forgotten_record(found.transactional_id))
            except StorageError as error:
                log.warning("transaction %s has to wait: %s", found.transactional_id, error)
                is_recorded = False
        return is_recorded

    def _abort_strays(self) -> list[Partition]:
        """End what partitions have of transactions that were not recorded; these partitions."""
        if any(stream.partition.stopped is not None for stream in self._streams):
            return []  # Who knows what was recorded there.
        owners = {t.producer.id: t for t in self._transactions.values()}
        touched: list[Partition] = []
        for topic in self._broker.topics.values():
            for index in range(topic.partition_count):
                stream, place = self._broker.stream(topic, index), Place(topic.name, index)
                for producer_id, found in list(stream.isolation.open.items()):
                    owner = owners.get(producer_id)
                    is_known = owner is not None and transaction.is_writing(
                        owner, place, found.epoch
                    )
                    if not is_known and stream.partition.stopped is None:
                        self._abort_stray(stream, place, Marker(producer_id, found.epoch, False))
                        touched.append(stream.partition)
        return touched

    def _abort_stray(self, stream: Stream, place: Place, marker: Marker) -> None:
        log.info("%s: aborting a transaction nobody knows of", stream.partition.directory)
        try:
            stream.write(build_marker(marker, self._clock.now_ms()))
            if place.topic == OFFSETS:
                self._ended(marker.producer_id, False, place.partition)
        except StorageError as error:
            log.warning("it has to wait: %s", error)
            self._deadlines.set(_STRAYS, self._alarm.now() + _RETRY_MS)
            self._alarm.arm()

    # --- finding and recording

    @property
    def transactions(self) -> Mapping[str, Transaction]:
        return self._transactions

    def _stream_of(self, transactional_id: str) -> Stream:
        number = crc32c(transactional_id.encode()) % len(self._streams)
        return self._streams[number]

    @property
    def refusal(self) -> str | None:
        """Why some transactions are not known; None when all are."""
        partitions = (stream.partition for stream in self._streams)
        return next((each.stopped for each in partitions if each.refused), None)

    def check_readable(self, transactional_id: str) -> None:
        """Raises StorageError when what was recorded of it is damaged: nothing is guessed."""
        if self._streams:
            self._stream_of(transactional_id).partition.check_served()

    def get(self, transactional_id: str) -> Transaction | None:
        """Raises StorageError."""
        self.check_readable(transactional_id)
        return self._transactions.get(transactional_id)

    def _find(self, transactional_id: str) -> Transaction:
        found = self.get(transactional_id)
        if found is None:
            raise InvalidProducerMapping(f"nobody has the transactional id {transactional_id!r}")
        return found

    def _record(self, successor: Transaction) -> Recorded:
        """It counts from now on; raises StorageError, and nothing has changed."""
        recorded = self._append(successor.transactional_id, transaction_record(successor))
        before = self._transactions.get(successor.transactional_id)
        self._transactions[successor.transactional_id] = successor
        if before is None or before.state is not successor.state:
            self._watch(successor)
        return recorded

    def _append(self, transactional_id: str, record: Record) -> Recorded:
        stream = self._stream_of(transactional_id)
        appended = stream.write(batch.build([record], now_ms=self._clock.now_ms()))
        return Recorded(stream.partition, appended.offset_end)

    # --- verbs

    async def init_producer_id(
        self, transactional_id: str, timeout_ms: int, known: Producer | None = None
    ) -> Producer:
        """Take over the transactional id: what was open is aborted, who had it is fenced.

        With TIMEOUT_NEVER its transactions stay open until somebody ends them.
        """
        is_two_phase = timeout_ms == transaction.TIMEOUT_NEVER
        if not is_two_phase and not 0 < timeout_ms <= limits.TRANSACTION_TIMEOUT_MS_MAX:
            raise InvalidTransactionTimeout(
                f"a transaction takes 1 to {limits.TRANSACTION_TIMEOUT_MS_MAX} ms"
            )
        await self._prepare()
        current = self.get(transactional_id)
        if current is not None and current.state is State.ONGOING:
            transaction.check_initialise(current, known)
            await self._decide(transaction.abort_and_fence(current, self._clock.now_ms()))
            current, known = self._find(transactional_id), None
        spare_id = NONE
        if current is None or current.is_exhausted:
            spare_id = await self._broker.new_producer_id()
            current = self.get(transactional_id)  # Somebody may have been quicker.
        now_ms = self._clock.now_ms()
        if current is None:
            if len(self._transactions) >= limits.TRANSACTIONAL_IDS_MAX:
                raise TooManyTransactions("too many transactional ids")
            successor = transaction.begin(transactional_id, spare_id, timeout_ms, now_ms)
        elif current.state is State.ONGOING or (current.is_exhausted and spare_id == NONE):
            raise ConcurrentTransactions("another producer takes the transactional id")
        else:
            successor = transaction.initialise(current, timeout_ms, known, spare_id, now_ms)
        await committed(*self._record(successor))
        return successor.producer

    async def add_partitions(
        self, transactional_id: str, producer: Producer, places: Iterable[Place]
    ) -> None:
        recorded = self.join(transactional_id, producer, places)
        if recorded is None:
            partition = self._stream_of(transactional_id).partition
            recorded = Recorded(partition, partition.offset_end)
        await committed(*recorded)

    def join(
        self, transactional_id: str, producer: Producer, places: Iterable[Place]
    ) -> Recorded | None:
        """The partitions are in the transaction from now on; None when they were before."""
        current = self._find(transactional_id)
        successor = transaction.add(current, producer, places, self._clock.now_ms())
        return None if successor is None else self._record(successor)

    def check_member(self, transactional_id: str, producer: Producer, place: Place) -> None:
        """Whether the producer may write there now."""
        transaction.check_member(self._find(transactional_id), producer, place)

    async def end(
        self, transactional_id: str, producer: Producer, *, commit: bool, version: int
    ) -> Producer:
        """Returns when readers of committed records see it: who the producer is from now on."""
        spare_id = NONE
        if version >= transaction.VERSION_EPOCHS and self._find(transactional_id).is_exhausted:
            spare_id = await self._broker.new_producer_id()
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
        partition = self._stream_of(transactional_id).partition
        await committed(partition, partition.offset_end)
        return self._find(transactional_id).producer

    # --- ending

    async def _decide(self, prepared: Transaction) -> None:
        """Record the decision and carry it out. Raises StorageError when it is not permanent."""
        recorded = self._record(prepared)
        ending = self._end(prepared)
        await committed(*recorded)
        await asyncio.wait((ending,))  # Markers that have to wait change nothing of it.

    def _end(self, prepared: Transaction) -> asyncio.Task[None]:
        """In the background: it goes on although who asked for it is gone."""
        task = asyncio.get_running_loop().create_task(self._carry_out(prepared))
        self._ending[prepared.transactional_id] = task
        task.add_done_callback(lambda done: done.cancelled() or done.result())
        return task

    async def _carry_out(self, prepared: Transaction) -> None:
        transactional_id = prepared.transactional_id
        partition = self._stream_of(transactional_id).partition
        try:
            await committed(partition, partition.offset_end)
            await self._write_markers(prepared)
            self._ended(prepared.producer.id, prepared.is_committed, None)
            self._record(transaction.complete(prepared, self._clock.now_ms()))
            self._retry_ms.pop(transactional_id, None)
        except Exception as error:
            if not isinstance(error, StorageError | OSError):
                self._broker.faults.caught(f"the end of transaction {transactional_id}", error)
            log.warning("transaction %s: its end has to wait: %s", transactional_id, error)
            before_ms = self._retry_ms.get(transactional_id, _RETRY_MS // 2)
            self._retry_ms[transactional_id] = min(2 * before_ms, _RETRY_MS_MAX)
            self._watch(prepared)
        finally:
            del self._ending[transactional_id]

    async def _write_markers(self, prepared: Transaction) -> None:
        """Where the transaction is open; an earlier attempt may have come far."""
        marker = Marker(*prepared.producer, committed=prepared.is_committed)
        data = build_marker(marker, self._clock.now_ms())
        failures: list[StorageError] = []
        partitions: list[Partition] = []

        def write() -> Steps[None]:
            for stream in [s for place in prepared.partitions for s in self._streams_at(place)]:
                yield
                try:
                    opened = stream.isolation.open.get(marker.producer_id)
                    if opened is not None and transaction.has_written(prepared, opened.epoch):
                        stream.write(data)
                    partitions.append(stream.partition)
                except StorageError as error:
                    failures.append(error)

        await self._broker.turns.run(write())
        await gathered(committed(each, each.offset_end) for each in partitions)
        if failures:
            raise failures[0]

    def _streams_at(self, place: Place) -> list[Stream]:
        """One, or none when the topic was deleted."""
        try:
            return [self._broker.stream(self._broker.topic(place.topic), place.partition)]
        except UnknownTopic:
            return []

    # --- time

    def _watch(self, current: Transaction) -> None:
        if current.state is State.ONGOING and not current.has_timeout:
            self._deadlines.cancel(current.transactional_id)
            return
        if current.state is State.ONGOING:
            left_ms = current.started_ms + current.timeout_ms - self._clock.now_ms()
            after_ms = min(max(left_ms, 0), current.timeout_ms)
        elif current.state in PREPARED:
            after_ms = self._retry_ms.get(current.transactional_id, _RETRY_MS)
        else:
            after_ms = limits.TRANSACTIONAL_ID_IDLE_MS_MAX
        self._deadlines.set(current.transactional_id, self._alarm.now() + after_ms)
        self._alarm.arm()

    def _ring(self, transactional_id: str) -> None:
        if transactional_id == _STRAYS:
            self._abort_strays()
            return
        try:
            self._time_out(self._transactions[transactional_id])
        except StorageError as error:
            log.warning("transaction %s has to wait: %s", transactional_id, error)
            self._deadlines.set(transactional_id, self._alarm.now() + _RETRY_MS)

    def _time_out(self, current: Transaction) -> None:
        transactional_id = current.transactional_id
        if current.state is State.ONGOING:
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
