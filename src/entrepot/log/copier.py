"""Copies full segments to a topic's tier, an object store elsewhere, one at a time.

A segment is copied when it is full, permanent, and all transactions in it have ended; so what
is in the archive never changes. Retention asks here how far a partition is copied, and removes
nothing above. What is copied is known from the manifest in the archive and from nowhere else: a
crash at any moment leaves a segment that the manifest does not name, and it is copied again.

The copying is done in a worker, a piece at a time: every batch is checked on the way, its size
afterwards, and the manifest is written last. A store that fails is left alone for a while, longer
each time; so is a partition that cannot be copied. Meanwhile everything stays where it is.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.batch import BatchHeader, check, read_header, walk
from entrepot.core.errors import Corruption, InvalidBatch, StoreUnavailable
from entrepot.core.faults import Faults
from entrepot.core.names import PartitionId
from entrepot.core.ports import Clock, Disk, File, ObjectStore, Stores
from entrepot.log import archive, layout
from entrepot.log.archive import ABORTED, MANIFEST, Entry, Heading
from entrepot.log.isolation import AbortedColumns
from entrepot.log.partition import Partition
from entrepot.log.reading import base_of
from entrepot.log.segment import Glance, Segment

log = logging.getLogger("entrepot.log")

_PARTITIONS_PER_SLICE = 500
# Small, because a thread that checks batches lets the loop run only when it reads or writes.
_PIECE_BYTES = 64 * limits.KIB
_PAUSE_S, _PAUSE_S_MAX = 1.0, 60.0


class Trouble(NamedTuple):
    """A store that is away, or a partition that cannot be copied."""

    name: str  # The store's address, or the partition's directory.
    reason: str
    failures: int  # In a row.
    retry_at: float  # By the monotonic clock.


class DamagedSegment(Corruption):
    """A segment of ours that cannot be copied. What is in the archive is good."""


class Closing(Exception):
    """The broker stops: the copy that is under way is given up."""


class Copier:
    def __init__(self, disk: Disk, clock: Clock, stores: Stores, faults: Faults) -> None:
        self._disk = disk
        self._clock = clock
        self._open_store, self._worker = stores
        self._faults = faults
        self.segments_copied = self.bytes_copied = self.failures = 0  # Since the start.
        # Address, and the offset below which all is in the archive there.
        self._ends: dict[PartitionId, tuple[str, int]] = {}
        # Partitions whose archive is damaged, or not what we have written: it counts for nothing.
        self._doubted: dict[PartitionId, None] = {}
        self._troubles: dict[str, Trouble] = {}
        self._is_closing = False

    # --- asking

    def copied_end(self, partition: Partition) -> int | None:
        """Return the offset from which on retention must keep records; None means: any may go.

        It is 0 as long as nobody has looked into the archive, or what is there is in doubt.
        """
        address = partition.policy.tier
        if address is None:
            return None
        known, end = self._ends.get(partition.id, ("", 0))
        return end if known == address and partition.id not in self._doubted else 0

    def troubles(self) -> list[Trouble]:
        return list(self._troubles.values())

    async def check(self, address: str) -> None:
        """Raise StoreUnavailable unless segments can be copied to this address."""
        await self._worker(lambda: self._open_store(address).check())

    def forget(self, partition: Partition) -> None:
        """Forget a deleted partition. Its archive stays."""
        self._ends.pop(partition.id, None)
        self._doubted.pop(partition.id, None)
        self._troubles.pop(partition.directory, None)

    def close(self) -> None:
        self._is_closing = True

    # --- copying

    async def copy_due(self, partitions: Sequence[Partition]) -> None:
        """Copy what is due, a segment of each partition in turn."""
        due: list[Partition] = []
        for number, partition in enumerate(partitions):
            if number % _PARTITIONS_PER_SLICE == _PARTITIONS_PER_SLICE - 1:
                await asyncio.sleep(0)
            if partition.policy.tier is not None and partition.stopped is None:
                due.append(partition)
        named = {partition.directory for partition in due} | {p.policy.tier for p in due}
        self._troubles = {name: each for name, each in self._troubles.items() if name in named}
        while due:
            due = [partition for partition in due if await self._copy_next(partition)]

    async def _copy_next(self, partition: Partition) -> bool:
        """Copy the next segment if one is due. Return whether there was one."""
        address = partition.policy.tier
        if address is None or self._is_paused(address) or self._is_paused(partition.directory):
            return False
        try:
            end = await self._end_of(partition, address)
            segment = self._due(partition, end)
            if segment is None:
                self._went_well(partition.directory)
                return False
            job = self._job(partition, segment, end)
            await self._worker(partial(self._copy, address, job))
        except Closing:
            return False
        except StoreUnavailable as error:
            self._failed(address, str(error))
            return False
        except (DamagedSegment, OSError) as error:
            self._failed(partition.directory, str(error))
            return False
        except Corruption as error:
            if partition.stopped is None:
                self._doubted[partition.id] = None
            self._failed(partition.directory, str(error))
            return False
        except Exception as error:
            self._faults.caught(f"{partition.directory}: copying", error)
            self._failed(partition.directory, "an internal error")
            return False
        if partition.stopped is None:  # It may have been deleted meanwhile.
            self._ends[partition.id] = address, segment.offset_end
            self._doubted.pop(partition.id, None)
        self.segments_copied += 1
        self.bytes_copied += segment.size
        self._went_well(address)
        self._went_well(partition.directory)
        return True

    async def _end_of(self, partition: Partition, address: str) -> int:
        """Return where the partition's archive ends; 0 if there is none."""
        known, end = self._ends.get(partition.id, ("", 0))
        if known != address:
            end = await self._worker(partial(self._archived_end, address, _heading(partition)))
            if partition.stopped is None:
                self._ends[partition.id] = address, end
        if end > partition.offset_end:
            raise Corruption(
                f"its archive ends at offset {end}, but the log at {partition.offset_end}: "
                "it has records that the log has lost"
            )
        return end

    def _due(self, partition: Partition, end: int) -> Segment | None:
        """Return the first segment that is not in the archive, if it can be copied."""
        needed = max(end, partition.offset_start)
        permanent_end = min(partition.offset_synced, partition.high_watermark)
        stable_end = min(permanent_end, partition.offset_stable())
        first = max(bisect_right(partition.segments, needed, key=base_of) - 1, 0)
        for segment in partition.segments[first:-1]:
            if segment.offset_end <= needed:
                continue
            if segment.offset_base < end:
                raise Corruption(f"its archive ends at offset {end}, within a segment")
            return segment if segment.offset_end <= stable_end else None
        return None

    def _job(self, partition: Partition, segment: Segment, end: int) -> _Job:
        aborted = partition.aborted_between(segment.offset_base, segment.offset_end)
        return _Job(_heading(partition), end, self._disk.open(segment.path), segment, aborted)

    # --- in the worker

    def _archived_end(self, address: str, heading: Heading) -> int:
        manifest = self._open_store(address).read(f"{heading.directory}/{MANIFEST}")
        return 0 if manifest is None else archive.last_entry(manifest, heading.directory).end

    def _copy(self, address: str, job: _Job) -> None:
        store, source = self._open_store(address), _Source(job)
        directory, base = job.heading.directory, job.segment.offset_base
        name = f"{directory}/{layout.file_name(base, layout.SEGMENT)}"
        store.write(name, self._watched(source.pieces()))
        size = store.size(name)
        if size != job.segment.size:
            raise StoreUnavailable(f"{name} has {size} bytes there, not {job.segment.size}")
        index = f"{directory}/{layout.file_name(base, layout.INDEX)}"
        store.write(index, [source.copied.seal_bytes()])
        end = job.segment.offset_end
        rows = [row for row in zip(*job.aborted, strict=True) if row[1] < end]
        if rows:
            aborted = f"{directory}/{layout.file_name(base, ABORTED)}"
            store.write(aborted, [archive.aborted_bytes(rows)])
        _append(store, job, source.entry(len(rows)))

    def _watched(self, pieces: Iterator[memoryview]) -> Iterator[memoryview]:
        for piece in pieces:
            if self._is_closing:
                raise Closing
            yield piece

    # --- trouble

    def _is_paused(self, name: str) -> bool:
        trouble = self._troubles.get(name)
        return trouble is not None and self._clock.monotonic() < trouble.retry_at

    def _failed(self, name: str, reason: str) -> None:
        self.failures += 1
        before = self._troubles.get(name)
        failures = before.failures + 1 if before is not None else 1
        pause_s = min(_PAUSE_S * 2 ** min(failures - 1, 10), _PAUSE_S_MAX)
        retry_at = self._clock.monotonic() + pause_s
        self._troubles[name] = Trouble(name, reason, failures, retry_at)
        if before is None or before.reason != reason:  # Logged once, not at every attempt.
            log.error("%s: not copied, so it stays on this disk: %s", name, reason)

    def _went_well(self, name: str) -> None:
        if self._troubles.pop(name, None) is not None:
            log.info("%s: copying goes on", name)


class _Job(NamedTuple):
    heading: Heading
    archived_end: int  # Where the archive ends, as far as we know.
    file: File
    segment: Segment
    aborted: AbortedColumns


class _Source:
    """A segment's bytes in pieces, checked on the way; and what is then known of them."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._checksum = 0
        self._first_ms = -1
        segment = job.segment
        self.copied = Segment(segment.directory, segment.offset_base, segment.opened_ms)
        self.copied.compacted, self.copied.followed = segment.compacted, segment.followed

    def pieces(self) -> Iterator[memoryview]:
        """Yield whole batches. Raises Corruption if the file is damaged."""
        segment, copied = self._job.segment, self.copied
        while copied.size < segment.size:
            piece = self._read(copied.size, min(_PIECE_BYTES, segment.size - copied.size))
            yield piece
            self._checksum = crc32c(piece, self._checksum)
        if copied.offset_end != segment.offset_end and not segment.compacted:
            raise self._damage(f"it ends at offset {copied.offset_end}")
        copied.offset_end = segment.offset_end

    def _read(self, position: int, size: int) -> memoryview:
        """Return the batches from a position on, about so many bytes, at least one batch."""
        file, rest = self._job.file, self._job.segment.size - position
        data = file.read(position, size)
        try:
            needed = read_header(data).size
            if needed > size:
                needed = min(needed, rest, limits.FRAME_BYTES_MAX)
                data = file.read(position, needed)
            end = 0
            for start, header in walk(data):
                end = start + header.size
                if header.count:  # Compaction may leave a batch without its records.
                    check(memoryview(data)[start:end], allow_gaps=True)
                self._note(header, position + start)
        except InvalidBatch as error:
            raise self._damage(str(error)) from None
        if not end:
            raise self._damage(f"no whole batch at byte {position}")
        return memoryview(data)[:end]

    def _note(self, header: BatchHeader, position: int) -> None:
        copied, segment = self.copied, self._job.segment
        skipped = header.offset_first - copied.offset_end
        if skipped < 0 or (skipped and not segment.compacted):
            raise self._damage(f"offset {header.offset_first} at byte {position}")
        if self._first_ms < 0 or 0 <= header.timestamp_first < self._first_ms:
            self._first_ms = header.timestamp_first
        last, size = header.offset_last, header.size
        copied.note(Glance(position, header.offset_first, size, last, header.timestamp_max))

    def _damage(self, what: str) -> DamagedSegment:
        return DamagedSegment(f"{self._job.segment.path} is damaged: {what}")

    def entry(self, aborted: int) -> Entry:
        copied = self.copied
        return Entry(
            base=copied.offset_base,
            end=copied.offset_end,
            size=copied.size,
            crc32c=self._checksum,
            first_ms=self._first_ms,
            last_ms=copied.timestamp_max,
            aborted=aborted,
            compacted=copied.compacted,
        )


def _append(store: ObjectStore, job: _Job, entry: Entry) -> None:
    """Add a segment to the manifest, unless it is there: then only the answer was lost."""
    directory = job.heading.directory
    manifest, end = store.read(f"{directory}/{MANIFEST}"), 0
    if manifest is not None:
        last = archive.last_entry(manifest, directory)
        if last == entry:
            return
        end = last.end
    if end != job.archived_end:
        raise Corruption(
            f"{directory}/{MANIFEST} ends at offset {end}, not at {job.archived_end}: "
            "somebody else has changed the archive"
        )
    whole = archive.appended(manifest, job.heading, entry)
    if len(whole) > limits.MANIFEST_BYTES_MAX:
        raise Corruption("its archive has too many segments; make larger ones: segment.bytes")
    store.write(f"{directory}/{MANIFEST}", [whole])


def _heading(partition: Partition) -> Heading:
    name = partition.directory.removeprefix(f"{layout.PARTITIONS}/").rpartition("-")[0]
    return Heading(name, partition.id.topic, partition.id.number)
