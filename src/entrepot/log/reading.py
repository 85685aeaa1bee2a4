"""The segments of a partition, as readers see them: by offset, and by time.

What is committed can be read; the batches themselves are never decoded on the way, but
for a look-up by time, which needs the record.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from entrepot.core import limits
from entrepot.core.batch import BatchHeader, read_header, records
from entrepot.core.errors import Corruption, OffsetOutOfRange
from entrepot.core.ports import FileRange
from entrepot.log.files import FilePool
from entrepot.log.segment import Glance, Index, Segment, build_index, glances, read_seal


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
        self.refused = False  # Stopped by recovery: not even readable.
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
                if stop < end:
                    stop = self._before_large(segment, stop)
                size = max(found.size, stop - found.position)
                return FileRange(self._pool.get(segment.path), found.position, size)
            if segment is visible.segment:
                break
        return None  # Compaction left nothing between there and the watermark.

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

    def check_readable(self, offset: int) -> None:
        if self.refused:
            raise Corruption(self.stopped)
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
        for glance in glances(self._pool.get(segment.path), position, end):
            if glance.offset_last >= offset:
                return glance
        return None

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

    def headers(self, offset: int) -> Iterator[tuple[BatchHeader, bytes]]:
        """Every batch's header from that offset on, and control batches whole: for a view."""
        for segment in self.segments:
            if segment.offset_end <= offset:
                continue
            file = self._pool.get(segment.path)
            start = self.index_of(segment).position_for_offset(offset)
            for glance in glances(file, start, segment.size):
                if glance.offset_last >= offset:
                    header = read_header(file.read(glance.position, 61))
                    whole = file.read(glance.position, glance.size) if header.is_control else b""
                    yield header, whole

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
                latest = self._locate(segment, segment.timestamp_max_offset, segment.size)
                found = [latest] if latest is not None else []
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


def base_of(segment: Segment) -> int:
    return segment.offset_base
