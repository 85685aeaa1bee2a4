"""Records into objects, each written whole and named by what it holds, exactly once.

    <prefix><topic>/<partition>/<first offset>-<last offset>.jsonl

The names are the memory: the next record of a partition is the one after the last offset
of its last name. So there is nothing beside the objects that could disagree with them.
One process may write at a time; a directory is locked for it, of a bucket it is trusted.
"""

import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.connect.disk import lock_on
from entrepot.connect.formats import Encoder, Misfit, read_object
from entrepot.connect.interface import ConnectError, Context, Sink, Unavailable
from entrepot.connect.parquet import ParquetEncoder
from entrepot.connect.stores import Store, StoreOptions, open_store

SUFFIXES = {"lines": ".txt", "json": ".jsonl", "csv": ".csv", "parquet": ".parquet", "raw": ".bin"}
_RANGE = re.compile(r"(\d{20})-(\d{20})\.\w+")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSinkOptions(StoreOptions):
    format: Literal["lines", "json", "csv", "parquet", "raw"] = "json"
    columns: tuple[str, ...] | dict[str, str] = ()  # Of CSV the names, of Parquet types, too.

    def problem(self) -> str | None:
        wanted = {"csv": tuple, "parquet": dict}.get(self.format)
        if wanted is None and self.columns:
            return "columns: only CSV and Parquet have such"
        if wanted is not None and not (self.columns and isinstance(self.columns, wanted)):
            return 'columns: as in ["id", "name"] for CSV, {id = "int64"} for Parquet'
        return self.place_problem()


class StoreSink(Sink):
    Options: ClassVar[type[Any] | None] = StoreSinkOptions
    batch_records = 10_000
    batch_wait_ms = 10_000

    def __init__(self, options: StoreSinkOptions, context: Context) -> None:
        super().__init__(options, context)
        self._store: Store
        self._store, self._prefix = open_store(options, context.name)
        self._held = ExitStack()
        self._parquet: ParquetEncoder | None = None
        self._text: Encoder | None = None
        if isinstance(options.columns, dict):
            self._parquet = ParquetEncoder(options.columns)
        elif options.format != "raw" and options.format != "parquet":
            self._text = Encoder(options.format, columns=tuple(options.columns))

    async def open(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        self._take_lock()
        kept = {}
        for part in parts:
            names = await self._store.names(self._directory(part))
            found = [_RANGE.fullmatch(name.rpartition("/")[2]) for name in names]
            ends = [int(match[2]) + 1 for match in found if match is not None]
            if ends:
                kept[part] = max(ends)
        return kept

    async def write(self, messages: Sequence[Message]) -> None:
        by_part: dict[TopicPartition, list[Message]] = {}
        for message in messages:
            by_part.setdefault(message.part, []).append(message)
        for part, run in by_part.items():
            if self.options.format == "raw":
                for message in run:
                    await self._put(part, [message], message.record.value or b"")
            else:
                await self._put(part, run, await self._encode(run))

    async def close(self) -> None:
        await self._store.close()
        self._held.close()

    async def _encode(self, run: Sequence[Message]) -> bytes:
        if self._text is None:
            return await self._encode_rows(run)
        entries = [self._text.head]
        for message in run:
            try:
                entries.append(self._text.encode(message.record.value))
            except Misfit as error:
                await self.context.reject(message, str(error))
        return b"".join(entries)

    async def _encode_rows(self, run: Sequence[Message]) -> bytes:
        parquet = self._parquet
        assert parquet is not None
        rows = []
        for message in run:
            if message.record.value is None:
                continue
            try:
                row = read_object(message.record.value)
                parquet.check(row)
                rows.append(row)
            except Misfit as error:
                await self.context.reject(message, str(error))
        return parquet.encode(rows)

    async def _put(self, part: TopicPartition, run: Sequence[Message], data: bytes) -> None:
        """Also when all of it was rejected: the name says how far we are."""
        first, last = run[0].record.offset, run[-1].record.offset
        suffix = SUFFIXES[self.options.format]
        await self._store.write(f"{self._directory(part)}{first:020}-{last:020}{suffix}", data)

    def _directory(self, part: TopicPartition) -> str:
        return f"{self._prefix}{part.topic}/{part.partition}/"

    def _take_lock(self) -> None:
        if self.options.path is None:
            return
        root = Path(self.options.path)
        try:
            root.mkdir(parents=True, exist_ok=True)
            lock_on(root / f".{self.context.name}.lock", self._held)
        except BlockingIOError:
            raise ConnectError(
                f"{root}: connector {self.context.name} runs in another process"
            ) from None
        except OSError as error:
            raise Unavailable(f"{root}: {error.strerror}") from None
