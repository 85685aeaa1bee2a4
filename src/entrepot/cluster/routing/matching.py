"""Filters of events: conjunctions of constraints on attributes.

A topic, a subject with a wildcard at its end and a type with its subtypes are constraints as
well: on the attributes `topic` and `type`, whose levels `/` separates.

A filter *covers* another if it matches whatever the other matches: who forwards by the first need
not know the second. Two *overlap* unless they surely have no event in common. Both may err on the
safe side only: a cover that is not seen costs a message, one that is not there costs events.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

Value = str | float
Event = Mapping[str, Value]


class Operator(Enum):
    EQUAL = "="
    LESS = "<"
    MORE = ">"
    BELOW = "below"  # This text, or anything below it: `a/b` is below `a`.


@dataclass(frozen=True, slots=True)
class Constraint:
    attribute: str
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


@dataclass(frozen=True, slots=True)
class Filter:
    constraints: tuple[Constraint, ...]

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
