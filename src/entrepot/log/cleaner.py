"""Compaction: of every key only the last record is kept, at the offset it always had.

A pass looks at what was written since the last one and learns for each key where
it was last seen. Then all segments from the start up to there are written anew
without the records that a later one replaces, small ones joined. The segment
being written is never touched, nor what a reader of committed records cannot see.

A record without a value deletes its key: it is kept as a *tombstone* long enough
for readers to see it, counted from the pass that first met it, then dropped. The
same holds for the markers that end transactions, once none of the transaction's
records are left before them; records of aborted transactions go at once.

The work is done batch by batch between other work, and within a long batch in slices; large
batches are unpacked and packed in a worker thread. New files are complete and permanent before a
small file, the *swap*, says what they replace; from then on the exchange will happen, now or in
the next recovery.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from uuid import UUID

import msgspec

from entrepot.core import batch, limits
from entrepot.core.batch import BatchHeader, read_header
from entrepot.core.errors import InvalidBatch
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock, Disk, File, Worker
from entrepot.core.record import Record
from entrepot.log import layout
from entrepot.log.files import FilePool, in_slices, load, replace, write_all
from entrepot.log.partition import Partition
from entrepot.log.segment import Glance, Segment

log = logging.getLogger("entrepot.log")

_RECORDS_PER_SLICE = 1_000  # Records looked at before other tasks run.
_WRITE_BYTES = 1 * limits.MIB
_PASSES_REMEMBERED = 16
_DIGEST_BYTES = 16


class _CleanerRow(msgspec.Struct, array_like=True):
    """A row of the cleaner's checkpoint. Each pass is (offset it cleaned up to, time in ms),
    oldest first."""

    topic: bytes
    index: int
    passes: list[tuple[int, int]]


@dataclass(slots=True)
class _Pass:
    """What one compaction pass knows."""

    latest: dict[bytes, int]  # Digest of a key -> the last offset with that key, below offset_end.
    offset_end: int  # Records at or above this offset are kept unread.
    tombstones_end: int  # Tombstones below this offset are old enough to be dropped.
    # Producers with kept records whose transaction's marker is still to come.
    open_producers: dict[int, None] = field(default_factory=dict)


class Cleaner:
    def __init__(self, disk: Disk, pool: FilePool, clock: Clock, worker: Worker) -> None:
        self._disk = disk
        self._worker = worker
        self._pool = pool
        self._clock = clock
        self._passes: dict[PartitionId, list[tuple[int, int]]] = {}

    def begin(self) -> None:
        """Load the earlier passes. Without them segments are cleaned again and tombstones kept
        longer."""
        payload = load(self._disk, layout.CLEANER_CHECKPOINT)
        if payload is not None:
            for row in msgspec.msgpack.decode(payload, type=list[_CleanerRow]):
                self._passes[PartitionId(UUID(bytes=row.topic), row.index)] = row.passes

    # --- deciding

    def is_due(self, partition: Partition) -> bool:
        """Return whether enough bytes are dirty, or some have been dirty for too long."""
        policy = partition.policy
        if not policy.compacts or partition.stopped is not None or partition.damage is not None:
            return False
        segments = self._cleanable(partition)
        clean_end = self._clean_end(partition)
        dirty = [s for s in segments if s.offset_end > clean_end]
        if not dirty:
            return False
        size = sum(s.size for s in segments)
        if sum(s.size for s in dirty) >= policy.dirty_ratio_min * size:
            return True
        age_ms = self._clock.now_ms() - dirty[0].opened_ms
        return policy.compaction_lag_ms_max is not None and age_ms > policy.compaction_lag_ms_max

    def _cleanable(self, partition: Partition) -> list[Segment]:
        """Return the sealed segments before the first that is young, unsealed or has an open
        transaction."""
        young_ms = self._clock.now_ms() - partition.policy.compaction_lag_ms_min
        stable = partition.offset_stable()
        found: list[Segment] = []
        for segment in partition.segments[:-1]:
            is_young = partition.policy.compaction_lag_ms_min > 0 and (
                segment.timestamp_max > young_ms
            )
            if not segment.sealed or segment.offset_end > stable or is_young:
                break
            found.append(segment)
        return found

    def _clean_end(self, partition: Partition) -> int:
        """Return the offset below which everything was cleaned by an earlier pass."""
        passes = self._passes.get(partition.id)
        return max(passes[-1][0] if passes else 0, partition.offset_start)

    # --- one pass

    async def clean(self, partition: Partition) -> None:
        """Run one compaction pass over the partition."""
        segments = self._cleanable(partition)
        if not segments:
            return
        now_ms = self._clock.now_ms()
        latest, offset_end = await self._find_latest(partition, segments)
        work = _Pass(latest, offset_end, self._tombstones_end(partition, now_ms))
        for group in _groups(segments, offset_end, partition.policy.segment_bytes):
            if not await self._rewrite(partition, group, work):
                return
        passes = self._passes.setdefault(partition.id, [])
        passes.append((offset_end, now_ms))
        del passes[:-_PASSES_REMEMBERED]
        await self._write_checkpoint()

    def _tombstones_end(self, partition: Partition, now_ms: int) -> int:
        """Return the offset below which a pass saw the tombstones at least tombstone_ms ago."""
        until_ms = now_ms - partition.policy.tombstone_ms
        passes = self._passes.get(partition.id, [])
        return max((offset for offset, time_ms in passes if time_ms <= until_ms), default=0)

    async def _find_latest(
        self, partition: Partition, segments: Sequence[Segment]
    ) -> tuple[dict[bytes, int], int]:
        """Return the last offset of each key in the dirty part, and where that part ends."""
        latest: dict[bytes, int] = {}
        clean_end, offset_end = self._clean_end(partition), segments[0].offset_base
        for segment in segments:
            if segment.offset_end > clean_end:
                for data in partition.batches_of(segment):
                    await asyncio.sleep(0)
                    header = read_header(data)
                    if header.is_control or header.offset_last < clean_end:
                        continue
                    async for some in _slices(await self._read_records(data)):
                        for record in some:
                            if not self._is_aborted(partition, header, record):
                                latest[_digest(record.key)] = record.offset
            offset_end = segment.offset_end
            if len(latest) >= limits.CLEANER_KEYS_MAX:
                break
        return latest, offset_end

    @staticmethod
    def _is_aborted(partition: Partition, header: BatchHeader, record: Record) -> bool:
        return header.is_transactional and partition.is_aborted(header.producer_id, record.offset)

    # --- writing anew

    async def _rewrite(self, partition: Partition, group: Sequence[Segment], work: _Pass) -> bool:
        """Write a group of segments as one and replace them by it. Return False when they
        changed meanwhile."""
        # An earlier pass's swap file must not come back: recovery would apply it to the unfinished
        # file.
        self._disk.remove(f"{partition.directory}/{layout.SWAP}")
        await self._sync_all([], partition.directory)
        cleaned = Segment(partition.directory, group[0].offset_base, group[0].opened_ms)
        file = self._create_empty(cleaned.path + layout.CLEANED)
        await self._write_kept(partition, group, work, cleaned, file)
        assert cleaned.offset_end == group[-1].offset_end
        cleaned.compacted = True
        cleaned.followed = True  # The active segment is never among them, so another one follows.
        seal_file = self._create_empty(cleaned.path_of(layout.INDEX) + layout.CLEANED)
        write_all(seal_file, 0, [cleaned.seal_bytes()])
        await self._sync_all([file, seal_file], partition.directory)
        swap = msgspec.msgpack.encode([segment.offset_base for segment in group])
        await replace(self._disk, partition.directory, layout.SWAP, swap)
        if not partition.has(group):
            self._disk.remove(f"{partition.directory}/{layout.SWAP}")
            return False
        for segment in group:
            self._pool.forget(segment.path)
        finish_swap(self._disk, partition.directory)
        cleaned.sealed, cleaned.index = True, None
        partition.exchange(group, cleaned)
        await self._sync_all([], partition.directory)
        self._disk.remove(f"{partition.directory}/{layout.SWAP}")
        return True

    async def _sync_all(self, files: Sequence[File], directory: str) -> None:
        for error in await self._disk.sync(files, [directory]):
            if error is not None:
                raise error

    def _create_empty(self, path: str) -> File:
        """Create an empty file, or empty the one that is there."""
        file = self._disk.open(path, create=True)
        file.truncate(0)
        return file

    async def _write_kept(
        self,
        partition: Partition,
        group: Sequence[Segment],
        work: _Pass,
        cleaned: Segment,
        file: File,
    ) -> None:
        """Write the records that are kept into the file, and note their batches in `cleaned`."""
        unwritten: list[bytes] = []
        written = epoch = 0
        for segment in group:
            for data in partition.batches_of(segment):
                await asyncio.sleep(0)
                epoch = read_header(data).leader_epoch
                kept = await self._kept(partition, data, work)
                if kept is None:
                    continue
                _note(cleaned, kept)
                unwritten.append(kept)
                if cleaned.size - written >= _WRITE_BYTES:
                    written += write_all(file, written, unwritten)
                    unwritten.clear()
        if cleaned.offset_end < group[-1].offset_end:
            # So that whoever reads or copies the log gets to its end.
            unwritten.append(batch.empty(cleaned.offset_end, group[-1].offset_end, epoch))
            _note(cleaned, unwritten[-1])
        write_all(file, written, unwritten)

    async def _kept(self, partition: Partition, data: bytes, work: _Pass) -> bytes | None:
        """Return the batch with only the records that are kept; None when there are none."""
        header = read_header(data)
        if header.offset_first >= work.offset_end:
            return data
        if header.is_control:
            is_needed = work.open_producers.pop(header.producer_id, False) is None
            return data if is_needed or header.offset_last >= work.tombstones_end else None
        records = await self._read_records(data)
        kept: list[Record] = []
        async for some in _slices(records):
            kept += [r for r in some if self._is_kept(partition, header, r, work)]
        if records is not None and not kept:
            return None
        if header.is_transactional:
            work.open_producers[header.producer_id] = None
        if records is not None and len(kept) < header.count:
            body = await in_slices(batch.retained(data, kept), steps=1)
            data = await self._worker(partial(batch.retain, data, kept, body))
        async for _ in _slices(kept):
            pass  # Freeing many records takes long too, so that is done in slices.
        return data

    async def _read_records(self, data: bytes) -> list[Record] | None:
        """Return the records of a batch; None when it cannot be decoded: such a batch is kept as
        it is."""
        found: list[Record] = []
        try:
            if len(data) > limits.BATCH_BYTES_AT_ONCE_MAX:
                unpacked = await self._worker(partial(batch.records, data))
            else:
                unpacked = batch.records(data)
            for record in unpacked:
                found.append(record)
                if len(found) % _RECORDS_PER_SLICE == 0:
                    await asyncio.sleep(0)
        except InvalidBatch:
            return None
        return found

    def _is_kept(
        self, partition: Partition, header: BatchHeader, record: Record, work: _Pass
    ) -> bool:
        if self._is_aborted(partition, header, record):
            return False
        if work.latest.get(_digest(record.key), -1) > record.offset:
            return False
        return record.value is not None or record.offset >= work.tombstones_end

    # --- the checkpoint

    async def _write_checkpoint(self) -> None:
        rows = [_CleanerRow(i.topic.bytes, i.number, passes) for i, passes in self._passes.items()]
        await replace(self._disk, "", layout.CLEANER_CHECKPOINT, msgspec.msgpack.encode(rows))

    def forget(self, partition: PartitionId) -> None:
        """Forget the passes over a deleted partition."""
        self._passes.pop(partition, None)


async def _slices(records: list[Record] | None) -> AsyncIterator[list[Record]]:
    """Empty the list, yielding slices of it in order; other tasks run between two slices."""
    if records is not None:
        records.reverse()
    while records:
        yield records[: -_RECORDS_PER_SLICE - 1 : -1]
        del records[-_RECORDS_PER_SLICE:]
        if records:
            await asyncio.sleep(0)


def _note(segment: Segment, data: bytes) -> None:
    """Note in the segment that this batch comes next."""
    header = read_header(data)
    first, last = header.offset_first, header.offset_last
    segment.note(Glance(segment.size, first, header.size, last, header.timestamp_max))


def finish_swap(disk: Disk, directory: str) -> None:
    """Replace segments by the compacted one, as the swap file says.

    May be repeated. The caller removes the swap file once the renames are permanent.
    """
    payload = load(disk, f"{directory}/{layout.SWAP}")
    if payload is None:
        return
    bases = msgspec.msgpack.decode(payload, type=list[int])
    for kind in (layout.SEGMENT, layout.INDEX):
        final = f"{directory}/{layout.file_name(bases[0], kind)}"
        if disk.exists(final + layout.CLEANED):
            disk.rename(final + layout.CLEANED, final)
    for base in bases[1:]:
        for kind in (layout.SEGMENT, layout.INDEX, layout.VIEW):
            disk.remove(f"{directory}/{layout.file_name(base, kind)}")


def _groups(
    segments: Sequence[Segment], offset_end: int, bytes_max: int
) -> Iterator[list[Segment]]:
    """Yield groups of adjacent segments that fit into one segment."""
    group: list[Segment] = []
    size = 0
    for segment in segments:
        if segment.offset_base >= offset_end:
            break
        span = segment.offset_end - group[0].offset_base if group else 0
        if group and (size + segment.size > bytes_max or span >= 2**31):
            yield group
            group, size = [], 0
        group.append(segment)
        size += segment.size
    if group:
        yield group


def _digest(key: bytes | None) -> bytes:
    """Return a short key as it is and a long one hashed, to save memory."""
    key = key or b""
    return key if len(key) <= _DIGEST_BYTES else blake2b(key, digest_size=_DIGEST_BYTES).digest()
