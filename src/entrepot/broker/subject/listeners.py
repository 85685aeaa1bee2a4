"""Who listens to a name: found by an index of filters, and remembered for names seen before.

What is remembered for a name is the audiences of the filters that match it. An audience is all
who listen to one filter, and it is the same object as long as anybody does. So only a filter that
nobody had before, or that nobody has any more, changes what is remembered of the names it
matches; those are found by an index of the remembered names. Who joins or leaves an audience is
noticed by its version.
"""

from __future__ import annotations

from itertools import islice
from typing import Generic, TypeVar

from entrepot.broker.subject.filter import Filter, Wildcard
from entrepot.broker.subject.index import FilterIndex
from entrepot.broker.subject.name import levels_of
from entrepot.broker.subject.name_index import NameIndex
from entrepot.core import limits

# A new filter looks for names it changes in so many places; beyond that all are forgotten.
_PLACES_MAX = 1_000

L = TypeVar("L")


class _Audience(Generic[L]):
    """All who listen to one filter."""

    __slots__ = ("listeners", "version")

    def __init__(self) -> None:
        self.listeners: dict[L, None] = {}
        self.version = 0  # Counts the changes.


class _Reach(Generic[L]):
    """The listeners of all names that the same filters match, each once."""

    __slots__ = ("audiences", "listeners", "version")

    def __init__(self, audiences: tuple[_Audience[L], ...]) -> None:
        self.audiences = audiences
        self.version = -1  # Of all audiences together; they only count up.
        self.listeners: tuple[L, ...] = ()

    def current(self) -> tuple[L, ...]:
        version = 0
        for audience in self.audiences:
            version += audience.version
        if version != self.version:
            self.version = version
            found: dict[L, None] = {}
            for audience in self.audiences:
                found |= audience.listeners
            self.listeners = tuple(found)
        return self.listeners


class Listeners(Generic[L]):
    def __init__(self) -> None:
        self._index = FilterIndex[_Audience[L]]()
        self._seen: dict[str, _Reach[L]] = {}  # By name.
        self._names = NameIndex[str]()  # The same names, to be found by a filter.
        self._reaches: dict[tuple[_Audience[L], ...], _Reach[L]] = {}
        self._nobody = _Reach[L](())
        self.version = 0  # Counts all changes of who listens to what.

    @property
    def filter_count(self) -> int:
        return self._index.count

    def add(self, filter: Filter, listener: L) -> None:
        """Let a listener hear what is published on the names that a filter matches."""
        audience = self._index.get_or_add(filter, _Audience)
        if not audience.listeners:
            self._forget(filter)
        audience.listeners[listener] = None
        audience.version += 1
        self.version += 1

    def remove(self, filter: Filter, listener: L) -> None:
        """Undo `add`."""
        audience = self._index.get(filter)
        assert audience is not None, filter
        del audience.listeners[listener]
        audience.version += 1
        self.version += 1
        if not audience.listeners:
            self._index.remove(filter)
            self._forget(filter)

    def of(self, subject: str) -> tuple[L, ...]:
        """Return those who listen to this name. For equal answers it is mostly the same tuple."""
        reach = self._seen.get(subject)
        if reach is None:
            reach = self._find(subject)
        return reach.current()

    def _find(self, subject: str) -> _Reach[L]:
        if not self._index.count:
            return self._nobody
        levels = levels_of(subject)
        if len(levels) > limits.SUBJECT_LEVELS_MAX:
            return self._nobody
        audiences = tuple(self._index.match(levels, is_private=subject[:1] == "$"))
        reach = self._reaches.get(audiences) if audiences else self._nobody
        if reach is None:
            reach = _Reach(audiences)
        if len(subject) <= limits.SUBJECT_REMEMBERED_CHARACTERS_MAX:
            if len(self._seen) >= limits.SUBJECTS_REMEMBERED_MAX:
                self._forget_all()
            self._seen[subject] = reach
            self._names.put(levels, subject)
            if audiences:
                self._reaches[audiences] = reach
        return reach

    def _forget(self, filter: Filter) -> None:
        """Forget what is remembered of the names that the filter matches."""
        if not self._seen:
            return
        if Wildcard.MANY in filter[:-1]:
            self._forget_all()
            return
        places = self._names.walk(filter)
        found = [each for each in islice(places, _PLACES_MAX) if each is not None]
        if next(places, self) is not self:
            self._forget_all()
            return
        for name in found:
            self._reaches.pop(self._seen.pop(name).audiences, None)
            self._names.remove(levels_of(name))

    def _forget_all(self) -> None:
        self._seen.clear()
        self._names.clear()
        self._reaches.clear()
