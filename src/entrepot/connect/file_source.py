"""Files into a topic: each line, row or object a record.

`path` is a file or a pattern; its files are read one after the other. A file is known by
its device and inode and by how it begins, so a renamed file is the same one and a new one
of the same name is not. The position says of each file how far it was read.

Without `tail` files come by name. Each is whole when it appears (move it there, do not
write it there) and is not looked at again when its end was reached. With `tail` files
grow: a line counts when it has an end. A file that was moved away (rotated) is read to its
end under its new name, if it is still in that directory; one that was moved away before it
was ever seen is read only if the pattern matches its new name, too. One that shrank, or
begins otherwise than before, begins anew.
"""

import contextlib
import logging
import os
import zlib
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from glob import glob
from pathlib import Path
from typing import Any, BinaryIO, ClassVar, Literal

from entrepot.connect.formats import Decoder, Misfit, cut, read_cells
from entrepot.connect.interface import (
    ConnectError,
    Context,
    Polled,
    Position,
    Rejected,
    Source,
    SourceRecord,
    Unavailable,
)
from entrepot.connect.parquet import read_rows
from entrepot.connect.threads import OneThread
from entrepot.core.limits import KIB, MIB

FILES_MAX = 2_000  # What a pattern may match: the position, one record, names each of them.
CHUNK_BYTES = 256 * KIB
POLL_BYTES = 4 * MIB  # What is read of one file at once, about.
MISSED_MAX = 10
ENTRY_BYTES_MAX = 16 * MIB
HEAD_BYTES = 256  # Of a file's beginning, to know it by.

log = logging.getLogger("entrepot.connect")


@dataclass(frozen=True, slots=True)
class FileSourceOptions:
    path: str
    format: Literal["lines", "json", "csv", "parquet"] = "lines"
    tail: bool = False
    key: str | None = None  # The field that becomes the record's key.
    header: bool = True  # Whether a CSV file's first row names its columns.
    columns: tuple[str, ...] = ()  # Their names, where it does not.

    def problem(self) -> str | None:
        if self.format == "lines" and self.key is not None:
            return "key: lines have no fields"
        if self.format == "csv" and self.header == bool(self.columns):
            return "columns: the names of the columns, with header = false and not without"
        if self.format == "parquet" and self.tail:
            return "tail: a Parquet file does not grow"
        return None


@dataclass(slots=True)
class _Place:
    """How far one file was read."""

    path: str
    position: int = 0  # In bytes; of a Parquet file, in rows.
    head_size: int = 0  # So many of its first bytes have
    head_crc: int = 0  # this checksum.
    is_done: bool = False  # Its end was reached; only without `tail`.

    def is_of(self, file: BinaryIO) -> bool:
        """Whether the file begins as ours did: an inode may be another file's by now."""
        file.seek(0)
        head = file.read(self.head_size)
        return len(head) == self.head_size and zlib.crc32(head) == self.head_crc


class FileSource(Source):
    Options: ClassVar[type[Any] | None] = FileSourceOptions
    batch_records = 5_000

    def __init__(self, options: FileSourceOptions, context: Context) -> None:
        super().__init__(options, context)
        self._thread = OneThread(context.name)
        self._places: dict[str, _Place] = {}  # By device and inode.
        self._missed: dict[str, int] = {}  # How often in succession a file was not there.

    async def open(self, position: Position | None) -> None:
        known = (position or {}).get("files", {})
        self._places = {identity: _Place(**place) for identity, place in known.items()}
        if not await self._thread.run(glob, self.options.path, recursive=True):
            log.warning("no file yet", extra={"path": self.options.path})

    async def poll(self, count_max: int) -> Polled | None:
        return await self._thread.run(self._poll, count_max)

    async def close(self) -> None:
        self._thread.close()

    def _poll(self, count_max: int) -> Polled | None:
        found: list[SourceRecord | Rejected] = []
        try:
            for path, identity in self._files():
                found += self._read(path, identity, count_max - len(found))
                if len(found) >= count_max:
                    break
        except OSError as error:
            raise Unavailable(f"{error.filename}: {error.strerror}") from None
        if not found:
            return None
        return Polled(found, {"files": {name: asdict(at) for name, at in self._places.items()}})

    # --- which files

    def _files(self) -> list[tuple[str, str]]:
        """Paths with their identities, in the order in which they are read."""
        named: dict[str, str] = {}
        for path in sorted(glob(self.options.path, recursive=True)):
            with contextlib.suppress(FileNotFoundError):
                if os.path.isfile(path):
                    named[_identity(path)] = path
        if len(named) > FILES_MAX:
            raise ConnectError(f"{self.options.path} matches more than {FILES_MAX} files")
        moved = self._moved(named)
        self._forget([name for name in self._places if name not in named | moved])
        files = [(path, identity) for identity, path in (moved | named).items()]
        if self.options.tail:
            files.sort(key=self._last_change)
        return files

    def _forget(self, missing: list[str]) -> None:
        """A directory that is looked at while a file is renamed may show neither name. So a
        file is gone when it was missed often."""
        self._missed = {identity: self._missed.get(identity, 0) + 1 for identity in missing}
        for identity, times in self._missed.items():
            if times >= MISSED_MAX:
                place = self._places.pop(identity)
                log.info("file is gone", extra={"path": place.path, "position": place.position})

    def _last_change(self, file: tuple[str, str]) -> tuple[int, bool, str]:
        """Growing files come in the order of their last change: one that was rotated away is
        finished before its successor, and one that never rests does not hold up the others."""
        path, identity = file
        with contextlib.suppress(FileNotFoundError):
            return os.stat(path).st_mtime_ns, identity not in self._places, path
        return 0, False, path

    def _moved(self, named: dict[str, str]) -> dict[str, str]:
        """Files we know that have another name by now, in the same directory."""
        gone = {
            identity: place.path
            for identity, place in self._places.items()
            if identity not in named and not place.is_done
        }
        found: dict[str, str] = {}
        for directory in dict.fromkeys(os.path.dirname(path) or "." for path in gone.values()):
            with contextlib.suppress(OSError):
                for name in sorted(os.listdir(directory)):
                    path = os.path.join(directory, name)
                    with contextlib.suppress(OSError):
                        identity = _identity(path)
                        if identity in gone and self._is_known(path, identity):
                            found[identity] = path
        return found

    def _is_known(self, path: str, identity: str) -> bool:
        with Path(path).open("rb") as file:
            return self._places[identity].is_of(file)

    def _place(self, path: str, identity: str, file: BinaryIO) -> _Place:
        """Where to go on in it; at 0, when it is not the file that we know."""
        place = self._places.get(identity)
        size = os.fstat(file.fileno()).st_size
        if place is not None:
            is_shorter = self.options.format != "parquet" and size < place.position
            if is_shorter or not place.is_of(file):
                log.info("file begins anew", extra={"path": path, "position": place.position})
                place = None
        if place is None:
            place = _Place(path)
        place.path = path
        if place.head_size < HEAD_BYTES:
            file.seek(0)
            head = file.read(HEAD_BYTES)
            place.head_size, place.head_crc = len(head), zlib.crc32(head)
        self._places[identity] = place
        return place

    # --- what is in them

    def _read(self, path: str, identity: str, count_max: int) -> list[SourceRecord | Rejected]:
        known = self._places.get(identity)
        if known is not None and known.is_done:
            return []
        with contextlib.suppress(FileNotFoundError), Path(path).open("rb") as file:
            if _identity(file.fileno()) == identity:
                place = self._place(path, identity, file)
                read = self._read_parquet if self.options.format == "parquet" else self._read_text
                return read(file, place, count_max)
        return []  # It was moved away a moment ago. The next look will show.

    def _read_parquet(
        self, file: BinaryIO, place: _Place, count_max: int
    ) -> list[SourceRecord | Rejected]:
        found: list[SourceRecord | Rejected] = []
        try:
            rows = read_rows(file, place.position, key=self.options.key, where=place.path)
            for record in rows:
                found.append(record)
                if len(found) == count_max:
                    break
        except ValueError as error:  # Arrow's errors are such.
            place.is_done = True
            return [*found, Rejected(b"", place.path, f"not Parquet: {error}")]
        place.position += len(found)
        place.is_done = len(found) < count_max
        return found

    def _read_text(
        self, file: BinaryIO, place: _Place, count_max: int
    ) -> list[SourceRecord | Rejected]:
        decoder = Decoder(self.options.format, key=self.options.key, columns=self.options.columns)
        if self.options.format == "csv" and self.options.header:
            decoder.columns = self._header(file, place)
            if not decoder.columns:
                return []
        found: list[SourceRecord | Rejected] = []
        position_end = place.position + POLL_BYTES
        while len(found) < count_max and place.position < position_end:
            entries = self._entries(file, place)
            for entry in entries:
                record = decoder.decode(entry, f"{place.path}, byte {place.position}")
                place.position += len(entry)
                if record is not None:
                    found.append(record)
                    if len(found) == count_max:
                        return found
            if not entries:
                place.is_done = not self.options.tail
                break
        return found

    def _entries(self, file: BinaryIO, place: _Place) -> list[bytes]:
        """The next whole ones; none at the end."""
        size = CHUNK_BYTES
        while True:
            file.seek(place.position)
            data = file.read(size)
            is_end = len(data) < size
            final = is_end and not self.options.tail
            entries = list(cut(self.options.format, data, is_final=final))
            if entries or is_end:
                return entries
            if size >= ENTRY_BYTES_MAX:
                raise ConnectError(
                    f"{place.path}, byte {place.position}: more than {ENTRY_BYTES_MAX} bytes "
                    "without a line end"
                )
            size *= 2

    def _header(self, file: BinaryIO, place: _Place) -> tuple[str, ...]:
        """A CSV file's first row, which is passed over; nothing when it is not there yet."""
        file.seek(0)
        entries: Iterator[bytes] = cut(
            "csv", file.read(CHUNK_BYTES), is_final=not self.options.tail
        )
        first = next(entries, None)
        if first is None:
            return ()
        place.position = max(place.position, len(first))
        try:
            return tuple(read_cells(first.removesuffix(b"\n").removesuffix(b"\r")))
        except Misfit as error:
            raise ConnectError(f"{place.path}, its first row: {error}") from None


def _identity(file: str | int) -> str:
    """By path or descriptor."""
    status = os.stat(file)
    return f"{status.st_dev}:{status.st_ino}"
