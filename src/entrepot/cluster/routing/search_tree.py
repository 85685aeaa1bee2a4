"""A search tree of subscriptions: those that begin alike share the beginning of a path.

An edge is what a filter says about one attribute; attributes come in the order of their names, and
a filter passes over those that it says nothing about. An event goes along all edges that it
satisfies, at the same time, and finds at their ends who wants it. So what many subscriptions have
in common is looked at once for all of them, and what an event does not satisfy is not looked into.
"""

from __future__ import annotations

from itertools import groupby
from typing import Generic, TypeVar

from entrepot.cluster.routing.matching import Constraint, Event, Filter, Operator, Value

T = TypeVar("T")


class SearchTree(Generic[T]):
    def __init__(self) -> None:
        self.steps = 0  # How many edges events were compared with.
        self._root: _Node[T] = _Node()

    def add(self, filter: Filter, wants: T) -> None:
        """Have an event that matches the filter found to be wanted."""
        node = self._root
        ordered = sorted(filter.constraints, key=lambda each: each.attribute)
        for attribute, group in groupby(ordered, key=lambda each: each.attribute):
            node = node.child(attribute, tuple(group))
        node.wanted[wants] = None

    def match(self, event: Event) -> dict[T, None]:
        """Return who wants an event, in the order in which they are found."""
        found: dict[T, None] = {}
        waiting = [self._root]
        while waiting:
            node = waiting.pop()
            found.update(node.wanted)
            for attribute, equal in node.equal.items():
                self.steps += 1
                below = equal.get(event.get(attribute))
                if below is not None:
                    waiting.append(below)
            for constraints, below in node.others.items():
                self.steps += 1
                if all(each.matches(event) for each in constraints):
                    waiting.append(below)
        return found


class _Node(Generic[T]):
    def __init__(self) -> None:
        self.wanted: dict[T, None] = {}
        self.equal: dict[str, dict[Value | None, _Node[T]]] = {}  # By attribute, and its value.
        self.others: dict[tuple[Constraint, ...], _Node[T]] = {}

    def child(self, attribute: str, constraints: tuple[Constraint, ...]) -> _Node[T]:
        if len(constraints) == 1 and constraints[0].operator is Operator.EQUAL:
            values = self.equal.setdefault(attribute, {})
            return values.setdefault(constraints[0].value, _Node())
        return self.others.setdefault(constraints, _Node())
