"""A message's properties: fourteen fields, each there or not, told by a word of flags.

A broker hands most of them on as they came, so the bytes are the truth here: a field is
found in them when it is asked for, and what is changed is replaced within them while
every other byte stays, also in a table of headers whose types Python could not tell.

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
from typing import Any

from entrepot.wire.amqp import table
from entrepot.wire.amqp.table import FrozenTable, Table, Value, malformed

_FLAGS = Struct(">H")
_UINT32 = Struct(">I")
_UINT64 = Struct(">Q")
_FLAGS_REMEMBERED = 1_000
_UNKNOWN = 0b11  # A fifteenth property, and a second word of flags. Neither exists.


@dataclass(frozen=True, slots=True)
class Properties:
    """All of them, in their order on the wire. None: not there."""

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


NAMES = tuple(field.name for field in dataclass_fields(Properties))
_OCTETS = ("delivery_mode", "priority")
_BITS = {name: 1 << (15 - place) for place, name in enumerate(NAMES)}
PERSISTENT = 2
NONE = _FLAGS.pack(0)  # The properties of a message that has none.


class PropertyView:
    """The properties of one message, read where they are."""

    __slots__ = ("_spans", "raw")

    def __init__(self, raw: bytes) -> None:
        """Raises AmqpError, unless these are properties up to what is in the headers."""
        self.raw = raw
        self._spans = _locate(raw)

    def __contains__(self, name: str) -> bool:
        return name in self._spans

    def get(self, name: str) -> Value:
        """The property of that name, or None. Headers are decoded each time."""
        span = self._spans.get(name)
        return None if span is None else _READ[name](self.raw, *span)

    def header(self, name: str) -> Value:
        """One header; None where there is none, or it has no value."""
        span = self._header_span(name)
        if span is None:
            return None
        return table.decode(self.raw[span[0] : span[1]])[name]

    def decode(self) -> Properties:
        return Properties(**{name: self.get(name) for name in self._spans})

    def patch(self, changes: Mapping[str, Value]) -> bytes:
        """With these properties set, or taken out where they are None; the rest as it was."""
        assert all(name in _BITS for name in changes), changes
        return self._assemble(
            {
                name: None if value is None else _write(name, value)
                for name, value in changes.items()
            }
        )

    def patch_headers(self, changes: FrozenTable, removed: Iterable[str] = ()) -> bytes:
        """With these headers set, in their place or else at the end, and those taken out.

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


def decode(raw: bytes) -> Properties:
    return PropertyView(raw).decode()


def encode(properties: Properties) -> bytes:
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
    """The view of properties that are well formed all the way down. Raises AmqpError."""
    view = PropertyView(raw)
    span = view._spans.get("headers")
    if span is not None:
        table.fields(memoryview(raw)[span[0] + _UINT32.size : span[1]])
    return view


def _locate(raw: bytes) -> dict[str, tuple[int, int]]:
    """Where each field that is there begins and ends, in their order."""
    spans: dict[str, tuple[int, int]] = {}
    try:
        (flags,) = _FLAGS.unpack_from(raw)
        position = _FLAGS.size
        for name, end in _present(flags):
            start = position
            position = end(raw, start)
            spans[name] = start, position
    except (IndexError, StructError):
        raise malformed("properties end within a field") from None
    if position != len(raw):
        raise malformed(f"properties of {len(raw)} bytes that need {position}")
    return spans


@lru_cache(_FLAGS_REMEMBERED)
def _present(flags: int) -> tuple[tuple[str, Callable[[bytes, int], int]], ...]:
    """The names of the fields that are there, and how to find where each ends."""
    if flags & _UNKNOWN:
        raise malformed("properties that are not of the basic class")
    return tuple((name, _END[name]) for name, bit in _BITS.items() if flags & bit)


# How each is read and written.


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


def _text_end(raw: bytes, start: int) -> int:
    return start + 1 + raw[start]


_READ: dict[str, Callable[[bytes, int, int], Any]] = {
    **dict.fromkeys(NAMES, _text),
    **dict.fromkeys(_OCTETS, _octet),
    "headers": _headers,
    "timestamp": _time,
}
_END: dict[str, Callable[[bytes, int], int]] = {
    **dict.fromkeys(NAMES, _text_end),
    **dict.fromkeys(_OCTETS, lambda raw, start: start + 1),
    "headers": _table_end,
    "timestamp": lambda raw, start: start + _UINT64.size,
}


def _write(name: str, value: Any) -> bytes:
    if name == "headers":
        return table.long_string(table.encode(value))
    if name == "timestamp":
        return _UINT64.pack(value)
    return bytes((value,)) if name in _OCTETS else table.short_string(value)
