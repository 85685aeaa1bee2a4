"""What every file of ours needs: a bounded number of them open, and whole writes.

A broker has many thousands of segments and few descriptors. Files are opened when
used and the one unused longest is let go; whoever still holds it (a fetch being
sent) keeps it open. Closing a file with unsynced bytes is fine: they are the
system's, and a sync through another descriptor covers them.
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
    """Open files and the indexes of sealed segments, the least recently used let go."""

    def __init__(self, disk: Disk, files_max: int) -> None:
        self.disk = disk
        self._files_max = files_max
        self._files: OrderedDict[str, File] = OrderedDict()
        self._indexes: OrderedDict[Segment, None] = OrderedDict()

    def get(self, path: str, *, create: bool = False) -> File:
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
        """Let the index of a sealed segment stay in memory, until others push it out."""
        self._indexes[segment] = None
        if len(self._indexes) > limits.INDEXES_CACHED_MAX:
            oldest, _ = self._indexes.popitem(last=False)
            if oldest.sealed:
                oldest.index = None

    def forget(self, path: str) -> None:
        """Before a rename or removal: the path will mean another file."""
        self._files.pop(path, None)

    def forget_below(self, directory: str) -> None:
        for path in [path for path in self._files if path.startswith(directory + "/")]:
            del self._files[path]


def write_all(file: File, position: int, chunks: Sequence[Buffer]) -> int:
    """Write everything, however often the system takes only a part. Returns the bytes."""
    total = sum(map(len, chunks))
    written = file.write(position, chunks)
    while written < total:
        written += file.write(position + written, _after(chunks, written))
    return total


def _after(chunks: Sequence[Buffer], skip: int) -> list[Buffer]:
    rest: list[Buffer] = []
    for chunk in chunks:
        if skip >= len(chunk):
            skip -= len(chunk)
            continue
        rest.append(memoryview(chunk)[skip:] if skip else chunk)
        skip = 0
    return rest


async def replace(disk: Disk, directory: str, name: str, payload: bytes) -> None:
    """Put a small checksummed file in place of the old one, or leave the old one.

    Temporary file, sync, rename, directory sync: after a crash one of the two is whole.
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
    """A payload with its checksum in front."""
    return [crc32c(payload).to_bytes(4, "big"), payload]


def load(disk: Disk, path: str) -> bytes | None:
    """What `seal` wrote; None when the file is missing or damaged."""
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
    """Do what takes many steps, some at a time so that nobody waits long."""
    while True:
        try:
            for _ in range(steps):
                next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        await asyncio.sleep(0)
