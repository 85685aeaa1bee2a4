"""Files that a crash finds whole: replaced in one step, synced, held by one process."""

import fcntl
import os
from contextlib import ExitStack, suppress
from pathlib import Path

NEW = ".new"  # Ends the name of what is being written.


def write_whole(path: Path, data: bytes) -> None:
    """Whoever reads it sees all of it or what was there before, also after a power cut."""
    new = path.with_name(path.name + NEW)
    try:
        with new.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError:
        with suppress(OSError):
            new.unlink()
        raise
    _sync_directory(path.parent)


def lock_on(path: Path, held: ExitStack) -> None:
    """Hold this lock file as long as the rest. Raises BlockingIOError when it is held."""
    lock = held.enter_context(path.open("ab"))
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
