"""The segments of a partition, as readers see them: by offset, and by time.

Only what is committed can be read. Batches are decoded only for a look-up by time, which needs
the record, and for folding a view, and their checksums are verified before. Batches that go to
a client are verified by the client; but no checksum covers a batch's offset, so headers that
an earlier process wrote are checked once, when they are first read.

Damage that is found while reading is logged, kept in `damage` and raised to the reader.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EIO
from itertools import islice
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.batch import BatchHeader, check, read_header, records
from entrepot.core.errors import Corruption, DamagedBatch, InvalidBatch, OffsetOutOfRange
from entrepot.core.ports import File, FileRange
from entrepot.log.files import FilePool
from entrepot.log.read_ahead import ReadAhead
from entrepot.log.segment import (
    GLANCE_BYTES,
    Glance,
    Index,
    Segment,
    build_index,
    follow,
    glance_at,
    read_seal,
)

log = logging.getLogger("entrepot.log")


class Mark(NamedTuple):
    """A position in the log: an offset, and where in which segment its batch begins or would
    begin."""

    offset: int
    segment: Segment
    position: int


class Segments:
    def __init__(self, pool: FilePool, segments: list[Segment]) -> None:
        self._pool = pool
        # Ascending, each starting where the one before ends. Empty until the first append.
        self.segments = segments
        self.offset_start = segments[0].offset_base if segments else 0
        self.stopped: str | None = None
        self.refused = False  # Damaged: neither written nor read.
        self.damage: str | None = None  # The damage found last while reading.
        self._visible: Mark | None = self.end_mark() if segments else None
        # The offset of `_visible`: everything below it is committed.
        self.high_watermark = self._visible.offset if self._visible is not None else 0
        # The newest batch, where readers at the end of the log start.
        self._last: Glance | None = None
        # Where the batch after the one that was read last begins: a reader mostly goes on there.
        self._next: Mark | None = None

    # --- bounds

    @property
    def offset_end(self) -> int:
        return self.segments[-1].offset_end if self.segments else 0

    def _show(self, mark: Mark) -> None:
        """Let readers read up to the mark."""
        self._visible = mark
        self.high_watermark = mark.offset

    @property
    def size(self) -> int:
        return sum(segment.size for segment in self.segments)

    def end_mark(self) -> Mark:
        """Return the position after the last batch."""
        active = self.segments[-1]
        return Mark(active.offset_end, active, active.size)

    # --- by offset

    def read(
        self, offset: int, bytes_max: int, offset_limit: int | None = None, *, to_end: bool = False
    ) -> FileRange | None:
        """Return committed batches of one segment, from the one that holds `offset` on.

        The first batch is always whole; `bytes_max` may cut the last one if it is small. Returns
        None at the watermark and at `offset_limit`, which must be a batch boundary. With `to_end`,
        for another replica, they need not be committed.
        """
        self.check_readable(offset)
        visible = self.end_mark() if to_end and self.segments else self._visible
        if offset_limit is not None and visible is not None and offset_limit < visible.offset:
            visible = self._mark_of(offset_limit)
        if visible is None or offset >= visible.offset:
            return None
        for segment in self.segments[self._segment_number(offset) :]:
            end = visible.position if segment is visible.segment else segment.size
            found = self._locate(segment, offset, end)
            if found is not None:
                stop = min(found.position + bytes_max, end)
                stop = self._check_headers(segment, found, stop)
                if stop < end:
                    stop = self._before_large(segment, stop)
                size = max(found.size, stop - found.position)
                self._next = Mark(found.offset_last + 1, segment, found.position + found.size)
                return FileRange(self._pool.get(segment.path), found.position, size)
            if segment is visible.segment:
                break
        return None  # Compaction removed everything between the offset and the watermark.

    def read_next(self, offset: int, bytes_max: int) -> bytes | None:
        """Return the bytes that `read` finds, if they are few and follow what was read last.

        None means: use `read`, which also says what is wrong.
        """
        following, visible = self._next, self._visible
        if following is None or following.offset != offset or visible is None or self.refused:
            return None
        _, segment, position = following
        end = visible.position if segment is visible.segment else segment.size
        size = min(bytes_max, end - position)
        is_small = GLANCE_BYTES <= size < limits.SENDFILE_BYTES_MIN
        if not is_small or position < segment.unchecked_end or not self.offset_start <= offset:
            return None
        try:
            data = self._pool.get(segment.path).read(position, size)
        except OSError:
            return None
        found = glance_at(data, position)
        if found is None or found.offset_first != offset or found.size > len(data):
            return None
        self._next = Mark(found.offset_last + 1, segment, position + found.size)
        return data

    def _check_headers(self, segment: Segment, found: Glance, stop: int) -> int:
        """Check the headers of batches that an earlier process wrote. Return the position to read
        up to.

        That is before `stop` if there are so many small batches that checking all takes too long.
        """
        position, offset, unchecked_end = found.position, found.offset_first, segment.unchecked_end
        checked = segment.checked
        if position >= unchecked_end or (position in checked and stop <= checked.stop):
            return stop
        start = position
        # Readers mostly continue where the last check ended.
        if checked.start <= position <= checked.stop:
            start, position, offset = checked.start, checked.stop, segment.checked_offset
        headers = self._follow(segment, position, offset, unchecked_end)
        for glance in islice(headers, limits.READ_HEADERS_MAX):
            position, offset = glance.position + glance.size, glance.offset_last + 1
            if position >= stop:
                break
        segment.checked, segment.checked_offset = range(start, position), offset
        return stop if position >= unchecked_end else min(stop, position)

    def _before_large(self, segment: Segment, stop: int) -> int:
        """Return about where the large batch begins that `stop` would cut; otherwise `stop`.

        Half of a large batch is of no use to a client: it will ask for the whole again.
        """
        start = self.index_of(segment).position_before(stop)
        return start if stop - start > limits.INDEX_INTERVAL_BYTES else stop

    def offset_after(self, offset: int, found: FileRange) -> int:
        """Return an offset above everything in a range that was read from `offset` on."""
        later = self.segments[self._segment_number(offset) :]
        segment = next(each for each in later if each.path == found.file.path)
        end = self.index_of(segment).offset_at(found.position + found.size)
        return segment.offset_end if end is None else end

    def available(self, offset: int, *, to_end: bool = False) -> int:
        """Estimate how many committed bytes there are from `offset` on; with `to_end`, for another
        replica, they need not be committed."""
        visible = self.end_mark() if to_end and self.segments else self._visible
        if visible is None or offset >= visible.offset:
            return 0
        last = self._last
        if last is not None and offset == last.offset_first:
            return last.size
        segment = self._segment_of(offset)
        if segment is not visible.segment:
            return segment.size
        return visible.position - self.index_of(segment).position_for_offset(offset)

    def check_served(self) -> None:
        """Raise Corruption if the partition is refused."""
        if self.refused:
            raise Corruption(self.stopped)

    def check_readable(self, offset: int) -> None:
        """Raise Corruption if the partition is refused, OffsetOutOfRange if it does not have the
        offset."""
        self.check_served()
        if not self.offset_start <= offset <= self.offset_end:
            raise OffsetOutOfRange(
                f"offset {offset} is not in [{self.offset_start}, {self.offset_end}]"
            )

    def _mark_of(self, offset: int) -> Mark:
        segment = self._segment_of(offset)
        found = self._locate(segment, offset, segment.size)
        return Mark(offset, segment, found.position if found is not None else segment.size)

    def _segment_number(self, offset: int) -> int:
        last = len(self.segments) - 1
        if offset >= self.segments[last].offset_base:  # Nearly all readers are in the last one.
            return last
        return bisect_right(self.segments, offset, key=base_of) - 1

    def _segment_of(self, offset: int) -> Segment:
        return self.segments[self._segment_number(offset)]

    def _locate(self, segment: Segment, offset: int, end: int) -> Glance | None:
        """Return the batch that holds the offset, or the next; None if there is none below
        `end`."""
        last = self._last
        if last is not None and segment is self.segments[-1] and offset >= last.offset_first:
            return last
        following = self._next
        if following is not None and following.segment is segment and following.offset == offset:
            position, first = following.position, offset
        else:
            index = self.index_of(segment)
            position = index.position_for_offset(offset)
            noted = index.offset_at(position)
            first = segment.offset_base if noted is None else noted
        try:  # As in `noting_damage`, which costs more than the rest when nothing is wrong.
            for glance in follow(self._pool.get(segment.path), segment, position, first, end):
                if glance.offset_last >= offset:
                    return glance
        except (Corruption, OSError) as error:
            raise self._damage_of(segment.path, error) from None
        return None

    def index_of(self, segment: Segment) -> Index:
        """Return the segment's index: from memory, from its seal, or rebuilt from its batches.

        Raises Corruption, OSError.
        """
        if segment.index is None:
            with self.noting_damage(segment.path):
                file = self._file(segment)
                sealed = read_seal(self._pool.disk, segment.directory, segment.offset_base)
                if sealed is not None and sealed.size == segment.size:
                    segment.index = sealed.index
                else:
                    segment.index = build_index(file, segment)
                    segment.unchecked_end = 0
            self._pool.keep_index(segment)
        assert segment.index is not None
        return segment.index

    # --- checked reading

    def _file(self, segment: Segment) -> File:
        """Open the segment's file. Raises Corruption if it is missing or shorter than it was."""
        try:
            file = self._pool.get(segment.path)
        except FileNotFoundError:
            raise Corruption(f"{segment.path} is missing, which had {segment.size} bytes") from None
        if file.size() < segment.size:
            raise Corruption(f"{segment.path} has {file.size()} bytes, which had {segment.size}")
        return file

    def _follow_noted(self, segment: Segment, position: int, end: int) -> Iterator[Glance]:
        """Yield the batches from a position in the index on. Raises Corruption, OSError."""
        offset = self.index_of(segment).offset_at(position)
        return self._follow(
            segment, position, segment.offset_base if offset is None else offset, end
        )

    def _follow(self, segment: Segment, position: int, offset: int, end: int) -> Iterator[Glance]:
        with self.noting_damage(segment.path):
            yield from follow(self._pool.get(segment.path), segment, position, offset, end)

    def _checked(self, segment: Segment, glance: Glance) -> bytes:
        return self.checked(self._pool.get(segment.path), glance)

    def checked(self, file: File, glance: Glance) -> bytes:
        """Return the whole batch after verifying its checksum. Raises Corruption, OSError."""
        with self.noting_damage(file.path):
            data = file.read(glance.position, glance.size)
            try:
                check(data, allow_gaps=True)
            except InvalidBatch as error:
                place = f"at byte {glance.position}, offset {glance.offset_first}"
                raise Corruption(f"{file.path}: {error} {place}") from None
        return data

    @contextmanager
    def noting_damage(self, path: str) -> Iterator[None]:
        """Log damage once, and raise it each time.

        An I/O error of the disk (EIO) counts as damage; other OSErrors are raised as they are.
        """
        try:
            yield
        except (Corruption, OSError) as error:
            raise self._damage_of(path, error) from None

    def _damage_of(self, path: str, error: Corruption | OSError) -> Corruption | OSError:
        """Note what cannot be read, and return what to raise instead of the error."""
        if isinstance(error, Corruption):
            self._note_damage(str(error))
            return DamagedBatch(str(error))
        if error.errno != EIO:
            return error
        reason = f"{path}: {error.strerror}"
        self._note_damage(reason)
        return Corruption(reason)

    def _note_damage(self, reason: str) -> None:
        if self.damage != reason:
            self.damage = reason
            log.error("cannot be read: %s", reason)

    # --- whole segments

    def headers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Yield each batch's header from that offset on, with the bytes of control batches: for a
        view.

        Raises Corruption, OSError.
        """
        for segment in self.segments:
            if segment.offset_end <= offset:
                continue
            is_checked = segment.index is not None  # Recovery has just checked it.
            ahead = ReadAhead(self._pool.get(segment.path))
            position = self.index_of(segment).position_for_offset(offset)
            for glance in self._follow_noted(segment, position, segment.size):
                if glance.offset_last < offset:
                    continue
                if not is_checked:
                    data = self._checked(segment, glance)
                    yield read_header(data), data
                    continue
                header = read_header(ahead.read(glance.position, 61))
                whole = ahead.read(glance.position, glance.size) if header.is_control else b""
                yield header, whole

    def batches(self) -> Iterator[bytes]:
        """Yield every batch, verified, for folding a small partition at the start.

        Raises Corruption, OSError.
        """
        for segment in self.segments:
            yield from self.batches_of(segment)

    def batches_of(self, segment: Segment) -> Iterator[bytes]:
        """Yield every batch of one segment, verified. Raises Corruption, OSError."""
        with self.noting_damage(segment.path):
            self._file(segment)
        for glance in self._follow(segment, 0, segment.offset_base, segment.size):
            yield self._checked(segment, glance)

    # --- by time

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first committed record at or after a time; None if
        there is none."""
        for segment in self.segments:
            if segment.timestamp_max < timestamp_ms or segment.offset_end <= self.offset_start:
                continue
            position = self.index_of(segment).position_for_time(timestamp_ms)
            for glance in self._follow_noted(segment, position, segment.size):
                if glance.offset_first >= self.high_watermark:
                    return None
                self._checked(segment, glance)  # The header's timestamp may be damaged.
                if glance.timestamp_max < timestamp_ms or glance.offset_last < self.offset_start:
                    continue
                for record in self._records(segment, glance):
                    if record[1] >= timestamp_ms and record[0] >= self.offset_start:
                        return record
        return None

    def latest_time(self) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the committed record with the largest timestamp."""
        best: tuple[int, int] | None = None
        for segment in self.segments:
            is_gone = segment.offset_end <= self.offset_start
            if is_gone or (best is not None and segment.timestamp_max <= best[1]):
                continue
            if self.offset_start <= segment.timestamp_max_offset < self.high_watermark:
                latest = self._locate(segment, segment.timestamp_max_offset, segment.size)
                found = [latest] if latest is not None else []
                for glance in found:  # The header's timestamp may be damaged.
                    self._checked(segment, glance)
            else:  # That record is deleted or not committed yet: search the others.
                found = list(self._follow_noted(segment, 0, segment.size))
            for glance in found:
                if glance.offset_first >= self.high_watermark:
                    break
                if best is None or glance.timestamp_max > best[1]:
                    for record in self._records(segment, glance):
                        if record[0] >= self.offset_start and (not best or record[1] > best[1]):
                            best = record
        return best

    def _records(self, segment: Segment, glance: Glance) -> Iterator[tuple[int, int]]:
        for record in records(self._checked(segment, glance)):
            yield record.offset, record.timestamp_ms


def base_of(segment: Segment) -> int:
    return segment.offset_base
