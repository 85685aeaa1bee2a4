"""Facts about a selector: what every message that it selects must have.

A fact is about one property: that it equals one of some values, or lies between two. Whoever looks
for the selectors that select a message need not ask those whose facts the message does not meet.
The facts of a selector are not all there is to it: it is asked in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

VALUES_MAX = 100  # That one property may equal; with more there is no fact.
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}

Number = int | float


class Fact(NamedTuple):
    """What the property of that name must be: one of the values, or between two numbers."""

    name: str
    values: tuple[Any, ...] | None = None  # None means: see the bounds.
    low: Number | None = None  # Inclusive, though the selector's may not be. None means: none.
    high: Number | None = None


Facts = tuple[Fact, ...]


def of_comparison(name: str, sign: str, value: Any, *, turned: bool) -> Facts:
    """Return the facts of `name sign value`, or, turned, of `value sign name`."""
    sign = _TURNED.get(sign, "") if turned else sign
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if sign == "=" and value is not None:
        return (Fact(name, (value,)),)
    if sign in ("<", "<=") and is_number:
        return (Fact(name, high=value),)
    if sign in (">", ">=") and is_number:
        return (Fact(name, low=value),)
    return ()


def of_list(name: str, values: Iterable[str]) -> Facts:
    """Return the facts of `name IN (values)`."""
    found = tuple(values)
    return (Fact(name, found),) if len(found) <= VALUES_MAX else ()


def of_all(parts: Sequence[Facts]) -> Facts:
    """Return the facts of several conditions that must all hold: one for each property."""
    found: dict[str, Fact] = {}
    for fact in (each for facts in parts for each in facts):
        known = found.get(fact.name)
        found[fact.name] = fact if known is None else _both(known, fact)
    return tuple(found.values())


def of_any(parts: Sequence[Facts]) -> Facts:
    """Return the facts of several conditions of which one must hold.

    There are some if each has one about the same property, with values.
    """
    first = parts[0]
    for fact in first:
        values = [*(fact.values or ())]
        for others in parts[1:]:
            other = next((each for each in others if each.name == fact.name), None)
            if other is None or other.values is None:
                break
            values += other.values
        else:
            if fact.values is not None and len(values) <= VALUES_MAX:
                return (Fact(fact.name, tuple(values)),)
    return ()


def _both(one: Fact, other: Fact) -> Fact:
    if one.values is not None or other.values is not None:
        return one if one.values is not None else other
    lows = [each for each in (one.low, other.low) if each is not None]
    highs = [each for each in (one.high, other.high) if each is not None]
    return Fact(one.name, None, max(lows, default=None), min(highs, default=None))
