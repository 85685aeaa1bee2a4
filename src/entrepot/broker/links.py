"""The links of this broker to other queue managers, for those who ask what they do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from entrepot.core.record import Record


class StoredLink(msgspec.Struct, frozen=True, omit_defaults=True):
    """A link that was added while the broker ran. Persisted: never change a name."""

    to: str
    address: str
    vhost: str = "/"
    user: str = "guest"
    password: str = "guest"
    tls: bool = False


class StoredLinks:
    """All of these, by the name of the neighbour."""

    def __init__(self) -> None:
        self._links: dict[str, StoredLink] = {}

    def apply(self, name: str, value: bytes | None) -> None:
        """Fold one record of the catalog."""
        if value is None:
            self._links.pop(name, None)
        else:
            self._links[name] = msgspec.json.decode(value, type=StoredLink)

    def all(self) -> Mapping[str, StoredLink]:
        return self._links


def link_record(link: StoredLink) -> Record:
    return Record(f"link:{link.to}".encode(), msgspec.json.encode(link))


def link_deleted_record(name: str) -> Record:
    return Record(f"link:{name}".encode(), None)


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
    async def add(self, link: StoredLink) -> None:
        """Store a link, and connect. One that was added to the same neighbour is replaced. Raises
        InvalidLink, a PeerError, StorageError."""

    async def remove(self, name: str) -> None:
        """Remove a link that was added. What waits for the neighbour stays in its queue. Raises
        InvalidLink, StorageError."""

    def links(self) -> Sequence[LinkFacts]: ...

    def routes(self) -> Sequence[RouteRow]: ...
