"""What routers of events say to each other. They travel in simulations only, as values."""

from __future__ import annotations

from dataclasses import dataclass

from entrepot.cluster.gossip.framework import Peer
from entrepot.cluster.routing.matching import Event, Filter

EventName = tuple[Peer, int]  # Where it was published, and the count there.


@dataclass(frozen=True, slots=True)
class Publication:
    name: EventName
    event: Event
    hops: int

    def further(self) -> Publication:
        return Publication(self.name, self.event, self.hops + 1)


@dataclass(frozen=True, slots=True)
class Delivery:
    """A publication for the receiver itself: it is not routed any more."""

    publication: Publication


@dataclass(frozen=True, slots=True)
class Addressed:
    """A publication for the receiver, and for others that it is to be sent on to."""

    publication: Publication
    others: tuple[Peer, ...]


@dataclass(frozen=True, slots=True)
class Subscription:
    filter: Filter
    subscriber: Peer  # Who is to get the events; of filtering, the neighbour.


@dataclass(frozen=True, slots=True)
class Advertisement:
    filter: Filter  # Covers whatever its publisher will publish.


@dataclass(frozen=True, slots=True)
class Interests:
    """Which node is interested in what, as far as the sender knows."""

    filters: tuple[tuple[Peer, tuple[Filter, ...]], ...]
    is_question: bool  # Answered with those of the receiver.


@dataclass(frozen=True, slots=True)
class Held:
    """The names of events that the sender has, and the receiver may want."""

    names: tuple[EventName, ...]


@dataclass(frozen=True, slots=True)
class Wanted:
    names: tuple[EventName, ...]
