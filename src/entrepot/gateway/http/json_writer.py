"""Encoding JSON in steps: an answer may be long, and so may the texts in it."""

from __future__ import annotations

from typing import Any

import msgspec

from entrepot.core import limits
from entrepot.core.steps import Steps

_TEXT_AT_ONCE = 256 * limits.KIB  # Characters that are encoded in one step.
_FEW = 10


def encoded(value: Any) -> Steps[bytearray]:
    """Encode a value as JSON, in steps: lists may be long, and so may texts in them."""
    if isinstance(value, dict) and len(value) <= _FEW and all(map(_is_short, value.values())):
        return bytearray(msgspec.json.encode(value))  # Most answers.
    output = bytearray()
    yield from _encode(value, output)
    return output


def _encode(value: Any, output: bytearray) -> Steps[None]:
    if isinstance(value, dict) and value:
        for place, (name, each) in enumerate(value.items()):
            output += (b"," if place else b"{") + msgspec.json.encode(name) + b":"
            yield from _encode(each, output)
        output += b"}"
    elif isinstance(value, list) and value:
        for place, each in enumerate(value):
            output += b"," if place else b"["
            if isinstance(each, dict) and any(map(_is_long, each.values())):
                yield from _encode(each, output)
            else:
                output += msgspec.json.encode(each)
            yield
        output += b"]"
    elif _is_long(value):
        output += b'"'
        for start in range(0, len(value), _TEXT_AT_ONCE):
            output += msgspec.json.encode(value[start : start + _TEXT_AT_ONCE])[1:-1]
            yield
        output += b'"'
    else:
        output += msgspec.json.encode(value)
        yield


def _is_long(value: object) -> bool:
    return isinstance(value, str) and len(value) > _TEXT_AT_ONCE


def _is_short(value: object) -> bool:
    return not isinstance(value, dict | list) and not _is_long(value)
