"""What a data directory tells about the broker that runs on it.

`endpoints.json` says where it listens and `server.pid` which process it is, from the
moment it is ready until it stops. A killed broker leaves them behind; its lock it
cannot leave behind. So the files count only while the lock is held, and a starting
broker removes them before it takes the lock for itself: what stands beside a held lock
is never an old one's.
"""

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from entrepot.log.layout import LOCK

ENDPOINTS = "endpoints.json"
PID = "server.pid"


@contextlib.contextmanager
def announced(directory: Path, endpoints: Mapping[str, tuple[str, int]]) -> Iterator[None]:
    """The files are there. To be left before the lock is, lest they be the next broker's."""
    document = {name: {"host": host, "port": port} for name, (host, port) in endpoints.items()}
    _write_whole(directory / PID, f"{os.getpid()}\n")
    _write_whole(directory / ENDPOINTS, json.dumps(document, indent=2) + "\n")
    try:
        yield
    finally:
        _remove_files(directory)


def remove_leftovers(directory: Path) -> None:
    with _free_lock(directory) as is_free:
        if is_free:
            _remove_files(directory)


def is_running(directory: Path) -> bool:
    with _free_lock(directory) as is_free:
        return not is_free


def process_id(directory: Path) -> int | None:
    """The broker's, when one is running and ready."""
    if not is_running(directory):
        return None
    try:
        return int((directory / PID).read_text())
    except (OSError, ValueError):
        return None


@contextlib.contextmanager
def _free_lock(directory: Path) -> Iterator[bool]:
    """Whether nobody holds the lock; nobody takes it meanwhile."""
    try:
        lock = (directory / LOCK).open("rb")
    except OSError:  # Most often: nobody was ever here.
        yield True
        return
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _write_whole(path: Path, text: str) -> None:
    """Whoever reads it sees all of it or nothing."""
    temporary = path.with_name(path.name + ".new")
    temporary.touch(0o600)  # As all that is in the directory.
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def _remove_files(directory: Path) -> None:
    for name in (ENDPOINTS, PID):
        with contextlib.suppress(OSError):
            (directory / name).unlink()
