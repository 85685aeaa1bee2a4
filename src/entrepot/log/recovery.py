"""Recovery: what happens to a partition after a crash, in order.

1. Leftovers of retention and of unfinished file replacements are removed. The recovery
   checkpoint says which segment is the first, because renames survive in any order.
2. Each segment is taken as its seal says, or, without a valid seal, walked batch
   by batch with every checksum. Sealed segments are walked too when asked.
3. The first bad batch ends the log if nothing there was ever acknowledged:
   above the recovery point, and above any seal. The file is cut there, and later
   segments, which can hold nothing that was acknowledged, are put aside. What is
   left above the recovery point is written again, see `_rewrite`.
4. A bad batch anywhere else is corruption, and so is a missing segment: the
   partition is refused, files as they are, and the reason says where.
5. What the journal has and the segments have not is appended again, unless it was cut off.

Nothing is served until all of it is synced; that is the caller's part. Where syncs are left to
the system, and it has been running since, there is nothing to wait for: 4 and 5 are all.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.batch import BatchHeader, check, walk
from entrepot.core.errors import Corruption, InvalidBatch
from entrepot.core.ports import Clock, Disk, File
from entrepot.log import layout
from entrepot.log.checkpoint import RecoveryPoint
from entrepot.log.cleaner import finish_swap
from entrepot.log.epochs import EpochIndex, read_epochs
from entrepot.log.files import load, write_all
from entrepot.log.journal import JournalEntry
from entrepot.log.partition import Partition
from entrepot.log.read_ahead import ReadAhead
from entrepot.log.segment import Glance, Segment, glances, read_seal

log = logging.getLogger("entrepot.log")

PROGRESS_S = 2.0  # Between two lines of the log about how far it is.
_REWRITE_BYTES = 1 << 20


class Damage(NamedTuple):
    """The first bad batch of a segment."""

    position: int
    offset: int  # The offset that the bad batch should have.
    reason: str


class SavedView(NamedTuple):
    """A saved view: the broker's state of a partition as of an offset."""

    offset: int
    state: bytes


class Progress:
    """Logs how far a recovery is, if it takes long: whoever waits for it should know."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._begun_s = self._said_s = clock.monotonic()
        self._segments = 0
        self._bytes = 0

    def looked_at(self, segment: Segment) -> None:
        """Count a segment that was read, or whose seal was."""
        self._segments += 1
        self._bytes += segment.size
        now_s = self._clock.monotonic()
        if now_s - self._said_s >= PROGRESS_S:
            self._said_s = now_s
            log.info(
                "recovering: %d segments so far, %.1f GiB, %.0f s; now in %s",
                self._segments,
                self._bytes / limits.GIB,
                now_s - self._begun_s,
                segment.directory,
            )


def recover_segments(
    disk: Disk,
    directory: str,
    now_ms: int,
    *,
    point: RecoveryPoint,
    check_all: bool,
    is_left_to_system: bool = False,
    progress: Progress | None = None,
) -> list[Segment]:
    """Return the segments of a directory, repaired where no acknowledged record is lost.

    What is left to the system needs no sync, so that it is not written again. Raises Corruption.
    """
    finish_swap(disk, directory)
    _sweep(disk, directory)
    bases = bases_in_use(disk, directory, point)
    if bases and is_first_missing(bases, point):
        check_first(disk, directory, bases, point)
        _put_aside(disk, directory, bases)
        bases = []
    segments: list[Segment] = []
    for base in bases:
        segment, damage = inspect(disk, directory, base, check_all=check_all)
        if progress is not None:
            progress.looked_at(segment)
        if segments and segments[-1].offset_end != base:
            if base < segments[-1].offset_end and not segment.size and damage is None:
                disk.remove(segment.path)  # Left empty by a failed write: it never held anything.
                continue
            damage = gap(segments[-1], base)
            segment = segments.pop()
        segment.opened_ms = segment.opened_ms or now_ms
        segments.append(segment)
        if damage is not None:
            later = [b for b in bases if b > segment.offset_base]
            check_permanent(disk, segment, damage, point, later)
            _cut(disk, segment, damage)
            _put_aside(disk, directory, later)
            break
    check_end(disk, directory, segments[-1] if segments else None, point)
    _remove_others(disk, segments, directory)
    for segment in segments:
        if not segment.sealed and not is_left_to_system:
            _rewrite(disk, segment, point.offset_end or 0)
    return segments


def gap(segment: Segment, base: int) -> Damage:
    """Return the damage at the end of a segment that ends before the next starts.

    Its last writes were lost in the crash. Raises Corruption if they had been permanent.
    """
    reason = f"ends at offset {segment.offset_end}, but the next segment starts at {base}"
    if segment.followed or base < segment.offset_end:
        raise Corruption(f"{segment.path} {reason}")
    return Damage(segment.size, segment.offset_end, reason)


def segment_bases(disk: Disk, directory: str) -> list[int]:
    found = (layout.offset_of(name, layout.SEGMENT) for name in disk.names(directory))
    return [base for base in found if base is not None]


def bases_in_use(disk: Disk, directory: str, point: RecoveryPoint) -> list[int]:
    """Return the base offsets of the segments from the first one on. Retention removed those
    below it."""
    bases = segment_bases(disk, directory)
    first = point.offset_base
    if first is not None and first not in bases:
        for base in reversed([base for base in bases if base < first]):
            # Compaction may have merged the first segment with others that retention was removing.
            seal = read_seal(disk, directory, base)
            if seal is not None and seal.compacted and seal.offset_end > first:
                first = base
                break
    return bases if first is None else [base for base in bases if base >= first]


def is_first_missing(bases: Sequence[int], point: RecoveryPoint) -> bool:
    return point.offset_base is not None and bases[0] > point.offset_base


def check_first(disk: Disk, directory: str, bases: Sequence[int], point: RecoveryPoint) -> None:
    """Raise Corruption unless the first segment may be missing: nothing in it was permanent.

    Its name was never permanent, and so nothing in later segments was acknowledged but through the
    journal. Retention removes a first segment only when the next one is permanent.
    """
    first = point.offset_base or 0
    is_permanent = disk.exists(f"{directory}/{layout.BEGUN}") or _sealed_end(disk, directory, bases)
    if first > 0 or point.offset_end != 0 or is_permanent:
        raise Corruption(
            f"{directory} begins at offset {bases[0]}, but its first segment began at {first}"
        )


def inspect(
    disk: Disk, directory: str, base: int, *, check_all: bool
) -> tuple[Segment, Damage | None]:
    """Return a segment up to its first bad batch, and that damage. Raises Corruption below a
    seal."""
    sealed = read_seal(disk, directory, base)
    path = f"{directory}/{layout.file_name(base, layout.SEGMENT)}"
    file = disk.open(path)
    size = file.size()
    if sealed is not None and size < sealed.size:
        raise Corruption(f"{path} has {size} bytes, but {sealed.size} were permanent")
    if sealed is not None and size == sealed.size and not check_all:
        sealed.index = None
        return sealed, None
    segment = Segment(directory, base, sealed.opened_ms if sealed else 0)
    damage = walk_segment(file, segment, gaps=sealed is not None and sealed.compacted)
    if damage is not None and sealed is not None and damage.position < sealed.size:
        raise Corruption(f"{path}: {damage.reason} at byte {damage.position}, in a sealed part")
    if sealed is not None and size == sealed.size:
        segment.sealed = True
        segment.compacted, segment.followed = sealed.compacted, sealed.followed
        segment.offset_end = sealed.offset_end
    return segment, damage


def walk_segment(file: File, segment: Segment, *, gaps: bool = False) -> Damage | None:
    """Check every batch of the file and note it in the segment, up to the first bad one.

    Only compaction leaves gaps between offsets.
    """
    end, epochs, ahead = file.size(), list[tuple[int, int]](), ReadAhead(file)
    segment.epochs = epochs
    try:
        for glance in glances(ahead, 0, end):
            header = _checked(ahead, segment, glance, gaps)
            if isinstance(header, str):
                return Damage(glance.position, segment.offset_end, header)
            if not epochs or header.leader_epoch > epochs[-1][0]:
                epochs.append((header.leader_epoch, header.offset_first))
            segment.note(glance)
    except Corruption:
        return Damage(segment.size, segment.offset_end, "not a whole batch")
    return None


def _checked(file: ReadAhead, segment: Segment, glance: Glance, gaps: bool) -> BatchHeader | str:
    """Return the header of a batch, or what is wrong with it."""
    try:
        header = check(file.read(glance.position, glance.size), allow_gaps=True)
    except InvalidBatch as error:
        return str(error)
    skipped = header.offset_first - segment.offset_end
    if skipped < 0 or (skipped and not gaps):
        return f"offset {header.offset_first} where {segment.offset_end} should follow"
    return header


def _sealed_end(disk: Disk, directory: str, bases: Sequence[int]) -> int:
    """Return an offset below which everything is permanent: where the last sealed segment
    begins."""
    for base in reversed(bases):
        if read_seal(disk, directory, base) is not None:
            return base
    return 0


def check_permanent(
    disk: Disk, segment: Segment, damage: Damage, point: RecoveryPoint, later: Sequence[int]
) -> None:
    """Raise Corruption if the damage is below the recovery point or a seal: no unfinished write."""
    where = f"{segment.path}: {damage.reason} at byte {damage.position}, offset {damage.offset}"
    if point.offset_end is None:
        raise Corruption(
            f"{where}; the recovery checkpoint was damaged, so this may have been permanent"
        )
    offset_permanent = max(point.offset_end, _sealed_end(disk, segment.directory, later))
    if damage.offset < offset_permanent:
        raise Corruption(f"{where}; everything below offset {offset_permanent} was permanent")


def check_end(disk: Disk, directory: str, last: Segment | None, point: RecoveryPoint) -> None:
    """Raise Corruption unless everything is there that was permanent."""
    offset_end = last.offset_end if last is not None else 0
    offset_permanent = max(point.offset_base or 0, point.offset_end or 0)
    if offset_end < offset_permanent:
        raise Corruption(
            f"{directory} ends at offset {offset_end}, "
            f"but everything below offset {offset_permanent} was permanent"
        )
    if last is None and disk.exists(f"{directory}/{layout.BEGUN}"):
        raise Corruption(f"{directory} has no segment, but it had one that was permanent")
    if last is not None and last.followed:
        raise Corruption(f"{last.path} is full, but the segment that follows it is missing")


def _cut(disk: Disk, segment: Segment, damage: Damage) -> None:
    """Truncate the segment's file before the bad batch."""
    file = disk.open(segment.path)
    log.warning(
        "%s: %s at byte %d, offset %d: cut off %d bytes of an unfinished write",
        segment.path,
        damage.reason,
        damage.position,
        damage.offset,
        file.size() - damage.position,
    )
    file.truncate(damage.position)
    file.close()


def _rewrite(disk: Disk, segment: Segment, offset_permanent: int) -> None:
    """Write again what may not be permanent, so that the next sync covers it.

    If the last process ended because a sync failed, the system takes these pages for written
    although they never reached the disk, and a sync would skip them.
    """
    if segment.offset_end <= offset_permanent:
        return
    assert segment.index is not None
    file = disk.open(segment.path)
    position = segment.index.position_for_offset(offset_permanent)
    while position < segment.size:
        data = file.read(position, min(_REWRITE_BYTES, segment.size - position))
        position += write_all(file, position, [data])
    file.close()


def _put_aside(disk: Disk, directory: str, bases: Sequence[int]) -> None:
    """Rename segments, so that they are out of use but kept for people to look at."""
    for base in bases:
        path = f"{directory}/{layout.file_name(base, layout.SEGMENT)}"
        log.warning("%s: follows an unfinished segment, put aside", path)
        disk.rename(path, path + layout.ASIDE)


def _sweep(disk: Disk, directory: str) -> None:
    """Remove leftovers of retention, of compaction and of unfinished replacements."""
    for name in disk.names(directory):
        if name.endswith((layout.MARKED, layout.CLEANED, ".tmp")):
            disk.remove(f"{directory}/{name}")


def _remove_others(disk: Disk, segments: Sequence[Segment], directory: str) -> None:
    """Remove segments below the first one, and seals and views whose segment is gone."""
    bases = [segment.offset_base for segment in segments]
    for name in disk.names(directory):
        base = layout.offset_of(name, layout.SEGMENT)
        if base is not None and bases and base < bases[0]:
            disk.remove(f"{directory}/{name}")
        for kind in (layout.INDEX, layout.VIEW):
            base = layout.offset_of(name, kind)
            if base is not None and base not in bases:
                disk.remove(f"{directory}/{name}")


def recover_epochs(disk: Disk, directory: str, segments: Sequence[Segment]) -> EpochIndex:
    """Return the epochs that begin in the segments. Raises Corruption.

    Of those that were walked the batches say it, of the others the file. What the file says of
    offsets that are gone, because the log was cut since, is dropped.
    """
    saved = read_epochs(disk, directory)
    found: list[tuple[int, int]] = []
    for segment in segments:
        if segment.epochs is not None:
            found += segment.epochs
        else:
            first, end = segment.offset_base, segment.offset_end
            found += [start for start in saved.starts if first <= start[1] < end]
    before = [start for start in saved.starts if segments and start[1] < segments[0].offset_base]
    index = EpochIndex()
    for epoch, offset in (*before, *found):
        index.note(epoch, offset)
    is_needless = index.is_saved and not saved.starts
    index.is_saved = is_needless or index.starts == saved.starts
    return index


def replay(partition: Partition, entries: Sequence[JournalEntry], point: RecoveryPoint) -> int:
    """Append batches that only the journal has. Return how many there were."""
    count = 0
    # It is not known whether retention removed what is before the first segment.
    is_start_unknown = point == (None, None)
    for entry, cut in _with_cuts(entries):
        payload = entry.payload()
        for position, header in walk(payload):
            if header.offset_first >= cut:
                break
            if is_start_unknown and header.offset_first < partition.offset_start:
                raise Corruption(
                    f"{partition.directory} begins at offset {partition.offset_start}, but the "
                    f"journal has offset {header.offset_first}"
                )
            if header.offset_first < partition.offset_end:
                continue
            if header.offset_first > partition.offset_end:
                raise Corruption(
                    f"{partition.directory} ends at offset {partition.offset_end}, "
                    f"but the journal goes on at {header.offset_first}"
                )
            batch = memoryview(payload)[position : position + header.size]
            partition.append([(header, batch)], is_stamped=True)
            count += 1
    return count


def _with_cuts(entries: Sequence[JournalEntry]) -> list[tuple[JournalEntry, float]]:
    """Return the entries with batches, each with the lowest offset that the log was cut at since:
    what is at or above it is not part of the log any more."""
    found: list[tuple[JournalEntry, float]] = []
    cut = float("inf")
    for entry in reversed(entries):
        if entry.size:
            found.append((entry, cut))
        else:
            cut = min(cut, entry.offset_first)
    return found[::-1]


def newest_view(disk: Disk, partition: Partition) -> SavedView | None:
    """Return the latest whole saved view that is not ahead of the partition's end."""
    for offset, name in _views(disk, partition.directory):
        if offset <= partition.offset_end:
            state = load(disk, f"{partition.directory}/{name}")
            if state is not None:
                return SavedView(offset, state)
    return None


def _views(disk: Disk, directory: str) -> Iterator[tuple[int, str]]:
    for name in reversed(disk.names(directory)):
        offset = layout.offset_of(name, layout.VIEW)
        if offset is not None:
            yield offset, name
