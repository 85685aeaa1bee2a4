"""A message's properties: fourteen fields, each present or not, as a word of flags says.

A broker passes most of them on unchanged, so they are kept as bytes: a field is decoded when
it is asked for, and a change replaces only its bytes. All others stay as they are, also in a
table of headers whose types Python cannot distinguish.

The first look at a message finds where its fields are and so whether they are well
formed; the headers' own fields are looked through by `check`, or when they are needed.
What is malformed raises AmqpError with the code for a syntax error.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from dataclasses import fields as dataclass_fields
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812  # Its own name says less.
from typing import Any, NamedTuple

from entrepot.wire.amqp import table
from entrepot.wire.amqp.flat_table import is_flat
from entrepot.wire.amqp.table import FrozenTable, Table, Value, malformed

_FLAGS = Struct(">H")
_UINT32 = Struct(">I")
_UINT64 = Struct(">Q")
_FLAGS_REMEMBERED = 1_000
_UNKNOWN = 0b11  # Flags of a 15th property and of a second word of flags. Neither exists.


@dataclass(frozen=True, slots=True)
class BasicProperties:
    """All properties, in their order on the wire. None means: not present."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: FrozenTable | None = None
    delivery_mode: int | None = None  # 2 is persistent.
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    expiration: str | None = None  # Milliseconds, in digits.
    message_id: str | None = None
    timestamp: int | None = None  # Seconds since 1970.
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None
    cluster_id: str | None = None


NAMES = tuple(field.name for field in dataclass_fields(BasicProperties))
_OCTETS = ("delivery_mode", "priority")
_BITS = {name: 1 << (15 - place) for place, name in enumerate(NAMES)}
PERSISTENT = 2
NONE = _FLAGS.pack(0)  # The properties of a message that has none.
_TEXT, _OCTET, _TIME, _TABLE = range(4)  # Kinds of fields.


class Examined(NamedTuple):
    """The properties that the broker itself uses. None means: not present."""

    delivery_mode: int | None
    priority: int | None
    reply_to: str | None
    expiration: str | None
    user_id: str | None


def examine(raw: bytes) -> Examined:
    """Check that properties, headers included, are well formed; return those the broker uses.

    Publishing calls this, so it must be fast. Raises AmqpError.
    """
    position = _FLAGS.size
    found: list[Any] = [None, None, None, None, None]
    try:
        for _, kind, place in _plan(raw[0] << 8 | raw[1]):
            start = position
            if kind == _TEXT:
                position += 1 + raw[start]
                if place >= 0:
                    found[place] = raw[start + 1 : position].decode("utf-8", "surrogateescape")
            elif kind == _OCTET:
                position += 1
                found[place] = raw[start]
            elif kind == _TIME:
                position += _UINT64.size
            else:
                start += _UINT32.size
                position = start + int(_UINT32.unpack_from(raw, position)[0])
                if not is_flat(raw, start, position):
                    table.fields(memoryview(raw)[start:position])
    except (IndexError, StructError):
        raise malformed("properties end within a field") from None
    if position != len(raw):
        raise malformed(f"properties of {len(raw)} bytes that need {position}")
    return Examined(*found)


@lru_cache(_FLAGS_REMEMBERED)
def _plan(flags: int) -> tuple[tuple[str, int, int], ...]:
    """Return the name of each field that is there, its kind, and its place in `Examined` or -1."""
    if flags & _UNKNOWN:
        raise malformed("properties that are not of the basic class")
    places = {name: place for place, name in enumerate(Examined._fields)}
    kinds = {"headers": _TABLE, "timestamp": _TIME, **dict.fromkeys(_OCTETS, _OCTET)}
    return tuple(
        (name, kinds.get(name, _TEXT), places.get(name, -1))
        for name, bit in _BITS.items()
        if flags & bit
    )


class PropertyView:
    """The properties of one message, decoded from their bytes when asked for."""

    __slots__ = ("_spans", "raw")

    def __init__(self, raw: bytes) -> None:
        """Raises AmqpError for malformed properties; does not look into the headers."""
        self.raw = raw
        self._spans = _locate(raw)

    def __contains__(self, name: str) -> bool:
        return name in self._spans

    def get(self, name: str) -> Value:
        """Return the property of that name, or None. Headers are decoded each time."""
        span = self._spans.get(name)
        return None if span is None else _READ[name](self.raw, *span)

    def header(self, name: str) -> Value:
        """Return one header; None if it is missing or has no value."""
        span = self._header_span(name)
        if span is None:
            return None
        return table.decode(self.raw[span[0] : span[1]])[name]

    def decode(self) -> BasicProperties:
        return BasicProperties(**{name: self.get(name) for name in self._spans})

    def patch(self, changes: Mapping[str, Value]) -> bytes:
        """Return the bytes with these properties set, or removed where they are None."""
        assert all(name in _BITS for name in changes), changes
        return self._assemble(
            {
                name: None if value is None else _write(name, value)
                for name, value in changes.items()
            }
        )

    def patch_headers(self, changes: FrozenTable, removed: Iterable[str] = ()) -> bytes:
        """Return the bytes with these headers set, in place or else at the end, and others removed.

        Other headers keep their bytes and their order. None is a header without a value.
        """
        span = self._spans.get("headers")
        kept = b"" if span is None else self.raw[span[0] + _UINT32.size : span[1]]
        gone = {table.short_string(name): None for name in removed}
        fresh = {
            table.short_string(name): table.encode_value(value) for name, value in changes.items()
        }
        parts: list[bytes] = []
        placed: dict[bytes, None] = {}
        for start, value, end in table.fields(kept):
            name = kept[start:value]
            if name in fresh:
                if name not in placed:
                    parts += (name, fresh[name])
                    placed[name] = None
            elif name not in gone:
                parts.append(kept[start:end])
        parts += [name + value for name, value in fresh.items() if name not in placed]
        if not parts and span is None:
            return self.raw
        return self._assemble({"headers": table.long_string(b"".join(parts))})

    def _assemble(self, changes: Mapping[str, bytes | None]) -> bytes:
        flags = 0
        parts = [b""]
        for name, bit in _BITS.items():
            if name in changes:
                data = changes[name]
            else:
                span = self._spans.get(name)
                data = None if span is None else self.raw[span[0] : span[1]]
            if data is not None:
                flags |= bit
                parts.append(data)
        parts[0] = _FLAGS.pack(flags)
        return b"".join(parts)

    def _header_span(self, name: str) -> tuple[int, int] | None:
        span = self._spans.get("headers")
        if span is None:
            return None
        wanted = table.short_string(name)
        first = span[0] + _UINT32.size
        for start, value, end in table.fields(self.raw[first : span[1]]):
            if self.raw[first + start : first + value] == wanted:
                return first + start, first + end
        return None


def decode(raw: bytes) -> BasicProperties:
    return PropertyView(raw).decode()


def encode(properties: BasicProperties) -> bytes:
    flags = 0
    parts = [b""]
    for name, bit in _BITS.items():
        value = getattr(properties, name)
        if value is not None:
            flags |= bit
            parts.append(_write(name, value))
    parts[0] = _FLAGS.pack(flags)
    return b"".join(parts)


def check(raw: bytes) -> PropertyView:
    """Return a view of properties that are well formed, headers included. Raises AmqpError."""
    view = PropertyView(raw)
    span = view._spans.get("headers")
    if span is not None:
        table.fields(memoryview(raw)[span[0] + _UINT32.size : span[1]])
    return view


def raw_values(raw: bytes) -> list[tuple[str, bytes]]:
    """Return the name of each property that is there, and the bytes of its value.

    They must be well formed.
    """
    found: list[tuple[str, bytes]] = []
    position = _FLAGS.size
    for name, kind, _ in _plan(raw[0] << 8 | raw[1]):
        start = position
        if kind == _TEXT:
            start += 1
            position = start + raw[position]
        elif kind == _OCTET:
            position += 1
        elif kind == _TIME:
            position += _UINT64.size
        else:
            start += _UINT32.size
            position = start + int.from_bytes(raw[position:start], "big")
        found.append((name, raw[start:position]))
    return found


def _locate(raw: bytes) -> dict[str, tuple[int, int]]:
    """Return where each field that is there begins and ends, in their order."""
    spans: dict[str, tuple[int, int]] = {}
    position = _FLAGS.size
    try:
        for name, kind, _ in _plan(raw[0] << 8 | raw[1]):
            start = position
            if kind == _TEXT:
                position += 1 + raw[start]
            elif kind == _OCTET:
                position += 1
            elif kind == _TIME:
                position += _UINT64.size
            else:
                position = _table_end(raw, start)
            spans[name] = start, position
    except (IndexError, StructError):
        raise malformed("properties end within a field") from None
    if position != len(raw):
        raise malformed(f"properties of {len(raw)} bytes that need {position}")
    return spans


# Reading and writing each kind of field.


def _text(raw: bytes, start: int, end: int) -> str:
    return raw[start + 1 : end].decode("utf-8", "surrogateescape")


def _headers(raw: bytes, start: int, end: int) -> Table:
    return table.decode(raw[start + _UINT32.size : end])


def _octet(raw: bytes, start: int, end: int) -> int:
    return raw[start]


def _time(raw: bytes, start: int, end: int) -> int:
    return int(_UINT64.unpack_from(raw, start)[0])


def _table_end(raw: bytes, start: int) -> int:
    return start + _UINT32.size + int(_UINT32.unpack_from(raw, start)[0])


_READ: dict[str, Callable[[bytes, int, int], Any]] = {
    **dict.fromkeys(NAMES, _text),
    **dict.fromkeys(_OCTETS, _octet),
    "headers": _headers,
    "timestamp": _time,
}


def _write(name: str, value: Any) -> bytes:
    if name == "headers":
        return table.long_string(table.encode(value))
    if name == "timestamp":
        return _UINT64.pack(value)
    return bytes((value,)) if name in _OCTETS else table.short_string(value)
