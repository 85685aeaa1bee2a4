"""Arguments of exchanges and bindings, and values of headers, in a form that can be compared.

Python calls 1, 1.0 and True equal; RabbitMQ does not. So a value is frozen into a form in
which equal means what RabbitMQ means: a text and an integer stand for themselves, everything
else is a tuple that begins with its kind. Texts and byte arrays are one kind, and integers
are one kind whatever their width. A frozen value can be hashed and written as JSON, and is
the same when it is read again.
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Frozen = Any  # None, a str, an int, or a tuple of a kind's name and frozen values.
FrozenTable = tuple[tuple[str, Frozen], ...]  # Sorted by name, each name once.


def freeze(value: object) -> Frozen:
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
    return tuple(sorted((name, freeze(value)) for name, value in table.items()))


def thaw(value: Frozen) -> object:
    """The value again, of Python's types. An integer's width is forgotten."""
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
    """None also for a name that is there with no value."""
    return next((value for key, value in table if key == name), None)


def from_json(value: object) -> Frozen:
    """JSON knows lists only."""
    return tuple(map(from_json, value)) if isinstance(value, list) else value


def describe(value: Frozen) -> tuple[str, str]:
    """The value's type and text, as RabbitMQ writes them when it complains."""
    if value is None:
        return "void", "undefined"
    if isinstance(value, str):
        return "longstr", _binary(value)
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long", str(value)
    kind, content = value
    if kind == "bool":
        return "bool", str(content).lower()
    if kind in ("float", "decimal"):
        return "double" if kind == "float" else kind, content
    if kind == "array":
        items = [",".join(describe(item)) for item in content]
    else:
        items = [",".join((_binary(name), *describe(item))) for name, item in content]
    return kind, "[" + ",".join(f"{{{item}}}" for item in items) + "]"


def _binary(text: str) -> str:
    """Erlang's notation of a text."""
    if not text:
        return "<<>>"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'<<"{escaped}">>' if text.isascii() else f'<<"{escaped}"/utf8>>'
