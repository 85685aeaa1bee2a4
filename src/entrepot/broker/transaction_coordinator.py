"""The coordinator of this node's transactions, which are stored in `__transaction_state`.

The transitions are in `transaction`. A state takes effect when it is recorded; requests are
answered when that is permanent. A transaction ends in three steps, each permanent before the
next: the decision is recorded; a marker is written to every partition with its batches, all in
one commit; the end is recorded. After a crash in between, or a full disk, the rest is done at
the next start or retried.

Batches of a transaction that was never recorded cannot have been acknowledged; a start aborts
them. So a batch may be written together with the record that adds its partition to the
transaction, and one commit serves both.

In a cluster a node coordinates the transactions whose states are in partitions that it leads. It
reads them when it begins to lead, and forgets them when it ends to. Who leads a partition of the
data asks here before it appends a batch (see `vouching`), and is sent the markers. So nothing is
unrecorded there, and a power failure takes nothing that other replicas have.

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
from entrepot.broker.replication import NOBODY, Cluster
from entrepot.broker.served_partition import ServedPartition, committed
from entrepot.broker.transaction import (
    NONE,
    PREPARED,
    ProducerIdentity,
    Transaction,
    TransactionStatus,
)
from entrepot.broker.transaction_markers import MarkerWriter, coordinator_epoch
from entrepot.broker.transaction_record import forgotten_record, read_record, transaction_record
from entrepot.broker.turns import Turns
from entrepot.core import batch, limits
from entrepot.core.errors import (
    ConcurrentTransactions,
    FencedProducer,
    InvalidBatch,
    InvalidProducerMapping,
    InvalidTransactionState,
    InvalidTransactionTimeout,
    NotEnoughReplicas,
    NotLeader,
    StillLoading,
    StorageError,
    TooManyTransactions,
)
from entrepot.core.marker import Marker, build_marker
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.core.steps import Steps, finish
from entrepot.log.partition import Partition
from entrepot.log.policy import Durability

log = logging.getLogger("entrepot.transactions")

TOPIC = "__transaction_state"
PARTITIONS = 8
# Small segments: a start reads the whole topic, and the newest segment is never compacted.
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": str(1 * limits.MIB)}
_RETRY_MS = 1_000  # First wait before markers that could not be written are tried again;
_RETRY_MS_MAX = 60_000  # it doubles each time, up to this.
_RETRY_SOON_MS = 50  # The first wait in a cluster, where it doubles up to `_RETRY_MS`.
# The deadlines' key for aborting transactions that were not recorded; no transactional id is empty.
_UNRECORDED = ""


class Recorded(NamedTuple):
    """A recorded state. It is permanent when the partition's watermark has reached the offset."""

    partition: Partition
    offset_end: int


class TransactionCoordinator:
    topic_name = TOPIC

    def __init__(
        self,
        topics: TopicStorage,
        turns: Turns,
        clock: Clock,
        new_producer_id: Callable[[], Awaitable[int]],
        ended: Callable[[int, bool, int | None], None],
        check_groups: Callable[[int], None],
    ) -> None:
        """Make a coordinator. `ended` is called with (producer id, committed, partition) at each
        end; partition None means: everywhere, otherwise only that one of `__consumer_offsets`.
        `check_groups` raises StillLoading while the groups of such a partition are not here."""
        self._topics = topics
        self._turns = turns
        self._clock = clock
        self._new_producer_id = new_producer_id
        self._ended = ended
        self.markers = MarkerWriter(topics, turns, clock, ended, check_groups)
        self._cluster: Cluster | None = None  # None means: this node is alone.
        # In a cluster: the partitions whose transactions are here, what reads those that this node
        # leads since a moment ago, and where markers of each unfinished end are already.
        self._led: dict[int, None] = {}
        self._loading: dict[int, asyncio.Task[None]] = {}
        self._marked: dict[str, dict[TopicPartition, None]] = {}
        self._attempts: dict[str, int] = {}  # To write markers, that have failed.
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
            await self.prepare()
        if self._cluster is not None:
            return True
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
        for number in [*self._led, *self._loading]:
            self.ended_to_lead(number)
        if self._ending:
            await asyncio.wait(list(self._ending.values()))

    async def prepare(self) -> None:
        """Create the topic when it is first needed."""
        if not self._served:
            await self._topics.internal_topic(TOPIC, PARTITIONS, _SETTINGS)
            self._find_topic()

    def _find_topic(self) -> None:
        """Find the topic if it exists: another node may have created it."""
        topic = self._topics.topics.get(TOPIC)
        if topic is not None and not self._served:
            self._served = self._topics.served_partitions(topic)

    def _fold(self, served: ServedPartition) -> None:
        self._transactions |= finish(_folded(served))

    # --- in a cluster

    def join(self, cluster: Cluster) -> None:
        """Be one of several coordinators. Called before `open`."""
        self._cluster = self.markers.cluster = cluster

    def began_to_lead(self, number: int) -> None:
        """Read the transactions that are stored in this partition: this node leads it now."""
        self._find_topic()
        loading = asyncio.get_running_loop().create_task(self._load(number))
        self._loading[number] = loading
        loading.add_done_callback(lambda done: done.cancelled() or done.result())

    async def _load(self, number: int) -> None:
        try:
            found = await self._turns.run(_folded(self._served[number]))
        except Exception as error:
            self._topics.faults.caught(f"transactions of partition {number} are not loaded", error)
            return
        del self._loading[number]
        self._led[number] = None
        self._transactions |= found
        for each in found.values():
            self._watch(each)
            if each.state in PREPARED:
                self._end(each)
        log.info("transactions of partition %d are loaded", number)

    def ended_to_lead(self, number: int) -> None:
        """Forget the transactions that are stored in this partition: another node has them now."""
        loading = self._loading.pop(number, None)
        if loading is not None:
            loading.cancel()
        if number not in self._led:
            return
        del self._led[number]
        for each in [each for each in self._transactions if self.partition_of(each) == number]:
            del self._transactions[each]
            self._deadlines.cancel(each)
            for known in (self._retry_ms, self._marked, self._attempts):
                known.pop(each, None)
            ending = self._ending.pop(each, None)
            if ending is not None:
                ending.cancel()

    async def ask(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        place: TopicPartition,
        *,
        joins: bool,
    ) -> None:
        """Ask the coordinator, here or elsewhere, whether the producer may write to the partition,
        which `joins` its transaction if it is not in it. Raises what it answers: PeerError, or
        NotEnoughReplicas when nobody can be asked now."""
        assert self._cluster is not None
        try:
            leader = self.leader_of(transactional_id)
            if leader == NOBODY:
                raise NotLeader("nobody coordinates the transaction now")
            if not self._served_partition_of(transactional_id).leads:
                await self._cluster.ask_coordinator(
                    leader, transactional_id, producer, place, joins=joins
                )
            elif joins:
                await self.add_partitions(transactional_id, producer, [place])
            else:
                await self.verify(transactional_id, producer, place)
        except (ConcurrentTransactions, StorageError) as error:
            # What Kafka's leaders answer, too: clients of all versions send the batch again.
            raise NotEnoughReplicas(str(error)) from None

    def leader_of(self, transactional_id: str) -> int:
        """Return the node that coordinates the transactions of this id; NOBODY if none does."""
        self._find_topic()
        if self._cluster is None or not self._served:
            return NOBODY
        holders = self._cluster.holders(self._served_partition_of(transactional_id).partition.id)
        return NOBODY if holders is None else holders.leader

    # --- after a crash

    def _forget_uncertain(self) -> bool:
        """Forget transactions whose partitions may have lost records; their batches are then
        aborted as unknown.

        Return whether that could be recorded.
        """
        is_recorded = True
        for found in list(self._transactions.values()):
            served = [s for place in found.partitions for s in self.markers.served_at(place)]
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
        return self._served[self.partition_of(transactional_id)]

    def partition_of(self, transactional_id: str) -> int:
        """Return the partition that the transactional id is stored in."""
        return crc32c(transactional_id.encode()) % (len(self._served) or PARTITIONS)

    @property
    def refusal(self) -> str | None:
        """Return why some transactions cannot be read; None when all can."""
        partitions = (served.partition for served in self._served)
        return next((each.stopped for each in partitions if each.refused), None)

    def check_readable(self, transactional_id: str) -> None:
        """Raise StorageError when the records about this id are damaged, or not here."""
        if not self._served and self._cluster is not None:
            self._find_topic()
        if self._served:
            served = self._served_partition_of(transactional_id)
            served.partition.check_served()
            if self._cluster is not None:
                served.check_leads()
                if served.partition.id.number not in self._led:
                    raise StillLoading(f"{served.partition.directory} is being read")

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
        await self.prepare()
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
        recorded = self.join_transaction(transactional_id, producer, places)
        if recorded is None:
            partition = self._served_partition_of(transactional_id).partition
            recorded = Recorded(partition, partition.offset_end)
        await committed(*recorded)

    async def verify(
        self, transactional_id: str, producer: ProducerIdentity, place: TopicPartition
    ) -> None:
        """Check as `check_member` does; return when what it says is permanent."""
        self.check_member(transactional_id, producer, place)
        partition = self._served_partition_of(transactional_id).partition
        await committed(partition, partition.offset_end)

    def join_transaction(
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

    async def abort(self, transactional_id: str) -> None:
        """Abort the open transaction of a transactional id, and fence its owner.

        Raises InvalidTransactionState if it has none.
        """
        current = self._find(transactional_id)
        transaction.check_open(current)
        if current.state is not TransactionStatus.ONGOING:
            raise InvalidTransactionState("it has no open transaction")
        log.info("transaction %s is aborted by request", transactional_id)
        await self._decide(transaction.abort_and_fence(current, self._clock.now_ms()))

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
        if ending.cancelled():
            raise NotLeader("another node coordinates the transaction, and ends it")

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
            if self._cluster is None:
                await self._write_markers(prepared)
                self._ended(prepared.producer.id, prepared.is_committed, None)
            else:
                await self._send_markers(prepared, partition.leader_epoch)
            self._record(transaction.complete(prepared, self._clock.now_ms()))
            self._retry_ms.pop(transactional_id, None)
        except Exception as error:
            if not isinstance(error, StorageError | OSError):
                self._topics.faults.caught(f"the end of transaction {transactional_id}", error)
            log.warning("transaction %s: its end has to wait: %s", transactional_id, error)
            first_ms, last_ms = _RETRY_MS, _RETRY_MS_MAX
            if self._cluster is not None:  # Another node will lead, soon.
                first_ms, last_ms = _RETRY_SOON_MS, _RETRY_MS
            before_ms = self._retry_ms.get(transactional_id, first_ms // 2)
            self._retry_ms[transactional_id] = min(2 * before_ms, last_ms)
            self._watch(prepared)
        finally:
            if self._ending.get(transactional_id) is asyncio.current_task():
                del self._ending[transactional_id]

    async def _write_markers(self, prepared: Transaction) -> None:
        await self.markers.write(prepared)

    async def _send_markers(self, prepared: Transaction, leader_epoch: int) -> None:
        """Write the markers in the cluster. Raises StorageError: the next attempt does the rest."""
        transactional_id = prepared.transactional_id
        attempt = self._attempts.get(transactional_id, 0)
        epoch = coordinator_epoch(leader_epoch, attempt)
        marker = Marker(*prepared.producer, prepared.is_committed, epoch)
        done = self._marked.setdefault(transactional_id, {})
        try:
            await self.markers.write_everywhere(marker, prepared.partitions, done)
        except StorageError:
            self._attempts[transactional_id] = attempt + 1
            raise
        self._marked.pop(transactional_id, None)

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


def _folded(served: ServedPartition) -> Steps[dict[str, Transaction]]:
    """Return the states that are stored in a partition. It is refused if it cannot be read."""
    folded: dict[str, Transaction] = {}
    try:
        served.partition.check_served()
        # Read at once: compaction may exchange segments meanwhile.
        for data in list(served.partition.batches()):
            yield
            for record in batch.records(data):
                transactional_id, found = read_record(record)
                if found is None:
                    folded.pop(transactional_id, None)
                else:
                    folded[transactional_id] = found
    except (InvalidBatch, StorageError, OSError) as error:
        served.partition.refuse(str(error))  # Older states must not be acted on.
        return {}
    return folded
