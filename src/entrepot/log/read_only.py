"""A broker's data directory, and its archive elsewhere, for readers that are not the broker.

Nothing is written, repaired or locked. There are two ways to read a partition:

- `partition_at`: what there is now, for offsets that are known to be committed. A broker may
  be at work meanwhile. It appends; it removes old segments; compaction puts a segment in the
  place of others. A file that is open stays what it was; one that is removed or replaced before
  all were opened is a FileNotFoundError, and the caller tries again.
- `partition_recovered`: what the next start of a broker will find, by the rules of recovery.
  Where that start would have to repair more than an unfinished write at the end (a journal with
  more than the segments have, an interrupted compaction), the error says to start a broker once.
"""

from __future__ import annotations

from errno import ENOENT
from uuid import UUID

from entrepot.core.batch import walk
from entrepot.core.clock import SystemClock
from entrepot.core.errors import Corruption
from entrepot.core.names import PartitionId
from entrepot.log import layout
from entrepot.log.archive import Archive, ArchivedPartition
from entrepot.log.checkpoint import read_clean_checkpoint, read_recovery_checkpoint
from entrepot.log.disk import ReadOnlyDisk
from entrepot.log.files import FilePool
from entrepot.log.isolation import Isolation
from entrepot.log.journal import read_journals
from entrepot.log.log import Opened
from entrepot.log.object_store import open_store
from entrepot.log.partition import Partition
from entrepot.log.policy import Policy
from entrepot.log.recovery import (
    bases_in_use,
    check_end,
    check_first,
    check_permanent,
    gap,
    inspect,
    is_first_missing,
    newest_view,
    segment_bases,
)
from entrepot.log.segment import Segment, glances, read_seal
from entrepot.log.view import fold

__all__ = [  # All that a reader needs.
    "Archive",
    "ArchivedPartition",
    "DataDirectory",
    "Isolation",
    "ReadOnlyPartition",
    "open_archive",
]

_ANY = PartitionId(UUID(int=0), 0)  # The topic's id is not needed for reading.


def open_archive(address: str) -> Archive:
    """Open what brokers have copied to an object store. Raises StoreUnavailable."""
    return Archive(open_store(address))


class ReadOnlyPartition(Partition):
    def __init__(
        self, disk: ReadOnlyDisk, pool: FilePool, directory: str, segments: list[Segment]
    ) -> None:
        super().__init__(_ANY, directory, Policy(), pool, SystemClock(), segments)
        self._disk = disk

    def isolation(self) -> Isolation:
        """Return the partition's transactions, folded as the broker does. Raises Corruption."""
        view = fold(Opened(self, newest_view(self._disk, self)))
        if self.refused:
            raise Corruption(str(self.stopped))
        return view.isolation


class DataDirectory:
    """A broker's data directory. Raises NotADirectoryError if there is none."""

    def __init__(self, path: str) -> None:
        self._disk = ReadOnlyDisk(path)

    def close(self) -> None:
        self._disk.close()

    def is_a_brokers(self) -> bool:
        """Return whether the directory has ever been used by a broker."""
        return self._disk.exists(layout.PARTITIONS)

    def is_in_use(self) -> bool:
        """Return whether a broker runs on it now."""
        return self._disk.is_locked(layout.LOCK)

    # --- beside a broker

    def partition_at(self, topic: str, number: int, offset: int) -> ReadOnlyPartition:
        """Open the partition from the segment with that offset, or the newest saved view, on."""
        disk, directory = self._disk, layout.partition_directory(topic, number)
        bases = segment_bases(disk, directory)
        views = [layout.offset_of(name, layout.VIEW) for name in disk.names(directory)]
        needed = min(offset, max((view for view in views if view is not None), default=0))
        while len(bases) > 1 and bases[1] <= needed:
            del bases[0]
        pool = FilePool(disk, len(bases) + 1)  # Room for all: a file that was opened stays open.
        segments = [self._segment(pool, directory, base) for base in bases]
        return ReadOnlyPartition(disk, pool, directory, segments)

    def _segment(self, pool: FilePool, directory: str, base: int) -> Segment:
        """Return the segment as its seal says; without a seal, read its headers.

        Raises FileNotFoundError while compaction replaces it: file and seal are renamed, or
        removed, one after the other.
        """
        segment = Segment(directory, base, 0)
        file = pool.get(segment.path)
        size = file.size()
        sealed = read_seal(self._disk, directory, base)
        if sealed is not None and sealed.size == size:
            return sealed
        if sealed is not None or not self._disk.exists(segment.path):
            raise FileNotFoundError(ENOENT, "being replaced", segment.path)
        try:
            for glance in glances(file, 0, size):
                segment.note(glance)
        except Corruption:
            pass  # An unfinished write, of a running broker or of a crash.
        return segment

    # --- without a broker

    def partition_recovered(self, identity: PartitionId, topic: str) -> ReadOnlyPartition:
        """Open a partition as it will be after the next start. Raises Corruption where the
        start would refuse it."""
        directory = layout.partition_directory(topic, identity.number)
        clean = read_clean_checkpoint(self._disk)
        if clean is not None:
            state = clean.get(identity)
            segments = [each.segment(directory) for each in state.segments] if state else []
            offset_start = state.offset_start if state else 0
        else:
            segments, offset_start = self._recovered(identity, directory), 0
        pool = FilePool(self._disk, len(segments) + 1)
        partition = ReadOnlyPartition(self._disk, pool, directory, segments)
        partition.offset_start = max(partition.offset_start, offset_start)
        return partition

    def _recovered(self, identity: PartitionId, directory: str) -> list[Segment]:
        """Return the segments as far as recovery will keep them. Raises Corruption."""
        disk = self._disk
        if disk.exists(f"{directory}/{layout.SWAP}"):
            raise Corruption(f"{directory}: a compaction was cut short; start the broker once")
        point = read_recovery_checkpoint(disk).point(identity)
        segments: list[Segment] = []
        bases = bases_in_use(disk, directory, point)
        if bases and is_first_missing(bases, point):
            check_first(disk, directory, bases, point)
            bases = []
        for base in bases:
            segment, damage = inspect(disk, directory, base, check_all=False)
            if segments and segments[-1].offset_end != base:
                if base < segments[-1].offset_end and not segment.size and damage is None:
                    continue  # Left empty by a failed write: it never held anything.
                damage = gap(segments[-1], base)
                segment = segments.pop()
            segments.append(segment)
            if damage is not None:
                later = [each for each in bases if each > segment.offset_base]
                check_permanent(disk, segment, damage, point, later)
                break
        check_end(disk, directory, segments[-1] if segments else None, point)
        self._check_journal(identity, directory, segments[-1].offset_end if segments else 0)
        return segments

    def _check_journal(self, identity: PartitionId, directory: str, offset_end: int) -> None:
        """Raise Corruption if the journal has batches of this partition that its segments do not
        have."""
        for entry in read_journals(self._disk):
            if entry.partition == identity:
                for _, header in walk(entry.payload()):
                    if header.offset_first >= offset_end:
                        raise Corruption(
                            f"{directory} ends at offset {offset_end}, but the journal goes on; "
                            "start the broker once, to recover what was lost"
                        )
