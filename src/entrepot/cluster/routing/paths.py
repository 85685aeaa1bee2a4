"""Routers whose events take ways of their own.

GroupTree     a group of Scribe for each topic: the tree takes events to all members
ReversePath   subscriptions go towards the node that is responsible for their topic, and leave
              filters on the way; events go there too, and back along those that match
Destinations  every node knows all subscriptions; the publisher's node works out who is to get
              an event, and the list travels with it and is split on the way
LinkMatching  over a tree, every node knows all subscriptions, in a search tree that says to which
              neighbours an event goes on
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import msgspec

from entrepot.cluster.gossip.framework import Peer, Sends
from entrepot.cluster.multicast.scribe import Scribe
from entrepot.cluster.overlay.chord import Chord
from entrepot.cluster.routing.matching import Filter
from entrepot.cluster.routing.messages import Addressed, Publication, Subscription
from entrepot.cluster.routing.routers import Deliver, Placement, Router
from entrepot.cluster.routing.search_tree import SearchTree
from entrepot.wire.gossip.messages import GroupMessage

_BODY = msgspec.json.Decoder(dict[str, str | float])


class GroupTree(Router):
    """For filters that are a topic."""

    hears: ClassVar[tuple[type, ...]] = Scribe.hears

    def __init__(self, me: Peer, deliver: Deliver, chord: Chord) -> None:
        super().__init__(me, deliver)
        self.scribe = Scribe(chord, self._arrived)

    @property
    def state(self) -> int:
        return len(self.own) + self.scribe.children_count

    def subscribe(self, filter: Filter) -> Sends:
        if filter.topic is None or len(filter.constraints) > 1:
            raise ValueError("a group is a topic, and nothing else can be asked for")
        self.own.append(filter)
        return self.scribe.join(filter.topic)

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        body = msgspec.json.encode(dict(publication.event))
        topic = str(publication.event.get("topic", ""))
        return self.scribe.send(topic, body, publication.name[1])

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        return self.scribe.receive(sender, message, now)

    def _arrived(self, message: GroupMessage) -> None:
        name = (message.origin, message.number)
        self._take(Publication(name, _BODY.decode(message.body), message.hops))


class ReversePath(Router):
    hears: ClassVar[tuple[type, ...]] = (Publication, Subscription)

    def __init__(self, me: Peer, deliver: Deliver, placement: Placement) -> None:
        super().__init__(me, deliver)
        self._placement = placement
        self._wanted: dict[str, dict[Peer, list[Filter]]] = {}  # By topic, and by whom.
        self._sent: dict[str, list[Filter]] = {}

    @property
    def state(self) -> int:
        tables = (filters for peers in self._wanted.values() for filters in peers.values())
        return len(self.own) + sum(map(len, tables))

    def subscribe(self, filter: Filter) -> Sends:
        if filter.topic is None:
            raise ValueError("a rendezvous is at a topic: the filter names none")
        self.own.append(filter)
        return self._towards(filter, filter.topic)

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        """Up to the node that is responsible, from there and on the way down where it matches."""
        topic = str(publication.event.get("topic", ""))
        self._take(publication)
        above = self._placement.next(self.me, topic)
        further = publication.further()
        up = [above] if above is not None and above != sender else []
        down = [
            peer
            for peer, filters in self._wanted.get(topic, {}).items()
            if peer not in (sender, above)
            and any(each.matches(publication.event) for each in filters)
        ]
        return [(peer, further) for peer in (*up, *down)]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if type(message) is Publication:
            return self.route(sender, message)
        topic = message.filter.topic
        if topic is None:
            return ()
        filters = self._wanted.setdefault(topic, {}).setdefault(sender, [])
        if any(each.covers(message.filter) for each in filters):
            return ()
        filters[:] = [each for each in filters if not message.filter.covers(each)]
        filters.append(message.filter)
        return self._towards(message.filter, topic)

    def _towards(self, filter: Filter, topic: str) -> Sends:
        sent = self._sent.setdefault(topic, [])
        above = self._placement.next(self.me, topic)
        if above is None or any(each.covers(filter) for each in sent):
            return ()
        sent[:] = [each for each in sent if not filter.covers(each)]
        sent.append(filter)
        return ((above, Subscription(filter, self.me)),)


class Destinations(Router):
    hears: ClassVar[tuple[type, ...]] = (Subscription, Addressed)
    FAN_OUT = 4  # Parts into which a list is split.

    def __init__(self, me: Peer, deliver: Deliver, nodes: Sequence[Peer]) -> None:
        super().__init__(me, deliver)
        self._nodes = nodes
        self._wanted: list[tuple[Filter, Peer]] = []

    @property
    def state(self) -> int:
        return len(self.own) + len(self._wanted)

    def subscribe(self, filter: Filter) -> Sends:
        self.own.append(filter)
        told = Subscription(filter, self.me)
        return [(peer, told) for peer in self._nodes if peer != self.me]

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        self._take(publication)
        found = dict.fromkeys(
            peer for filter, peer in self._wanted if filter.matches(publication.event)
        )
        return self._split(publication, list(found))

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if type(message) is Subscription:
            self._wanted.append((message.filter, message.subscriber))
            return ()
        self._take(message.publication)
        return self._split(message.publication, message.others)

    def _split(self, publication: Publication, destinations: Sequence[Peer]) -> Sends:
        parts = [tuple(destinations[index :: self.FAN_OUT]) for index in range(self.FAN_OUT)]
        further = publication.further()
        return [(part[0], Addressed(further, part[1:])) for part in parts if part]


class LinkMatching(Router):
    hears: ClassVar[tuple[type, ...]] = (Publication, Subscription)

    def __init__(self, me: Peer, deliver: Deliver, neighbours: Sequence[Peer]) -> None:
        super().__init__(me, deliver)
        self.tree: SearchTree[Peer] = SearchTree()
        self._neighbours = neighbours
        self._count = 0

    @property
    def state(self) -> int:
        return len(self.own) + self._count

    def subscribe(self, filter: Filter) -> Sends:
        self.own.append(filter)
        return [(peer, Subscription(filter, self.me)) for peer in self._neighbours]

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        self._take(publication)
        further = publication.further()
        wanted = self.tree.match(publication.event)
        return [(peer, further) for peer in wanted if peer != sender]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if type(message) is Publication:
            return self.route(sender, message)
        self.tree.add(message.filter, sender)
        self._count += 1
        return [(peer, message) for peer in self._neighbours if peer != sender]
