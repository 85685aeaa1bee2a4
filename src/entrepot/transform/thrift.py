"""Thrift, in its binary protocol: a structure is fields, each with its type and its number.

The schema has `fields`, each with an `id`, a `name` and a `type`, as the structure in the IDL has
them; `"required": true` is one that must be there. A type is `bool`, `byte`, `i16`, `i32`, `i64`,
`double`, `string` or `binary`, or an object with one of `list`, `set`, `map` (a type each; keys of
maps are strings) and `struct` (fields). Binary values are base64 in a document. Fields that the
schema does not know are passed over, as Thrift has it.
"""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from binascii import Error
from typing import Any, NamedTuple

from entrepot.transform.refusal import DEPTH_MAX, Refused
from entrepot.transform.structured import Reader, Structured

_NUMBERS = {"byte": ">b", "i16": ">h", "i32": ">i", "i64": ">q", "double": ">d"}
_CODES = {
    "bool": 2,
    "byte": 3,
    "double": 4,
    "i16": 6,
    "i32": 8,
    "i64": 10,
    "string": 11,
    "binary": 11,
    "struct": 12,
    "map": 13,
    "set": 14,
    "list": 15,
}
_SIZES = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8, 11: 4, 12: 1, 13: 6, 14: 5, 15: 5}  # At least.
_STOP, _STRING, _STRUCT, _MAP, _SET, _LIST = 0, 11, 12, 13, 14, 15
_ID_MAX = 32_767


class _Field(NamedTuple):
    id: int
    name: str
    type: Any  # A name, or `{"list": …}` and so on, with checked fields for a structure.
    is_required: bool


_Fields = dict[int, _Field]  # By id.


class Thrift(Structured):
    content_type = "application/x-thrift"

    def _reader(self, data: bytes) -> Reader:
        return _Reader(data)

    def _write(self, document: dict[str, Any], fields: Any, parts: list[bytes]) -> None:
        _write_structure(document, fields, parts)

    def _checked_fields(self, fields: Any, depth: int) -> _Fields:
        if not isinstance(fields, list) or not fields:
            raise Refused("fields are objects with an id, a name and a type")
        self._count_fields(fields)
        checked: _Fields = {}
        names: dict[str, None] = {}
        for each in fields:
            known = each if isinstance(each, dict) else {}
            id, name = known.get("id"), known.get("name")
            if type(id) is not int or not 0 < id <= _ID_MAX or id in checked:
                raise Refused(f"each field has an id of its own, from 1 to {_ID_MAX}")
            if not isinstance(name, str) or name in names:
                raise Refused("each field has a name of its own")
            names[name] = None
            kind = self._checked(known.get("type"), depth)
            checked[id] = _Field(id, name, kind, known.get("required") is True)
        return checked

    def _checked(self, kind: Any, depth: int) -> Any:
        if depth > DEPTH_MAX:
            raise Refused(f"a schema nested deeper than {DEPTH_MAX}")
        if isinstance(kind, str) and (kind in _NUMBERS or kind in ("bool", "string", "binary")):
            return kind
        if isinstance(kind, dict) and len(kind) == 1:
            ((what, inner),) = kind.items()
            if what == "struct":
                return {what: self._checked_fields(inner, depth + 1)}
            if what in ("list", "set", "map"):
                return {what: self._checked(inner, depth + 1)}
        raise Refused(f"{kind!r} is no type")


def _code_of(kind: Any) -> int:
    return _CODES[next(iter(kind)) if isinstance(kind, dict) else kind]


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.place = 0
        self._data = data
        self._depth = 0

    def structure(self, fields: _Fields) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while (code := self._number(">B")) != _STOP:
            id = self._number(">h")
            field = fields.get(id)
            if field is None:
                self._skip(code)
            elif code != _code_of(field.type):
                raise Refused(f"field {field.name} is of another type")
            else:
                found[field.name] = self._value(field.type)
        for field in fields.values():
            if field.is_required and field.name not in found:
                raise Refused(f"field {field.name} is missing")
        return found

    def _value(self, kind: Any) -> Any:
        if isinstance(kind, dict):
            ((what, inner),) = kind.items()
            if what == "struct":
                return self.structure(inner)
            if what == "map":
                return {self._text(): self._value(inner) for _ in range(self._map(inner))}
            return [self._value(inner) for _ in range(self._elements(inner))]
        if kind == "bool":
            return self._bool()
        if kind in _NUMBERS:
            return self._number(_NUMBERS[kind])
        return b64encode(self._bytes()).decode() if kind == "binary" else self._text()

    def _elements(self, inner: Any) -> int:
        """Return how many elements a list or a set has."""
        code, count = self._number(">B"), self._number(">i")
        if count and code != _code_of(inner):
            raise Refused("elements of another type")
        return self._checked_count(count, _code_of(inner), 0)

    def _map(self, inner: Any) -> int:
        key, value, count = self._number(">B"), self._number(">B"), self._number(">i")
        if count and (key, value) != (_STRING, _code_of(inner)):
            raise Refused("a map with keys or values of another type")
        return self._checked_count(count, _code_of(inner), _SIZES[_STRING])

    def _checked_count(self, count: int, code: int, more: int) -> int:
        """Every value takes a byte at least, so the bytes there are bound how many there are."""
        if not 0 <= count * (_SIZES[code] + more) <= len(self._data) - self.place:
            raise Refused("it ends before the value does")
        return count

    def _skip(self, code: int) -> None:
        """Pass over a value that the schema does not know."""
        if code not in _SIZES:
            raise Refused(f"{code} is no type")
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Refused(f"nested deeper than {DEPTH_MAX}")
        if code == _STRING:
            self._bytes()
        elif code == _STRUCT:
            while (inner := self._number(">B")) != _STOP:
                self._number(">h")
                self._skip(inner)
        elif code in (_LIST, _SET, _MAP):
            kinds = [self._number(">B") for _ in range(2 if code == _MAP else 1)]
            count = self._number(">i")
            if count and not all(kind in _SIZES for kind in kinds):
                raise Refused("elements of no type")
            size = sum(_SIZES.get(kind, 0) for kind in kinds)
            if not 0 <= count * size <= len(self._data) - self.place:
                raise Refused("it ends before the value does")
            for _ in range(count):
                for kind in kinds:
                    self._skip(kind)
        else:
            self._take(_SIZES[code])
        self._depth -= 1

    def _bool(self) -> bool:
        found = self._number(">B")
        if found > 1:
            raise Refused("neither true nor false")
        return bool(found)

    def _text(self) -> str:
        try:
            return self._bytes().decode()
        except UnicodeDecodeError:
            raise Refused("a string that is no UTF-8") from None

    def _bytes(self) -> bytes:
        length = self._number(">i")
        if length < 0:
            raise Refused("a negative length")
        return self._take(length)

    def _number(self, form: str) -> Any:
        return struct.unpack(form, self._take(struct.calcsize(form)))[0]

    def _take(self, length: int) -> bytes:
        found = self._data[self.place : self.place + length]
        if len(found) < length:
            raise Refused("it ends before the value does")
        self.place += length
        return found


def _write_structure(value: Any, fields: _Fields, parts: list[bytes]) -> None:
    if not isinstance(value, dict):
        raise Refused("not an object")
    names = {field.name for field in fields.values()}
    for name in value:
        if name not in names:
            raise Refused(f"the schema has no field {name}")
    for field in fields.values():
        found = value.get(field.name)
        if found is None:
            if field.is_required:
                raise Refused(f"field {field.name} is missing")
            continue
        parts.append(struct.pack(">Bh", _code_of(field.type), field.id))
        try:
            _write(found, field.type, parts)
        except (TypeError, ValueError, OverflowError, struct.error, Error) as error:
            raise Refused(f"field {field.name}: {error}") from None
    parts.append(bytes((_STOP,)))


def _write(value: Any, kind: Any, parts: list[bytes]) -> None:
    if isinstance(kind, dict):
        ((what, inner),) = kind.items()
        if what == "struct":
            _write_structure(value, inner, parts)
        elif what == "map":
            if not isinstance(value, dict):
                raise ValueError("not an object")
            parts.append(struct.pack(">BBi", _STRING, _code_of(inner), len(value)))
            for name, each in value.items():
                _write(name, "string", parts)
                _write(each, inner, parts)
        else:
            items = value if isinstance(value, list) else [value]
            parts.append(struct.pack(">Bi", _code_of(inner), len(items)))
            for each in items:
                _write(each, inner, parts)
    elif kind == "bool":
        if value not in (True, False, "true", "false"):
            raise ValueError(f"{value!r} is neither true nor false")
        parts.append(struct.pack(">B", value in (True, "true")))
    elif kind in _NUMBERS:
        number = float(value) if kind == "double" else int(value)
        if isinstance(value, float) and number != value:
            raise ValueError(f"{value} is no whole number")
        parts.append(struct.pack(_NUMBERS[kind], number))
    else:
        body = b64decode(value, validate=True) if kind == "binary" else str(value).encode()
        parts += (struct.pack(">i", len(body)), body)
