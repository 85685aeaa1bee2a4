"""The real disk: the only module that opens files.

Files are raw descriptors, so that a write that returned is in the system and nothing of it
is buffered in this process. A descriptor is closed with the last reference to it: its `File`,
a sync in a worker thread, a range being sent. So its number is not reused, and no other file
is synced in its place, while one of them still needs it.

What takes long leaves the loop: `sync`, in one hop for any number of files, and `discard`,
because the system gives a large file's pages and blocks back before it returns. There are
a few workers, so that a long sync in the background does not hold up a short one in front.
Syncs of one or two files, of which there are as many as commits, need no worker where the kernel
does them by itself: see `kernel_sync`.

Only the broker's user may read the files: they hold messages and the verifiers of passwords.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
import resource
import shutil
import sys
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, NoReturn, TypeVar

from entrepot.core import limits
from entrepot.core.ports import Buffer, File, Space
from entrepot.log.kernel_sync import KernelSyncs

CHUNKS_PER_WRITE_MAX = 1024  # The system's IOV_MAX.
WORKERS = 3
_FILES_BY_KERNEL_MAX = 2  # More are cheaper with one hop to a thread.
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

T = TypeVar("T")

FILE_MODE, DIRECTORY_MODE = 0o600, 0o700
_OTHERS = 0o077  # The permission bits of group and others.

_OPEN = os.O_RDWR | os.O_CLOEXEC
_OPEN_TO_READ = os.O_RDONLY | os.O_CLOEXEC
_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

if sys.platform == "darwin":

    def _sync_descriptor(number: int) -> None:
        """Sync a file to the medium: on macOS fsync stops at the drive's cache, F_FULLFSYNC does
        not."""
        fcntl.fcntl(number, fcntl.F_FULLFSYNC)

else:
    _sync_descriptor = os.fdatasync


class _Descriptor:
    __slots__ = ("number",)

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self) -> None:
        with contextlib.suppress(OSError):  # Write errors are reported by sync.
            os.close(self.number)


class DiskFile:
    __slots__ = ("_descriptor", "_path")

    def __init__(self, path: str, descriptor: _Descriptor) -> None:
        self._path = path
        self._descriptor: _Descriptor | None = descriptor

    @property
    def path(self) -> str:
        return self._path

    def descriptor(self) -> _Descriptor:
        if self._descriptor is None:
            raise OSError(errno.EBADF, "file is closed", self._path)
        return self._descriptor

    def fileno(self) -> int:
        return self.descriptor().number

    def write(self, position: int, chunks: Sequence[Buffer]) -> int:
        return os.pwritev(self.descriptor().number, chunks[:CHUNKS_PER_WRITE_MAX], position)

    def read(self, position: int, size: int) -> bytes:
        number = self.fileno()
        data = os.pread(number, size, position)
        while 0 < len(data) < size:  # A read may fall short before the end of the file.
            more = os.pread(number, size - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def size(self) -> int:
        return os.fstat(self.fileno()).st_size

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fileno(), size)

    def close(self) -> None:
        self._descriptor = None


class _Task(NamedTuple):
    work: Callable[..., Any]
    arguments: tuple[object, ...]
    done: asyncio.Future[Any]


class _Worker(Thread):
    """A thread with a queue of its own: of several that wait at one queue, a put wakes two."""

    def __init__(self, finish: Callable[..., None]) -> None:
        super().__init__(name="disk", daemon=True)
        self.tasks: SimpleQueue[_Task | None] = SimpleQueue()
        self._finish = finish

    def run(self) -> None:
        while (task := self.tasks.get()) is not None:
            self._do(task)
            del task  # It holds descriptors.

    def _do(self, task: _Task) -> None:
        result, failure = None, None
        try:
            result = task.work(*task.arguments)
        except Exception as error:
            failure = error
        with contextlib.suppress(RuntimeError):  # The loop is closed: nobody waits.
            loop = task.done.get_loop()
            loop.call_soon_threadsafe(self._finish, self, task.done, result, failure)


class _Workers:
    """Threads that do what takes long.

    Each task costs one put into a queue and one call back to the loop. Every durable message waits
    for such a task, and the futures of an executor would cost much more.
    """

    def __init__(self) -> None:
        self._all: list[_Worker] = []
        self._idle: list[_Worker] = []  # The one that worked last is at the end, and used first.
        self._waiting: deque[_Task] = deque()  # Tasks, while no worker is idle.

    def run(self, work: Callable[..., T], *arguments: object) -> asyncio.Future[T]:
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        task = _Task(work, arguments, done)
        if self._idle:
            self._idle.pop().tasks.put(task)
        elif len(self._all) < WORKERS:
            worker = _Worker(self._finish)
            self._all.append(worker)
            worker.start()
            worker.tasks.put(task)
        else:
            self._waiting.append(task)
        return done

    def close(self) -> None:
        """Do the tasks that are left, and end the threads."""
        for task in self._waiting:
            self._all[0].tasks.put(task)
        self._waiting.clear()
        for worker in self._all:
            worker.tasks.put(None)
        for worker in self._all:
            worker.join()

    def _finish(
        self, worker: _Worker, done: asyncio.Future[Any], result: object, failure: Exception | None
    ) -> None:
        if self._waiting:
            worker.tasks.put(self._waiting.popleft())
        else:
            self._idle.append(worker)
        if done.cancelled():
            return
        if failure is None:
            done.set_result(result)
        else:
            done.set_exception(failure)


class FileDisk:
    """A tree of files below `root`, which is created when it is missing."""

    def __init__(self, root: str | os.PathLike[str], *, uses_kernel: bool = True) -> None:
        """With `uses_kernel` the kernel is asked for short syncs, where it offers that."""
        self._root = os.path.abspath(root)
        self._locks: list[_Descriptor] = []
        self._workers = _Workers()
        self._uses_kernel = uses_kernel
        self._kernel: KernelSyncs | None = None  # Opened for the first sync.
        # Directories whose sync failed, by full path.
        self._failed_directories: dict[str, OSError] = {}
        self._prepare()

    def _prepare(self) -> None:
        _make_permanent_directory(self._root, DIRECTORY_MODE)
        _close_to_others(self._root)

    @property
    def files_max(self) -> int:
        """Return a quarter of the descriptor limit: syncs need as many again, connections the
        rest."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft == resource.RLIM_INFINITY:
            return limits.FILES_OPEN_MAX
        return min(limits.FILES_OPEN_MAX, soft // 4)

    @property
    def boot(self) -> str:
        """Return Linux's id of this boot; empty on other systems."""
        try:
            with open(_BOOT_ID, encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        flags = _OPEN | os.O_CREAT if create else _OPEN
        return DiskFile(path, _Descriptor(os.open(self._full(path), flags, FILE_MODE)))

    def exists(self, path: str) -> bool:
        return os.path.exists(self._full(path))

    def names(self, directory: str) -> list[str]:
        try:
            return sorted(os.listdir(self._full(directory)))
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents. Nothing is synced."""
        full = self._full(path)
        if not os.path.isdir(full):
            parent = os.path.dirname(path)
            if not self.exists(parent):
                self.make_directory(parent)
            os.mkdir(full, DIRECTORY_MODE)

    def rename(self, old: str, new: str) -> None:
        os.replace(self._full(old), self._full(new))
        self._failed_directories.pop(self._full(old), None)

    def remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._full(path))

    def remove_directory(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(self._full(path))

    async def discard(self, paths: Sequence[str]) -> list[OSError | None]:
        return await self._workers.run(_discard_all, [self._full(path) for path in paths])

    async def sync(
        self, files: Sequence[File], directories: Sequence[str] = ()
    ) -> list[OSError | None]:
        targets: list[_Descriptor | OSError] = []
        for file in files:
            assert isinstance(file, DiskFile)
            try:
                targets.append(file.descriptor())
            except OSError as error:
                targets.append(error)
        if not directories and len(targets) <= _FILES_BY_KERNEL_MAX:
            return [await each for each in [*map(self._sync_one, targets)]]
        paths = [self._full(directory) for directory in directories]
        return await self._workers.run(self._sync_all, targets, paths)

    def _sync_one(self, target: _Descriptor | OSError) -> asyncio.Future[OSError | None]:
        """Start to sync a file. It goes on if the caller is cancelled."""
        done = None
        if self._uses_kernel and isinstance(target, _Descriptor):
            if self._kernel is None:
                try:
                    self._kernel = KernelSyncs()
                except OSError:
                    self._uses_kernel = False
            if self._kernel is not None:
                done = self._kernel.start(target)
        return done or self._workers.run(_sync_target, target)

    def _sync_all(
        self, targets: Sequence[_Descriptor | OSError], directories: Sequence[str]
    ) -> list[OSError | None]:
        """Sync everything, in a worker thread. It holds the descriptors, so that no number is
        reused."""
        answers = [*map(_sync_target, targets)]
        answers.extend(_failure(self._sync_names, directory) for directory in directories)
        return answers

    def _sync_names(self, directory: str) -> None:
        if directory in self._failed_directories:
            raise self._failed_directories[directory]
        try:
            _sync_directory(directory)
        except OSError as error:
            # With a filename, opening failed: nothing was synced, so it may be tried again.
            if error.filename is None:
                self._failed_directories[directory] = error
            raise

    async def space(self) -> Space:
        found = await self._workers.run(os.statvfs, self._root)
        return Space(found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize)

    def lock(self, path: str) -> None:
        descriptor = self.open(path, create=True).descriptor()
        fcntl.flock(descriptor.number, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._locks.append(descriptor)

    def close(self) -> None:
        """Wait for the tasks that are under way and release the locks. Open files stay open."""
        self._workers.close()
        if self._kernel is not None:
            self._kernel.close()
            self._kernel = None
        self._locks.clear()

    def _full(self, path: str) -> str:
        """Return the absolute path."""
        assert not path.startswith("/"), path
        return f"{self._root}/{path}" if path else self._root


class ReadOnlyDisk(FileDisk):
    """A tree that belongs to another process: nothing in it is created, changed or removed."""

    def __init__(self, root: str | os.PathLike[str]) -> None:
        if not os.path.isdir(root):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), os.fspath(root))
        super().__init__(root)

    def _prepare(self) -> None:
        """Leave the directory as it is."""

    def open(self, path: str, *, create: bool = False) -> DiskFile:
        if create:
            self._refuse(path)
        return DiskFile(path, _Descriptor(os.open(self._full(path), _OPEN_TO_READ)))

    def is_locked(self, path: str) -> bool:
        """Return whether another process holds that lock. Takes it for a moment if none does."""
        try:
            descriptor = self.open(path).descriptor()
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor.number, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False

    def make_directory(self, path: str) -> None:
        self._refuse(path)

    def rename(self, old: str, new: str) -> None:
        self._refuse(old)

    def remove(self, path: str) -> None:
        self._refuse(path)

    def remove_directory(self, path: str) -> None:
        self._refuse(path)

    async def discard(self, paths: Sequence[str]) -> list[OSError | None]:
        self._refuse(*paths)

    def lock(self, path: str) -> None:
        self._refuse(path)

    def _refuse(self, *paths: str) -> NoReturn:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), *paths[:1])


def _sync_target(target: _Descriptor | OSError) -> OSError | None:
    """Sync a file, in a worker thread. Return the error, if there is one."""
    return target if isinstance(target, OSError) else _failure(_sync_descriptor, target.number)


def _discard_all(paths: Sequence[str]) -> list[OSError | None]:
    return [_failure(_discard, path) for path in paths]


def _discard(path: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        if os.path.isdir(path):
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _failure(work: Callable[..., None], target: int | str) -> OSError | None:
    """Call `work` and return the OSError it raised, or None."""
    try:
        work(target)
    except OSError as error:
        return error
    return None


def _sync_directory(path: str) -> None:
    number = os.open(path, _OPEN_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _make_permanent_directory(path: str, mode: int = 0o777) -> None:
    """Create a directory and its parents, and sync each new name."""
    if not os.path.exists(path):
        parent = os.path.dirname(path)
        _make_permanent_directory(parent)
        os.mkdir(path, mode)
        _sync_directory(parent)
    elif not os.path.isdir(path):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)


def _close_to_others(root: str) -> None:
    """Take the permissions of group and others away, which earlier versions gave.

    Only the first start on old data walks the tree: the root is closed last, and what is created
    later is closed from the beginning.
    """
    if not os.stat(root).st_mode & _OTHERS:
        return
    for directory, _, names in os.walk(root, topdown=False):
        for name in names:
            _tighten(os.path.join(directory, name), FILE_MODE)
        _tighten(directory, DIRECTORY_MODE)


def _tighten(path: str, mode: int) -> None:
    with contextlib.suppress(FileNotFoundError, PermissionError):  # Owned by another user.
        if not os.path.islink(path) and os.stat(path).st_mode & _OTHERS:
            os.chmod(path, mode)
