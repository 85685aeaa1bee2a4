"""The segments of a partition, as readers see them: by offset, and by time.

What is committed can be read; the batches themselves are never decoded on the way, but
for a look-up by time, which needs the record, and for folding a view. What is decoded is
checked against its checksum first. What goes to a client as it is, is checked by the client;
but no checksum covers the offset of a batch, so the headers of what an earlier process wrote
are looked at once, when they are first read.

Damage that a reader comes upon is logged and remembered (`damage`), and told to the reader.
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
from entrepot.log.segment import Glance, Index, Segment, build_index, follow, read_seal

log = logging.getLogger("entrepot.log")


class Mark(NamedTuple):
    """A place in the log: an offset and where in which segment it would be."""

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
        self.refused = False  # Damaged: not even readable.
        self.damage: str | None = None  # What a reader came upon last.
        self._visible: Mark | None = self.end_mark() if segments else None
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

    def end_mark(self) -> Mark:
        active = self.segments[-1]
        return Mark(active.offset_end, active, active.size)

    # --- by offset

    def read(
        self, offset: int, bytes_max: int, offset_limit: int | None = None
    ) -> FileRange | None:
        """Committed batches from the one that holds `offset` on, out of one segment.

        Whole batches but for the last, which `bytes_max` may cut if it is small; the first is
        always whole. None at the watermark, and at the limit, which no batch spans.
        """
        self.check_readable(offset)
        visible = self._visible
        if offset_limit is not None and visible is not None and offset_limit < visible.offset:
            visible = self._mark_of(offset_limit)
        if visible is None or offset >= visible.offset:
            return None
        for segment in self.segments[self._segment_number(offset) :]:
            end = visible.position if segment is visible.segment else segment.size
            found = self._locate(segment, offset, end)
            if found is not None:
                stop = min(found.position + bytes_max, end)
                stop = self._looked_at(segment, found, stop)
                if stop < end:
                    stop = self._before_large(segment, stop)
                size = max(found.size, stop - found.position)
                return FileRange(self._pool.get(segment.path), found.position, size)
            if segment is visible.segment:
                break
        return None  # Compaction left nothing between there and the watermark.

    def _looked_at(self, segment: Segment, found: Glance, stop: int) -> int:
        """Look at the headers from a batch on, if this process has not. Returns how far to read:
        so many small batches may be there that looking at all of them would take too long."""
        position, offset, unchecked_end = found.position, found.offset_first, segment.unchecked_end
        checked = segment.checked
        if position >= unchecked_end or (position in checked and stop <= checked.stop):
            return stop
        start = position
        if checked.start <= position <= checked.stop:  # Readers mostly go on where they were.
            start, position, offset = checked.start, checked.stop, segment.checked_offset
        headers = self._follow(segment, position, offset, unchecked_end)
        for glance in islice(headers, limits.READ_HEADERS_MAX):
            position, offset = glance.position + glance.size, glance.offset_last + 1
            if position >= stop:
                break
        segment.checked, segment.checked_offset = range(start, position), offset
        return stop if position >= unchecked_end else min(stop, position)

    def _before_large(self, segment: Segment, stop: int) -> int:
        """Where a large batch begins that the stop would cut, or about there; or the stop. The
        half of a large one is much to send for nothing: whoever gets it asks for all of it."""
        start = self.index_of(segment).position_before(stop)
        return start if stop - start > limits.INDEX_INTERVAL_BYTES else stop

    def offset_after(self, offset: int, found: FileRange) -> int:
        """An offset that nothing of what was read from `offset` on has reached."""
        later = self.segments[self._segment_number(offset) :]
        segment = next(each for each in later if each.path == found.file.path)
        end = self.index_of(segment).offset_at(found.position + found.size)
        return segment.offset_end if end is None else end

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

    def check_served(self) -> None:
        """Raises Corruption when it is refused."""
        if self.refused:
            raise Corruption(self.stopped)

    def check_readable(self, offset: int) -> None:
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
        return bisect_right(self.segments, offset, key=base_of) - 1

    def _segment_of(self, offset: int) -> Segment:
        return self.segments[self._segment_number(offset)]

    def _locate(self, segment: Segment, offset: int, end: int) -> Glance | None:
        """The batch that holds the offset, or the next one; None when there is none below `end`."""
        last = self._last
        if last is not None and segment is self.segments[-1] and offset >= last.offset_first:
            return last
        position = self.index_of(segment).position_for_offset(offset)
        for glance in self._follow_noted(segment, position, end):
            if glance.offset_last >= offset:
                return glance
        return None

    def index_of(self, segment: Segment) -> Index:
        """A sealed segment's index comes from its seal, or from a walk when that is lost.

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

    # --- what is really there

    def _file(self, segment: Segment) -> File:
        """Raises Corruption when it is not all there."""
        try:
            file = self._pool.get(segment.path)
        except FileNotFoundError:
            raise Corruption(f"{segment.path} is missing, which had {segment.size} bytes") from None
        if file.size() < segment.size:
            raise Corruption(f"{segment.path} has {file.size()} bytes, which had {segment.size}")
        return file

    def _follow_noted(self, segment: Segment, position: int, end: int) -> Iterator[Glance]:
        """Batches from a position on that the index has. Raises Corruption, OSError."""
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
        """The whole batch, if it is what its checksum says. Raises Corruption, OSError."""
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
        """Tell the log of what cannot be read, once, and whoever reads each time.

        What the disk cannot give back is damaged, too; any other OSError may be over soon.
        """
        try:
            yield
        except Corruption as error:
            self._note_damage(str(error))
            raise DamagedBatch(str(error)) from None
        except OSError as error:
            if error.errno != EIO:
                raise
            reason = f"{path}: {error.strerror}"
            self._note_damage(reason)
            raise Corruption(reason) from None

    def _note_damage(self, reason: str) -> None:
        if self.damage != reason:
            self.damage = reason
            log.error("cannot be read: %s", reason)

    # --- all of it

    def headers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Every batch's header from that offset on, and control batches whole: for a view.

        Raises Corruption, OSError.
        """
        for segment in self.segments:
            if segment.offset_end <= offset:
                continue
            is_checked = segment.index is not None  # By recovery, just before.
            file = self._pool.get(segment.path)
            position = self.index_of(segment).position_for_offset(offset)
            for glance in self._follow_noted(segment, position, segment.size):
                if glance.offset_last < offset:
                    continue
                if not is_checked:
                    data = self._checked(segment, glance)
                    yield read_header(data), data
                    continue
                header = read_header(file.read(glance.position, 61))
                whole = file.read(glance.position, glance.size) if header.is_control else b""
                yield header, whole

    def batches(self) -> Iterator[bytes]:
        """Every batch, one by one and checked: for folding a small partition at start.

        Raises Corruption, OSError.
        """
        for segment in self.segments:
            yield from self.batches_of(segment)

    def batches_of(self, segment: Segment) -> Iterator[bytes]:
        """Of one segment. Raises Corruption, OSError."""
        with self.noting_damage(segment.path):
            self._file(segment)
        for glance in self._follow(segment, 0, segment.offset_base, segment.size):
            yield self._checked(segment, glance)

    # --- by time

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """The first committed record at or after a time: (offset, its timestamp)."""
        for segment in self.segments:
            if segment.timestamp_max < timestamp_ms or segment.offset_end <= self.offset_start:
                continue
            position = self.index_of(segment).position_for_time(timestamp_ms)
            for glance in self._follow_noted(segment, position, segment.size):
                if glance.offset_first >= self.high_watermark:
                    return None
                self._checked(segment, glance)  # Or its time might not be the one it had.
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
                latest = self._locate(segment, segment.timestamp_max_offset, segment.size)
                found = [latest] if latest is not None else []
                for glance in found:  # Or it might not look like the latest any more.
                    self._checked(segment, glance)
            else:  # Deleted, or not committed yet: the latest of the others.
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
