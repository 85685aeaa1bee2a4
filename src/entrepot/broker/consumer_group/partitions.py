"""Partitions as groups speak of them: a topic and some of its numbers, together a set."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from entrepot.broker.consumer_group.records import Assignment


def partitions(*assignments: Assignment) -> Iterator[tuple[UUID, int]]:
    for assignment in assignments:
        for topic, numbers in assignment.items():
            for number in numbers:
                yield topic, number


def intersection(one: Assignment, other: Assignment) -> Assignment:
    both = {topic: _among(numbers, other.get(topic, ())) for topic, numbers in one.items()}
    return {topic: numbers for topic, numbers in both.items() if numbers}


def difference(one: Assignment, other: Assignment) -> Assignment:
    rest = {
        topic: _among(numbers, other.get(topic, ()), are=False) for topic, numbers in one.items()
    }
    return {topic: numbers for topic, numbers in rest.items() if numbers}


def _among(
    numbers: tuple[int, ...], others: tuple[int, ...], *, are: bool = True
) -> tuple[int, ...]:
    known = frozenset(others)
    return tuple(number for number in numbers if (number in known) is are)


def is_same(one: Assignment, other: Assignment) -> bool:
    return not difference(one, other) and not difference(other, one)


def has_any(owned: Assignment | None, wanted: Assignment) -> bool:
    """One that does not say what it has may still have everything."""
    return bool(wanted) and (owned is None or bool(intersection(wanted, owned)))
