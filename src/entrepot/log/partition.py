"""An append-only sequence of batches with offsets and a high watermark.

Four numbers, each at most the next:

    offset_start      first offset a reader may ask for
    offset_synced     below it, the segment files are permanent
    high_watermark    below it, readers may read and producers have their answer
    offset_end        next offset to be given

With durability `fsync` the watermark moves when a commit is permanent (in the
segments or in the journal); otherwise it moves with the append. Either way a batch
is written, then folded into the broker's view, and then visible: whoever the move of
the watermark wakes finds a view that knows the batch. Appending and reading never
decode a batch's body.

A failed write is undone by truncating; a failed sync, or a write that cannot be
undone, stops the partition for good: `stopped` says why, and nothing is guessed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from struct import Struct

from entrepot.core.batch import BatchHeader, read_header
from entrepot.core.errors import OffsetOutOfRange, StaleEpoch, StorageError, UnknownEpoch
from entrepot.core.faults import Faults, Uncaught
from entrepot.core.names import PartitionId
from entrepot.core.ports import Buffer, Clock, File
from entrepot.log import layout
from entrepot.log.ahead import Ahead
from entrepot.log.files import FilePool, seal, write_all
from entrepot.log.policy import Durability, Policy
from entrepot.log.reading import Mark, Segments, base_of
from entrepot.log.segment import Glance, Segment

log = logging.getLogger("entrepot.log")

# Each whole, or in chunks, of which the first has the header.
Batches = Sequence[tuple[BatchHeader, Buffer | list[Buffer]]]

_STAMP = Struct(">qii")  # offset_first, length, leader_epoch: the fields the CRC leaves out.
_HEADER_CHUNKS = 2  # The stamp, and the rest of the header.
_OFFSETS_PER_SEGMENT_MAX = 2**31

Waiter = Callable[[StorageError | None], None]


class Partition(Segments):
    def __init__(
        self,
        identity: PartitionId,
        directory: str,
        policy: Policy,
        pool: FilePool,
        clock: Clock,
        segments: list[Segment] | None = None,
    ) -> None:
        super().__init__(pool, segments or [])
        self.id = identity
        self.directory = directory
        self.policy = policy
        self.leader_epoch = 0
        # Told of each batch and its first offset, before anybody can see it.
        self.fold: Callable[[BatchHeader, int, Buffer], None] = lambda *batch: None
        # The broker's fold over this partition, saved with each new segment.
        # None until it is folded: a roll before that must not save an empty one.
        self.view_snapshot: Callable[[], bytes] | None = None
        # What the view knows of transactions: below which offset all are decided, and how.
        self.offset_stable: Callable[[], int] = lambda: self.high_watermark
        self.is_aborted: Callable[[int, int], bool] = lambda producer_id, offset: False
        # From there on, records are needed, whatever retention says; None: all may go.
        self.offset_needed: Callable[[], int] | None = None
        self._clock = clock
        self.offset_synced = self.offset_end
        # Below it, what the segments do not have permanently is in the journal.
        self.offset_journaled = 0
        self.unsynced: list[Segment] = []  # Segments with bytes, or a seal, still to sync.
        self.unsynced_names = False  # The directory has new names still to sync.
        self.names_changed = False  # New, or gone: a clean stop makes it permanent.
        self._unsynced_views: list[File] = []
        self.faults: Faults = Uncaught()
        self._waiters: list[tuple[int, Waiter]] = []  # Ascending offsets.
        self._listeners: dict[object, Callable[[], None]] = {}
        self._ahead: Ahead | None = None  # A large batch that is not appended yet.

    def check_epoch(self, epoch: int) -> None:
        """What a client believes of the leader; -1 when it does not say."""
        if 0 <= epoch < self.leader_epoch:
            raise StaleEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch}")
        if epoch > self.leader_epoch:
            raise UnknownEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch}")

    # --- appending

    def append(self, batches: Batches) -> int:
        """Give the batches the next offsets and write them; all of them or none.

        A batch may be in chunks; its header is in the first. Returns the first offset.
        The caller has checked the batches, and asks the
        committer for a commit when `needs_commit` says so.
        """
        if not self._is_ahead(batches):
            self.drop_ahead()
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
        ahead, self._ahead = self._ahead, None
        offset_first = offset = active.offset_end
        position = active.size
        chunks: list[Buffer] = []
        added: list[Glance] = []
        for header, batch in batches:
            chunks.append(_STAMP.pack(offset, header.length, self.leader_epoch))
            first, *others = batch if isinstance(batch, list) else (batch,)
            chunks.append(memoryview(first)[_STAMP.size :])
            chunks += others
            last = offset + header.offset_delta_last
            added.append(Glance(position, offset, header.size, last, header.timestamp_max))
            offset, position = last + 1, position + header.size
        self._write(file, active, chunks if ahead is None else chunks[:_HEADER_CHUNKS])
        for glance, (header, batch) in zip(added, batches, strict=True):
            active.note(glance)
            # One in chunks is in nobody's name: its header is all there is to fold.
            self.fold(header, glance.offset_first, batch[0] if isinstance(batch, list) else batch)
        self._last = added[-1]
        if not self.unsynced or self.unsynced[-1] is not active:
            self.unsynced.append(active)
        if self.policy.durability is not Durability.FSYNC and not self.needs_commit:
            self.advance(self.end_mark())
        return offset_first

    def write_ahead(self, chunks: list[Buffer]) -> Iterator[None]:
        """Write a large batch in slices, so that its `append`, with the same chunks, need not.

        Nothing is told of failures: that append has them, too.
        """
        self.drop_ahead()
        if self.stopped is not None:
            return
        try:
            header = read_header(chunks[0])
            active = self._active_for(header.size, header.offset_delta_last + 1)
            ahead = Ahead(active, self._pool.get(active.path, create=active.size == 0), chunks)
            self._ahead = ahead
            for _ in ahead.write():
                yield
                if self._ahead is not ahead or self.stopped is not None:
                    return
        except OSError:
            self.drop_ahead()

    def drop_ahead(self) -> None:
        """Cut off what was written ahead, if anything was."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            try:
                ahead.file.truncate(ahead.segment.size)
            except OSError as error:
                self.stop(f"{ahead.segment.path}: {error.strerror}")

    def _is_ahead(self, batches: Batches) -> bool:
        """Whether this is what was written ahead, and all of it was."""
        ahead = self._ahead
        return ahead is not None and ahead.is_written and batches[0][1] is ahead.chunks

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
        self.drop_ahead()
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

    @property
    def has_gap(self) -> bool:
        """Whether readers have seen what is not permanent: the journal cannot go on from there."""
        return max(self.offset_synced, self.offset_journaled) < self.high_watermark

    @property
    def uncommitted_bytes(self) -> int:
        """The size of what lies above the watermark."""
        visible = self._visible
        if visible is None:
            return 0
        first = bisect_right(self.segments, visible.segment.offset_base, key=base_of) - 1
        size = sum(segment.size for segment in self.segments[max(first, 0) :])
        return size - visible.position

    def uncommitted(self) -> Iterator[tuple[int, bytes]]:
        """What lies above the watermark, one run of batches per segment: (offset, bytes)."""
        visible = self._visible
        assert visible is not None
        first = bisect_right(self.segments, visible.segment.offset_base, key=base_of) - 1
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
                self._tell(waiter, None)
        for listener in list(self._listeners.values()):
            self._tell(listener)

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
                self._tell(waiter, StorageError(reason))

    def _tell(self, call: Callable[..., None], *arguments: object) -> None:
        """Call one of those who wait. One that fails keeps nobody else from being told."""
        try:
            call(*arguments)
        except Exception as error:
            self.faults.caught(f"{self.directory}: telling of a commit", error)

    def recovered(self) -> None:
        """After a crash: what was found is not known to be permanent, nor readable yet."""
        self.unsynced = [segment for segment in self.segments if not segment.sealed]
        self.unsynced_names = bool(self.segments)
        self.offset_synced = self.unsynced[0].offset_base if self.unsynced else self.offset_end
        if self.segments:
            self._visible = Mark(self.offset_start, self.segments[0], 0)

    def refuse(self, reason: str) -> None:
        """There is damage that must not be mended: neither written nor read from now on."""
        if not self.refused:
            self.refused = True
            log.error("partition refused: %s", reason)
        self.stop(reason)

    # --- compaction's side

    def has(self, group: Sequence[Segment]) -> bool:
        """Whether these still stand there, in a row."""
        if self.stopped is not None:
            return False
        first = bisect_right(self.segments, group[0].offset_base, key=base_of) - 1
        return first >= 0 and self.segments[first : first + len(group)] == list(group)

    def exchange(self, group: Sequence[Segment], cleaned: Segment) -> None:
        """One segment in the place of these."""
        first = self.segments.index(group[0])
        self.segments[first : first + len(group)] = [cleaned]

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
        if not self.policy.expires:
            return
        keep_ms, keep_bytes = self.policy.retention_ms, self.policy.retention_bytes
        size = self.size
        offset_free = self.offset_end if self.offset_needed is None else self.offset_needed()
        for segment in self.segments:
            newest_ms = segment.timestamp_max if segment.timestamp_max >= 0 else segment.opened_ms
            too_old = keep_ms >= 0 and newest_ms < now_ms - keep_ms
            too_much = keep_bytes >= 0 and size - segment.size >= keep_bytes
            is_open = segment is self.segments[-1] and not segment.size
            is_committed = not is_open and segment.offset_end <= self.high_watermark
            if not is_committed or not (too_old or too_much) or segment.offset_end > offset_free:
                break
            self.offset_start = max(self.offset_start, segment.offset_end)
            size -= segment.size

    def first_needed(self) -> int:
        """Where the first segment begins that is not wholly below the start. When all of them
        are, a new one is begun; until its name is permanent, the old ones hold our offsets."""
        if self.segments[-1].size and self.offset_end <= self.offset_start:
            self.roll()
        if not self.unsynced_names:
            for segment in self.segments[:-1]:
                if segment.offset_end > self.offset_start or segment in self.unsynced:
                    return segment.offset_base
            return self.segments[-1].offset_base
        return self.segments[0].offset_base

    def mark_forgotten(self, offset_base: int) -> Iterator[str]:
        """Take the segments before the one that begins there out of service; yields files to
        remove later. The recovery checkpoint must say by now that it is the first."""
        while len(self.segments) > 1 and self.segments[0].offset_end <= offset_base:
            yield from self._mark(self.segments[0])
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
