"""Decoding long JSON documents in steps.

A short document is decoded at once, which is fast. In a long one, objects and lists are decoded
here value by value, so that other requests are served in between; each string, number or word is
still decoded by the fast decoder, a long string in pieces. The number of values in a document is
bounded: a byte or two on the wire is a hundred in memory.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from entrepot.core import limits
from entrepot.core.steps import Steps
from entrepot.wire.http import limits as http_limits

AT_ONCE_BYTES_MAX = 256 * limits.KIB  # Decoded in a few milliseconds, whatever it contains.

_PIECE_BYTES = 64 * limits.KIB
_STEP_VALUES = 200  # Values in one step.
_DEPTH_MAX = limits.TABLE_DEPTH_MAX + 8  # AMQP tables, in rows, in lists, in the document.
_SCALAR_BYTES_MAX = 1_000

_SPACE = re.compile(rb"[ \t\n\r]*+")
_SCALAR = re.compile(rb"-?[0-9][0-9.eE+-]*+|true|false|null")
# A part of a string that ends neither within an escape nor between two escapes of one character.
_TEXT = re.compile(
    rb'(?:[^"\\]++|\\[^u]'
    rb"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|\\u(?![dD][89abAB])[0-9a-fA-F]{4})*+",
    re.DOTALL,
)
_QUOTE, _COLON, _COMMA = b'":,'
_OPEN_OBJECT, _CLOSE_OBJECT, _OPEN_LIST, _CLOSE_LIST = b"{}[]"


class NotJson(ValueError):
    """The document is not JSON, or too large; the text says why."""


def read(data: bytes) -> Any:
    """Decode a document at once. Raises NotJson."""
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise NotJson("not_json") from None


def read_in_steps(data: bytes, values_max: int = http_limits.JSON_VALUES_MAX) -> Steps[Any]:
    """Decode a document of any length. Raises NotJson, also for one with too many values."""
    if len(data) <= AT_ONCE_BYTES_MAX:
        return read(data)
    reader = _Reader(data, values_max)
    try:
        return (yield from reader.document())
    except NotJson:
        yield from reader.let_go()
        raise


class _Reader:
    def __init__(self, data: bytes, values_max: int) -> None:
        self._data = data
        self._values_max = values_max
        self._at = 0
        self._count = 0  # Values so far.
        # The objects and lists that are being decoded, outermost first.
        self._open: list[dict[str, Any] | list[Any]] = []

    def document(self) -> Steps[Any]:
        value = yield from self._value(_DEPTH_MAX)
        if self._next() != -1:
            raise NotJson("not_json")
        return value

    def let_go(self) -> Steps[None]:
        """Free what was decoded, in steps: a million values take a while."""
        for each in self._open:
            while each:
                if isinstance(each, dict):
                    each.popitem()
                else:
                    del each[-_STEP_VALUES:]
                yield

    def _next(self) -> int:
        """Skip white space and return the next byte, without consuming it; -1 at the end."""
        match = _SPACE.match(self._data, self._at)
        assert match is not None
        self._at = match.end()
        return self._data[self._at] if self._at < len(self._data) else -1

    def _take(self, wanted: int) -> bool:
        """Consume the next byte if it is this one. Return whether it was."""
        found = self._next() == wanted
        self._at += found
        return found

    def _need(self, wanted: int) -> None:
        if not self._take(wanted):
            raise NotJson("not_json")

    def _value(self, depth: int) -> Steps[Any]:
        self._count += 1
        if self._count > self._values_max:
            raise NotJson(f"more than {self._values_max} values in one document")
        if self._count % _STEP_VALUES == 0:
            yield
        kind = self._next()
        if kind == _QUOTE:
            return (yield from self._text())
        if kind not in (_OPEN_OBJECT, _OPEN_LIST):
            return self._scalar()
        if not depth:
            raise NotJson(f"nested more than {_DEPTH_MAX} deep")
        self._at += 1
        if kind == _OPEN_OBJECT:
            return (yield from self._object(depth - 1))
        return (yield from self._list(depth - 1))

    def _object(self, depth: int) -> Steps[dict[str, Any]]:
        found: dict[str, Any] = {}
        self._open.append(found)
        if self._take(_CLOSE_OBJECT):
            self._open.pop()
            return found
        while True:
            if self._next() != _QUOTE:
                raise NotJson("not_json")
            name = yield from self._text()
            self._need(_COLON)
            found[name] = yield from self._value(depth)
            if self._take(_CLOSE_OBJECT):
                self._open.pop()
                return found
            self._need(_COMMA)

    def _list(self, depth: int) -> Steps[list[Any]]:
        found: list[Any] = []
        self._open.append(found)
        if self._take(_CLOSE_LIST):
            self._open.pop()
            return found
        while True:
            found.append((yield from self._value(depth)))
            if self._take(_CLOSE_LIST):
                self._open.pop()
                return found
            self._need(_COMMA)

    def _scalar(self) -> Any:
        match = _SCALAR.match(self._data, self._at, self._at + _SCALAR_BYTES_MAX)
        if match is None:
            raise NotJson("not_json")
        self._at = match.end()
        return read(match[0])

    def _text(self) -> Steps[str]:
        """Decode a string, from its first quote to its last."""
        data, pieces = self._data, []
        self._at += 1
        while True:
            match = _TEXT.match(data, self._at, self._at + _PIECE_BYTES)
            assert match is not None
            end = match.end()
            while end > self._at and end < len(data) and data[end] & 0xC0 == 0x80:
                end -= 1  # Not within a UTF-8 character.
            pieces.append(read(b'"' + data[self._at : end] + b'"'))
            if data[end : end + 1] == b'"':
                self._at = end + 1
                return "".join(pieces)
            if end == self._at:
                raise NotJson("not_json")
            self._at = end
            yield
