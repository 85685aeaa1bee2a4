"""Tuples, and templates: what a tuple must be like, and where tuples are filed.

A template has a value for what must be equal, a type (`int`, `float`, `str`, `bool`, `list`) for
what must be of a kind, and `...` for what may be anything.

In a space of several partitions a tuple's place follows from its length and its first field. So a
template that names both leads to one partition, and one whose first field is open to all of them.
"""

from __future__ import annotations

import json
from typing import Any, NamedTuple
from zlib import crc32

from entrepot.client.errors import ClientError

_FORMAL = (int, float, str, bool, list, type(None))

Tuple = tuple[Any, ...]


class Written(NamedTuple):
    """What `write` returns: the tuple can be taken back by it."""

    id: str
    value: Tuple


class Held:
    """A tuple that is in the space."""

    __slots__ = ("expires_ms", "id", "is_filed", "is_renewed", "place", "value")

    def __init__(self, id: str, place: int, value: Tuple, expires_ms: int | None) -> None:
        self.id = id
        self.place = place  # Its partition.
        self.value = value
        self.expires_ms = expires_ms
        self.is_renewed = False
        self.is_filed = False  # Whether it is found: nobody here is taking it.


class Condition:
    """A field of a template that decides itself what it is like."""

    def fits(self, field: Any) -> bool:
        raise NotImplementedError


def matches(template: Tuple, value: Tuple) -> bool:
    """Return whether a tuple is like a template."""
    return len(template) == len(value) and all(map(_fits, template, value))


def _fits(wanted: Any, field: Any) -> bool:
    if wanted is ...:
        return True
    if isinstance(wanted, type):
        if wanted not in _FORMAL:
            raise ClientError(f"{wanted.__name__} is no type that a field can have")
        return type(field) is wanted
    if isinstance(wanted, Condition):
        return wanted.fits(field)
    if isinstance(wanted, tuple):
        wanted = list(wanted)
    return type(field) is type(wanted) and bool(field == wanted)


def is_open(field: Any) -> bool:
    """Return whether a field of a template may have several values."""
    return field is ... or isinstance(field, type | Condition)


def place_of(value: Tuple, partitions: int) -> int:
    """Return the partition that a tuple belongs to."""
    if partitions == 1:
        return 0
    shape = json.dumps([len(value), value[0]], separators=(",", ":"), sort_keys=True)
    return crc32(shape.encode()) % partitions


def places_of(template: Tuple, partitions: int) -> list[int]:
    """Return the partitions in which a tuple that matches may be."""
    if partitions == 1 or not template or is_open(template[0]):
        return list(range(partitions))
    try:
        return [place_of(template, partitions)]
    except TypeError as error:
        raise ClientError(f"a template has fields that JSON can say: {error}") from None


def keys_of(value: Tuple) -> list[object]:
    """Return what a tuple is filed by: its length, and its first field as well."""
    first = value[0]
    is_scalar = isinstance(first, str | int | float)
    return [len(value), (len(value), first)] if is_scalar else [len(value)]


def template_as_json(template: Tuple) -> list[dict[str, Any]]:
    """Return a template as something that JSON can say. Raises ClientError."""
    return [_field_as_json(field) for field in template]


def _field_as_json(field: Any) -> dict[str, Any]:
    if field is ...:
        return {}
    if isinstance(field, type):
        if field not in _FORMAL:
            raise ClientError(f"{field.__name__} is no type that a field can have")
        return {"type": field.__name__}
    return {"is": field}


def template_of_json(said: list[dict[str, Any]]) -> Tuple:
    """Return the template. Raises KeyError, TypeError for what is none."""
    kinds = {kind.__name__: kind for kind in _FORMAL}
    return tuple(
        kinds[field["type"]] if "type" in field else field.get("is", ...) for field in said
    )
