"""Assignments as sets of partitions: topic id -> partition numbers."""

from __future__ import annotations

from uuid import UUID

from entrepot.broker.consumer_group.records import Assignment
from entrepot.core.steps import Steps


def intersection(one: Assignment, other: Assignment) -> Steps[Assignment]:
    """Return the partitions that are in both."""
    return (yield from _compare(one, other, are=True))


def difference(one: Assignment, other: Assignment) -> Steps[Assignment]:
    """Return the partitions of `one` that are not in `other`."""
    return (yield from _compare(one, other, are=False))


def _compare(one: Assignment, other: Assignment, *, are: bool) -> Steps[Assignment]:
    """Return the partitions of `one` that are (or, with `are` false, are not) in `other`."""
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
    """Return whether a member has some of the wanted partitions.

    None for `owned` means: it does not say, so it may have all.
    """
    return bool(wanted) and (owned is None or bool((yield from intersection(wanted, owned))))


class Holders:
    """Which member has a partition, or is still giving it up."""

    def __init__(self) -> None:
        self._holders: dict[UUID, dict[int, str]] = {}  # By topic and partition.

    def set(self, member_id: str, assignment: Assignment) -> None:
        for topic, numbers in assignment.items():
            self._holders.setdefault(topic, {}).update(dict.fromkeys(numbers, member_id))

    def clear(self, member_id: str, assignment: Assignment) -> None:
        """Free the partitions of the assignment that this member has."""
        for topic, numbers in assignment.items():
            held = self._holders.get(topic, {})
            for number in numbers:
                if held.get(number) == member_id:
                    del held[number]
            if not held:
                self._holders.pop(topic, None)

    def free(self, member_id: str, wanted: Assignment) -> Steps[Assignment]:
        """Return the wanted partitions that no other member has."""
        found: dict[UUID, tuple[int, ...]] = {}
        for topic, numbers in wanted.items():
            held = self._holders.get(topic, {})
            if some := tuple([n for n in numbers if held.get(n, member_id) == member_id]):
                found[topic] = some
            yield
        return found
