"""By which of its subscriptions a session gets what is published on a name.

Mostly a session has one subscription, and everything goes the same way. With several, the way is
found by an index of the session's own filters, and remembered for some names.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from entrepot.broker.session.ports import Quality, Subscription, Way
from entrepot.broker.subject.filter import of_path_filter
from entrepot.broker.subject.index import FilterIndex
from entrepot.broker.subject.name import levels_of
from entrepot.core import limits

_REMEMBERED_MAX = 1_000  # Names whose ways are remembered.
_ANY = Way(Quality.EXACTLY_ONCE)  # Of a message whose subscription has ended meanwhile.


class Ways:
    __slots__ = ("_index", "_known", "_subscriptions", "only")

    def __init__(self) -> None:
        self._subscriptions: dict[str, Subscription] = {}  # By filter.
        self.only: Way | None = None  # Of the only subscription, if there is one.
        self._known: dict[str, Way] = {}  # By subject, a cache.
        self._index: FilterIndex[Subscription] | None = None  # Made when it is needed.

    def add(self, wanted: Subscription) -> None:
        """Add a subscription, or replace the one to the same filter."""
        if wanted.filter in self._subscriptions:
            self.remove(wanted.filter)
        self._subscriptions[wanted.filter] = wanted
        if self._index is not None:
            self._index.get_or_add(of_path_filter(wanted.filter), lambda: wanted)
        self._changed()

    def remove(self, filter: str) -> None:
        del self._subscriptions[filter]
        if self._index is not None:
            self._index.remove(of_path_filter(filter))
        self._changed()

    def _changed(self) -> None:
        if self._known:
            self._known = {}
        self.only = None
        if len(self._subscriptions) == 1:
            self.only = way_of([*self._subscriptions.values()])

    def of(self, subject: str) -> Way:
        """Return how the session gets what is published on a subject."""
        way = self.only
        if way is None:
            way = self._known.get(subject)
            if way is None:
                way = self._find(subject)
        return way

    def _find(self, subject: str) -> Way:
        if self._index is None:
            self._index = FilterIndex()
            for text, each in self._subscriptions.items():
                self._index.get_or_add(of_path_filter(text), partial(_same, each))
        found = self._index.match(levels_of(subject), is_private=subject[:1] == "$")
        way = way_of(found) if found else _ANY
        if len(subject) <= limits.SUBJECT_REMEMBERED_CHARACTERS_MAX:
            if len(self._known) >= _REMEMBERED_MAX:
                self._known.clear()
            self._known[subject] = way
        return way


def _same(subscription: Subscription) -> Subscription:
    return subscription


def way_of(subscriptions: Sequence[Subscription]) -> Way:
    """Return how a session gets a message that all of these subscriptions match."""
    return Way(
        max([each.quality for each in subscriptions]),
        tuple([each.identifier for each in subscriptions if each.identifier]),
        any(each.keeps_retain for each in subscriptions),
        all(each.no_local for each in subscriptions),
    )
