"""A topic's archive: copies of sealed segments in an object store, and how they are read.

    <topic>/<topic id>/<partition>/
        manifest                            which segments there are: see below
        00000000000000000042.log            a segment, as it was in the data directory
        00000000000000000042.index          its seal and sparse index
        00000000000000000042.aborted        its aborted transactions, if there are any

The manifest is text: a line about the partition, a line for each segment, and a line with the
checksum of all others, each of the first two kinds JSON. A segment is in the archive when the
manifest says so; it is written last, and replaced as a whole. Segments ascend and do not
overlap. One need not begin where the one before ends: records that were deleted while there was no
archive are not in it. Nothing in it is changed later, and nothing is removed.

Readers check what they read: the manifest by its checksum, every batch by its own, offsets because
they follow each other, and the bytes of a segment that is read as a whole.
The bytes are in docs/formats/archive.md.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple, TypeVar
from uuid import UUID

import msgspec
from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.batch import HEADER_BYTES, BatchHeader, check, read_header, records, walk
from entrepot.core.errors import Corruption, InvalidBatch
from entrepot.core.ports import ObjectStore
from entrepot.log import layout
from entrepot.log.files import seal
from entrepot.log.isolation import AbortedRow, Isolation, IsolationState
from entrepot.log.segment import Index, Segment, parse_seal

MANIFEST = "manifest"
ABORTED = ".aborted"

_VERSION = 1
_CHECKSUM = b"crc32c "
_CHECKSUM_BYTES = len(_CHECKSUM) + 9  # Eight digits and the end of the line.
_ABORTED = Struct(">qqqq")
_SEARCH_BYTES = 1 * limits.MIB

_Line = TypeVar("_Line")


class Heading(msgspec.Struct, frozen=True):
    """What a manifest is about."""

    topic: str
    id: UUID
    partition: int
    version: int = _VERSION

    @property
    def directory(self) -> str:
        return partition_directory(self.topic, self.id, self.partition)


class Entry(msgspec.Struct, frozen=True):
    """A segment in the archive."""

    base: int
    end: int  # Exclusive.
    size: int
    crc32c: int  # Of the whole segment.
    first_ms: int  # The earliest timestamp that a batch begins with.
    last_ms: int  # The latest timestamp of all records.
    aborted: int = 0  # Rows in its file of aborted transactions.
    compacted: bool = False  # Offsets may be missing between batches.


def partition_directory(topic: str, identity: UUID, number: int) -> str:
    return f"{topic}/{identity}/{number}"


# --- the manifest


def appended(manifest: bytes | None, heading: Heading, entry: Entry) -> bytes:
    """Return the manifest with one more segment. Raises Corruption."""
    lines = msgspec.json.encode(heading) + b"\n"
    if manifest is not None:
        lines = _lines(manifest, heading.directory)
    lines += msgspec.json.encode(entry) + b"\n"
    return lines + _CHECKSUM + b"%08x\n" % crc32c(lines)


def last_entry(manifest: bytes, directory: str) -> Entry:
    """Return the last segment of a manifest. Raises Corruption."""
    last = _lines(manifest, directory).rstrip(b"\n").rpartition(b"\n")[2]
    return _decoded(last, Entry, directory)


def entries_of(manifest: bytes, directory: str) -> list[Entry]:
    """Return the segments of a manifest. Raises Corruption."""
    heading, *lines = _lines(manifest, directory).splitlines()
    if _decoded(heading, Heading, directory).version != _VERSION:
        raise Corruption(f"{directory}/{MANIFEST} was written by a later version")
    return [_decoded(line, Entry, directory) for line in lines]


def _lines(manifest: bytes, directory: str) -> bytes:
    """Return a manifest without its checksum. Raises Corruption."""
    lines, checksum = manifest[:-_CHECKSUM_BYTES], manifest[-_CHECKSUM_BYTES:]
    if checksum != _CHECKSUM + b"%08x\n" % crc32c(lines):
        raise Corruption(f"{directory}/{MANIFEST} is damaged: its checksum does not match")
    return lines


def _decoded(line: bytes, kind: type[_Line], directory: str) -> _Line:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise Corruption(f"{directory}/{MANIFEST} is damaged: {error}") from None


# --- aborted transactions


def aborted_bytes(rows: Sequence[tuple[int, ...]]) -> bytes:
    return b"".join(seal(b"".join(_ABORTED.pack(*row) for row in rows)))


def _aborted_rows(data: bytes, count: int) -> list[AbortedRow] | None:
    """Return the rows; None if they are damaged."""
    if len(data) != 4 + count * _ABORTED.size:
        return None
    if int.from_bytes(data[:4], "big") != crc32c(memoryview(data)[4:]):
        return None
    return list(_ABORTED.iter_unpack(data[4:]))


# --- reading


class Run(NamedTuple):
    """Whole batches that were read, and where to go on."""

    batches: memoryview  # Empty where compaction has removed all.
    offset_end: int


class _Place(NamedTuple):
    """Where a reader is: in which segment, and which batch begins at which byte."""

    base: int
    offset: int
    position: int
    checksum: int | None  # Of all bytes before; None if not all were read.


class ArchivedPartition:
    """A partition's archive, for one reader. All calls raise Corruption and StoreUnavailable."""

    def __init__(self, store: ObjectStore, directory: str, entries: Sequence[Entry]) -> None:
        """There is at least one entry."""
        self._store = store
        self._directory = directory
        self._entries = entries
        self._place: _Place | None = None
        # The one segment whose index, and whose transactions, were read last.
        self._indexed: Segment | None = None
        self._isolated: tuple[int, Isolation] | None = None

    @property
    def offset_start(self) -> int:
        return self._entries[0].base

    @property
    def offset_end(self) -> int:
        return self._entries[-1].end

    def next_offset(self, offset: int) -> int | None:
        """Return the offset if a segment has it; otherwise where the next one begins, if any."""
        number = bisect_right(self._entries, offset, key=_base_of) - 1
        if number >= 0 and offset < self._entries[number].end:
            return offset
        later = self._entries[number + 1 : number + 2]
        return later[0].base if later else None

    def read(self, offset: int, bytes_max: int) -> Run:
        """Return batches from the one that holds `offset` on. A segment must have the offset."""
        entry = self._entry_of(offset)
        place = self._place
        if place is None or (place.base, place.offset) != (entry.base, offset):
            place = self._find(entry, offset)
        while place.position < entry.size:
            view, place = self._next(entry, place, bytes_max)
            self._place = place
            for position, header in walk(view):
                if header.offset_last >= offset:
                    is_last = place.position == entry.size
                    return Run(view[position:], entry.end if is_last else place.offset)
        return Run(memoryview(b""), entry.end)

    def aborted(self, offset: int, offset_end: int) -> list[tuple[int, int]]:
        """Return (producer id, first offset) of aborted transactions in a range of one segment."""
        entry = self._entry_of(offset)
        if not entry.aborted:
            return []
        if self._isolated is None or self._isolated[0] != entry.base:
            data = self._store.read(self._name(entry, ABORTED))
            rows = None if data is None else _aborted_rows(data, entry.aborted)
            if rows is None:
                raise Corruption(f"{self._name(entry, ABORTED)} is missing or damaged")
            self._isolated = entry.base, Isolation(IsolationState((), rows))
        return self._isolated[1].aborted(offset, offset_end)

    def offset_for_time(self, timestamp_ms: int) -> tuple[int, int] | None:
        """Return (offset, timestamp) of the first record at or after a time; None if there is
        none."""
        for entry in self._entries:
            if entry.last_ms < timestamp_ms:
                continue
            position = self._index_of(entry).position_for_time(timestamp_ms)
            for header, batch in self._batches(entry, position):
                if not header.count or header.timestamp_max < timestamp_ms:
                    continue
                for record in self._records(entry, batch):
                    if record[1] >= timestamp_ms:
                        return record
        return None

    def _records(self, entry: Entry, batch: memoryview) -> Iterator[tuple[int, int]]:
        try:
            check(batch, allow_gaps=True)
            for record in records(batch):
                yield record.offset, record.timestamp_ms
        except InvalidBatch as error:
            raise Corruption(f"{self._name(entry)}: {error}") from None

    def _batches(self, entry: Entry, position: int) -> Iterator[tuple[BatchHeader, memoryview]]:
        place = self._place_at(entry, position)
        while place.position < entry.size:
            view, place = self._next(entry, place, _SEARCH_BYTES)
            for start, header in walk(view):
                yield header, view[start : start + header.size]

    # --- one segment

    def _entry_of(self, offset: int) -> Entry:
        entry = self._entries[bisect_right(self._entries, offset, key=_base_of) - 1]
        assert entry.base <= offset < entry.end, (entry, offset)
        return entry

    def _name(self, entry: Entry, kind: str = layout.SEGMENT) -> str:
        return f"{self._directory}/{layout.file_name(entry.base, kind)}"

    def _index_of(self, entry: Entry) -> Index:
        if self._indexed is None or self._indexed.offset_base != entry.base:
            data = self._store.read(self._name(entry, layout.INDEX))
            found = None if data is None else parse_seal(data, self._directory, entry.base)
            if found is None or (found.size, found.offset_end) != (entry.size, entry.end):
                raise Corruption(f"{self._name(entry, layout.INDEX)} is missing or damaged")
            self._indexed = found
        assert self._indexed.index is not None
        return self._indexed.index

    def _find(self, entry: Entry, offset: int) -> _Place:
        """Return a place at or before the batch that holds the offset."""
        if offset == entry.base:
            return _Place(entry.base, entry.base, 0, 0)
        return self._place_at(entry, self._index_of(entry).position_for_offset(offset))

    def _place_at(self, entry: Entry, position: int) -> _Place:
        """Return the place of a batch in the index."""
        offset = self._index_of(entry).offset_at(position) if position else entry.base
        assert offset is not None, position
        return _Place(entry.base, offset, position, None if position else 0)

    def _next(self, entry: Entry, place: _Place, bytes_max: int) -> tuple[memoryview, _Place]:
        """Return the batches that follow a place, at least one, and the place after them."""
        _, offset, position, checksum = place
        size = min(max(bytes_max, HEADER_BYTES), entry.size - position)
        data = self._bytes(entry, position, size)
        if len(data) >= HEADER_BYTES and (needed := read_header(data).size) > size:
            # The length may be damaged: no batch is larger than a frame.
            needed = min(needed, entry.size - position, limits.FRAME_BYTES_MAX)
            data = self._bytes(entry, position, needed)
        end = 0
        try:
            for start, header in walk(data):
                skipped = header.offset_first - offset
                if (
                    skipped < 0
                    or (skipped and not entry.compacted)
                    or header.offset_end > entry.end
                ):
                    raise self._damaged(entry, position + start, f"offset {header.offset_first}")
                offset, end = header.offset_end, start + header.size
        except InvalidBatch as error:
            raise self._damaged(entry, position, str(error)) from None
        if not end:
            raise self._damaged(entry, position, "no whole batch")
        if checksum is not None:
            checksum = crc32c(memoryview(data)[:end], checksum)
        if position + end == entry.size:
            if offset != entry.end and not entry.compacted:
                raise self._damaged(entry, entry.size, f"it ends at offset {offset}")
            if checksum is not None and checksum != entry.crc32c:
                raise Corruption(f"{self._name(entry)} is damaged: its checksum does not match")
        return memoryview(data)[:end], _Place(entry.base, offset, position + end, checksum)

    def _bytes(self, entry: Entry, position: int, size: int) -> bytes:
        data = self._store.read(self._name(entry), position, size)
        if data is None or len(data) != size:
            found = "missing" if data is None else "cut off"
            raise Corruption(f"{self._name(entry)}, which had {entry.size} bytes, is {found}")
        return data

    def _damaged(self, entry: Entry, position: int, what: str) -> Corruption:
        return Corruption(f"{self._name(entry)} is damaged at byte {position}: {what}")


def _base_of(entry: Entry) -> int:
    return entry.base


class Archive:
    """All topics in a store."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def topics(self) -> list[str]:
        return self._store.names("")

    def ids(self, topic: str) -> list[UUID]:
        """Return the ids of all topics that had this name."""
        return [UUID(name) for name in self._store.names(topic) if _is_id(name)]

    def numbers(self, topic: str, identity: UUID) -> list[int]:
        """Return the partitions of a topic that have an archive."""
        names = self._store.names(f"{topic}/{identity}")
        return sorted(int(name) for name in names if name.isdecimal())

    def partition(self, topic: str, identity: UUID, number: int) -> ArchivedPartition | None:
        """Open a partition's archive; None if there is nothing in it. Raises Corruption,
        StoreUnavailable."""
        directory = partition_directory(topic, identity, number)
        manifest = self._store.read(f"{directory}/{MANIFEST}")
        if manifest is None:
            return None
        return ArchivedPartition(self._store, directory, entries_of(manifest, directory))


def _is_id(name: str) -> bool:
    try:
        return str(UUID(name)) == name
    except ValueError:
        return False
