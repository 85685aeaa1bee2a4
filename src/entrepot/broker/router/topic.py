"""Topic exchanges: keys are words between dots, and the binding keys are patterns of them.

In a pattern `*` matches exactly one word and `#` any number of words, also none. Every dot
separates two words, which may be empty: `*` matches an empty word. Only the empty key has no
words. The patterns are in an index of filters, as are the subscriptions of sessions.
"""

from __future__ import annotations

from entrepot.broker.router.event import Binding
from entrepot.broker.router.matching import Destinations, Matches, Routed, union
from entrepot.broker.subject.filter import of_pattern
from entrepot.broker.subject.index import FilterIndex
from entrepot.broker.subject.name import levels_of


class TopicMatcher:
    reads_headers = False

    def __init__(self) -> None:
        self._index = FilterIndex[Destinations]()

    def add(self, binding: Binding) -> None:
        entry = self._index.get_or_add(of_pattern(binding.key), Destinations)
        entry.add(binding.destination)

    def remove(self, binding: Binding) -> None:
        pattern = of_pattern(binding.key)
        entry = self._index.get(pattern)
        assert entry is not None, binding
        entry.remove(binding.destination)
        if not entry:
            self._index.remove(pattern)

    def match(self, message: Routed) -> Matches:
        keys = message.keys
        if len(keys) == 1:
            return self._match_key(keys[0])
        return union([self._match_key(key) for key in keys])

    def _match_key(self, key: str) -> Matches:
        return union([entry.matches() for entry in self._index.match(levels_of(key))])
