"""Headers exchanges: a binding has conditions on a message's headers.

A condition asks for a value, or with no value for the header to be there. All of a binding's
conditions must hold, or any.

A binding that wants all is filed under one of its conditions, the one with the fewest others
when it was made: it is looked at only when a message meets that one. A binding that is
content with any is filed under each of them. So a message costs its own headers, and the
bindings that share a rare one with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from entrepot.broker.router.event import Binding, Destination, Match
from entrepot.broker.router.matching import Matches, Message, divided
from entrepot.core.value import Frozen, freeze

Condition = tuple[str, Frozen]  # A header's name, and its value or None for any.


class _Wish(NamedTuple):
    destination: Destination
    others: tuple[Condition, ...]  # What must hold beside the condition that it is filed under.


class HeadersMatcher:
    reads_headers = True

    def __init__(self) -> None:
        self._unconditional: dict[Binding, None] = {}
        self._files: dict[Condition, dict[Binding, _Wish]] = {}
        self._filed: dict[Binding, tuple[Condition, ...]] = {}  # Under which conditions.

    def add(self, binding: Binding) -> None:
        conditions = binding.conditions
        if binding.match is Match.ANY:
            self._file(binding, conditions, ())
        elif conditions:
            rarest = min(conditions, key=lambda condition: len(self._files.get(condition, ())))
            others = tuple(condition for condition in conditions if condition != rarest)
            self._file(binding, (rarest,), others)
        else:
            self._unconditional[binding] = None

    def _file(
        self, binding: Binding, under: tuple[Condition, ...], others: tuple[Condition, ...]
    ) -> None:
        wish = _Wish(binding.destination, others)
        self._filed[binding] = under
        for condition in under:
            self._files.setdefault(condition, {})[binding] = wish

    def remove(self, binding: Binding) -> None:
        self._unconditional.pop(binding, None)
        for condition in self._filed.pop(binding, ()):
            file = self._files[condition]
            del file[binding]
            if not file:
                del self._files[condition]

    def match(self, message: Message) -> Matches:
        files = self._files
        headers = {name: freeze(value) for name, value in message.headers.items()}
        found = {binding.destination: None for binding in self._unconditional}
        for name, value in headers.items():
            if (file := files.get((name, None))) is not None:
                _collect(file, headers, found)
            if value is not None and (file := files.get((name, value))) is not None:
                _collect(file, headers, found)
        return divided(found)


def _collect(
    file: Mapping[Binding, _Wish], headers: Mapping[str, Frozen], found: dict[Destination, None]
) -> None:
    """Adds the destinations in the file for which the other conditions hold too."""
    for destination, others in file.values():
        for name, value in others:
            if name not in headers or (value is not None and headers[name] != value):
                break
        else:
            found[destination] = None
