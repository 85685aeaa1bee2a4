"""Filters of events: conjunctions of constraints on attributes.

A topic, a subject with a wildcard at its end and a type with its subtypes are constraints as
well: on the attributes `topic` and `type`, whose levels `/` separates.

A filter *covers* another if it matches whatever the other matches: who forwards by the first need
not know the second. Two *overlap* unless they surely have no event in common. Both may err on the
safe side only: a cover that is not seen costs a message, one that is not there costs events.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import Enum
from math import isfinite
from typing import Annotated

import msgspec
from msgspec import Meta

CONSTRAINTS_MAX = 16  # Of one filter.

Name = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(max_length=256)]
Value = Text | float
Event = Mapping[str, Value]

_TRIPLE = re.compile(
    r"""\(\s*([\w.:/-]+)\s*,\s*(=|<|>|below)\s*,\s*("[^"]*"|'[^']*'|[^\s,()"']+)\s*\)"""
)


class Operator(Enum):
    EQUAL = "="
    LESS = "<"
    MORE = ">"
    BELOW = "below"  # This text, or anything below it: `a/b` is below `a`.


class Constraint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    attribute: Name
    operator: Operator
    value: Value

    def matches(self, event: Event) -> bool:
        value = event.get(self.attribute)
        if value is None or isinstance(value, str) != isinstance(self.value, str):
            return False
        match self.operator:
            case Operator.EQUAL:
                return value == self.value
            case Operator.LESS:
                return value < self.value  # type: ignore[operator]  # Both are of one kind.
            case Operator.MORE:
                return value > self.value  # type: ignore[operator]  # As above.
            case Operator.BELOW:
                return f"{value}/".startswith(f"{self.value}/")

    def covers(self, other: Constraint) -> bool:
        """Return whether whatever satisfies the other satisfies this one."""
        if self.attribute != other.attribute:
            return False
        if other.operator is Operator.EQUAL:
            return self.matches({other.attribute: other.value})
        if self.operator is not other.operator:
            return False
        if isinstance(self.value, str) != isinstance(other.value, str):
            return False
        match self.operator:
            case Operator.LESS:
                return self.value >= other.value  # type: ignore[operator]  # As above.
            case Operator.MORE:
                return self.value <= other.value  # type: ignore[operator]  # As above.
            case Operator.BELOW:
                return f"{other.value}/".startswith(f"{self.value}/")
        return False

    def excludes(self, other: Constraint) -> bool:
        """Return whether it is sure that nothing satisfies both."""
        if self.attribute != other.attribute:
            return False
        for one, two in ((self, other), (other, self)):
            if one.operator is Operator.EQUAL and not two.matches({one.attribute: one.value}):
                return True
            both = isinstance(one.value, float) and isinstance(two.value, float)
            if (one.operator, two.operator) == (Operator.LESS, Operator.MORE) and both:
                return one.value <= two.value  # type: ignore[operator]  # Both are numbers.
        if self.operator is other.operator is Operator.BELOW:
            return not (self.covers(other) or other.covers(self))
        return False


class Filter(msgspec.Struct, frozen=True, array_like=True):
    constraints: Annotated[tuple[Constraint, ...], Meta(max_length=CONSTRAINTS_MAX)]

    def matches(self, event: Event) -> bool:
        return all(each.matches(event) for each in self.constraints)

    def covers(self, other: Filter) -> bool:
        return all(
            any(mine.covers(theirs) for theirs in other.constraints) for mine in self.constraints
        )

    def overlaps(self, other: Filter) -> bool:
        return not any(
            mine.excludes(theirs) for mine in self.constraints for theirs in other.constraints
        )

    @property
    def topic(self) -> str | None:
        """Return the topic that an event must have; None if it may have any of several."""
        for each in self.constraints:
            if each.attribute == "topic" and each.operator is Operator.EQUAL:
                return str(each.value)
        return None


def filter_of(*constraints: tuple[str, str, Value]) -> Filter:
    """Return a filter of triples such as `("price", "<", 100.0)`."""
    return Filter(tuple(Constraint(name, Operator(op), value) for name, op, value in constraints))


def parse_filter(text: str) -> Filter:
    """Read triples: `{(company, =, "Telco"), (price, <, 100)}`, or without the braces.

    Raises ValueError that says from which place on it cannot be read.
    """
    begin, end = 0, len(text.rstrip())
    if text.startswith("{") and text[:end].endswith("}"):
        begin, end = 1, end - 1
    triples: list[tuple[str, str, Value]] = []
    while found := _TRIPLE.match(text, begin + _blanks(text, begin), end):
        name, operator, value = found.groups()
        triples.append((name, operator, _value(value, found.start(3))))
        begin = found.end() + _blanks(text, found.end())
        if begin >= end:
            break
        if text[begin] != ",":
            raise ValueError(f"a comma is missing at {begin}: {text}")
        begin += 1
    else:
        raise ValueError(f'no triple such as (price, <, 100) or (company, =, "Telco") at {begin}')
    if len(triples) > CONSTRAINTS_MAX:
        raise ValueError(f"a filter has at most {CONSTRAINTS_MAX} triples")
    made = filter_of(*triples)
    try:
        return msgspec.convert(msgspec.to_builtins(made), Filter)  # Within the limits.
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None


def _blanks(text: str, begin: int) -> int:
    return len(text) - begin - len(text[begin:].lstrip())


def _value(text: str, place: int) -> Value:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        number = float(text)
    except ValueError:
        raise ValueError(f"{text}, at {place}, is no number: a text is in quotes") from None
    if not isfinite(number):
        raise ValueError(f"{text}, at {place}, is no number")
    return number
