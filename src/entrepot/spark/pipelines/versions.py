"""Where pipelines keep what they have made: one directory, a version for each rebuilding.

    DIR/<pipeline>/CURRENT             the number of the version that counts
    DIR/<pipeline>/<version>/table     the view, as a stream writes it
    DIR/<pipeline>/<version>/batch     what a batch run put beside it
    DIR/<pipeline>/<version>/checkpoint
    DIR/<pipeline>/<version>/version.json    columns, keys, which versions it reads
    DIR/<pipeline>/<version>/offsets.json    where a batch ended, and a stream goes on
    DIR/dead-letters/<topic>/<schema>/       the checkpoint of what sends poison away
    DIR/metrics.prom

A view is replaced by making another version beside it and renaming one small file, so
whoever reads CURRENT has the old one or the new one, whole. A stream lives in one version
for good: its checkpoint and its table fit together, and nothing else fits either.
"""

import contextlib
import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from entrepot.spark.errors import PipelineError

Description = dict[str, Any]


def write_whole(path: Path, data: bytes) -> None:
    """Write a file so that all of it or nothing is there afterwards, also after a power cut."""
    aside = path.with_name(path.name + ".new")
    with aside.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    _sync_directory(path.parent)


def _sync_directory(path: Path) -> None:
    number = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


@dataclass(frozen=True)
class Version:
    """One making of a view."""

    path: Path

    @property
    def number(self) -> int:
        return int(self.path.name)

    @property
    def table(self) -> Path:
        return self.path / "table"

    @property
    def batch(self) -> Path:
        return self.path / "batch"

    @property
    def staging(self) -> Path:
        """Return the directory for rows on their way into a table."""
        return self.path / "staging"

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def description(self) -> Description | None:
        return _read_json(self.path / "version.json")

    def describe(self, description: Description) -> None:
        write_whole(self.path / "version.json", json.dumps(description, indent=1).encode())

    @property
    def offsets(self) -> Description | None:
        return _read_json(self.path / "offsets.json")

    def keep_offsets(self, offsets: Description) -> None:
        write_whole(self.path / "offsets.json", json.dumps(offsets, indent=1).encode())


def _read_json(path: Path) -> Description | None:
    try:
        document: Description = json.loads(path.read_bytes())
    except FileNotFoundError:
        return None
    return document


class PipelineVersions:
    """The versions of one pipeline."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.name = path.name

    def current(self) -> Version | None:
        try:
            text = (self.path / "CURRENT").read_text()
        except FileNotFoundError:
            return None
        if not text.strip().isdecimal():
            raise PipelineError(f"{self.path}/CURRENT: {text[:20]!r} is not a version's number")
        return Version(self.path / text.strip())

    def swap(self, version: Version) -> None:
        """Make this version the current one; of the others only the last one stays."""
        before = self.current()
        write_whole(self.path / "CURRENT", f"{version.number}\n".encode())
        for each in self._versions():
            if each != version and each != before:
                shutil.rmtree(each.path)

    def new_version(self) -> Version:
        """Make a fresh version. Any later than the current was left by a rebuilding that failed."""
        current = self.current()
        number = 0 if current is None else current.number
        for each in self._versions():
            if each.number > number:
                shutil.rmtree(each.path)
        version = Version(self.path / str(number + 1))
        version.path.mkdir(parents=True)
        return version

    def _versions(self) -> list[Version]:
        if not self.path.exists():
            return []
        names = [each.name for each in self.path.iterdir() if each.name.isdecimal()]
        return [Version(self.path / name) for name in sorted(names, key=int)]


class Directory:
    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        if "%" in str(self.path):  # Delta would take it for a character in disguise.
            raise PipelineError(f"{self.path}: a directory with % in its name cannot be used")

    def place(self, pipeline: str) -> PipelineVersions:
        return PipelineVersions(self.path / pipeline)

    def dead_letters(self, topic: str, digest: str) -> Path:
        return self.path / "dead-letters" / topic / digest

    def find_table(self, name: str) -> PipelineVersions | None:
        """Return the pipeline, of any module, that wrote a table of this name; None if none did."""
        for path in sorted(self.path.glob("*/CURRENT")):
            place = PipelineVersions(path.parent)
            current = place.current()
            said = None if current is None else current.description
            if said is not None and said["table"] == name:
                return place
        return None


class Locks:
    """What only one process may do at a time. They end with the process, however it ends."""

    def __init__(self) -> None:
        self._held: list[BinaryIO] = []

    def take(self, path: Path) -> bool:
        """Take a lock; return whether it was free."""
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("ab")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return False
        self._held.append(file)
        return True

    def release(self) -> None:
        for file in self._held:
            file.close()
        self._held.clear()


@contextlib.contextmanager
def rebuilding(places: list[PipelineVersions]) -> Iterator[None]:
    """Keep others from making versions of these, for as long as it lasts."""
    locks = Locks()
    try:
        for place in places:
            if not locks.take(place.path / "REBUILD"):
                raise PipelineError(f"pipeline {place.name} is being rebuilt by another run")
        yield
    finally:
        locks.release()
