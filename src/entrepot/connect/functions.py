"""Functions of your own as connectors.

A sink's is called with a list of records and returns when it is done with them. If it
raises, it is called with each of them by itself, and those for which it raises again are
rejected; `Unavailable` instead has the batch tried again later. So it may see a record more
than once: at least once is what a function can be promised.

A source's is called with the position to go on from, None at first, and yields pairs of a
value and the position after it. When it ends, it is called again after a pause. A value is
bytes, text, a SourceRecord, or whatever JSON can say.
"""

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.connect.formats import to_json
from entrepot.connect.interface import (
    ConnectError,
    Context,
    Polled,
    Position,
    Sink,
    Source,
    SourceRecord,
    Unavailable,
)
from entrepot.connect.registry import load_name
from entrepot.connect.retrying import Stopped
from entrepot.connect.threads import OneThread


@dataclass(frozen=True, slots=True)
class FunctionOptions:
    function: str  # module:name

    def problem(self) -> str | None:
        return None if ":" in self.function else "function: as in module:name"


class FunctionSink(Sink):
    Options: ClassVar[type[Any] | None] = FunctionOptions
    batch_records = 100

    def __init__(self, options: FunctionOptions, context: Context) -> None:
        super().__init__(options, context)
        self._function = load_name(options.function, "options.function")
        self._thread = OneThread(context.name)

    async def open(self, parts: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return {}

    async def write(self, messages: Sequence[Message]) -> None:
        try:
            await self._call_patiently(messages)
        except (Unavailable, Stopped):
            raise
        except Exception as error:
            await self._write_singly(messages, error)

    async def close(self) -> None:
        self._thread.close()

    async def _write_singly(self, messages: Sequence[Message], error: Exception) -> None:
        if len(messages) == 1:
            await self.context.reject(messages[0], _words(error))
            return
        for message in messages:
            try:
                await self._call_patiently([message])
            except (Unavailable, Stopped):
                raise
            except Exception as single:
                await self.context.reject(message, _words(single))

    async def _call_patiently(self, messages: Sequence[Message]) -> None:
        await self.context.persist(partial(self._call, list(messages)))

    async def _call(self, messages: list[Message]) -> None:
        if inspect.iscoroutinefunction(self._function):
            await self._function(messages)
        else:
            await self._thread.run(self._function, messages)


class FunctionSource(Source):
    Options: ClassVar[type[Any] | None] = FunctionOptions

    def __init__(self, options: FunctionOptions, context: Context) -> None:
        super().__init__(options, context)
        self._function = load_name(options.function, "options.function")
        self._thread = OneThread(context.name)
        self._position: Position | None = None
        self._pairs: Iterator[Any] | None = None

    async def open(self, position: Position | None) -> None:
        self._position = position

    async def poll(self, count_max: int) -> Polled | None:
        return await self._thread.run(self._poll, count_max)

    async def close(self) -> None:
        self._thread.close()

    def _poll(self, count_max: int) -> Polled | None:
        found: list[SourceRecord] = []
        try:
            if self._pairs is None:
                self._pairs = iter(self._function(self._position))
            for value, position in self._pairs:
                found.append(_record(value))
                self._position = position
                if len(found) == count_max:
                    break
            else:
                self._pairs = None
        except ConnectError:
            raise
        except Exception as error:
            raise ConnectError(f"{self.options.function}: {_words(error)}") from error
        return Polled(found, self._position) if found else None


def _record(value: Any) -> SourceRecord:
    if isinstance(value, SourceRecord):
        return value
    if isinstance(value, str):
        return SourceRecord(value.encode())
    return SourceRecord(value if isinstance(value, bytes) else to_json(value))


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]
