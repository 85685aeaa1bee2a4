"""The links of this broker to other queue managers, for those who ask what they do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class LinkFacts(NamedTuple):
    neighbour: str
    address: str
    is_connected: bool
    is_exactly_once: bool  # The neighbour recognises messages that are sent again.
    problem: str | None  # Why it is not connected, or what the neighbour has refused last.
    waiting: int  # Messages that are to be sent.
    sent: int  # Since the start, as all of these.
    undeliverable: int
    connections: int


class RouteRow(NamedTuple):
    """A line of the routing table."""

    manager: str
    via: str  # The neighbour. Empty: it is this manager.
    distance: int | None  # In steps. None means: not known, for it was set by hand.
    source: str  # "own", "link", "set" or "learned".
    queues: tuple[str, ...]  # That are known to be there.


class Links(Protocol):
    def links(self) -> Sequence[LinkFacts]: ...

    def routes(self) -> Sequence[RouteRow]: ...
