"""Everything that happens at a disk's door, written down, and the disk rebuilt from it.

A `Recorder` stands before a disk and notes each operation, in order, and between them what
the test has to say: which answers a client has got by then. `rebuilt` does the operations
again, up to any of them, and lets the power fail there.
"""

from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

from entrepot.core.ports import Buffer, Disk, File
from sim.disk import SimDisk, SimFile, SyncBegun


class Note(NamedTuple):
    """What the test says: not an operation."""

    event: tuple[object, ...]


class _Replay:
    """A disk on which recorded operations are done again."""

    def __init__(self, random: Random) -> None:
        self.disk = SimDisk(random)
        self.files: dict[int, SimFile] = {}  # By the number they were recorded with.
        self.syncs: dict[int, SyncBegun] = {}


Step = Note | Callable[[_Replay], object]


class RecordedFile:
    def __init__(self, recorder: "Recorder", inner: File, number: int) -> None:
        self._recorder = recorder
        self.inner = inner
        self.number = number

    @property
    def path(self) -> str:
        return self.inner.path

    def write(self, position: int, chunks: Sequence[Buffer]) -> int:
        written = self.inner.write(position, chunks)
        data, number = b"".join(chunks)[:written], self.number
        self._recorder.did(lambda replay: replay.files[number].write(position, [data]))
        return written

    def read(self, position: int, size: int) -> bytes:
        return self.inner.read(position, size)

    def size(self) -> int:
        return self.inner.size()

    def truncate(self, size: int) -> None:
        self.inner.truncate(size)
        number = self.number
        self._recorder.did(lambda replay: replay.files[number].truncate(size))

    def fileno(self) -> int | None:
        return self.inner.fileno()

    def close(self) -> None:
        self.inner.close()


class Recorder:
    """A disk that does what another does, and writes it down."""

    def __init__(self, inner: Disk) -> None:
        self._inner = inner
        self._numbers = 0  # Given to files and syncs so far.
        self.steps: list[Step] = []

    def note(self, *event: object) -> None:
        self.steps.append(Note(event))

    def did(self, step: Callable[[_Replay], object]) -> None:
        self.steps.append(step)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    @property
    def files_max(self) -> int:
        return self._inner.files_max

    @property
    def boot(self) -> str:
        return self._inner.boot

    def open(self, path: str, *, create: bool = False) -> RecordedFile:
        file, number = self._inner.open(path, create=create), self._number()

        def again(replay: _Replay) -> None:
            replay.files[number] = replay.disk.open(path, create=create)

        self.did(again)
        return RecordedFile(self, file, number)

    def exists(self, path: str) -> bool:
        return self._inner.exists(path)

    def names(self, directory: str) -> list[str]:
        return self._inner.names(directory)

    def make_directory(self, path: str) -> None:
        self._inner.make_directory(path)
        self.did(lambda replay: replay.disk.make_directory(path))

    def rename(self, old: str, new: str) -> None:
        self._inner.rename(old, new)
        self.did(lambda replay: replay.disk.rename(old, new))

    def remove(self, path: str) -> None:
        self._inner.remove(path)
        self.did(lambda replay: replay.disk.remove(path))

    def remove_directory(self, path: str) -> None:
        self._inner.remove_directory(path)
        self.did(lambda replay: replay.disk.remove_directory(path))

    async def discard(self, paths: Sequence[str]) -> list[OSError | None]:
        answers: list[OSError | None] = []
        for path in paths:
            answers += await self._inner.discard([path])
            self.did(lambda replay, path=path: _discard(replay.disk, path))  # type: ignore[misc]
        return answers

    async def sync(
        self, files: Sequence[File], directories: Sequence[str] = ()
    ) -> list[OSError | None]:
        """It covers what came before it began, and covers nothing before it has ended."""
        recorded = [file for file in files if isinstance(file, RecordedFile)]
        numbers, number = [file.number for file in recorded], self._number()

        def begin(replay: _Replay) -> None:
            synced = [replay.files[each] for each in numbers]
            replay.syncs[number] = replay.disk.begin_sync(synced, directories)

        self.did(begin)
        answers = await self._inner.sync([file.inner for file in recorded], directories)
        self.did(lambda replay: replay.disk.end_sync(replay.syncs.pop(number)))
        return answers

    def lock(self, path: str) -> None:
        self._inner.lock(path)
        self.did(lambda replay: replay.disk.open(path, create=True))


def _discard(disk: SimDisk, path: str) -> None:
    try:
        disk.remove(path)
    except IsADirectoryError:
        disk.remove_directory(path)


def rebuilt(steps: Sequence[Step], random: Random) -> SimDisk:
    """The disk as a power failure after these steps leaves it, its names in any order."""
    replay = _Replay(random)
    for step in steps:
        if not isinstance(step, Note):
            step(replay)
    return replay.disk.crash(order="none")


def notes(steps: Sequence[Step]) -> list[tuple[object, ...]]:
    return [step.event for step in steps if isinstance(step, Note)]
