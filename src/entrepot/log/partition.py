"""An append-only sequence of batches with offsets and a high watermark.

Five numbers:

    offset_start      first offset a reader may ask for
    high_watermark    below it, records are readable and acknowledged to producers
    offset_durable    below it, they are as permanent here as the topic's durability says
    offset_end        next offset to be given; the first four are in this order
    offset_synced     below it, the segment files are permanent; at most offset_durable

With durability `fsync` the second and third move when a commit is permanent (in the
segments or in the journal); otherwise they move with the append. They are the same unless
the partition is replicated: then the watermark is moved by `show`, when other replicas have
the records, too. Either way a batch is written, then folded into the broker's view, then
visible: a reader that is woken by the watermark finds it in the view. Appending and reading
never decode a batch's body.

A leader gives the offsets, and stamps its epoch on each batch; a follower takes both as they
are. Whoever has an older epoch than the partition is refused.

A failed write is undone by truncating; a failed sync, or a write that cannot be
undone, stops the partition for good: `stopped` says why, and nothing is guessed.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from struct import Struct

from entrepot.core import limits
from entrepot.core.batch import BatchHeader, read_header
from entrepot.core.errors import (
    InvalidBatch,
    OffsetOutOfRange,
    StaleEpoch,
    StorageError,
    UnknownEpoch,
)
from entrepot.core.faults import Faults, Uncaught
from entrepot.core.names import PartitionId
from entrepot.core.ports import Buffer, Clock, File
from entrepot.log import layout
from entrepot.log.ahead import Ahead
from entrepot.log.epochs import EpochEnd, EpochIndex
from entrepot.log.files import FilePool, seal, write_all
from entrepot.log.isolation import AbortedColumns
from entrepot.log.policy import Durability, Policy
from entrepot.log.reading import Mark, Segments, base_of
from entrepot.log.retention import Expired
from entrepot.log.segment import Glance, Segment

log = logging.getLogger("entrepot.log")

# Each batch is one buffer, or a list of chunks of which the first begins with the header.
Batches = Sequence[tuple[BatchHeader, Buffer | list[Buffer]]]

_STAMP = Struct(">qii")  # offset_first, length, leader_epoch: the fields the CRC leaves out.
_HEADER_CHUNKS = 2  # The stamp and the rest of the header.
_OFFSETS_PER_SEGMENT_MAX = 2**31
RECENT_BYTES_MAX = 16 * limits.KIB  # Bytes of one partition kept in memory until their commit.

_FSYNC = Durability.FSYNC  # Python 3.11 finds members of an enumeration slowly.

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
        self.leader_epoch = 0  # At least that of the newest batch.
        self.epochs = EpochIndex()
        self.is_replicated = False  # The watermark waits for other replicas: see `show`.
        # Called when `offset_durable` has moved, if the partition is replicated.
        self.on_durable: Callable[[], None] = lambda: None
        self._durable = self._visible  # The position of `offset_durable`.
        self.offset_durable = self.high_watermark
        # Called after the log was cut, with a state that was saved as of an offset: the view is
        # to be folded from there again.
        self.on_cut: Callable[[int, bytes], None] = lambda offset, state: None
        # Called with the header, first offset and bytes of each batch that has a producer's id,
        # before it is visible.
        self.fold: Callable[[BatchHeader, int, Buffer], None] = lambda *batch: None
        # Returns the broker's state of this partition, to be saved with each new segment. None
        # until the state is complete: a segment opened before that must not save an empty one.
        self.view_snapshot: Callable[[], bytes] | None = None
        # Questions for the view: below which offset every transaction has ended, whether a
        # producer's record at an offset was aborted, and what was aborted in a range.
        self.offset_stable: Callable[[], int] = lambda: self.high_watermark
        self.is_aborted: Callable[[int, int], bool] = lambda producer_id, offset: False
        self.aborted_between: Callable[[int, int], AbortedColumns] = lambda offset, offset_end: ()
        # Returns the offset from which on retention must keep records. None means: it may delete
        # all.
        self.offset_needed: Callable[[], int] | None = None
        self._clock = clock
        self.offset_synced = self.offset_end
        # Everything below it is permanent in the segments or in the journal.
        self.offset_journaled = 0
        self.unsynced: list[Segment] = []  # Segments with unsynced bytes, or without their seal.
        self.unsynced_names = False  # The directory has new file names that are not synced.
        # File names were added or removed since the start; a clean stop syncs the directory.
        self.names_changed = False
        self._unsynced_views: list[File] = []
        self.faults: Faults = Uncaught()
        self._waiters: list[tuple[int, Waiter]] = []  # (end offset, callback), offsets ascending.
        self._durable_waiters: list[tuple[int, Waiter]] = []  # Of a replicated partition.
        self._listeners: dict[object, Callable[[], object]] = {}
        self._append_listeners: dict[object, Callable[[], object]] = {}
        # A large batch that is being written and not appended yet.
        self._ahead: Ahead | None = None
        # (first offset, batches) of appends above the watermark, for the journal. If some are not
        # here, because they were too large, the journal reads all of them back from the segments.
        self._recent: list[tuple[int, bytes]] = []
        self._recent_bytes = 0

    def check_epoch(self, epoch: int) -> None:
        """Raise an error unless this is the leader epoch; -1 when the client does not say."""
        if 0 <= epoch < self.leader_epoch:
            raise StaleEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch}")
        if epoch > self.leader_epoch:
            raise UnknownEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch}")

    def begin_epoch(self, epoch: int) -> None:
        """Begin to lead, or to follow who leads, in this epoch. Raises StaleEpoch."""
        if epoch < self.leader_epoch:
            raise StaleEpoch(f"the leader epoch is {self.leader_epoch}, not {epoch}")
        self.leader_epoch = epoch

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return where an epoch ends, or the last one before it that has batches here."""
        return self.epochs.end_of(epoch, self.leader_epoch, self.offset_end)

    # --- appending

    def append(self, batches: Batches, *, is_stamped: bool = False) -> int:
        """Give the batches the next offsets and write them; all of them or none.

        Return the first offset. The batches are checked; when `needs_commit` says so, the caller
        asks for a commit. With `is_stamped` they have offsets and epochs, which must follow.
        """
        if self._ahead is not None and not self._is_ahead(batches):
            self.drop_ahead()
        if self.stopped is not None:
            raise StorageError(self.stopped)
        if is_stamped:
            self._check_follows(batches)
        elif len(batches) == 1 and self._ahead is None:
            ((header, batch),) = batches
            if not isinstance(batch, list):
                return self._append_one(header, batch)
        return self._append_all(batches, is_stamped=is_stamped)

    def _append_one(self, header: BatchHeader, batch: Buffer) -> int:
        """Do what `_append_all` does with a batch that comes alone, in one piece and without a
        stamp, as nearly all do."""
        size, delta_last = header.size, header.offset_delta_last
        active, file = self._place_for(size, delta_last + 1)
        offset, epoch = active.offset_end, self.leader_epoch
        stamp = _STAMP.pack(offset, header.length, epoch)
        rest = memoryview(batch)[_STAMP.size :]
        if size + self._recent_bytes > RECENT_BYTES_MAX:
            self._write(file, active, (stamp, rest))
        else:
            data = b"".join((stamp, rest))
            self._write(file, active, (data,))
            self._recent.append((offset, data))
            self._recent_bytes += size
        if self.epochs.last != epoch:
            self._note_epochs((), offset)
        glance = Glance(active.size, offset, size, offset + delta_last, header.timestamp_max)
        active.note(glance)
        if header.producer_id >= 0:
            self.fold(header, offset, batch)
        self._appended(active, glance)
        return offset

    def _append_all(self, batches: Batches, *, is_stamped: bool) -> int:
        sizes = [header.size for header, _ in batches]
        size = sum(sizes)
        active, file = self._place_for(size, sum([h.offset_delta_last + 1 for h, _ in batches]))
        ahead, self._ahead = self._ahead, None
        offset_first = offset = active.offset_end
        position, epoch = active.size, self.leader_epoch
        chunks: list[Buffer] = []
        added: list[Glance] = []
        for (header, batch), batch_size in zip(batches, sizes, strict=True):
            epoch = header.leader_epoch if is_stamped else epoch
            chunks.append(_STAMP.pack(offset, header.length, epoch))
            if isinstance(batch, list):
                chunks.append(memoryview(batch[0])[_STAMP.size :])
                chunks += batch[1:]
            else:
                chunks.append(memoryview(batch)[_STAMP.size :])
            last = offset + header.offset_delta_last
            added.append(Glance(position, offset, batch_size, last, header.timestamp_max))
            offset, position = last + 1, position + batch_size
        if ahead is not None:
            self._write(file, active, chunks[:_HEADER_CHUNKS])
        elif size + self._recent_bytes > RECENT_BYTES_MAX:
            self._write(file, active, chunks)
        else:
            data = b"".join(chunks)
            self._write(file, active, (data,))
            self._recent.append((offset_first, data))
            self._recent_bytes += size
        if self.epochs.last != epoch:
            self._note_epochs(batches if is_stamped else (), offset_first)
        for glance, (header, batch) in zip(added, batches, strict=True):
            active.note(glance)
            if header.producer_id >= 0:
                # The view reads the body of markers only, which never come in chunks.
                head = batch[0] if isinstance(batch, list) else batch
                self.fold(header, glance.offset_first, head)
        self._appended(active, added[-1])
        return offset_first

    def _place_for(self, size: int, offsets: int) -> tuple[Segment, File]:
        """Return the segment for the next batches, and its file. Raises StorageError."""
        try:
            active = self._active_for(size, offsets)
            return active, self._pool.get(active.path, create=active.size == 0)
        except OSError as error:
            raise StorageError(f"{self.directory}: {error.strerror}") from error

    def _appended(self, active: Segment, last: Glance) -> None:
        """Note that batches were written and folded, and make them visible if nobody has to wait
        for a commit."""
        self._last = last
        if not self.unsynced or self.unsynced[-1] is not active:
            self.unsynced.append(active)
        if self.policy.durability is not _FSYNC and not self.needs_commit:
            self.advance(Mark(last.offset_last + 1, active, active.size))
        if self._append_listeners:
            self._tell_appended()

    def _tell_appended(self) -> None:
        for listener in list(self._append_listeners.values()):
            self._call(listener)

    def _check_follows(self, batches: Batches) -> None:
        """Raise an error unless offsets and epochs of these batches continue this log."""
        offset, epoch = self.offset_end, self.epochs.last
        for header, _ in batches:
            if header.offset_first != offset:
                raise InvalidBatch(f"offset {header.offset_first} where {offset} should follow")
            if header.leader_epoch < epoch:
                raise StaleEpoch(f"the last epoch is {epoch}, not {header.leader_epoch}")
            offset, epoch = header.offset_end, header.leader_epoch

    def _note_epochs(self, stamped: Batches, offset_first: int) -> None:
        """Note the epochs of stamped batches; without them, that ours begins."""
        if not stamped:
            self.epochs.note(self.leader_epoch, offset_first)
        for header, _ in stamped:
            self.epochs.note(header.leader_epoch, header.offset_first)
        self.leader_epoch = max(self.leader_epoch, self.epochs.last)

    def write_ahead(self, chunks: list[Buffer]) -> Iterator[None]:
        """Write a large batch in slices, so that `append` with the same chunks is quick.

        Failures are not reported: that append has them, too.
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
        """Truncate the file after its last batch if something was written ahead."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            try:
                ahead.file.truncate(ahead.segment.size)
            except OSError as error:
                self.stop(f"{ahead.segment.path}: {error.strerror}")

    def _is_ahead(self, batches: Batches) -> bool:
        """Return whether this is the batch that was written ahead, and all of it is written."""
        ahead = self._ahead
        return ahead is not None and ahead.is_written and batches[0][1] is ahead.chunks

    @property
    def needs_commit(self) -> bool:
        """Return whether the last append is acknowledged only after a sync."""
        if self.policy.durability is _FSYNC:
            return True
        limit = self.policy.flush_messages
        return limit is not None and self.offset_end - self.offset_synced >= limit

    def _write(self, file: File, active: Segment, chunks: Sequence[Buffer]) -> None:
        try:
            write_all(file, active.size, chunks)
        except OSError as cause:
            try:  # What a failed write left behind would look like damage later.
                file.truncate(active.size)
            except OSError:
                self.stop(f"{active.path}: {cause.strerror}, and the rest could not be cut off")
            raise StorageError(f"{active.path}: {cause.strerror}") from cause

    def _active_for(self, size: int, offsets: int) -> Segment:
        """Return the segment for the next batches; a new one when the last is full or old."""
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
            self.index_of(full)  # The seal needs the index.
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
        if self._durable is None or self.offset_durable == offset_base:
            self._keep(self.end_mark())
        if self._visible is None or self._visible.offset == offset_base:
            self._show(self.end_mark())
        return segment

    def _remove_unused(self, segment: Segment) -> None:
        """Remove an empty segment: it would be a gap once others are written around it."""
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
        """Remove the seal that a clean stop gave the active segment: more bytes make it untrue."""
        self.index_of(active)
        if active.sealed:
            self._pool.disk.remove(active.path_of(layout.INDEX))
            active.sealed = False

    # --- permanence: the committer's side

    def take_unsynced_views(self) -> list[File]:
        """Return the view files that are not synced, and forget them."""
        views, self._unsynced_views = self._unsynced_views, []
        return views

    @property
    def has_gap(self) -> bool:
        """Return whether batches that count as durable are neither synced nor journaled.

        The journal must hold everything above the synced offset, so it cannot be used then.
        """
        return max(self.offset_synced, self.offset_journaled) < self.offset_durable

    @property
    def uncommitted_bytes(self) -> int:
        """Return the size in bytes of the batches that are not durable."""
        durable = self._durable
        if durable is None:
            return 0
        if durable.segment is self.segments[-1]:
            return durable.segment.size - durable.position
        first = bisect_right(self.segments, durable.segment.offset_base, key=base_of) - 1
        size = sum(segment.size for segment in self.segments[max(first, 0) :])
        return size - durable.position

    def uncommitted(self) -> Iterator[tuple[int, bytes]]:
        """Yield the batches that are not durable: (first offset, bytes) for each segment."""
        durable = self._durable
        assert durable is not None
        active = self.segments[-1]
        size = active.size - durable.position if durable.segment is active else 0
        if 0 < size == self._recent_bytes:
            yield durable.offset, b"".join([data for _, data in self._recent])
            return
        first = bisect_right(self.segments, durable.segment.offset_base, key=base_of) - 1
        # Retention may have removed the segment of the mark.
        for segment in self.segments[max(first, 0) :]:
            start = durable.position if segment is durable.segment else 0
            if start < segment.size:
                data = self._pool.get(segment.path).read(start, segment.size - start)
                yield (durable.offset if start else segment.offset_base), data

    def synced(self, mark: Mark) -> None:
        """Note that the segment files are permanent up to the mark."""
        if mark.segment.cut:
            return
        self.offset_synced = max(self.offset_synced, mark.offset)
        active = self.segments[-1]
        # A segment that was closed since the mark was taken still needs its seal.
        rolled = mark.segment if mark.segment is not active and not mark.segment.sealed else None
        self.unsynced = [s for s in self.unsynced if s.offset_end > mark.offset or s is rolled]
        if mark.segment is active:
            self.unsynced_names = False

    def advance(self, mark: Mark) -> None:
        """Note that what is below the mark is durable. Move the watermark there, too, unless it
        waits for other replicas."""
        if mark.offset <= self.offset_durable or mark.segment.cut:
            return
        self._durable = mark
        self.offset_durable = mark.offset
        if self.is_replicated:
            waiters, self._durable_waiters = self._durable_waiters, []
            self._durable_waiters = [each for each in waiters if each[0] > mark.offset]
            for offset_end, waiter in waiters:
                if offset_end <= mark.offset:
                    self._call(waiter, None)
            self._call(self.on_durable)
        else:
            self._reveal(mark)
        # From here on the journal needs no batch below the mark, and listeners have read it: see
        # `newest`.
        if self._recent and self._recent[-1][0] >= mark.offset:
            self._recent = [each for each in self._recent if each[0] >= mark.offset]
            self._recent_bytes = sum(len(data) for _, data in self._recent)
        else:
            self._recent.clear()
            self._recent_bytes = 0

    def _keep(self, mark: Mark) -> None:
        """Note that what is below the mark is durable."""
        self._durable = mark
        self.offset_durable = mark.offset

    def replicate(self, offset: int) -> None:
        """Begin to be one of several replicas; `offset` is where the watermark was known to be.

        What is above it is here, but perhaps nowhere else.
        """
        self.is_replicated = True
        if self.segments:
            offset = min(max(offset, self.offset_start), self.offset_durable)
            self._show(self._mark_of(offset))

    def show(self, offset: int) -> None:
        """Move the watermark of a replicated partition; never above what is durable here."""
        assert self.is_replicated
        offset = min(offset, self.offset_durable)
        if offset > self.high_watermark:
            mark = self._durable if offset == self.offset_durable else self._mark_of(offset)
            assert mark is not None
            self._reveal(mark)

    def _reveal(self, mark: Mark) -> None:
        """Move the watermark, and call the waiters below it and all listeners."""
        self._show(mark)
        waiters, woken = self._waiters, 0
        while woken < len(waiters) and waiters[woken][0] <= mark.offset:
            woken += 1
        if woken:
            self._waiters = waiters[woken:]
            for _, waiter in waiters[:woken]:
                self._call(waiter, None)
        if self._listeners:
            for listener in list(self._listeners.values()):
                self._call(listener)

    def newest(self, offset: int) -> bytes | None:
        """Return the newest batch if it begins at this offset, is committed, and is in memory, as
        it is while listeners are told of it."""
        recent, last = self._recent, self._last
        if recent and last is not None and recent[-1][0] == offset == last.offset_first:
            return recent[-1][1] if last.offset_last < self.high_watermark else None
        return None

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        """Call the waiter once everything below `offset_end` is committed, or the partition has
        stopped."""
        if self.stopped is not None:
            waiter(StorageError(self.stopped))
        elif offset_end <= self.high_watermark:
            waiter(None)
        else:
            self._waiters.append((offset_end, waiter))

    def when_durable(self, offset_end: int, waiter: Waiter) -> None:
        """Call the waiter once everything below `offset_end` is durable here, whatever other
        replicas have, or the partition has stopped."""
        if not self.is_replicated or self.stopped is not None:
            self.when_committed(offset_end, waiter)
        elif offset_end <= self.offset_durable:
            waiter(None)
        else:
            self._durable_waiters.append((offset_end, waiter))

    def fail_waiters(self, error: StorageError) -> None:
        """Tell all who wait for a commit that they wait in vain here: another replica leads."""
        waiters = [*self._waiters, *self._durable_waiters]
        self._waiters, self._durable_waiters = [], []
        for _, waiter in waiters:
            self._call(waiter, error)

    def listen(
        self, token: object, listener: Callable[[], object], *, to_appends: bool = False
    ) -> None:
        """Call the listener whenever the watermark moves, until `unlisten`; with `to_appends`,
        for another replica, after each append."""
        (self._append_listeners if to_appends else self._listeners)[token] = listener

    def unlisten(self, token: object) -> None:
        self._listeners.pop(token, None)
        if self._append_listeners:
            self._append_listeners.pop(token, None)

    def stop(self, reason: str) -> None:
        """Refuse appends from now on; what is committed stays readable."""
        if self.stopped is None:
            self.stopped = reason
            self.fail_waiters(StorageError(reason))
            if self.is_replicated:
                self._call(self.on_durable)

    def leave_view(self) -> None:
        """Let go of the broker's view, for good.

        The two name each other. A partition that is deleted would stay in memory until all objects
        are looked through for garbage, and everybody waits for that.
        """
        offset_stable = self.offset_stable()
        self.offset_stable = lambda: offset_stable
        self.on_cut = lambda offset, state: None
        self.view_snapshot = self.offset_needed = None

    def _call(self, waiter: Callable[..., object], *arguments: object) -> None:
        """Call a waiter or listener. If it fails, the others are called all the same."""
        try:
            waiter(*arguments)
        except Exception as error:
            self.faults.caught(f"{self.directory}: telling of a commit", error)

    def recovered(self) -> None:
        """Begin after a crash: what was found is not known to be permanent, nor readable yet."""
        self.unsynced = [segment for segment in self.segments if not segment.sealed]
        self.unsynced_names = bool(self.segments)
        self.offset_synced = self.unsynced[0].offset_base if self.unsynced else self.offset_end
        if self.segments:
            start = Mark(self.offset_start, self.segments[0], 0)
            self._keep(start)
            self._show(start)

    def refuse(self, reason: str) -> None:
        """Refuse reads and appends from now on: there is damage that must not be repaired."""
        if not self.refused:
            self.refused = True
            log.error("partition refused: %s", reason)
        self.stop(reason)

    # --- truncation

    def cut_point(self, offset: int) -> Mark:
        """Return where the batch begins that holds the offset. Raises Corruption, OSError."""
        segment = self._segment_of(offset)
        found = self._locate(segment, offset, segment.size)
        assert found is not None, (offset, self.offset_end)
        return Mark(found.offset_first, segment, found.position)

    def segments_from(self, first: Segment) -> list[Segment]:
        return self.segments[self.segments.index(first) :]

    def cut(self, mark: Mark, shortened: Segment) -> list[Segment]:
        """End the log at the mark, whose segment is replaced by the shortened one.

        Return the later segments, whose files are to be removed.
        """
        cut = self.segments_from(mark.segment)
        for segment in cut:
            segment.cut = True
            self._pool.forget(segment.path)
        self.segments[-len(cut) :] = [shortened]
        self._last = self._next = None
        self._recent.clear()
        self._recent_bytes = 0
        self.unsynced = [*(each for each in self.unsynced if not each.cut), shortened]
        gone = [segment.path_of(layout.VIEW) for segment in cut[1:]]
        self._unsynced_views = [file for file in self._unsynced_views if file.path not in gone]
        self.names_changed = self.unsynced_names = True
        durable, visible = self._durable, self._visible
        if durable is not None and durable.segment.cut:
            is_below = durable.offset < mark.offset
            position = durable.position if is_below else mark.position
            self._keep(Mark(min(durable.offset, mark.offset), shortened, position))
        if visible is not None and visible.segment.cut:
            self._show(Mark(visible.offset, shortened, visible.position))
        for waiters in (self._waiters, self._durable_waiters):
            told = [each for each in waiters if each[0] > mark.offset]
            waiters[:] = [each for each in waiters if each[0] <= mark.offset]
            for _, waiter in told:
                reason = f"{self.directory}: the log was cut at offset {mark.offset}"
                self._call(waiter, StorageError(reason))
        return cut[1:]

    def begin_anew(self, offset: int) -> None:
        """Forget everything. The log begins and ends at this offset, in an empty segment that is
        permanent; damage that was found is gone with the rest."""
        for segment in self.segments:
            segment.cut = True
        first = Segment(self.directory, offset, self._clock.now_ms())
        self.segments = [first]
        self._last = self._next = None
        self._recent.clear()
        self._recent_bytes = 0
        self.unsynced = [first]
        self._unsynced_views.clear()
        self.names_changed, self.unsynced_names = True, False
        self.epochs.cut(0)  # The index stays the same object: whoever follows has it.
        self.epochs.is_saved = True
        self.offset_start = self.offset_synced = offset
        self.offset_journaled = 0
        self.stopped, self.refused, self.damage = None, False, None
        self._keep(self.end_mark())
        self._show(self.end_mark())
        waiters, self._waiters = self._waiters, []
        for _, waiter in waiters:
            reason = f"{self.directory}: the log has begun anew at offset {offset}"
            self._call(waiter, StorageError(reason))

    # --- compaction

    def has(self, group: Sequence[Segment]) -> bool:
        """Return whether these segments are still there, in a row."""
        if self.stopped is not None:
            return False
        first = bisect_right(self.segments, group[0].offset_base, key=base_of) - 1
        return first >= 0 and self.segments[first : first + len(group)] == list(group)

    def exchange(self, group: Sequence[Segment], cleaned: Segment) -> None:
        """Replace these segments by the compacted one."""
        first = self.segments.index(group[0])
        self.segments[first : first + len(group)] = [cleaned]
        self._next = None

    # --- retention

    def delete_before(self, offset: int) -> None:
        """Hide records below the offset from readers; whole segments are removed later."""
        if not self.offset_start <= offset <= self.high_watermark:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{self.offset_start}, {self.high_watermark}]"
            )
        self.offset_start = offset

    def expire(self, now_ms: int, copied_end: int | None = None) -> Expired | None:
        """Move the start offset above the oldest segments that retention does not cover.

        What is not below `copied_end` stays; None means: no copies are made. Return what was
        removed; None when nothing was.
        """
        if not self.policy.expires:
            return None
        offset_first, removed_bytes, removed_ms, is_early = self.offset_start, 0, -1, False
        keep_ms, keep_bytes = self.policy.retention_ms, self.policy.retention_bytes
        size = self.size
        deletable_end = self.offset_end if self.offset_needed is None else self.offset_needed()
        if copied_end is not None:
            deletable_end = min(deletable_end, copied_end)
        for segment in self.segments:
            newest_ms = segment.timestamp_max if segment.timestamp_max >= 0 else segment.opened_ms
            too_old = keep_ms >= 0 and newest_ms < now_ms - keep_ms
            too_much = keep_bytes >= 0 and size - segment.size >= keep_bytes
            is_open = segment is self.segments[-1] and not segment.size
            is_committed = not is_open and segment.offset_end <= self.high_watermark
            if not is_committed or not (too_old or too_much) or segment.offset_end > deletable_end:
                break
            if segment.offset_end > self.offset_start:
                self.offset_start = segment.offset_end
                removed_bytes += segment.size
                removed_ms = max(removed_ms, newest_ms)
                is_early |= not too_much and segment.opened_ms > now_ms - keep_ms // 2
            size -= segment.size
        if self.offset_start == offset_first:
            return None
        return Expired(offset_first, self.offset_start, removed_bytes, removed_ms, is_early)

    def first_needed(self) -> int:
        """Return the base offset of the first segment that is not wholly below the start offset.

        When all of them are, a new one is begun. Until its name is permanent the old ones are
        needed: without a segment, the next offset would not be known after a crash.
        """
        if self.segments[-1].size and self.offset_end <= self.offset_start:
            self.roll()
        if not self.unsynced_names:
            for segment in self.segments[:-1]:
                if segment.offset_end > self.offset_start or segment in self.unsynced:
                    return segment.offset_base
            return self.segments[-1].offset_base
        return self.segments[0].offset_base

    def mark_forgotten(self, offset_base: int) -> Iterator[str]:
        """Take the segments below this base offset out of service; yield the files to remove later.

        The recovery checkpoint must name that segment as the first by now.
        """
        while len(self.segments) > 1 and self.segments[0].offset_end <= offset_base:
            yield from self._mark(self.segments[0])
            del self.segments[0]

    def _mark(self, segment: Segment) -> Iterator[str]:
        """Rename the files of a segment and yield their new paths."""
        disk = self._pool.disk
        self.names_changed = True
        self._next = None
        self._pool.forget(segment.path)
        # The segment's file last: if a rename fails it is still in service, and all are tried
        # again.
        for kind in (layout.INDEX, layout.VIEW, layout.SEGMENT):
            path = segment.path_of(kind)
            if disk.exists(path):
                disk.rename(path, path + layout.MARKED)
            yield path + layout.MARKED
