"""A segment: one append-only file of record batches, and its sparse index.

The index says, about every 16 KiB, which batch starts where and the largest
timestamp before it, so one table serves look-ups by offset and by time. It is
kept in memory while the segment is written, and put on disk as the segment's
*seal* when it is full: a seal is only written when every byte it speaks of is
permanent, names included. So after a crash, damage below a seal is corruption, and
damage in an unsealed segment may be a write that never finished.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.errors import Corruption
from entrepot.core.ports import Disk, File
from entrepot.log import layout
from entrepot.log.read_ahead import ReadAhead

# offset_first, length, offset_delta_last, timestamp_max of a batch header: what a look-up needs.
_GLANCE = Struct(">qi11xi8xq")
GLANCE_BYTES = _GLANCE.size
_LENGTH_MIN = 61 - 12

_SEAL = Struct(">4sHHqIIqqqq")  # Then the entries, then a CRC32C over all before it.
_SEAL_MAGIC = b"eIDX"
_SEAL_VERSION = 1
_COMPACTED = 1  # A flag: offsets may be missing between batches.
_FOLLOWED = 2  # A flag: there is a next segment, and its name is permanent.
_ENTRY = Struct(">IIq")
_SCAN_BYTES = 2 * limits.INDEX_INTERVAL_BYTES
_PEEK_BYTES = 512  # A reader often looks for a batch in the index, or for the one after it.


class Glance(NamedTuple):
    """The part of a batch header that a look-up needs."""

    position: int
    offset_first: int
    size: int
    offset_last: int
    timestamp_max: int


class Index:
    """A sparse index. Rows of (offset, position, largest timestamp before it); columns ascend."""

    __slots__ = ("_next_position", "offsets", "positions", "timestamps")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.positions = array("q")
        self.timestamps = array("q")
        self._next_position = 0

    def note(self, offset: int, position: int, timestamp_before: int) -> None:
        """Add a batch, if the last one in the index is INDEX_INTERVAL_BYTES away."""
        if position < self._next_position:
            return
        self.offsets.append(offset)
        self.positions.append(position)
        self.timestamps.append(timestamp_before)
        self._next_position = position + limits.INDEX_INTERVAL_BYTES

    def position_for_offset(self, offset: int) -> int:
        """Return a position at or before the batch that holds the offset."""
        found = bisect_right(self.offsets, offset) - 1
        return self.positions[found] if found >= 0 else 0

    def position_before(self, position: int) -> int:
        """Return the position of the last batch in the index that starts at or before this one."""
        found = bisect_right(self.positions, position) - 1
        return self.positions[found] if found >= 0 else 0

    def offset_at(self, position: int) -> int | None:
        """Return the offset of the first batch in the index at or after the position; None if
        none is."""
        found = bisect_left(self.positions, position)
        return self.offsets[found] if found < len(self.offsets) else None

    def position_for_time(self, timestamp_ms: int) -> int:
        """Return a position before which no batch has a timestamp as late as this."""
        found = bisect_left(self.timestamps, timestamp_ms) - 1
        return self.positions[found] if found >= 0 else 0


class Segment:
    """A run of a partition's batches in one file: its bounds and its index, not the open file."""

    __slots__ = (
        "checked",
        "checked_offset",
        "compacted",
        "cut",
        "directory",
        "epochs",
        "followed",
        "index",
        "offset_base",
        "offset_end",
        "opened_ms",
        "path",
        "sealed",
        "size",
        "timestamp_max",
        "timestamp_max_offset",
        "unchecked_end",
    )

    def __init__(self, directory: str, offset_base: int, opened_ms: int) -> None:
        self.directory = directory
        self.offset_base = offset_base
        self.path = self.path_of(layout.SEGMENT)
        self.offset_end = offset_base  # Exclusive.
        self.size = 0  # Bytes of whole batches. The file may be longer after a failed write.
        self.timestamp_max = -1
        self.timestamp_max_offset = offset_base  # First offset of the batch with timestamp_max.
        # When its first batch was written; decides when a new segment is opened.
        self.opened_ms = opened_ms
        self.sealed = False
        self.compacted = False  # Offsets may be missing between batches.
        self.cut = False  # Truncated: it is not part of its partition any more.
        # (epoch, offset) of each batch with a later epoch than the one before it, if recovery has
        # read all of them; None if it has not.
        self.epochs: list[tuple[int, int]] | None = None
        self.followed = False  # Sealed, and the name of the next segment is permanent.
        self.index: Index | None = Index()  # None means: in the seal on disk.
        # Bytes below unchecked_end were written by an earlier process. Of these only the headers at
        # the positions in `checked` were checked by this one; checked_offset is the offset of the
        # batch at its end.
        self.unchecked_end = 0
        self.checked = range(0)
        self.checked_offset = offset_base

    def path_of(self, kind: str) -> str:
        return f"{self.directory}/{layout.file_name(self.offset_base, kind)}"

    def note(self, glance: Glance) -> None:
        """Note that a batch was appended."""
        assert glance.position == self.size, (glance, self.size)
        if self.index is not None:
            self.index.note(glance.offset_first, glance.position, self.timestamp_max)
        if glance.timestamp_max > self.timestamp_max:
            self.timestamp_max = glance.timestamp_max
            self.timestamp_max_offset = glance.offset_first
        self.size = glance.position + glance.size
        self.offset_end = glance.offset_last + 1

    def seal_bytes(self) -> bytes:
        """Return the seal to be written to disk. Every byte of the segment must be permanent."""
        index = self.index
        assert index is not None
        head = _SEAL.pack(
            _SEAL_MAGIC,
            _SEAL_VERSION,
            _COMPACTED * self.compacted | _FOLLOWED * self.followed,
            self.offset_base,
            self.size,
            len(index.offsets),
            self.offset_end,
            self.timestamp_max,
            self.timestamp_max_offset,
            self.opened_ms,
        )
        base = self.offset_base
        body = b"".join(
            _ENTRY.pack(offset - base, position, timestamp)
            for offset, position, timestamp in zip(
                index.offsets, index.positions, index.timestamps, strict=True
            )
        )
        return head + body + crc32c(body, crc32c(head)).to_bytes(4, "big")


def read_seal(disk: Disk, directory: str, offset_base: int) -> Segment | None:
    """Return the segment as its seal describes it, with its index; None without a whole seal."""
    try:
        file = disk.open(f"{directory}/{layout.file_name(offset_base, layout.INDEX)}")
    except FileNotFoundError:
        return None
    data = file.read(0, file.size())
    file.close()
    return parse_seal(data, directory, offset_base)


def parse_seal(data: bytes, directory: str, offset_base: int) -> Segment | None:
    """Return the segment that a seal describes; None if that is damaged, or another segment's."""
    if len(data) < _SEAL.size + 4 or crc32c(data[:-4]) != int.from_bytes(data[-4:], "big"):
        return None
    magic, version, flags, base, size, count, *rest = _SEAL.unpack_from(data)
    if (magic, version, base) != (_SEAL_MAGIC, _SEAL_VERSION, offset_base):
        return None
    segment = Segment(directory, offset_base, 0)
    index = Index()
    for delta, position, timestamp in _ENTRY.iter_unpack(data[_SEAL.size : -4]):
        index.note(base + delta, position, timestamp)
    if len(index.offsets) != count:
        return None
    segment.size = size
    segment.compacted, segment.followed = bool(flags & _COMPACTED), bool(flags & _FOLLOWED)
    segment.offset_end, segment.timestamp_max = rest[:2]
    segment.timestamp_max_offset, segment.opened_ms = rest[2:]
    segment.sealed, segment.index, segment.unchecked_end = True, index, size
    return segment


def glance_at(data: bytes, position: int) -> Glance | None:
    """Return the header of the batch that these bytes begin with; None if they cannot be one. They
    are at this position of the segment."""
    if len(data) < GLANCE_BYTES:
        return None
    offset_first, length, delta, timestamp_max = _GLANCE.unpack_from(data)
    if length < _LENGTH_MIN or delta < 0:
        return None
    return Glance(position, offset_first, 12 + length, offset_first + delta, timestamp_max)


def glances(file: File | ReadAhead, position: int, end: int) -> Iterator[Glance]:
    """Yield the header of each batch from a batch's start on; large bodies are not read.

    Raises Corruption when the bytes there cannot be a batch.
    """
    window, window_start, window_bytes = b"", position, _PEEK_BYTES
    while position < end:
        at = position - window_start
        if at + GLANCE_BYTES > len(window):
            if window:  # Small batches are read many at once, of large ones the headers alone.
                is_dense = at < 2 * len(window)
                window_bytes = min(8 * window_bytes, _SCAN_BYTES) if is_dense else _PEEK_BYTES
            window = file.read(position, min(window_bytes, end - position))
            window_start, at = position, 0
            if len(window) < GLANCE_BYTES:
                raise Corruption(f"{file.path}: cut off at byte {position}")
        offset_first, length, delta, timestamp_max = _GLANCE.unpack_from(window, at)
        if length < _LENGTH_MIN or delta < 0 or position + 12 + length > end:
            raise Corruption(f"{file.path}: no batch at byte {position}")
        yield Glance(position, offset_first, 12 + length, offset_first + delta, timestamp_max)
        position += 12 + length


def follow(file: File, segment: Segment, position: int, offset: int, end: int) -> Iterator[Glance]:
    """Yield batch headers as `glances` does, and check that their offsets follow each other.

    `offset` is that of the batch at `position`; only compaction leaves gaps. A batch's first twelve
    bytes are not in its checksum, so damage there is found here. Raises Corruption.
    """
    for glance in glances(file, position, end):
        skipped = glance.offset_first - offset
        if skipped < 0 or (skipped and not segment.compacted):
            raise Corruption(
                f"{file.path}: offset {glance.offset_first} at byte {glance.position}, "
                f"where {offset} should follow"
            )
        offset, position = glance.offset_last + 1, glance.position + glance.size
        if offset > segment.offset_end:
            raise Corruption(
                f"{file.path}: offset {glance.offset_last} at byte {glance.position}, "
                f"but the segment ends at {segment.offset_end}"
            )
        yield glance
    if position == segment.size and offset < segment.offset_end and not segment.compacted:
        raise Corruption(f"{file.path} ends at offset {offset}, not at {segment.offset_end}")


def build_index(file: File, segment: Segment) -> Index:
    """Rebuild the index of a segment from its batches. Raises Corruption."""
    index, timestamp_max = Index(), -1
    for glance in follow(file, segment, 0, segment.offset_base, segment.size):
        index.note(glance.offset_first, glance.position, timestamp_max)
        timestamp_max = max(timestamp_max, glance.timestamp_max)
    return index
