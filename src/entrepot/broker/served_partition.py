"""A partition of a topic as the gateways use it: batches are appended, and read by offset.

It adds to the log's partition what a topic's settings and producers require: the maximal size
of a batch, whose timestamps count, compression, that an idempotent producer's retry is not
written twice, and that a transactional batch is part of a transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from entrepot.broker.refused_batches import RefusedBatches
from entrepot.broker.topic_config import TopicConfig
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.batch import (
    HEADER_BYTES,
    BatchHeader,
    Codec,
    check,
    read_header,
    recompress,
    records,
    restamp_append_time,
    walk,
)
from entrepot.core.errors import (
    BatchTooLarge,
    InvalidBatch,
    InvalidRecord,
    InvalidTimestamp,
    InvalidTransactionState,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotInTransaction,
    NotLeader,
    OffsetNotAvailable,
    StorageError,
)
from entrepot.core.ports import Buffer, Clock, FileRange, Worker
from entrepot.core.record import Record
from entrepot.core.steps import Steps, finish
from entrepot.log.log import Log, Opened
from entrepot.log.partition import Partition, Waiter
from entrepot.log.producers import WrittenBatch
from entrepot.log.recovery import SavedView
from entrepot.log.view import PartitionView, fold

if TYPE_CHECKING:
    from entrepot.broker.replication import Role

log = logging.getLogger("entrepot.partition")

Batches = Sequence[tuple[BatchHeader, Buffer | list[Buffer]]]  # As the log takes them.
# Called before a transactional batch is appended; raises a PeerError when it must not be.
Admit = Callable[[BatchHeader], None]


class Appended(NamedTuple):
    offset_first: int
    offset_end: int  # The append is acknowledged when the watermark has reached it.
    append_time_ms: int  # -1 means: the producer's timestamps count.


class ServedPartition:
    def __init__(self, log: Log, clock: Clock, opened: Opened, config: TopicConfig) -> None:
        self.partition: Partition = opened.partition
        self.config = config
        self.role: Role | None = None  # None means: there is no cluster.
        self._log = log
        self._clock = clock
        self._use(fold(opened))
        self.partition.view_snapshot = self._snapshot
        self.partition.offset_stable = lambda: self.last_stable_offset
        self.partition.on_cut = self._fold_again
        # Called with the offset of whatever is appended; None for partitions that nobody hears.
        self.on_append: Callable[[ServedPartition, int], None] | None = None
        # The version of all bindings and listeners as of which nobody hears this partition.
        self.unheard_version = -1
        self.unreadable_count = 0  # Records that could not be decoded for consumers of messages,
        self._unreadable_end = 0  # and the end offset of the last batch of them.
        self._refused = RefusedBatches(clock)

    def _use(self, view: PartitionView) -> None:
        self._view = view
        self.producers = view.producers
        self.isolation = view.isolation
        self.partition.fold = view.note
        self.partition.is_aborted = view.isolation.is_aborted
        self.partition.aborted_between = view.isolation.aborted_between

    def _fold_again(self, offset: int, state: bytes) -> None:
        """Fold what is left of the log after a truncation, from a saved state on."""
        self._use(fold(Opened(self.partition, SavedView(offset, state))))

    def _snapshot(self) -> bytes:
        self.isolation.forget_before(self.partition.offset_start)
        self._view.markers.forget_before(self.partition.offset_start)
        return self._view.snapshot()

    # --- in a cluster

    @property
    def leads(self) -> bool:
        """Return whether this node leads the partition."""
        return self.role is None or self.role.leads

    def check_leads(self) -> None:
        """Raise NotLeader if another node leads the partition."""
        if not self.leads:
            raise NotLeader(f"this node does not lead {self.partition.directory}")

    def check_enough_in_sync(self) -> None:
        """Raise NotEnoughReplicas if fewer replicas are in sync than the topic requires."""
        role = self.role
        if role is not None and role.in_sync_count < self.config.in_sync_min:
            self.check_leads()
            raise NotEnoughReplicas(
                f"{role.in_sync_count} replicas are in sync; the topic requires "
                f"{self.config.in_sync_min}"
            )

    def check_knows_end(self) -> None:
        """Raise OffsetNotAvailable while a new leader does not know what is committed."""
        if self.role is not None and not self.role.knows_end:
            raise OffsetNotAvailable("this node has begun to lead and does not know the end yet")

    def note_refused(self, data: Buffer) -> None:
        """Note that a batch was refused with an error after which the producer sends it again."""
        if self.role is not None:
            self._refused.note(read_header(data))

    def read_as_replica(self, node: int, offset: int, bytes_max: int) -> FileRange | None:
        """Return batches for another replica, which has all below the offset; committed or not."""
        assert self.role is not None
        found = self.partition.read(offset, bytes_max, to_end=True)
        self.role.fetched(node, offset)
        return found

    # --- appending

    def append(
        self,
        data: Buffer,
        admit: Admit | None = None,
        *,
        is_looked_into: bool = False,
        chunks: list[Buffer] | None = None,
    ) -> Appended:
        """Check and append what a producer sent: one batch or several.

        `is_looked_into` means: `look_into` returned this data. With `chunks` it is one batch that
        was written ahead in these chunks.

        Raises a PeerError when the batch is refused, StorageError when it cannot be stored.
        """
        batches: Batches = self._accept(data, is_looked_into)
        if chunks is not None:
            ((header, _),) = batches
            batches = [(header, chunks)]
        for header, _ in batches:
            if header.producer_id >= 0:
                return self._append_once(batches, admit)
        return self._append(batches)

    def write(self, *batches: bytes, may_wait: bool = False) -> Appended:
        """Append batches that the broker made, all or none. They may have a producer's id, or
        end its transaction. In a cluster as many replicas must be in sync as the topic requires."""
        if self.role is not None:
            self.check_enough_in_sync()
        return self._append([(read_header(data), data) for data in batches], may_wait=may_wait)

    def hurry(self) -> None:
        """Commit now what was written with `may_wait`."""
        self._log.hurry()

    def write_chunks(self, batches: Sequence[list[Buffer]]) -> Appended:
        """Append batches without a producer id that the broker made, each in chunks; all or
        none. In a cluster as many replicas must be in sync as the topic requires."""
        if self.role is not None:
            self.check_enough_in_sync()
        return self._append([(read_header(chunks[0]), chunks) for chunks in batches])

    async def write_ahead(self, chunks: list[Buffer]) -> None:
        """Write a large batch in slices before it is appended with `write_chunks`."""
        await self._log.write_ahead(self.partition, chunks)

    async def append_large(self, chunks: list[Buffer], worker: Worker, turns: Turns) -> Appended:
        """Check and append one large batch without a producer id, in slices, so that others do not
        wait.

        Raises what `append` does.
        """
        header, config = read_header(chunks[0]), self.config
        if config.codec is None and not config.policy.compacts and not config.append_time:
            self._check_size(header)
            self._check_timestamps(header)
        else:
            data = await self.look_into(b"".join(chunks), worker, turns)
            ((header, batch),) = self._accept(data, is_looked_into=True)
            view = memoryview(batch)
            chunks = [view[:HEADER_BYTES], view[HEADER_BYTES:]]
        await self.write_ahead(chunks)
        return self._append([(header, chunks)])

    def takes_long(self, data: Buffer) -> bool:
        """Return whether an append takes long: it is large, or must be decompressed."""
        config = self.config
        if len(data) > limits.LARGE_BYTES:
            return True
        if config.codec is None and not config.policy.compacts:
            return False
        try:
            return any(
                header.codec is not Codec.NONE or header.size > limits.BATCH_BYTES_AT_ONCE_MAX
                for _, header in walk(data)
                if config.policy.compacts or header.codec is not config.codec
            )
        except InvalidBatch:
            return False  # `append` will raise it.

    async def look_into(self, data: Buffer, worker: Worker, turns: Turns) -> Buffer:
        """Check the keys and recompress, in steps and in a worker, before `append`.

        Returns the data to append. Raises a PeerError when it is refused.
        """
        view, end = memoryview(data), 0
        batches: list[Buffer] = []
        is_changed = False
        for position, header in walk(view):
            self._check_size(header)
            end = position + header.size
            batch: Buffer = view[position:end]
            check(batch)
            config = self.config
            if config.policy.compacts:
                await turns.run(_check_keys(await worker(partial(records, batch))))
            if config.codec is not None and header.codec is not config.codec:
                batch = await worker(partial(recompress, batch, config.codec))
                is_changed = True
            batches.append(batch)
        return b"".join((*batches, view[end:])) if is_changed else data

    async def write_ahead_of(self, data: Buffer) -> list[Buffer] | None:
        """Write the data ahead if it is one large batch, and return its chunks; None otherwise."""
        header = read_header(data)
        is_one = header.size == len(data) > limits.LARGE_BYTES
        if not is_one or self.config.append_time:
            return None
        view = memoryview(data)
        chunks: list[Buffer] = [view[:HEADER_BYTES], view[HEADER_BYTES:]]
        await self.write_ahead(chunks)
        return chunks

    def _accept(self, data: Buffer, is_looked_into: bool) -> list[tuple[BatchHeader, Buffer]]:
        """Split the data into batches, and check and prepare each. Raises a PeerError."""
        view = memoryview(data)
        if len(view) == int.from_bytes(view[8:12], "big") + 12 <= self.config.batch_bytes_max:
            # Nearly always there is one batch.
            return [self._prepare(check(view), view, is_looked_into)]
        batches: list[tuple[BatchHeader, Buffer]] = []
        end = 0
        for position, header in walk(view):
            self._check_size(header)
            end = position + header.size
            batch = view[position:end]
            batches.append(self._prepare(check(batch), batch, is_looked_into))
        if end != len(view) or not batches:
            raise InvalidBatch(f"{len(view) - end} bytes at the end are not a whole batch")
        return batches

    def _prepare(
        self, header: BatchHeader, batch: Buffer, is_looked_into: bool
    ) -> tuple[BatchHeader, Buffer]:
        """Check a batch against the topic's settings; recompress or restamp it. Raises a
        PeerError."""
        config = self.config
        if header.is_control:
            raise InvalidBatch("control batches are the broker's to write")
        if config.policy.compacts and not is_looked_into:
            finish(_check_keys(records(batch)))
        changed = False
        if config.codec is not None and header.codec is not config.codec:
            batch, changed = recompress(batch, config.codec), True
        if config.append_time:
            batch, changed = restamp_append_time(batch, self._clock.now_ms()), True
        else:
            if header.is_append_time:
                raise InvalidTimestamp("the topic keeps the producer's timestamps")
            self._check_timestamps(header)
        if changed:
            header = check(batch)
            self._check_size(header)
        return header, batch

    def _check_size(self, header: BatchHeader) -> None:
        size, size_max = header.size, self.config.batch_bytes_max
        if size > size_max:
            raise BatchTooLarge(f"a batch of {size} bytes; the topic takes {size_max}")

    def _check_timestamps(self, header: BatchHeader) -> None:
        now_ms, config = self._clock.now_ms(), self.config
        early, late = header.timestamp_first, header.timestamp_max
        if late - now_ms > config.timestamp_after_ms or (
            early >= 0 and now_ms - early > config.timestamp_before_ms
        ):
            raise InvalidTimestamp("timestamps further from the broker's clock than allowed")

    def _append(self, batches: Batches, *, may_wait: bool = False) -> Appended:
        if self.role is not None:
            self.check_leads()
        offset = self._log.append(self.partition, batches, may_wait=may_wait)
        if self.on_append is not None:
            self.on_append(self, offset)
        time_ms = batches[-1][0].timestamp_max if self.config.append_time else -1
        return Appended(offset, self.partition.offset_end, time_ms)

    def _append_once(self, batches: Batches, admit: Admit | None) -> Appended:
        """Append a producer's batch unless it is a repeated one.

        As in Kafka, an idempotent producer sends one batch per partition and request.
        """
        if len(batches) != 1:
            raise InvalidBatch("an idempotent producer sends one batch at a time")
        header = batches[0][0]
        if self._refused and self._refused.is_before(header, self.producers):
            raise NotEnoughReplicas("an earlier batch of the producer was refused and comes first")
        before = self.producers.check(header)
        if before is not None:
            return self._repeated(header, before)
        if header.is_transactional:
            self.check_ended(header.producer_id, header.producer_epoch)
            if admit is None:
                raise NotInTransaction("a transactional batch outside of a transaction")
            admit(header)
        elif header.producer_id in self.isolation.open:
            raise InvalidTransactionState("a batch that is not part of the open transaction")
        return self._append(batches)

    def check_ended(self, producer_id: int, epoch: int) -> None:
        """Raise StorageError while a transaction of another epoch of this producer is open.

        A crash left it open, and the coordinator will abort it. Nothing may be appended before: the
        marker would end that transaction as well.
        """
        opened = self.isolation.open.get(producer_id)
        if opened is not None and opened.epoch != epoch:
            raise StorageError(f"{self.partition.directory}: an earlier transaction is not ended")

    def _repeated(self, header: BatchHeader, before: WrittenBatch) -> Appended:
        """Return the result of the first append of a repeated batch."""
        if header.is_transactional:
            # It may have been aborted if its transaction has ended.
            opened = self.isolation.open.get(header.producer_id)
            if opened is None or before.offset_first < opened.offset_first:
                raise NotInTransaction("the batch was part of a transaction that has ended")
        offset_end = before.offset_first + header.offset_delta_last + 1
        time_ms = before.timestamp_ms if self.config.append_time else -1
        return Appended(before.offset_first, offset_end, time_ms)

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        self.partition.when_committed(offset_end, waiter)

    def when_safe(self, offset_end: int, waiter: Waiter) -> None:
        """Call the waiter as `when_committed` does; with an error if by then fewer replicas are in
        sync than the topic requires."""
        self.partition.when_committed(
            offset_end, waiter if self.role is None else partial(self._committed, waiter)
        )

    def _committed(self, waiter: Waiter, error: StorageError | None) -> None:
        role = self.role
        if error is None and role is not None and role.in_sync_count < self.config.in_sync_min:
            error = NotEnoughReplicasAfterAppend("too few replicas were in sync afterwards")
        waiter(error)

    # --- reading what is committed

    @property
    def last_stable_offset(self) -> int:
        """Return the offset below which every transaction has ended. It changes only with the
        watermark."""
        partition = self.partition
        return max(partition.offset_start, self.isolation.last_stable(partition.high_watermark))

    @property
    def record_count(self) -> int:
        """Return how many records there are: offsets, without the markers that end transactions.
        Where compaction took some, they are still counted."""
        first, end = self.partition.offset_start, self.partition.high_watermark
        return end - first - self._view.markers.between(first, end)

    def passed_over(self, header: BatchHeader, error: Exception) -> None:
        """Log and count, once, a batch whose records cannot be decoded.

        A producer's batch is checked as a whole and never decoded, so its records may be invalid.
        Kafka's clients notice that themselves.
        """
        if header.offset_first >= self._unreadable_end:
            self._unreadable_end = header.offset_end
            self.unreadable_count += header.count
            log.warning("%s: passed over: %s", self.partition.directory, error)

    def read(
        self, offset: int, bytes_max: int, *, is_committed: bool, may_copy: bool
    ) -> bytes | FileRange | None:
        """Return batches from the one that holds the offset on; None if there are none.

        With `is_committed` they end before the first open transaction. With `may_copy` few bytes
        are returned as such, if they are the newest or follow those that were read last: that is
        faster. Raises OffsetOutOfRange, Corruption, OSError.
        """
        partition = self.partition
        watermark = partition.high_watermark
        if offset == watermark and not partition.refused:
            return None
        stable = self.last_stable_offset if is_committed else watermark
        has_aborted = is_committed and self.isolation.has_aborted(offset)
        if may_copy and stable == watermark and not has_aborted:
            found = partition.newest(offset) or partition.read_next(offset, bytes_max)
            if found is not None:
                return found
        return partition.read(offset, bytes_max, stable)

    def aborted(self, offset: int, found: bytes | FileRange | None) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of the aborted transactions in what was read from
        `offset` on."""
        if not isinstance(found, FileRange) or not self.isolation.has_aborted(offset):
            return []
        return self.isolation.aborted(offset, self.partition.offset_after(offset, found))


def _check_keys(found: Iterable[Record]) -> Steps[None]:
    """Raise InvalidRecord if a record has no key, in steps."""
    places = []
    for place, record in enumerate(found):
        if record.key is None:
            places.append(place)
            if len(places) == limits.INVALID_RECORDS_TOLD_MAX:
                break
        yield
    if places:
        raise InvalidRecord("a compacted topic takes no record without a key", places)


async def committed(partition: Partition, offset_end: int) -> None:
    """Wait until everything below `offset_end` is committed. Raises StorageError when it cannot
    be."""
    await heard(partial(partition.when_committed, offset_end))


async def heard(ask: Callable[[Waiter], None]) -> None:
    """Call `ask` with a waiter, and wait until that is called. Raises the StorageError it gets."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def finish(error: StorageError | None) -> None:
        if not done.done():
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

    ask(finish)
    await done
