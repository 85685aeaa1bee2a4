"""Selector exchanges: a binding has a selector, and gets the messages that it selects.

Bindings with the same selector share one look. Which selectors are asked about a message, an index
of their facts says: see `selector_index`.
"""

from __future__ import annotations

from entrepot.broker.router.event import Binding
from entrepot.broker.router.matching import Destinations, Matches, Routed, union
from entrepot.broker.selector import Selector
from entrepot.broker.selector_index import SelectorIndex
from entrepot.core.errors import InvalidSelector

_ALL = "TRUE"


class SelectorMatcher:
    reads_headers = True

    def __init__(self) -> None:
        self._index = SelectorIndex[Destinations]()

    def add(self, binding: Binding) -> None:
        selector = _selector(binding)
        if selector is not None:
            self._index.get_or_add(selector, Destinations).add(binding.destination)

    def remove(self, binding: Binding) -> None:
        selector = _selector(binding)
        if selector is None:
            return
        found = self._index.get(selector.text)
        assert found is not None, binding
        found.remove(binding.destination)
        if not found:
            self._index.remove(selector.text)

    def match(self, message: Routed) -> Matches:
        return union([each.matches() for each in self._index.match(message.properties)])


def _selector(binding: Binding) -> Selector | None:
    """Return a binding's selector. None means: another release wrote one that cannot be parsed,
    which selects nothing."""
    text = next((value for _, value in binding.conditions), _ALL)
    try:
        return Selector(str(text))
    except InvalidSelector:
        return None
