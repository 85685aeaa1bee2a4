"""Shared memory: variables that look as if they were here, and are the same for all processes.

A memory is a state that all clients keep alike (see `replica`). A write is a record; it returns
when its record was read back, so all that was written before it is known here as well. A read looks
at what is here, and waits for nothing.

That makes it **sequentially consistent**: there is one order of all writes, the same for all, and
what each process reads and writes fits into it in the order of its program. It is not linearizable:
a read may return a value that somebody else has just replaced, until the record comes. After
`fresh`, what was written before that is seen.

The topic is compacted by the variable's name, so it is as large as the memory.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

from entrepot.client.errors import ClientError
from entrepot.client.messaging.entries import EntryVerbs
from entrepot.client.messaging.replica import Replica
from entrepot.client.messaging.topics import Entry, TopicVerbs
from entrepot.core.record import Record

VARIABLES_MAX = 1_000_000  # Of a memory: every client holds all of them.
NAME_BYTES_MAX = 1_000
_BARRIER = b""  # The key of a record that changes nothing.

OnChange = Callable[[str, Any], Any]


class Memory:
    """Variables that all clients share. Made by `AsyncClient.memory`."""

    def __init__(self, verbs: TopicVerbs, name: str) -> None:
        self.name = name
        self._values: dict[str, Any] = {}
        self._watches: dict[MemoryWatch, None] = {}
        self._replica = Replica(verbs, f"memory.{name}", self._apply)
        self._is_here = False

    async def start(self) -> None:
        await self._replica.start()
        self._is_here = True

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __contains__(self, name: object) -> bool:
        return name in self._values

    def __getitem__(self, name: str) -> Any:
        self._check()
        return self._values[name]

    def read(self, name: str, default: Any = None) -> Any:
        """Return the value of a variable, as this client knows it."""
        self._check()
        return self._values.get(name, default)

    async def write(self, name: str, value: Any) -> None:
        """Give a variable a value: anything that JSON can say. It is on disk when this returns.

        Raises ClientError for what JSON cannot say, and when the memory is full.
        """
        if name not in self._values and len(self._values) >= VARIABLES_MAX:
            raise ClientError(f"memory '{self.name}' has {VARIABLES_MAX} variables already")
        try:
            body = json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
        except (TypeError, ValueError) as error:
            raise ClientError(f"a variable has a value that JSON can say: {error}") from None
        await self._replica.change(Record(_key(name), body))

    async def delete(self, name: str) -> None:
        """Have the variable no more."""
        await self._replica.change(Record(_key(name), None))

    async def fresh(self) -> None:
        """Return when everything is here that had been written, by anybody, before this."""
        await self._replica.change(Record(_BARRIER, None))

    def notify(self, callback: OnChange, name: str | None = None) -> MemoryWatch:
        """Call a function with the name and the value, None if deleted, at each change from now on:
        of one variable or all, in the order of the changes."""
        watch = MemoryWatch(self._watches, callback, name)
        self._watches[watch] = None
        return watch

    def _check(self) -> None:
        if self._replica.failure is not None:  # What is here gets older and older.
            raise self._replica.failure

    def _apply(self, entry: Entry) -> None:
        if not entry.key:
            return
        name = entry.key.decode("utf-8", "replace")
        if not entry.body:
            value = None
            self._values.pop(name, None)
        else:
            try:
                value = json.loads(entry.body)
            except ValueError:
                return  # Somebody wrote something else there.
            self._values[name] = value
        for watch in list(self._watches) if self._is_here else ():
            watch.tell(name, value)


class MemoryWatch:
    """The handle of a notification. Its calls come one after the other."""

    def __init__(
        self, among: dict[MemoryWatch, None], callback: OnChange, name: str | None
    ) -> None:
        self._among = among
        self._callback = callback
        self._name = name
        self._last: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Call it no more."""
        self._among.pop(self, None)

    def tell(self, name: str, value: Any) -> None:
        if self._name in (None, name):
            call = self._call(self._last, name, value)
            self._last = asyncio.get_running_loop().create_task(call)

    async def _call(self, before: asyncio.Task[None] | None, name: str, value: Any) -> None:
        if before is not None:
            await asyncio.wait([before])
        result = self._callback(name, value)
        if inspect.isawaitable(result):
            await result


class MemoryVerbs(EntryVerbs):
    """The part of a client that is about shared memory."""

    async def memory(self, name: str) -> Memory:
        """Return a memory, made if there is none, with all that is in it."""
        made = Memory(self, name)
        await made.start()
        return made


def _key(name: str) -> bytes:
    key = name.encode()
    if not 0 < len(key) <= NAME_BYTES_MAX:
        raise ClientError(f"a variable's name has 1 to {NAME_BYTES_MAX} bytes")
    return key
