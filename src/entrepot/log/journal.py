"""The commit journal: one file to sync when a tick has touched many partitions.

Syncing a thousand segment files takes a hundred times as long as syncing one
file with the same bytes. So such a tick's batches are written here as well, this
file is synced, the answers go out, and the segments are synced in the background.
There are two files: when one is full the other takes over, and a file is used
again, from its start, once every segment it covers is permanent.

A file is a sequence of entries of one generation. Overwriting starts a higher
generation, so what an earlier one left behind the newest entries is not read.
"""

from collections.abc import Container, Iterator, Sequence
from struct import Struct
from typing import NamedTuple
from uuid import UUID

from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.names import PartitionId
from entrepot.core.ports import Buffer, Disk, File
from entrepot.log import layout
from entrepot.log.files import write_all

_ENTRY = Struct(">IIQ16sIq")  # CRC32C of all after it, payload size, generation, partition, offset

Run = tuple[PartitionId, int, int, bytes]  # Partition, first offset, end offset, batches.


class JournalEntry(NamedTuple):
    """Consecutive batches of one partition in a journal file; they are read when asked for.

    Without batches it says: the log was cut at `offset_first`, earlier entries at or above it are
    void.
    """

    generation: int
    partition: PartitionId
    offset_first: int
    file: File
    position: int
    size: int

    def payload(self) -> bytes:
        return self.file.read(self.position, self.size)


class Journal:
    def __init__(self, disk: Disk, generation: int) -> None:
        self._disk = disk
        self._generation = generation  # Higher than every generation on disk.
        self._file: File | None = None
        self._current = 0
        self._size = 0
        # For each of the two files: partition -> end offset of what the file holds of it.
        self._covered: list[dict[PartitionId, int]] = [{}, {}]
        self._paths = layout.journal_paths(generation)

    @property
    def is_full(self) -> bool:
        return self._size >= limits.JOURNAL_BYTES_MAX

    @property
    def covered(self) -> dict[PartitionId, int]:
        """Return the end offset of each partition with entries in the current file."""
        return self._covered[self._current]

    def switch(self) -> dict[PartitionId, int]:
        """Switch to the other file, which must be released. Return what the full one covers."""
        full = self.covered
        self._current = 1 - self._current
        assert not self.covered, "the other journal file is still needed"
        self._file, self._size = None, 0
        return full

    def write(self, runs: list[Run]) -> tuple[File, Sequence[str]]:
        """Append an entry for each run.

        Return what to sync: the file, and its directories when its name is new.
        """
        directories: Sequence[str] = ()
        if self._file is None:
            directories = (layout.JOURNAL_DIRECTORY, "")
            self._file = self._begin()
        file = self._file
        chunks: list[Buffer] = []
        for partition, offset_first, _, payload in runs:
            rest = _ENTRY.pack(
                0, len(payload), self._generation, partition.topic.bytes, partition.number,
                offset_first,
            )[4:]  # fmt: skip
            chunks += [crc32c(payload, crc32c(rest)).to_bytes(4, "big"), rest, payload]
        self._size += write_all(file, self._size, chunks)
        for partition, _, offset_end, _ in runs:
            self.covered[partition] = offset_end
        return file, directories

    def _begin(self) -> File:
        self._disk.make_directory(layout.JOURNAL_DIRECTORY)
        self._generation += 1
        return self._disk.open(self._paths[self._current], create=True)


def read_journals(disk: Disk) -> list[JournalEntry]:
    """Return every whole entry of every file, oldest first."""
    found = [entry for path in _paths(disk) for entry in _entries(disk, path)]
    return sorted(found, key=lambda entry: entry.generation)


def remove_journals(disk: Disk, needed: Container[PartitionId] = ()) -> None:
    """Remove the journal files, but for those that have batches of a partition in `needed`.

    The segments of all other partitions must be permanent.
    """
    for path in _paths(disk):
        if not any(entry.partition in needed for entry in _entries(disk, path)):
            disk.remove(path)


def _paths(disk: Disk) -> list[str]:
    names = disk.names(layout.JOURNAL_DIRECTORY)
    return [f"{layout.JOURNAL_DIRECTORY}/{name}" for name in names]


def _entries(disk: Disk, path: str) -> Iterator[JournalEntry]:
    """Yield the entries of a file up to the first that is damaged or of another generation."""
    file = disk.open(path)
    position, end, generation = 0, file.size(), None
    while position + _ENTRY.size <= end:
        head = file.read(position, _ENTRY.size)
        crc, size, this, topic, index, offset = _ENTRY.unpack(head)
        start = position + _ENTRY.size
        if start + size > end or this != (generation or this):
            return
        if crc32c(file.read(start, size), crc32c(head[4:])) != crc:
            return
        generation = this
        yield JournalEntry(this, PartitionId(UUID(bytes=topic), index), offset, file, start, size)
        position = start + size
