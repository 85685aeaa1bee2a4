"""XDR (RFC 4506): values one after the other, in units of four bytes, most significant byte first.

There is nothing in the bytes that says what they are, so the schema says all: `fields`, each with a
name and a type. A type is `int`, `unsigned`, `hyper`, `float`, `double`, `bool`, `string` or
`opaque`, or an object with one of `array`, `optional` (a type each) and `struct` (fields). Opaque
bytes are base64 in a document.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from binascii import Error
from typing import Any

from entrepot.transform.refusal import DEPTH_MAX, Refused
from entrepot.transform.structured import Reader, Structured

_NUMBERS = {"int": ">i", "unsigned": ">I", "hyper": ">q", "float": ">f", "double": ">d"}
_UNIT = 4


class Xdr(Structured):
    content_type = "application/x-xdr"

    def _reader(self, data: bytes) -> Reader:
        return _Reader(data)

    def _write(self, document: dict[str, Any], fields: Any, parts: list[bytes]) -> None:
        _write_structure(document, fields, parts)

    def _checked_fields(self, fields: Any, depth: int) -> list[tuple[str, Any]]:
        if not isinstance(fields, list) or not fields:
            raise Refused("fields are objects with a name and a type")
        self._count_fields(fields)
        checked: dict[str, Any] = {}
        for each in fields:
            name = each.get("name") if isinstance(each, dict) else None
            if not isinstance(name, str) or name in checked:
                raise Refused("each field has a name of its own")
            checked[name] = self._checked(each.get("type"), depth)
        return [*checked.items()]

    def _checked(self, kind: Any, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise Refused(f"a schema nested deeper than {DEPTH_MAX}")
        if isinstance(kind, str) and (kind in _NUMBERS or kind in ("bool", "string", "opaque")):
            return kind
        if isinstance(kind, dict) and len(kind) == 1:
            ((what, inner),) = kind.items()
            if what == "struct":
                return {what: self._checked_fields(inner, depth + 1)}
            if what in ("array", "optional"):
                return {what: self._checked(inner, depth + 1)}
        raise Refused(f"{kind!r} is no type")


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.place = 0
        self._data = data

    def structure(self, fields: list[tuple[str, Any]]) -> dict[str, Any]:
        return {name: self._value(kind) for name, kind in fields}

    def _value(self, kind: Any) -> Any:
        if isinstance(kind, dict):
            ((what, inner),) = kind.items()
            if what == "struct":
                return self.structure(inner)
            if what == "optional":
                return self._value(inner) if self._bool() else None
            # Every value takes a unit at least, so the bytes there are bound how many there are.
            return [self._value(inner) for _ in range(self._length(_UNIT))]
        if kind == "bool":
            return self._bool()
        if kind in _NUMBERS:
            form = _NUMBERS[kind]
            return struct.unpack(form, self._take(struct.calcsize(form)))[0]
        length = self._length(1)
        body = self._take(length)
        if any(self._take(-length % _UNIT)):
            raise Refused("what fills a unit is not zero")
        if kind == "opaque":
            return b64encode(body).decode()
        try:
            return body.decode()
        except UnicodeDecodeError:
            raise Refused("a string that is no UTF-8") from None

    def _bool(self) -> bool:
        (found,) = struct.unpack(">I", self._take(_UNIT))
        if found > 1:
            raise Refused("neither true nor false")
        return bool(found)

    def _length(self, size: int) -> int:
        (length,) = struct.unpack(">I", self._take(_UNIT))
        if length * size > len(self._data) - self.place:
            raise Refused("it ends before the value does")
        return int(length)

    def _take(self, length: int) -> bytes:
        found = self._data[self.place : self.place + length]
        if len(found) < length:
            raise Refused("it ends before the value does")
        self.place += length
        return found


def _write_structure(value: Any, fields: list[tuple[str, Any]], parts: list[bytes]) -> None:
    if not isinstance(value, dict):
        raise Refused("not an object")
    names = dict(fields)
    for name in value:
        if name not in names:
            raise Refused(f"the schema has no field {name}")
    for name, kind in fields:
        try:
            _write(value.get(name), kind, parts)
        except (TypeError, ValueError, OverflowError, struct.error, Error) as error:
            raise Refused(f"field {name}: {error}") from None


def _write(value: Any, kind: Any, parts: list[bytes]) -> None:
    if isinstance(kind, dict):
        ((what, inner),) = kind.items()
        if what == "struct":
            _write_structure(value, inner, parts)
        elif what == "optional":
            parts.append(struct.pack(">I", value is not None))
            if value is not None:
                _write(value, inner, parts)
        else:
            items = value if isinstance(value, list) else [value]
            parts.append(struct.pack(">I", len(items)))
            for each in items:
                _write(each, inner, parts)
    elif value is None:
        raise ValueError("it is missing")
    elif kind == "bool":
        if value not in (True, False, "true", "false"):
            raise ValueError(f"{value!r} is neither true nor false")
        parts.append(struct.pack(">I", value in (True, "true")))
    elif kind in _NUMBERS:
        number = float(value) if kind in ("float", "double") else int(value)
        if isinstance(value, float) and number != value:
            raise ValueError(f"{value} is no whole number")
        parts.append(struct.pack(_NUMBERS[kind], number))
    else:
        body = b64decode(value, validate=True) if kind == "opaque" else str(value).encode()
        parts += (struct.pack(">I", len(body)), body, bytes(-len(body) % _UNIT))
