"""What routers of events say to each other: values in a simulation, MessagePack between processes.

A message is an array whose first element is its number, as those of `wire.gossip`, and travels
between nodes in the pieces of `Streams`. Numbers never change their meaning.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from entrepot.cluster.routing.matching import Filter, Name, Value
from entrepot.wire.gossip.messages import (
    Count,
    GroupJoin,
    GroupLeave,
    GroupMessage,
    GroupSend,
    NodeId,
)

ATTRIBUTES_MAX = 32  # Of an event.

EventName = tuple[NodeId, Count]  # Where it was published, and the count there.
Attributes = Annotated[dict[Name, Value], Meta(max_length=ATTRIBUTES_MAX)]


class Publication(msgspec.Struct, frozen=True, array_like=True, tag=80):
    name: EventName
    event: Attributes
    hops: Count

    def further(self) -> Publication:
        return Publication(self.name, self.event, self.hops + 1)


class Delivery(msgspec.Struct, frozen=True, array_like=True, tag=81):
    """A publication for the receiver itself: it is not routed any more."""

    publication: Publication


class Addressed(msgspec.Struct, frozen=True, array_like=True, tag=82):
    """A publication for the receiver, and for others that it is to be sent on to."""

    publication: Publication
    others: tuple[NodeId, ...]


class Subscription(msgspec.Struct, frozen=True, array_like=True, tag=83):
    filter: Filter
    subscriber: NodeId  # Who is to get the events; of filtering, the neighbour.


class Advertisement(msgspec.Struct, frozen=True, array_like=True, tag=84):
    filter: Filter  # Covers whatever its publisher will publish.


class Interests(msgspec.Struct, frozen=True, array_like=True, tag=85):
    """Which node is interested in what, as far as the sender knows."""

    filters: tuple[tuple[NodeId, tuple[Filter, ...]], ...]
    is_question: bool  # Answered with those of the receiver.


class Held(msgspec.Struct, frozen=True, array_like=True, tag=86):
    """The names of events that the sender has, and the receiver may want."""

    names: tuple[EventName, ...]


class Wanted(msgspec.Struct, frozen=True, array_like=True, tag=87):
    names: tuple[EventName, ...]


Message = (
    Publication | Delivery | Addressed | Subscription | Advertisement
    | Interests | Held | Wanted
    | GroupJoin | GroupLeave | GroupSend | GroupMessage
)  # fmt: skip
