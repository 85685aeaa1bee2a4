"""Headers exchanges: a binding has conditions on a message's headers.

A condition is that a header has a certain value, or that it is there with any value. All
conditions of a binding must hold, or any of them.

Bindings are indexed by their conditions. A binding that needs all of its conditions is indexed
under one of them, the one that had the fewest bindings when it was made, and is checked only for
messages that meet that one. A binding that needs any is indexed under each. So the cost of a
message depends on its own headers and on the bindings that share a rare condition with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from entrepot.broker.router.event import Binding, Destination, Match
from entrepot.broker.router.matching import Matches, Routed, divided
from entrepot.core.value import Frozen, freeze

Condition = tuple[str, Frozen]  # A header's name and value. None means: any value.


class _Entry(NamedTuple):
    """A binding as it is indexed under one condition."""

    destination: Destination
    others: tuple[Condition, ...]  # The conditions that must also hold.


class HeadersMatcher:
    reads_headers = True

    def __init__(self) -> None:
        self._unconditional: dict[Binding, None] = {}
        self._index: dict[Condition, dict[Binding, _Entry]] = {}
        # Under which conditions each binding is indexed.
        self._conditions: dict[Binding, tuple[Condition, ...]] = {}

    def add(self, binding: Binding) -> None:
        conditions = binding.conditions
        if binding.match is Match.ANY:
            self._add_under(binding, conditions, ())
        elif conditions:
            rarest = min(conditions, key=lambda condition: len(self._index.get(condition, ())))
            others = tuple(condition for condition in conditions if condition != rarest)
            self._add_under(binding, (rarest,), others)
        else:
            self._unconditional[binding] = None

    def _add_under(
        self, binding: Binding, under: tuple[Condition, ...], others: tuple[Condition, ...]
    ) -> None:
        entry = _Entry(binding.destination, others)
        self._conditions[binding] = under
        for condition in under:
            self._index.setdefault(condition, {})[binding] = entry

    def remove(self, binding: Binding) -> None:
        self._unconditional.pop(binding, None)
        for condition in self._conditions.pop(binding, ()):
            entries = self._index[condition]
            del entries[binding]
            if not entries:
                del self._index[condition]

    def match(self, message: Routed) -> Matches:
        index = self._index
        headers = {name: freeze(value) for name, value in message.properties.headers.items()}
        found = {binding.destination: None for binding in self._unconditional}
        for name, value in headers.items():
            if (entries := index.get((name, None))) is not None:
                _collect(entries, headers, found)
            if value is not None and (entries := index.get((name, value))) is not None:
                _collect(entries, headers, found)
        return divided(found)


def _collect(
    entries: Mapping[Binding, _Entry], headers: Mapping[str, Frozen], found: dict[Destination, None]
) -> None:
    """Add to `found` the destinations of the entries whose other conditions hold, too."""
    for destination, others in entries.values():
        for name, value in others:
            if name not in headers or (value is not None and headers[name] != value):
                break
        else:
            found[destination] = None
