"""Typed entries in a tuple space, as JavaSpaces has them, and services that are found by them.

An entry is an object of a dataclass. A template is one, too: a field that is None may be anything,
and entries of subclasses match as well. An entry is a tuple of the space: the names of its classes,
and its fields.

A service that others shall find keeps an entry: under a lease that is renewed while it lives. When
it dies, the entry goes with the lease.
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from entrepot.client.errors import ClientError
from entrepot.client.messaging.space_transactions import SpaceTransaction
from entrepot.client.messaging.spaces import Space, SpaceVerbs, Watch
from entrepot.client.messaging.templates import Condition, Tuple, Written

LEASE_S = 10.0
RENEWALS_PER_LEASE = 3
_ENTRY = "@entry"

E = TypeVar("E")


class _OfType(Condition):
    def __init__(self, name: str) -> None:
        self._name = name

    def fits(self, field: Any) -> bool:
        return isinstance(field, list) and self._name in field


class _Having(Condition):
    def __init__(self, fields: dict[str, Any]) -> None:
        self._fields = fields

    def fits(self, field: Any) -> bool:
        return isinstance(field, dict) and all(
            type(field.get(name)) is type(value) and field[name] == value
            for name, value in self._fields.items()
        )


class _Types:
    """The dataclasses that entries are of, and what entries are as tuples."""

    def __init__(self, types: tuple[type, ...]) -> None:
        self._types: dict[str, type] = {}
        for each in types:
            self.declare(each)

    def tuple_of(self, entry: Any) -> Tuple:
        """Return an entry as a tuple. Raises ClientError."""
        fields = self.fields_of(entry)
        return _ENTRY, [each.__name__ for each in _classes_of(type(entry))], fields

    def declare(self, kind: type) -> None:
        if not dataclasses.is_dataclass(kind):
            raise ClientError(f"{kind.__name__} is no dataclass, so not the type of an entry")
        if self._types.setdefault(kind.__name__, kind) is not kind:
            raise ClientError(f"there are two types of the name {kind.__name__}")

    def fields_of(self, entry: Any) -> dict[str, Any]:
        self.declare(type(entry))
        try:
            fields: dict[str, Any] = msgspec.to_builtins(entry)
            msgspec.convert(fields, type(entry))
        except (msgspec.ValidationError, TypeError) as error:
            raise ClientError(f"{type(entry).__name__}: {error}") from None
        return fields

    def like(self, template: Any) -> Tuple:
        if isinstance(template, type):
            self.declare(template)
            return _ENTRY, _OfType(template.__name__), _Having({})
        fields = self.fields_of(template)
        wanted = {name: value for name, value in fields.items() if value is not None}
        return _ENTRY, _OfType(type(template).__name__), _Having(wanted)

    def made(self, value: Tuple, template: E | type[E]) -> E:
        """Return the entry; of a type that is not known here, as the one that was asked for."""
        _, names, fields = value
        asked: type = template if isinstance(template, type) else type(template)
        kind = next((self._types[name] for name in names if name in self._types), asked)
        try:
            made: E = msgspec.convert(fields, kind)
        except msgspec.ValidationError as error:
            raise ClientError(f"an entry is no {kind.__name__}: {error}") from None
        return made


class _Verbs:
    """Writes, reads and takes entries, of a space or in a transaction of it."""

    def __init__(self, verbs: Space | SpaceTransaction, types: _Types) -> None:
        self._verbs = verbs
        self.types = types

    async def write(self, entry: Any, *, lease_s: float | None = None) -> Written:
        """Put an entry into the space; with a lease, for so long. It is on disk when this returns.

        Raises ClientError if a field is not of its type, or nothing that JSON can say.
        """
        return await self._verbs.write(*self.types.tuple_of(entry), lease_s=lease_s)

    async def read(self, template: E | type[E], timeout_s: float | None = None) -> E:
        """Return an entry that is like the template, or of a type; wait for one.

        Raises TimeoutError; at once, with a time of 0.
        """
        found = await self._verbs.read(*self.types.like(template), timeout_s=timeout_s)
        return self.types.made(found, template)

    async def take(self, template: E | type[E], timeout_s: float | None = None) -> E:
        """Take an entry out of the space: nobody else gets it. See `read`."""
        found = await self._verbs.take(*self.types.like(template), timeout_s=timeout_s)
        return self.types.made(found, template)


class EntryTransaction(_Verbs):
    """Operations on entries that wait for the commit. Made by `Entries.transaction`."""


class Entries(_Verbs):
    """A space of typed entries. Made by `AsyncClient.entries`."""

    def __init__(self, space: Space, types: tuple[type, ...]) -> None:
        super().__init__(space, _Types(types))
        self.space = space

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[EntryTransaction]:
        """Write, read and take as one: see `Space.transaction`."""
        async with self.space.transaction() as made:
            yield EntryTransaction(made, self.types)

    async def renew(self, written: Written, lease_s: float) -> bool:
        """Have a lease end so long from now. False means: it is over, or the entry was taken."""
        return await self.space.renew(written, lease_s)

    async def cancel(self, written: Written) -> bool:
        """Take back what was written. False means: somebody has taken it, or its lease is over."""
        return await self.space.cancel(written)

    async def keep(self, entry: Any, lease_s: float = LEASE_S) -> Kept:
        """Write an entry that is there as long as this process is, and a lease's time longer.

        It is written again if somebody takes it, or the broker was away for too long.
        """
        return Kept(self, entry, lease_s, await self.write(entry, lease_s=lease_s))

    def notify(self, callback: Callable[[Any], Any], template: Any) -> Watch:
        """Call a function with each entry like this that is written from now on."""

        async def tell(value: Tuple) -> None:
            result = callback(self.types.made(value, template))
            if inspect.isawaitable(result):
                await result

        return self.space.notify(tell, *self.types.like(template))


class Kept:
    """The handle of an entry that is kept."""

    def __init__(self, entries: Entries, entry: Any, lease_s: float, written: Written) -> None:
        self._entries = entries
        self._entry = entry
        self._lease_s = lease_s
        self._written = written
        self._task = asyncio.create_task(self._renew())

    async def stop(self) -> None:
        """Take the entry out of the space."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self._entries.cancel(self._written)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(self._lease_s / RENEWALS_PER_LEASE)
            try:
                if not await self._entries.renew(self._written, self._lease_s):
                    self._written = await self._entries.write(self._entry, lease_s=self._lease_s)
            except ClientError as error:
                if not error.retriable:
                    raise


class EntryVerbs(SpaceVerbs):
    """The part of a client that is about typed entries."""

    async def entries(self, name: str, *types: type) -> Entries:
        """Return a space of typed entries, made if there is none; `types` are dataclasses that
        entries are made of when they are read."""
        return Entries(await self.space(name), types)


def _classes_of(kind: type) -> list[type]:
    """Return the dataclasses that an entry is of, its own first."""
    return [each for each in kind.__mro__ if dataclasses.is_dataclass(each)]
