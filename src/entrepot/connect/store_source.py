"""Objects of a store into a topic, in the order of their names.

The position says, of each directory, which object is being read and how many of its
records were. What sorts after it in its directory is new; what sorts before it was read.
So names must grow within a directory, as dates and offsets do.
"""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from entrepot.connect.formats import Decoder, Misfit, cut, read_cells
from entrepot.connect.interface import Context, Polled, Position, Rejected, Source, SourceRecord
from entrepot.connect.parquet import read_rows
from entrepot.connect.stores import Store, StoreOptions, open_store


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSourceOptions(StoreOptions):
    format: Literal["lines", "json", "csv", "parquet", "raw"] = "json"
    names: str = "*"  # A pattern for the last part of a name.
    key: str | None = None

    def problem(self) -> str | None:
        if self.format in ("lines", "raw") and self.key is not None:
            return f"key: {self.format} has no fields"
        return self.place_problem()


class StoreSource(Source):
    Options: ClassVar[type[Any] | None] = StoreSourceOptions
    batch_records = 5_000
    poll_ms = 5_000

    def __init__(self, options: StoreSourceOptions, context: Context) -> None:
        super().__init__(options, context)
        self._store: Store
        self._store, self._prefix = open_store(options, context.name)
        # Per directory: an object, and how many of its records were read; None: all.
        self._read: dict[str, tuple[str, int | None]] = {}
        self._ahead: list[str] = []  # Names that are known to be new.
        self._current: Iterator[SourceRecord | Rejected] | None = None  # Of the first of them.

    async def open(self, position: Position | None) -> None:
        known = (position or {}).get("read", {})
        self._read = {directory: (name, count) for directory, (name, count) in known.items()}

    async def poll(self, count_max: int) -> Polled | None:
        found: list[SourceRecord | Rejected] = []
        if not self._ahead:
            names = await self._store.names(self._prefix)
            self._ahead = [name for name in names if self._is_new(name)]
        while self._ahead and len(found) < count_max:
            found += await self._take(count_max - len(found))
        return Polled(found, {"read": dict(self._read)}) if found else None

    async def close(self) -> None:
        await self._store.close()

    def _is_new(self, path: str) -> bool:
        directory, _, name = path.rpartition("/")
        if name.startswith(".") or not fnmatchcase(name, self.options.names):
            return False
        known = self._read.get(directory)
        if known is None or name > known[0]:
            return True
        return name == known[0] and known[1] is not None

    async def _take(self, count_max: int) -> list[SourceRecord | Rejected]:
        """Of the first object ahead; when it ends, it is not ahead any more."""
        path = self._ahead[0]
        directory, _, name = path.rpartition("/")
        known = self._read.get(directory)
        done = (known[1] or 0) if known is not None and known[0] == name else 0
        if self._current is None:
            data = await self._store.read(path)
            self._current = self._records(data, path, done)
        found = []
        for record in self._current:
            found.append(record)
            if len(found) == count_max:
                break
        else:
            self._current = None
            self._ahead.pop(0)
        self._read[directory] = (name, None if self._current is None else done + len(found))
        return found

    def _records(self, data: bytes, path: str, done: int) -> Iterator[SourceRecord | Rejected]:
        """From the record of that number on."""
        form = self.options.format
        if form == "parquet":
            try:
                yield from read_rows(io.BytesIO(data), done, key=self.options.key, where=path)
            except ValueError as error:
                if done == 0:  # Else it was said before.
                    yield Rejected(b"", path, f"not Parquet: {error}")
            return
        records: Iterator[SourceRecord | Rejected] = iter([SourceRecord(data)])
        if form != "raw":
            records = self._decoded(cut(form, data, is_final=True), path)
        for number, record in enumerate(records):
            if number >= done:
                yield record

    def _decoded(self, entries: Iterator[bytes], path: str) -> Iterator[SourceRecord | Rejected]:
        decoder = Decoder(self.options.format, key=self.options.key)
        if self.options.format == "csv":
            try:
                decoder.columns = tuple(read_cells(next(entries, b"").rstrip(b"\r\n")))
            except Misfit as error:
                yield Rejected(b"", path, f"its first row: {error}")
                return
        for number, entry in enumerate(entries):
            record = decoder.decode(entry, f"{path}, entry {number}")
            if record is not None:
                yield record
