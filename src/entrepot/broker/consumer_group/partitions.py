"""Partitions as groups speak of them: a topic and some of its numbers, together a set."""

from __future__ import annotations

from uuid import UUID

from entrepot.broker.consumer_group.records import Assignment
from entrepot.core.steps import Steps


def intersection(one: Assignment, other: Assignment) -> Steps[Assignment]:
    return (yield from _compare(one, other, are=True))


def difference(one: Assignment, other: Assignment) -> Steps[Assignment]:
    return (yield from _compare(one, other, are=False))


def _compare(one: Assignment, other: Assignment, *, are: bool) -> Steps[Assignment]:
    """Those of the one that are, or are not, in the other."""
    found: dict[UUID, tuple[int, ...]] = {}
    for topic, numbers in one.items():
        known = frozenset(other.get(topic, ()))
        if some := tuple([number for number in numbers if (number in known) is are]):
            found[topic] = some
        yield
    return found


def is_same(one: Assignment, other: Assignment) -> Steps[bool]:
    return not (yield from difference(one, other)) and not (yield from difference(other, one))


def has_any(owned: Assignment | None, wanted: Assignment) -> Steps[bool]:
    """One that does not say what it has may still have everything."""
    return bool(wanted) and (owned is None or bool((yield from intersection(wanted, owned))))


class Holders:
    """Who has a partition, or lets go of it."""

    def __init__(self) -> None:
        self._holders: dict[UUID, dict[int, str]] = {}  # By topic and partition.

    def set(self, member_id: str, assignment: Assignment) -> None:
        for topic, numbers in assignment.items():
            self._holders.setdefault(topic, {}).update(dict.fromkeys(numbers, member_id))

    def clear(self, member_id: str, assignment: Assignment) -> None:
        """Free those that this one has."""
        for topic, numbers in assignment.items():
            held = self._holders.get(topic, {})
            for number in numbers:
                if held.get(number) == member_id:
                    del held[number]
            if not held:
                self._holders.pop(topic, None)

    def free(self, member_id: str, wanted: Assignment) -> Steps[Assignment]:
        """Return those that nobody else has."""
        found: dict[UUID, tuple[int, ...]] = {}
        for topic, numbers in wanted.items():
            held = self._holders.get(topic, {})
            if some := tuple([n for n in numbers if held.get(n, member_id) == member_id]):
                found[topic] = some
            yield
        return found
