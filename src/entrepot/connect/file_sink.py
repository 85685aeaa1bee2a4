"""Records to the end of one file, exactly once.

Beside the file is another, `<path>.offsets`, that says how long the file is and which
offsets it holds. Both are synced, first the data, then the offsets, which are replaced in
one step. What a crash left behind the recorded length is cut off when the file is opened
again. The second file is locked, so no two processes write.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, ClassVar, Literal

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.connect.disk import lock_on, write_whole
from entrepot.connect.formats import Encoder, Misfit
from entrepot.connect.interface import ConnectError, Context, Sink, Unavailable
from entrepot.connect.threads import OneThread


@dataclass(frozen=True, slots=True)
class FileSinkOptions:
    path: str
    format: Literal["lines", "json", "csv"] = "lines"
    columns: tuple[str, ...] = ()  # Of a CSV file.

    def problem(self) -> str | None:
        if (self.format == "csv") != bool(self.columns):
            return 'columns: the names of the columns, with format = "csv" and not without'
        return None


class FileSink(Sink):
    Options: ClassVar[type[Any] | None] = FileSinkOptions

    def __init__(self, options: FileSinkOptions, context: Context) -> None:
        super().__init__(options, context)
        self._encoder = Encoder(options.format, columns=options.columns)
        self._thread = OneThread(context.name)
        self._path = Path(options.path)
        self._offsets_path = Path(options.path + ".offsets")
        self._held = ExitStack()
        self._file: IO[bytes] | None = None
        self._offsets: dict[TopicPartition, int] = {}
        self._size = 0  # Of what is recorded; the file may be longer after a failed write.

    async def open(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return await self._thread.run(self._open)

    async def write(self, messages: Sequence[Message]) -> None:
        entries, offsets = [], dict(self._offsets)
        for message in messages:
            try:
                entries.append(self._encoder.encode(message.record.value))
            except Misfit as error:
                await self.context.reject(message, str(error))
            offsets[message.part] = message.record.offset + 1
        await self._thread.run(self._append, b"".join(entries), offsets)

    async def close(self) -> None:
        await self._thread.run(self._held.close)
        self._thread.close()

    def _open(self) -> Mapping[TopicPartition, int]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            lock_on(Path(f"{self._offsets_path}.lock"), self._held)
            self._read_offsets()
            self._path.touch()
            file = self._file = self._held.enter_context(self._path.open("r+b"))
            size = os.fstat(file.fileno()).st_size
        except BlockingIOError:
            raise ConnectError(f"{self._path}: another process writes to it") from None
        except OSError as error:
            raise Unavailable(f"{error.filename}: {error.strerror}") from None
        if size < self._size:
            raise ConnectError(
                f"{self._path} has {size} bytes, but {self._size} were written; "
                f"remove {self._offsets_path} to write all records anew"
            )
        file.truncate(self._size)
        return self._offsets

    def _read_offsets(self) -> None:
        if not self._offsets_path.exists():
            if self._path.exists() and self._path.stat().st_size:
                raise ConnectError(f"{self._path}: there is a file already that is not ours")
            self._write_offsets(0, {})  # From now on it is.
            return
        try:
            document = json.loads(self._offsets_path.read_bytes())
            self._size = int(document["size"])
            self._offsets = {
                TopicPartition(topic, int(partition)): int(offset)
                for topic, partition, offset in document["offsets"]
            }
        except (ValueError, KeyError, TypeError):
            raise ConnectError(f"{self._offsets_path} is damaged") from None

    def _append(self, data: bytes, offsets: dict[TopicPartition, int]) -> None:
        assert self._file is not None
        if self._size == 0:
            data = self._encoder.head + data
        try:
            self._file.seek(self._size)
            self._file.write(data)
            self._file.truncate()
            self._file.flush()
            os.fsync(self._file.fileno())
            self._write_offsets(self._size + len(data), offsets)
        except OSError as error:
            raise Unavailable(f"{self._path}: {error.strerror}") from None
        self._size, self._offsets = self._size + len(data), offsets

    def _write_offsets(self, size: int, offsets: dict[TopicPartition, int]) -> None:
        document = {"size": size, "offsets": [[*part, next_] for part, next_ in offsets.items()]}
        write_whole(self._offsets_path, json.dumps(document).encode())
