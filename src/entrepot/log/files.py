"""Open files, complete writes and atomic replacement: what all files of the log need.

A broker has many thousands of segments and few descriptors. Files are opened when they are
used, and the least recently used one is dropped; another reference to it (a fetch being sent)
keeps it open. Closing a file with unsynced bytes is fine: the system has them, and a sync
through another descriptor covers them.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeVar

from crc32c import crc32c

from entrepot.core import limits
from entrepot.core.ports import Buffer, Disk, File
from entrepot.core.steps import Steps
from entrepot.log.segment import Segment

T = TypeVar("T")

_STEPS_PER_SLICE = 500


class FilePool:
    """A cache of open files and of sealed segments' indexes. The least recently used are
    dropped."""

    def __init__(self, disk: Disk, files_max: int) -> None:
        self.disk = disk
        self._files_max = files_max
        self._files: OrderedDict[str, File] = OrderedDict()
        self._indexes: OrderedDict[Segment, None] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> File:
        """Return the open file with that path; open it if it is not in the pool."""
        file = self._files.get(path)
        if file is not None:
            self._files.move_to_end(path)
            return file
        file = self.disk.open(path, create=create)
        self._files[path] = file
        if len(self._files) > self._files_max:
            self._files.popitem(last=False)
        return file

    def keep_index(self, segment: Segment) -> None:
        """Keep the index of a sealed segment in memory until INDEXES_CACHED_MAX others were
        used."""
        self._indexes[segment] = None
        if len(self._indexes) > limits.INDEXES_CACHED_MAX:
            oldest, _ = self._indexes.popitem(last=False)
            if oldest.sealed:
                oldest.index = None

    def forget(self, path: str) -> None:
        """Drop a file from the pool before it is renamed or removed: its path will name another
        file."""
        self._files.pop(path, None)

    def forget_below(self, directory: str) -> None:
        """Drop all files in a directory from the pool."""
        for path in [path for path in self._files if path.startswith(directory + "/")]:
            del self._files[path]


def write_all(file: File, position: int, chunks: Sequence[Buffer]) -> int:
    """Write all chunks, with more calls when the system takes only a part. Return the size in
    bytes."""
    total = sum(map(len, chunks))
    written = file.write(position, chunks)
    while written < total:
        written += file.write(position + written, _after(chunks, written))
    return total


def _after(chunks: Sequence[Buffer], skip: int) -> list[Buffer]:
    """Return the chunks without their first `skip` bytes."""
    rest: list[Buffer] = []
    for chunk in chunks:
        if skip >= len(chunk):
            skip -= len(chunk)
            continue
        rest.append(memoryview(chunk)[skip:] if skip else chunk)
        skip = 0
    return rest


async def replace(disk: Disk, directory: str, name: str, payload: bytes) -> None:
    """Replace a small file atomically by one with this payload and its checksum.

    A temporary file is written, synced and renamed, and the directory synced: after a crash either
    the old or the new file is there, whole.
    """
    path = f"{directory}/{name}" if directory else name
    temporary = path + ".tmp"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    write_all(file, 0, seal(payload))
    for error in await disk.sync([file]):
        if error is not None:
            raise error
    file.close()
    disk.rename(temporary, path)
    for error in await disk.sync([], [directory]):
        if error is not None:
            raise error


def seal(payload: bytes) -> list[Buffer]:
    """Return the payload with its CRC32C in front."""
    return [crc32c(payload).to_bytes(4, "big"), payload]


def load(disk: Disk, path: str) -> bytes | None:
    """Return the payload of a file that `seal` made; None when it is missing or damaged."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return None
    data = file.read(0, file.size())
    file.close()
    if len(data) < 4 or int.from_bytes(data[:4], "big") != crc32c(memoryview(data)[4:]):
        return None
    return data[4:]


async def in_slices(work: Steps[T], steps: int = _STEPS_PER_SLICE) -> T:
    """Run work that has many steps; other tasks run after each `steps` of them."""
    while True:
        try:
            for _ in range(steps):
                next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)
