"""Types of events, with subtypes: who subscribes to a type gets the events of its subtypes, too.

A type has named fields, each a text, a number or a boolean, and those of the type that it extends.
Declarations are records of one topic, so all clients know the same types. An event's fields are
headers, so every subscription can be by content as well, and its subject is the path of its type:
`types.Quote.StockQuote`. A subscription to a type is a filter on that path; so clients of other
protocols hear typed events, too (`types/Quote/StockQuote/#` in MQTT). This is the rarest way to
subscribe: subjects and contents do for nearly all.

A subscription is checked when it is made: the type must be there, its fields must be what the
condition names, and be compared with values of their own kind.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from entrepot.client.errors import ClientError
from entrepot.client.messaging.replica import Replica
from entrepot.client.messaging.spaces import SpaceVerbs
from entrepot.client.messaging.subjects import OnEvent, Subscription
from entrepot.client.messaging.topics import Entry, record_of

TYPES = "entrepot.types"  # The topic of declarations.
_PREFIX = "types"
_KINDS: dict[str, tuple[type, ...]] = {"text": (str,), "number": (int, float), "boolean": (bool,)}
_DEPTH_MAX = 30


class EventType(NamedTuple):
    """A declared type."""

    name: str
    fields: Mapping[str, str]  # Its own and inherited ones, with their kinds.
    path: tuple[str, ...]  # The types that it extends, and itself.

    @property
    def subject(self) -> str:
        return ".".join((_PREFIX, *self.path))

    def check(self, name: str, value: object) -> None:
        """Raise ClientError unless the type has this field, and the value is of its kind."""
        kind = self.fields.get(name)
        if kind is None:
            known = ", ".join(self.fields) or "none"
            raise ClientError(f"type {self.name} has no field '{name}'; it has {known}")
        if not isinstance(value, _KINDS[kind]) or (isinstance(value, bool) and kind != "boolean"):
            raise ClientError(f"field '{name}' of type {self.name} is a {kind}, and {value!r} not")


class TypeVerbs(SpaceVerbs):
    """The part of a client that is about types of events."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._types: dict[str, EventType] = {}
        self._types_replica: Replica | None = None
        self._types_lock = asyncio.Lock()

    async def declare_type(
        self, name: str, fields: Mapping[str, str], *, extends: str | None = None
    ) -> EventType:
        """Declare a type with its own fields: a name and `text`, `number` or `boolean`.

        Declaring it again in the same way changes nothing. Raises ClientError if it was declared
        otherwise, or makes no sense.
        """
        replica = await self._known_types()
        if not name.isidentifier():
            raise ClientError(f"'{name}' is no name of a type")
        for field, kind in fields.items():
            if kind not in _KINDS or not field.isidentifier():
                raise ClientError(f"field '{field}': a {kind} is none of {', '.join(_KINDS)}")
        wanted = self._made(name, fields, extends)
        if isinstance(wanted, str):
            raise ClientError(wanted)
        if name not in self._types:
            said = {"fields": dict(fields), "extends": extends}
            await replica.change(record_of(said, name, None))
        found = self._types[name]
        if found != wanted:
            raise ClientError(f"type {name} is declared otherwise: {found}")
        return found

    async def event_type(self, name: str) -> EventType:
        """Return a type. Raises ClientError if it was not declared."""
        await self._known_types()
        found = self._types.get(name)
        if found is None:
            raise ClientError(f"type {name} is not declared")
        return found

    async def publish_event(self, type: str, fields: Mapping[str, Any]) -> None:
        """Publish an event of a type: with all its fields, and no others."""
        kind = await self.event_type(type)
        for name, value in fields.items():
            kind.check(name, value)
        missing = [name for name in kind.fields if name not in fields]
        if missing:
            raise ClientError(f"an event of type {type} needs {', '.join(missing)}")
        await self.publish(kind.subject, dict(fields), headers=fields, type=type)

    async def subscribe_type(
        self,
        type: str,
        callback: OnEvent,
        expiry_s: float | None = None,
        *,
        where: Any = None,
    ) -> Subscription:
        """Call a function with each event of a type or one of its subtypes.

        `where` is tuples or a template, and is checked: see `subscribe`.
        """
        kind = await self.event_type(type)
        for name, value in _compared(where):
            if value is not ...:
                kind.check(name, value)
            elif name not in kind.fields:
                kind.check(name, None)
        return await self.subscribe(f"{kind.subject}.#", callback, expiry_s, where=where)

    async def _known_types(self) -> Replica:
        async with self._types_lock:
            if self._types_replica is None or self._types_replica.failure is not None:
                self._types.clear()
                replica = Replica(self, TYPES, self._apply_type)
                await replica.start()
                self._types_replica = replica
            return self._types_replica

    def _apply_type(self, entry: Entry) -> None:
        """Take note of a declaration. The first one counts, and what makes no sense does not."""
        try:
            name = (entry.key or b"").decode()
            said = json.loads(entry.body)
            made = self._made(name, said["fields"], said["extends"])
        except (ValueError, TypeError, KeyError):
            return  # Somebody wrote something else there.
        if isinstance(made, EventType):
            self._types.setdefault(name, made)

    def _made(self, name: str, fields: Mapping[str, str], extends: str | None) -> EventType | str:
        """Return the type, or why it cannot be."""
        if extends is None:
            return EventType(name, dict(fields), (name,))
        base = self._types.get(extends)
        if base is None:
            return f"type {extends} is not declared"
        if name in base.path or len(base.path) >= _DEPTH_MAX:
            return f"type {name} cannot extend {extends}: too deep, or itself"
        for field, kind in fields.items():
            if base.fields.get(field, kind) != kind:
                return f"field '{field}' is a {base.fields[field]} in type {extends}"
        return EventType(name, {**base.fields, **fields}, (*base.path, name))


def _compared(where: Any) -> list[tuple[str, object]]:
    """Return the fields that a condition names, with the values they are compared with."""
    if where is None:
        return []
    if isinstance(where, Mapping):
        return [*where.items()]
    if isinstance(where, tuple) and len(where) == 3 and isinstance(where[0], str):
        where = [where]
    try:
        return [(name, value) for name, _, value in where]
    except (TypeError, ValueError):
        raise ClientError("a condition on a type is tuples, or a template") from None
