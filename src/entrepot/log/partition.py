"""An append-only sequence of batches with offsets and a high watermark.

Four numbers, each at most the next:

    offset_start      first offset a reader may ask for
    offset_synced     below it, the segment files are permanent
    high_watermark    below it, readers may read and producers have their answer
    offset_end        next offset to be given

With durability `fsync` the watermark moves when a commit is permanent (in the
segments or in the journal); otherwise it moves with the append. Appending and
reading never decode a batch's body.

A failed write is undone by truncating; a failed sync, or a write that cannot be
undone, stops the partition for good: `stopped` says why, and nothing is guessed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import NamedTuple

from entrepot.core.batch import BatchHeader, read_header, records
from entrepot.core.errors import (
    Corruption,
    OffsetOutOfRange,
    StaleEpoch,
    StorageError,
    UnknownEpoch,
)
from entrepot.core.names import PartitionId
from entrepot.core.ports import Buffer, Clock, File, FileRange
from entrepot.log import layout
from entrepot.log.files import FilePool, seal, write_all
from entrepot.log.policy import Durability, Policy
from entrepot.log.segment import Glance, Index, Segment, build_index, glances, read_seal

_STAMP = Struct(">qii")  # offset_first, length, leader_epoch: the fields the CRC leaves out.
_OFFSETS_PER_SEGMENT_MAX = 2**31
_base = attrgetter("offset_base")

Waiter = Callable[[StorageError | None], None]


class Mark(NamedTuple):
    """A place in the log: an offset and where in which segment it would be."""

    offset: int
    segment: Segment
    position: int


class Partition:
    def __init__(
        self,
        identity: PartitionId,
        directory: str,
        policy: Policy,
        pool: FilePool,
        clock: Clock,
        segments: list[Segment] | None = None,
    ) -> None:
        self.id = identity
        self.directory = directory
        self.policy = policy
        self.leader_epoch = 0
        self.stopped: str | None = None
        self.refused = False  # Stopped by recovery: not even readable.
        # The broker's fold over this partition, saved with each new segment.
        # None until it is folded: a roll before that must not save an empty one.
        self.view_snapshot: Callable[[], bytes] | None = None
        self._pool = pool
        self._clock = clock
        # Ascending, each starting where the one before ends. Empty until the first append.
        self.segments: list[Segment] = segments or []
        self.offset_start = self.segments[0].offset_base if self.segments else 0
        self.offset_synced = self.offset_end
        self._visible: Mark | None = self.end_mark() if self.segments else None
        # Below it, what the segments do not have permanently is in the journal.
        self.offset_journaled = 0
        self.unsynced: list[Segment] = []  # Segments with bytes, or a seal, still to sync.
        self.unsynced_names = False  # The directory has new names still to sync.
        self.names_changed = False  # New, or gone: a clean stop makes it permanent.
        self._unsynced_views: list[File] = []
        self._waiters: list[tuple[int, Waiter]] = []  # Ascending offsets.
        self._listeners: dict[object, Callable[[], None]] = {}
        self._last: Glance | None = None  # The newest batch: readers at the tail start here.

    # --- bounds

    @property
    def offset_end(self) -> int:
        return self.segments[-1].offset_end if self.segments else 0

    @property
    def high_watermark(self) -> int:
        return self._visible.offset if self._visible is not None else self.offset_start

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    # --- appending

    def append(self, batches: Sequence[tuple[BatchHeader, Buffer]]) -> int:
        """Give the batches the next offsets and write them; all of them or none.

        Returns the first offset. The caller has checked the batches, and asks the
        committer for a commit when `needs_commit` says so.
        """
        if self.stopped is not None:
            raise StorageError(self.stopped)
        size = count = 0
        for header, _ in batches:
            size += header.size
            count += header.offset_delta_last + 1
        try:
            active = self._active_for(size, count)
            file = self._pool.get(active.path, create=active.size == 0)
        except OSError as error:
            raise StorageError(f"{self.directory}: {error.strerror}") from error
        offset_first = offset = active.offset_end
        position = active.size
        chunks: list[Buffer] = []
        added: list[Glance] = []
        for header, batch in batches:
            chunks.append(_STAMP.pack(offset, header.length, self.leader_epoch))
            chunks.append(memoryview(batch)[_STAMP.size :])
            last = offset + header.offset_delta_last
            added.append(Glance(position, offset, header.size, last, header.timestamp_max))
            offset, position = last + 1, position + header.size
        self._write(file, active, chunks)
        for glance in added:
            active.note(glance)
        self._last = added[-1]
        if not self.unsynced or self.unsynced[-1] is not active:
            self.unsynced.append(active)
        if self.policy.durability is not Durability.FSYNC and not self.needs_commit:
            self.advance(self.end_mark())
        return offset_first

    @property
    def needs_commit(self) -> bool:
        """Whether the answer to the last append waits for a sync."""
        if self.policy.durability is Durability.FSYNC:
            return True
        limit = self.policy.flush_messages
        return limit is not None and self.offset_end - self.offset_synced >= limit

    def _write(self, file: File, active: Segment, chunks: Sequence[Buffer]) -> None:
        try:
            write_all(file, active.size, chunks)
        except OSError as cause:
            try:  # What a failed write left would look like damage later.
                file.truncate(active.size)
            except OSError:
                self.stop(f"{active.path}: {cause.strerror}, and the rest could not be cut off")
            raise StorageError(f"{active.path}: {cause.strerror}") from cause

    def _active_for(self, size: int, offsets: int) -> Segment:
        """The segment that takes the next batches; a new one when it is full or old."""
        now_ms = self._clock.now_ms()
        if not self.segments:
            return self._open_segment(0, now_ms)
        active = self.segments[-1]
        if active.size == 0:
            active.opened_ms = now_ms
        elif (
            active.size + size > self.policy.segment_bytes
            or now_ms - active.opened_ms >= self.policy.segment_ms
            or active.offset_end + offsets - active.offset_base >= _OFFSETS_PER_SEGMENT_MAX
        ):
            return self.roll()
        if active.index is None or active.sealed:
            self._reopen(active)
        return active

    def roll(self) -> Segment:
        """Close the active segment and open the next one."""
        full = self.segments[-1]
        if not full.sealed:
            self.index_of(full)  # For its seal.
        opened = self._open_segment(self.offset_end, self._clock.now_ms())
        if not full.sealed and full not in self.unsynced:
            self.unsynced.append(full)
        return opened

    def _open_segment(self, offset_base: int, now_ms: int) -> Segment:
        segment = Segment(self.directory, offset_base, now_ms)
        self.names_changed = True
        self._pool.disk.make_directory(self.directory)
        try:
            self._pool.get(segment.path, create=True).truncate(0)
            if self.segments and self.view_snapshot is not None:
                self._save_view(segment, self.view_snapshot())
        except OSError:
            self._remove_unused(segment)
            raise
        self.segments.append(segment)
        self._last = None
        self.unsynced_names = True
        if self._visible is None or self._visible.offset == offset_base:
            self._visible = self.end_mark()
        return segment

    def _remove_unused(self, segment: Segment) -> None:
        """Left there, an empty segment would be a gap once others are written around it."""
        self._pool.forget(segment.path)
        try:
            self._pool.disk.remove(segment.path)
        except OSError as error:
            self.stop(f"{segment.path}: {error.strerror}")

    def _save_view(self, segment: Segment, state: bytes) -> None:
        file = self._pool.disk.open(segment.path_of(layout.VIEW), create=True)
        file.truncate(0)
        write_all(file, 0, seal(state))
        self._unsynced_views.append(file)

    def _reopen(self, active: Segment) -> None:
        """A clean stop may have sealed the active segment; more bytes make the seal untrue."""
        self.index_of(active)
        if active.sealed:
            self._pool.disk.remove(active.path_of(layout.INDEX))
            active.sealed = False

    # --- permanence: the committer's side

    def take_unsynced_views(self) -> list[File]:
        views, self._unsynced_views = self._unsynced_views, []
        return views

    def end_mark(self) -> Mark:
        active = self.segments[-1]
        return Mark(active.offset_end, active, active.size)

    @property
    def has_gap(self) -> bool:
        """Whether readers have seen what is not permanent: the journal cannot go on from there."""
        return max(self.offset_synced, self.offset_journaled) < self.high_watermark

    def uncommitted(self) -> Iterator[tuple[int, bytes]]:
        """What lies above the watermark, one run of batches per segment: (offset, bytes)."""
        visible = self._visible
        assert visible is not None
        first = bisect_right(self.segments, visible.segment.offset_base, key=_base) - 1
        for segment in self.segments[max(first, 0) :]:  # Retention may have taken it.
            start = visible.position if segment is visible.segment else 0
            if start < segment.size:
                data = self._pool.get(segment.path).read(start, segment.size - start)
                yield (visible.offset if start else segment.offset_base), data

    def synced(self, mark: Mark) -> None:
        """The segment files are permanent up to there."""
        self.offset_synced = max(self.offset_synced, mark.offset)
        active = self.segments[-1]
        # One that was rolled since the mark was taken still wants its seal.
        rolled = mark.segment if mark.segment is not active and not mark.segment.sealed else None
        self.unsynced = [s for s in self.unsynced if s.offset_end > mark.offset or s is rolled]
        if mark.segment is active:
            self.unsynced_names = False

    def advance(self, mark: Mark) -> None:
        """Move the watermark and wake those who wait below it."""
        if mark.offset <= self.high_watermark:
            return
        self._visible = mark
        waiters, woken = self._waiters, 0
        while woken < len(waiters) and waiters[woken][0] <= mark.offset:
            woken += 1
        if woken:
            self._waiters = waiters[woken:]
            for _, waiter in waiters[:woken]:
                waiter(None)
        for listener in list(self._listeners.values()):
            listener()

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        """Call back once everything below is committed, or the partition has stopped."""
        if self.stopped is not None:
            waiter(StorageError(self.stopped))
        elif offset_end <= self.high_watermark:
            waiter(None)
        else:
            self._waiters.append((offset_end, waiter))

    def listen(self, token: object, listener: Callable[[], None]) -> None:
        """Call at each move of the watermark, until `unlisten`."""
        self._listeners[token] = listener

    def unlisten(self, token: object) -> None:
        self._listeners.pop(token, None)

    def stop(self, reason: str) -> None:
        """Refuse appends from now on; what is committed stays readable."""
        if self.stopped is None:
            self.stopped = reason
            waiters, self._waiters = self._waiters, []
            for _, waiter in waiters:
                waiter(StorageError(reason))

    def recovered(self) -> None:
        """After a crash: what was found is not known to be permanent, nor readable yet."""
        self.unsynced = [segment for segment in self.segments if not segment.sealed]
        self.unsynced_names = bool(self.segments)
        self.offset_synced = self.unsynced[0].offset_base if self.unsynced else self.offset_end
        if self.segments:
            self._visible = Mark(self.offset_start, self.segments[0], 0)

    def refuse(self, reason: str) -> None:
        """Recovery found damage it must not mend: neither written nor read."""
        self.stopped, self.refused = reason, True

    # --- reading

    def read(self, offset: int, bytes_max: int) -> FileRange | None:
        """Committed batches from the one that holds `offset` on, out of one segment.

        Whole batches but for the last, which `bytes_max` may cut; the first is always
        whole. None at the watermark.
        """
        self.check_readable(offset)
        visible = self._visible
        if visible is None or offset >= visible.offset:
            return None
        segment = self._segment_of(offset)
        end = visible.position if segment is visible.segment else segment.size
        found = self._locate(segment, offset, end)
        return FileRange(
            self._pool.get(segment.path),
            found.position,
            max(found.size, min(bytes_max, end - found.position)),
        )

    def available(self, offset: int) -> int:
        """About how many committed bytes there are from `offset` on, cheaply."""
        visible = self._visible
        if visible is None or offset >= visible.offset:
            return 0
        last = self._last
        if last is not None and offset == last.offset_first:
            return last.size
        segment = self._segment_of(offset)
        if segment is not visible.segment:
            return segment.size
        return visible.position - self.index_of(segment).position_for_offset(offset)

    def check_epoch(self, epoch: int) -> None:
        """What a client believes of the leader; -1 when it does not say."""
        if 0 <= epoch < self.leader_epoch:
            raise StaleEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch}")
        if epoch > self.leader_epoch:
            raise UnknownEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch}")

    def check_readable(self, offset: int) -> None:
        if self.refused:
            raise Corruption(self.stopped)
        if not self.offset_start <= offset <= self.offset_end:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{self.offset_start}, {self.offset_end}]"
            )

    def _segment_of(self, offset: int) -> Segment:
        return self.segments[bisect_right(self.segments, offset, key=_base) - 1]

    def _locate(self, segment: Segment, offset: int, end: int) -> Glance:
        last = self._last
        if last is not None and segment is self.segments[-1] and offset >= last.offset_first:
            return last
        position = self.index_of(segment).position_for_offset(offset)
        for glance in glances(self._pool.get(segment.path), position, end):
            if glance.offset_last >= offset:
                return glance
        raise Corruption(f"{segment.path}: offset {offset} is not where the index says")

    def index_of(self, segment: Segment) -> Index:
        """A sealed segment's index comes from its seal, or from a walk when that is lost."""
        if segment.index is None:
            sealed = read_seal(self._pool.disk, segment.directory, segment.offset_base)
            if sealed is not None and sealed.size == segment.size:
                segment.index = sealed.index
            else:
                segment.index = build_index(self._pool.get(segment.path), segment.size)
            self._pool.keep_index(segment)
        assert segment.index is not None
        return segment.index

    def headers(self, offset: int) -> Iterator[BatchHeader]:
        """Every batch's header from that offset to the end, for folding a view."""
        for segment in self.segments:
            if segment.offset_end <= offset:
                continue
            file = self._pool.get(segment.path)
            start = self.index_of(segment).position_for_offset(offset)
            for glance in glances(file, start, segment.size):
                if glance.offset_last >= offset:
                    yield read_header(file.read(glance.position, 61))

    def batches(self) -> Iterator[bytes]:
        """Every batch, one by one, for folding a small partition at start."""
        for segment in self.segments:
            file = self._pool.get(segment.path)
            for glance in glances(file, 0, segment.size):
                yield file.read(glance.position, glance.size)

    # --- by time

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first committed record at or after a time: (offset, its timestamp)."""
        for segment in self.segments:
            if segment.timestamp_max < timestamp_ms or segment.offset_end <= self.offset_start:
                continue
            position = self.index_of(segment).position_for_time(timestamp_ms)
            for glance in glances(self._pool.get(segment.path), position, segment.size):
                if glance.offset_first >= self.high_watermark:
                    return None
                if glance.timestamp_max < timestamp_ms or glance.offset_last < self.offset_start:
                    continue
                for record in self._records(segment, glance):
                    if record[1] >= timestamp_ms and record[0] >= self.offset_start:
                        return record
        return None

    def latest_time(self) -> tuple[int, int] | None:
        """The committed record with the largest timestamp: (offset, its timestamp)."""
        best: tuple[int, int] | None = None
        for segment in self.segments:
            is_gone = segment.offset_end <= self.offset_start
            if is_gone or (best is not None and segment.timestamp_max <= best[1]):
                continue
            if self.offset_start <= segment.timestamp_max_offset < self.high_watermark:
                found = [self._locate(segment, segment.timestamp_max_offset, segment.size)]
            else:  # Deleted, or not committed yet: the latest of the others.
                found = list(glances(self._pool.get(segment.path), 0, segment.size))
            for glance in found:
                if glance.offset_first >= self.high_watermark:
                    break
                if best is None or glance.timestamp_max > best[1]:
                    for record in self._records(segment, glance):
                        if record[0] >= self.offset_start and (not best or record[1] > best[1]):
                            best = record
        return best

    def _records(self, segment: Segment, glance: Glance) -> Iterator[tuple[int, int]]:
        batch = self._pool.get(segment.path).read(glance.position, glance.size)
        for record in records(batch):
            yield record.offset, record.timestamp_ms

    # --- forgetting

    def delete_before(self, offset: int) -> None:
        """Readers no longer see what is below; whole segments are marked for removal."""
        if not self.offset_start <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{self.offset_start}, {self.high_watermark}]"
            )
        self.offset_start = offset

    def expire(self, now_ms: int) -> None:
        """Let go of what retention no longer covers, whole segments from the oldest on."""
        keep_ms, keep_bytes = self.policy.retention_ms, self.policy.retention_bytes
        size = self.size
        for segment in self.segments:
            newest_ms = segment.timestamp_max if segment.timestamp_max >= 0 else segment.opened_ms
            too_old = keep_ms >= 0 and newest_ms < now_ms - keep_ms
            too_much = keep_bytes >= 0 and size - segment.size >= keep_bytes
            is_committed = segment.size and segment.offset_end <= self.high_watermark
            if not is_committed or not (too_old or too_much):
                break
            self.offset_start = max(self.offset_start, segment.offset_end)
            size -= segment.size

    def mark_forgotten(self) -> Iterator[str]:
        """Take segments wholly below the start out of service; yields files to remove later."""
        if self.segments[-1].size and self.offset_end <= self.offset_start:
            self.roll()
        # Until the name of the newest segment is permanent, the old ones hold our offsets.
        while len(self.segments) > 1 and not self.unsynced_names:
            oldest = self.segments[0]
            if oldest.offset_end > self.offset_start or oldest in self.unsynced:
                break
            yield from self._mark(oldest)
            del self.segments[0]

    def _mark(self, segment: Segment) -> Iterator[str]:
        disk = self._pool.disk
        self.names_changed = True
        self._pool.forget(segment.path)
        # The segment last: if one of them fails, it is still in service and comes again.
        for kind in (layout.INDEX, layout.VIEW, layout.SEGMENT):
            path = segment.path_of(kind)
            if disk.exists(path):
                disk.rename(path, path + layout.MARKED)
            yield path + layout.MARKED
