"""Which of very many selectors select a message, without asking them all.

A selector is filed under one of its facts, the one that the fewest messages are likely to meet:
that a property equals a value, lies between two numbers, or below or above one. A message is
compared with what is filed under its own properties; only those selectors are then asked. So the
cost of a message grows with the selectors that nearly select it, not with all there are. Selectors
without facts (`NOT a = 1`) are asked about every message.

An interval is filed under cells of a grid whose width is a power of two, no less than its own: it
touches two of them at most. A number is looked up in one cell of each grid that is in use.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar

from entrepot.broker.facts import Fact
from entrepot.broker.selector import (
    Expression,
    Selector,
    as_number,
    is_special,
    property_of,
    simple,
)
from entrepot.core.properties import Properties

T = TypeVar("T")

_VALUES_GUESSED = 3  # That a property has, when nothing is known of it.

_Key = tuple[type, Any]  # The kind of a value, and the value: 1 and True are not the same.


class _Entry(Generic[T]):
    """A selector, and what is filed under it."""

    __slots__ = ("bounds", "fact", "item", "number", "selector")

    def __init__(self, selector: Selector, item: T, number: int) -> None:
        self.selector = selector
        self.item = item
        self.number = number  # In the order in which they came.
        self.fact: Fact | None = None  # Under which it is filed. None means: under none.
        # What else is known of numbers: of each header, between which two it is.
        self.bounds = tuple(
            (fact.name, _or(fact.low, -math.inf), _or(fact.high, math.inf))
            for fact in selector.facts
            if fact.values is None and not is_special(fact.name)
        )

    def may_select(self, numbers: Mapping[str, Any]) -> bool:
        """Return whether the headers that are numbers are within the bounds."""
        for name, low, high in self.bounds:
            number = numbers.get(name)
            if number is None or number < low or number > high:
                return False
        return True


class _Attribute(Generic[T]):
    """What is filed under facts about one property."""

    def __init__(self, name: str) -> None:
        self.read: Expression = property_of(name)
        self._equal: dict[_Key, dict[_Entry[T], None]] = {}
        self._cells: dict[tuple[int, int], dict[_Entry[T], None]] = {}  # By width and number.
        self._widths: dict[int, int] = {}  # Powers of two, each with the number of its intervals.
        self._above: list[tuple[Any, int, _Entry[T]]] = []  # Sorted by their lower bound,
        self._below: list[tuple[Any, int, _Entry[T]]] = []  # or by their upper one.
        self.count = 0

    def load(self, fact: Fact) -> float:
        """Return the part of all messages, as a guess, that meet a fact about this property.

        The more values there are among the facts, the rarer each is among messages.
        """
        if fact.values is not None:
            return len(fact.values) / (len(fact.values) + _VALUES_GUESSED + len(self._equal))
        if fact.low is not None and fact.high is not None:
            return 1 / (1 + _VALUES_GUESSED + len(self._cells))
        return 0.5

    def add(self, entry: _Entry[T], fact: Fact) -> None:
        self.count += 1
        if fact.values is not None:
            for key in _keys(fact.values):
                self._equal.setdefault(key, {})[entry] = None
        elif fact.low is not None and fact.high is not None:
            for cell in _cells(fact.low, fact.high):
                self._cells.setdefault(cell, {})[entry] = None
                self._widths[cell[0]] = self._widths.get(cell[0], 0) + 1
        elif fact.low is not None:
            insort(self._above, (fact.low, entry.number, entry))
        else:
            insort(self._below, (fact.high, entry.number, entry))

    def remove(self, entry: _Entry[T], fact: Fact) -> None:
        self.count -= 1
        if fact.values is not None:
            for key in _keys(fact.values):
                _discard(self._equal, key, entry)
        elif fact.low is not None and fact.high is not None:
            for cell in _cells(fact.low, fact.high):
                _discard(self._cells, cell, entry)
                self._widths[cell[0]] -= 1
                if not self._widths[cell[0]]:
                    del self._widths[cell[0]]
        else:
            bound, among = fact.low, self._above
            if bound is None:
                bound, among = fact.high, self._below
            del among[bisect_left(among, (bound, entry.number))]

    def candidates(self, value: Any) -> Iterable[_Entry[T]]:
        """Yield what may select a message with this value, perhaps more than once."""
        number = as_number(value)
        for each in dict.fromkeys(map(_key, (value, number))):
            yield from self._equal.get(each, ())
        if isinstance(number, bool) or not isinstance(number, int | float) or number != number:
            return
        for width in self._widths:
            cell = _cell(number, width)
            if cell is not None:
                yield from self._cells.get((width, cell), ())
        if self._above:
            end = bisect_right(self._above, (number, math.inf))
            yield from [entry for _, _, entry in self._above[:end]]
        if self._below:
            start = bisect_left(self._below, (number, -1))
            yield from [entry for _, _, entry in self._below[start:]]


class SelectorIndex(Generic[T]):
    """Selectors with an item each."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[T]] = {}  # By the selector's text.
        self._attributes: dict[str, _Attribute[T]] = {}
        self._special: dict[str, None] = {}  # Of their names, those that are no headers.
        self._others: dict[_Entry[T], None] = {}  # Without facts.
        self._next = 0

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, text: str) -> T | None:
        entry = self._entries.get(text)
        return None if entry is None else entry.item

    def get_or_add(self, selector: Selector, make: Callable[[], T]) -> T:
        """Return the item of this selector; make it if there is none."""
        entry = self._entries.get(selector.text)
        if entry is None:
            entry = self._entries[selector.text] = _Entry(selector, make(), self._next)
            self._next += 1
            self._file(entry)
        return entry.item

    def remove(self, text: str) -> None:
        entry = self._entries.pop(text)
        if entry.fact is None:
            del self._others[entry]
            return
        name = entry.fact.name
        attribute = self._attributes[name]
        attribute.remove(entry, entry.fact)
        if not attribute.count:
            del self._attributes[name]
            self._special.pop(name, None)

    def match(self, properties: Properties) -> list[T]:
        """Return the items of the selectors that select a message with these properties."""
        found: dict[_Entry[T], None] = {}
        attributes = self._attributes
        names = [name for name in properties.headers if name in attributes]
        for name in (*names, *self._special):
            attribute = attributes[name]
            value = attribute.read(properties)
            if value is not None:
                for entry in attribute.candidates(value):
                    found[entry] = None
        if not found and not self._others:
            return []
        # Most can be ruled out by bounds, which is much quicker than to ask.
        numbers = _numbers(properties.headers)
        asked = [entry for entry in (*found, *self._others) if entry.may_select(numbers)]
        return [entry.item for entry in asked if entry.selector.selects(properties)]

    def _file(self, entry: _Entry[T]) -> None:
        best: tuple[float, Fact] | None = None
        for fact in entry.selector.facts:
            attribute = self._attributes.get(fact.name)
            if attribute is None:
                attribute = _Attribute(fact.name)
            load = attribute.load(fact)
            if best is None or load < best[0]:
                best = load, fact
        if best is None:
            self._others[entry] = None
            return
        fact = entry.fact = best[1]
        attribute = self._attributes.get(fact.name)
        if attribute is None:
            attribute = self._attributes[fact.name] = _Attribute(fact.name)
            if is_special(fact.name):
                self._special[fact.name] = None
        attribute.add(entry, fact)


def _key(value: Any) -> _Key:
    if isinstance(value, bool | str):
        return type(value), value
    return float, value


def _numbers(headers: Mapping[str, Any]) -> dict[str, Any]:
    """Return the headers that are numbers, or texts that can be read as such."""
    found = {}
    for name, value in headers.items():
        if isinstance(value, str | bytes):
            value = as_number(simple(value))
        if isinstance(value, int | float) and not isinstance(value, bool):
            found[name] = value
    return found


def _or(value: int | float | None, default: float) -> int | float:
    return default if value is None else value


def _keys(values: Iterable[Any]) -> Iterable[_Key]:
    """Return what equals one of the values, also as a text that is read as a number."""
    return dict.fromkeys(_key(each) for value in values for each in (value, as_number(value)))


def _cells(low: int | float, high: int | float) -> list[tuple[int, int]]:
    """Return the cells that an interval touches, with their width."""
    try:
        size = float(high) - float(low)
        width = math.frexp(size)[1] if size > 0 else 0
        first, last = _cell(low, width), _cell(high, width)
    except OverflowError:
        first = last = None
    if first is None or last is None or not -1_000 < width < 1_000:
        return [(_EVERYWHERE, 0)]
    return [(width, number) for number in range(first, last + 1)]


_EVERYWHERE = 10_000  # The width of one cell that has all numbers.


def _cell(number: int | float, width: int) -> int | None:
    if width == _EVERYWHERE:
        return 0
    try:
        return math.floor(math.ldexp(float(number), -width))
    except (OverflowError, ValueError):
        return None


def _discard(among: dict[Any, dict[_Entry[T], None]], key: Any, entry: _Entry[T]) -> None:
    entries = among[key]
    del entries[entry]
    if not entries:
        del among[key]
