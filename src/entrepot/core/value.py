"""Arguments of exchanges and bindings, and values of headers, in a form that can be compared.

Python calls 1, 1.0 and True equal; whoever compares headers does not. So a value is frozen into
a form in which equal means the same value of the same kind: a text and an integer stand for
themselves, everything else is a tuple that begins with its kind. Texts and byte arrays are one
kind, and integers are one kind whatever their width. A frozen value can be hashed and written as
JSON, and is the same when it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Frozen = Any  # None, a str, an int, or a tuple of a kind's name and frozen values.
FrozenTable = tuple[tuple[str, Frozen], ...]  # Sorted by name, each name once.


def freeze(value: object) -> Frozen:
    """Return the value in a form that can be compared and hashed."""
    kind = type(value)
    if kind is str or kind is int or value is None:
        return value
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return ("float", repr(float(value)))
    if isinstance(value, bytes | bytearray | memoryview):
        return str(value, "utf-8", "surrogateescape")
    if isinstance(value, Mapping):
        return ("table", freeze_table(value))
    if isinstance(value, list | tuple):
        return ("array", tuple(map(freeze, value)))
    assert isinstance(value, Decimal | str), f"no value of a table: {value!r}"
    return ("decimal", str(value)) if isinstance(value, Decimal) else str(value)


def freeze_table(table: Mapping[str, object]) -> FrozenTable:
    """Return the names of a table with their frozen values, sorted."""
    return tuple(sorted((name, freeze(value)) for name, value in table.items()))


def thaw(value: Frozen) -> object:
    """Return the value in Python's types again. The width of integers is forgotten."""
    if not isinstance(value, tuple):
        return value
    kind, content = value
    if kind == "bool":
        return content
    if kind == "float":
        return float(content)
    if kind == "decimal":
        return Decimal(content)
    if kind == "table":
        return thaw_table(content)
    return [thaw(item) for item in content]


def thaw_table(table: FrozenTable) -> dict[str, object]:
    return {name: thaw(value) for name, value in table}


def lookup(table: FrozenTable, name: str) -> Frozen:
    """Return the value of a name; None if it is not in the table, or its value is null."""
    return next((value for key, value in table if key == name), None)


def from_json(value: object) -> Frozen:
    """Return a frozen value that was written as JSON, which has lists and no tuples."""
    return tuple(map(from_json, value)) if isinstance(value, list) else value
