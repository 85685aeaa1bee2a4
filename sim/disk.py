"""A disk that loses and tears what was not synced, and fails on request.

`platter` says what is lost. This is the door to it, with its errors: those asked for by
`fail_next`, and those a disk has of itself (short writes, no room).

After a failed sync the system takes the pages for clean: some of what it covered is on the
platter, the rest never will be, and the error is reported once. A sync without an error
after one with an error therefore means nothing, and here it does nothing.

Names are another matter: a filesystem has a journal of them, in order, so a sync that succeeds
covers all before it. Here it does so from the next process on. In the same process it does
nothing, for nobody should try again.
"""

import asyncio
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from random import Random
from typing import Literal, NamedTuple

from entrepot.core import limits
from entrepot.core.ports import Buffer, File, Space
from sim.platter import Directory, Edit, FileNode, Order, Resize, Tree, Write, size_of

CHUNKS_PER_WRITE_MAX = 1024  # As in the real system, so that callers must loop.

Operation = Literal[
    "open", "read", "write", "truncate", "sync", "make_directory", "rename", "remove"
]


@dataclass(slots=True)
class _Fault:
    operation: Operation
    error: int
    pattern: str
    count: int


@dataclass(slots=True)
class Habits:
    """How a disk behaves when nothing is asked of it. May be changed at any time."""

    sync_seconds_min: float = 0.0005
    sync_seconds_max: float = 0.010
    short_write_chance: float = 0.0
    capacity_bytes: int | None = None  # Of all files together, by their size.
    sync_is_noop: bool = False  # A disk that lies. Whoever trusts it must be found out.


class SyncBegun(NamedTuple):
    """What a sync will cover when it ends: what was written before it began."""

    files: list[tuple[str, FileNode | OSError, int]]  # Path, file, mark.
    directories: Sequence[str]
    mark: int  # Of the names.


class SimFile:
    def __init__(self, disk: "SimDisk", path: str, node: FileNode) -> None:
        self._disk = disk
        self._path = path
        self._node: FileNode | None = node

    @property
    def path(self) -> str:
        return self._path

    def node(self) -> FileNode:
        self._disk.check_mounted()
        if self._node is None:
            raise OSError(errno.EBADF, "file is closed", self._path)
        return self._node

    def write(self, position: int, chunks: Sequence[Buffer]) -> int:
        node = self.node()
        data = b"".join(chunks[:CHUNKS_PER_WRITE_MAX])
        size = self._disk.admit(self._path, len(node.content), position, len(data))
        if size:
            node.change(Write(position, data[:size]))
        return size

    def read(self, position: int, size: int) -> bytes:
        node = self.node()
        self._disk.fail("read", self._path)
        return bytes(memoryview(node.content)[position : position + size])

    def size(self) -> int:
        return len(self.node().content)

    def truncate(self, size: int) -> None:
        node = self.node()
        self._disk.fail("truncate", self._path)
        node.change(Resize(size))

    def fileno(self) -> None:
        self.node()

    def close(self) -> None:
        self._node = None


class SimDisk:
    """What one process has of a disk. `kill` and `crash` end it and return the next one's."""

    def __init__(self, random: Random, habits: Habits | None = None) -> None:
        self.habits = habits or Habits()
        self._random = random
        self._tree = Tree(Directory())
        self._faults: list[_Fault] = []
        self._locks: list[str] = []
        self._failed_directories: dict[Directory, OSError] = {}  # By a sync, in this process.
        self._is_mounted = True
        self._boots = 1

    @property
    def boot(self) -> str:
        return str(self._boots)

    @property
    def files_max(self) -> int:
        return limits.FILES_OPEN_MAX

    def kill(self) -> "SimDisk":
        """The process is gone, the machine is not: what was written is there, synced or not."""
        return self._next(self._tree)

    def crash(self, order: Order | None = None) -> "SimDisk":
        """The power failed: what was synced is there, of the rest whatever chance left.

        With an order, names are lost in that one; else in one that chance says."""
        disk = self._next(self._tree.after_power_loss(self._random, order))
        disk._boots += 1
        return disk

    def fail_next(
        self, operation: Operation, error: int, pattern: str = "*", count: int = 1
    ) -> None:
        """The next operations of this kind on paths like this one fail with this errno."""
        self._faults.append(_Fault(operation, error, pattern, count))

    def open(self, path: str, *, create: bool = False) -> SimFile:
        self.fail("open", path)
        directory, name = self._parent(path)
        node = directory.names.get(name)
        if isinstance(node, Directory):
            raise _error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise _error(errno.ENOENT, path)
            node = FileNode()
            self._tree.change(Edit(directory, name, node))
        return SimFile(self, path, node)

    def exists(self, path: str) -> bool:
        try:
            return self._find(path) is not None
        except (FileNotFoundError, NotADirectoryError):
            return False

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(self._directory(directory).names)
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        self.fail("make_directory", path)
        parents = path.split("/")
        for depth in range(1, len(parents) + 1):
            directory, name = self._parent("/".join(parents[:depth]))
            node = directory.names.get(name)
            if isinstance(node, FileNode):
                raise _error(errno.EEXIST if depth == len(parents) else errno.ENOTDIR, path)
            if node is None:
                self._tree.change(Edit(directory, name, Directory()))

    def rename(self, old: str, new: str) -> None:
        self.fail("rename", old)
        old_directory, old_name = self._parent(old)
        new_directory, new_name = self._parent(new)
        node = old_directory.names.get(old_name)
        if node is None:
            raise _error(errno.ENOENT, old)
        if isinstance(new_directory.names.get(new_name), Directory):
            raise _error(errno.EISDIR, new)
        if (old_directory, old_name) != (new_directory, new_name):
            self._tree.change(
                Edit(old_directory, old_name, None), Edit(new_directory, new_name, node)
            )

    def remove(self, path: str) -> None:
        self.fail("remove", path)
        if not self.exists(path):
            return
        directory, name = self._parent(path)
        if isinstance(directory.names[name], Directory):
            raise _error(errno.EISDIR, path)
        self._tree.change(Edit(directory, name, None))

    def remove_directory(self, path: str) -> None:
        """Name after name, as the real one: a crash may find some of them."""
        self.fail("remove", path)
        if not self.exists(path):
            return
        for name in self.names(path):
            child = f"{path}/{name}"
            if isinstance(self._find(child), Directory):
                self.remove_directory(child)
            else:
                self.remove(child)
        directory, name = self._parent(path)
        self._tree.change(Edit(directory, name, None))

    async def discard(self, paths: Sequence[str]) -> list[OSError | None]:
        answers: list[OSError | None] = []
        for path in paths:
            await self._pass_time()
            try:
                is_directory = self.exists(path) and isinstance(self._find(path), Directory)
                (self.remove_directory if is_directory else self.remove)(path)
                answers.append(None)
            except OSError as error:
                self.check_mounted()
                answers.append(error)
        return answers

    async def sync(
        self, files: Sequence[File], directories: Sequence[str] = ()
    ) -> list[OSError | None]:
        begun = self.begin_sync(files, directories)
        await self._pass_time()
        return self.end_sync(begun)

    def begin_sync(self, files: Sequence[File], directories: Sequence[str]) -> SyncBegun:
        """The first half of a sync, for who keeps the time."""
        self.check_mounted()
        marked: list[tuple[str, FileNode | OSError, int]] = []
        for file in files:
            node = _node_or_error(file)
            marked.append((file.path, node, node.mark() if isinstance(node, FileNode) else 0))
        return SyncBegun(marked, directories, self._tree.mark())

    def end_sync(self, begun: SyncBegun) -> list[OSError | None]:
        answers = [
            node if isinstance(node, OSError) else self._sync_file(node, path, mark)
            for path, node, mark in begun.files
        ]
        return answers + [self._sync_directory(path, begun.mark) for path in begun.directories]

    async def _pass_time(self) -> None:
        habits = self.habits
        await asyncio.sleep(self._random.uniform(habits.sync_seconds_min, habits.sync_seconds_max))
        self.check_mounted()

    async def space(self) -> Space:
        self.check_mounted()
        size = self.habits.capacity_bytes
        if size is None:
            size = limits.GIB + size_of(self._tree.root)
        return Space(max(0, size - size_of(self._tree.root)), size)

    def lock(self, path: str) -> None:
        self.open(path, create=True)
        if path in self._locks:
            raise _error(errno.EWOULDBLOCK, path)
        self._locks.append(path)

    # For `SimFile`.

    def check_mounted(self) -> None:
        if not self._is_mounted:
            raise OSError(errno.ESTALE, "the process that had this disk is gone")

    def fail(self, operation: Operation, path: str) -> None:
        self.check_mounted()
        for fault in self._faults:
            if fault.operation == operation and fnmatchcase(path, fault.pattern):
                fault.count -= 1
                if not fault.count:
                    self._faults.remove(fault)
                raise _error(fault.error, path)

    def admit(self, path: str, file_size: int, position: int, size: int) -> int:
        """How many bytes of a write go in."""
        self.fail("write", path)
        if size > 1 and self._random.random() < self.habits.short_write_chance:
            size = self._random.randrange(1, size)
        if self.habits.capacity_bytes is not None:
            room = self.habits.capacity_bytes - size_of(self._tree.root)
            end = min(position + size, max(file_size + room, file_size))
            if size and end <= position:
                raise _error(errno.ENOSPC, path)
            size = end - position
        return size

    def _sync_file(self, node: FileNode, path: str, mark: int) -> OSError | None:
        try:
            self.fail("sync", path)
        except OSError as error:
            node.settle(mark, self._random)
            return error
        if not self.habits.sync_is_noop:
            node.settle(mark)
        return None

    def _sync_directory(self, path: str, mark: int) -> OSError | None:
        try:
            directory = self._directory(path)
        except OSError as error:
            return error
        if directory in self._failed_directories:
            return self._failed_directories[directory]
        try:
            self.fail("sync", path)
        except OSError as error:
            self._failed_directories[directory] = error
            return error
        if not self.habits.sync_is_noop:
            self._tree.settle(directory, mark)
        return None

    def _next(self, tree: Tree) -> "SimDisk":
        self.check_mounted()
        self._is_mounted = False
        disk = SimDisk(self._random, self.habits)
        disk._tree = tree
        disk._boots = self._boots
        return disk

    def _find(self, path: str) -> FileNode | Directory | None:
        self.check_mounted()
        if not path:
            return self._tree.root
        directory, name = self._parent(path)
        return directory.names.get(name)

    def _parent(self, path: str) -> tuple[Directory, str]:
        assert path
        assert not path.startswith("/"), path
        self.check_mounted()
        *parents, name = path.split("/")
        directory = self._tree.root
        for parent in parents:
            node = directory.names.get(parent)
            if node is None:
                raise _error(errno.ENOENT, path)
            if not isinstance(node, Directory):
                raise _error(errno.ENOTDIR, path)
            directory = node
        return directory, name

    def _directory(self, path: str) -> Directory:
        node = self._find(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise _error(errno.ENOTDIR, path)
        return node


def _node_or_error(file: File) -> FileNode | OSError:
    assert isinstance(file, SimFile)
    try:
        return file.node()
    except OSError as error:
        return error


def _error(number: int, path: str) -> OSError:
    return OSError(number, os.strerror(number), path)
