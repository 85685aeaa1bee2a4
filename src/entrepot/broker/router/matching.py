"""How an exchange finds the destinations of a message: what all types share, and the simple ones.

A matcher returns two tuples, names of queues and names of exchanges, and caches them: an
exchange with ten thousand queues returns the same tuple each time. With several keys a name may
be in the result more than once; the caller removes duplicates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from entrepot.broker.router.event import Binding, Destination, DestinationKind
from entrepot.core.properties import Properties

Matches = tuple[tuple[str, ...], tuple[str, ...]]  # Names of queues and names of exchanges.
NO_MATCHES: Matches = ((), ())


class Routed(NamedTuple):
    """The parts of a message that routing depends on."""

    keys: tuple[str, ...]  # Its subject, and the subjects of its copies.
    properties: Properties = Properties()
    delay_ms: int = 0


class Matcher(Protocol):
    reads_headers: bool  # False means: the result depends only on the keys.

    def add(self, binding: Binding, /) -> None: ...
    def remove(self, binding: Binding, /) -> None: ...
    def match(self, message: Routed, /) -> Matches: ...


class Destinations:
    """The destinations of bindings that match the same messages, with the number of bindings."""

    __slots__ = ("_counts", "_ready")

    def __init__(self) -> None:
        self._counts: dict[Destination, int] = {}
        self._ready: Matches | None = None  # A cache. None means: to be computed.

    def __bool__(self) -> bool:
        return bool(self._counts)

    def add(self, destination: Destination) -> None:
        self._counts[destination] = self._counts.get(destination, 0) + 1
        self._ready = None

    def remove(self, destination: Destination) -> None:
        count = self._counts.pop(destination)
        if count > 1:
            self._counts[destination] = count - 1
        self._ready = None

    def matches(self) -> Matches:
        if self._ready is None:
            self._ready = divided(self._counts)
        return self._ready


def divided(destinations: Iterable[Destination]) -> Matches:
    """Return the names of the queues and the names of the exchanges among the destinations."""
    queues: list[str] = []
    exchanges: list[str] = []
    for kind, name in destinations:
        (queues if kind is DestinationKind.QUEUE else exchanges).append(name)
    return tuple(queues), tuple(exchanges)


def union(found: list[Matches]) -> Matches:
    """Return all names that were found, each once. A single result is returned as it is."""
    if len(found) == 1:
        return found[0]
    if not found:
        return NO_MATCHES
    queues: dict[str, None] = {}
    exchanges: dict[str, None] = {}
    for more_queues, more_exchanges in found:
        queues.update(dict.fromkeys(more_queues))
        exchanges.update(dict.fromkeys(more_exchanges))
    return tuple(queues), tuple(exchanges)


class FanoutMatcher:
    """Every message goes to all destinations."""

    reads_headers = False

    def __init__(self) -> None:
        self._all = Destinations()

    def add(self, binding: Binding) -> None:
        self._all.add(binding.destination)

    def remove(self, binding: Binding) -> None:
        self._all.remove(binding.destination)

    def match(self, message: Routed) -> Matches:
        return self._all.matches()


class DirectMatcher:
    """A message goes to the bindings whose key equals its own."""

    reads_headers = False

    def __init__(self) -> None:
        self._by_key: dict[str, Destinations] = {}

    def add(self, binding: Binding) -> None:
        self._by_key.setdefault(binding.key, Destinations()).add(binding.destination)

    def remove(self, binding: Binding) -> None:
        destinations = self._by_key[binding.key]
        destinations.remove(binding.destination)
        if not destinations:
            del self._by_key[binding.key]

    def match(self, message: Routed) -> Matches:
        by_key = self._by_key
        return union([by_key[key].matches() for key in message.keys if key in by_key])
