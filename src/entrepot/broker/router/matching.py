"""How an exchange finds the destinations of a message: what all types share, and the simple ones.

A matcher answers with two tuples, names of queues and names of exchanges, and keeps them
ready: an exchange with ten thousand queues hands out the same tuple again and again. It may
repeat itself when it is asked about several keys; who asks removes what comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol

from entrepot.broker.router.event import Binding, Destination, Kind

Matches = tuple[tuple[str, ...], tuple[str, ...]]  # Names of queues and names of exchanges.
NO_MATCHES: Matches = ((), ())


class Message(NamedTuple):
    """What of a message decides where it goes."""

    keys: tuple[str, ...]  # The routing key, then those of the headers CC and BCC.
    headers: Mapping[str, object]
    properties: Mapping[str, object]


class Matcher(Protocol):
    reads_headers: bool  # Or else the keys are all that it looks at.

    def add(self, binding: Binding, /) -> None: ...
    def remove(self, binding: Binding, /) -> None: ...
    def match(self, message: Message, /) -> Matches: ...


class Destinations:
    """The destinations of bindings that match alike, each as often as it is bound."""

    __slots__ = ("_counts", "_ready")

    def __init__(self) -> None:
        self._counts: dict[Destination, int] = {}
        self._ready: Matches | None = None  # None: to be made when somebody asks.

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
    queues: list[str] = []
    exchanges: list[str] = []
    for kind, name in destinations:
        (queues if kind is Kind.QUEUE else exchanges).append(name)
    return tuple(queues), tuple(exchanges)


def union(found: list[Matches]) -> Matches:
    """All of them, each name once. The usual answer is a single one, passed on as it is."""
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
    """Everything goes everywhere."""

    reads_headers = False

    def __init__(self) -> None:
        self._all = Destinations()

    def add(self, binding: Binding) -> None:
        self._all.add(binding.destination)

    def remove(self, binding: Binding) -> None:
        self._all.remove(binding.destination)

    def match(self, message: Message) -> Matches:
        return self._all.matches()


class DirectMatcher:
    """The key is the binding's key."""

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

    def match(self, message: Message) -> Matches:
        by_key = self._by_key
        return union([by_key[key].matches() for key in message.keys if key in by_key])
