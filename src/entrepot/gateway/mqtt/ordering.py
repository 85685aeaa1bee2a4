"""Which topics are unordered: what is published there need not wait for what is sent again.

A topic is ordered unless an operator says otherwise. After a crash the broker has to look whether
it stored a message of QoS 2 that a client sends again, and what the client published behind it
waits meanwhile: subscribers get both in their order. On unordered topics it does not wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from entrepot.broker.subject.filter import QUEUE, SHARED, check_path_filter, of_path_filter
from entrepot.broker.subject.index import FilterIndex
from entrepot.broker.subject.name import levels_of
from entrepot.core.errors import InvalidName
from entrepot.core.message import Message, distinct


class Unordered:
    __slots__ = ("_filters",)

    def __init__(self, filters: Iterable[str] = ()) -> None:
        """Raises InvalidName."""
        self._filters = FilterIndex[bool]()
        for each in filters:
            check_path_filter(each)
            if each.startswith((SHARED, QUEUE)):
                raise InvalidName(f"{each!r} is no filter of topics")
            self._filters.get_or_add(of_path_filter(each), lambda: True)

    def has_all(self, messages: Sequence[Message]) -> bool:
        """Return whether all these messages are on unordered topics."""
        if not self._filters.count:
            return False
        return all(self._filters.match(levels_of(each.subject)) for each in distinct(messages))
