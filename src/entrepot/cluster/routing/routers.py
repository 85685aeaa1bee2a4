"""Routers of events, one class for each strategy; a node has one.

    Flooding    events go everywhere, subscriptions nowhere
    Filtering   subscriptions go everywhere, unless one that covers them went there; events only
                where a subscription came from that matches. Over a tree
    Advertising the same, but subscriptions go only where a publisher announced what overlaps
    Rendezvous  subscriptions and events meet at the node that is responsible for the topic
    Informed    interests are gossiped; an event is gossiped among those who are interested

All hand an event to a subscriber of their node once, if one of its filters matches.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from entrepot.cluster.gossip.framework import PERIOD_S, Peer, PeerSelection, Sends
from entrepot.cluster.gossip.peers import some_of
from entrepot.cluster.overlay.chord import Chord, key_of, position_of
from entrepot.cluster.routing.matching import Event, Filter
from entrepot.cluster.routing.messages import (
    Advertisement,
    Delivery,
    EventName,
    Held,
    Interests,
    Publication,
    Subscription,
    Wanted,
)
from entrepot.core.ports import Entropy

SEEN_MAX = 10_000
ROUNDS = 5  # In which an event is pushed by a node that has it, with informed gossip.
HELD_ROUNDS = 30  # In which it is offered to those who may have missed it.
FAN_OUT = 2

Deliver = Callable[[Publication], None]


class Router:
    """What all strategies share: the node's own subscribers, and what was seen."""

    hears: ClassVar[tuple[type, ...]] = ()
    is_active: bool = False

    def __init__(self, me: Peer, deliver: Deliver) -> None:
        self.period_s = PERIOD_S
        self.me = me
        self.own: list[Filter] = []  # Of subscribers at this node.
        self._deliver = deliver
        self._number = 0
        self._seen: dict[EventName, None] = {}

    @property
    def state(self) -> int:
        """Return how many filters it keeps."""
        return len(self.own)

    def subscribe(self, filter: Filter) -> Sends:
        self.own.append(filter)
        return ()

    def advertise(self, filter: Filter) -> Sends:
        """Announce what will be published here. Most strategies need no announcement."""
        return ()

    def publish(self, event: Event) -> Sends:
        self._number += 1
        return self.route(None, Publication((self.me, self._number), dict(event), 0))

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        raise NotImplementedError

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        """Take in a message, which is one of those in `hears`."""
        raise NotImplementedError

    def tick(self, now: float) -> Sends:
        return ()

    def _take(self, publication: Publication) -> bool:
        """Hand a publication to subscribers here; return whether it came for the first time."""
        if publication.name in self._seen:
            return False
        self._seen[publication.name] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        if any(each.matches(publication.event) for each in self.own):
            self._deliver(publication)
        return True


class Flooding(Router):
    hears: ClassVar[tuple[type, ...]] = (Publication,)

    def __init__(self, me: Peer, deliver: Deliver, neighbours: Sequence[Peer]) -> None:
        super().__init__(me, deliver)
        self._neighbours = neighbours

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        if not self._take(publication):
            return ()
        further = publication.further()
        return [(peer, further) for peer in self._neighbours if peer != sender]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        return self.route(sender, message)


class Filtering(Router):
    """Over a tree: what comes from a neighbour is not wanted back, and there are no other ways."""

    hears: ClassVar[tuple[type, ...]] = (Publication, Subscription, Advertisement)

    def __init__(
        self,
        me: Peer,
        deliver: Deliver,
        neighbours: Sequence[Peer],
        *,
        by_advertisement: bool = False,
    ) -> None:
        super().__init__(me, deliver)
        self._neighbours = neighbours
        self._by_advertisement = by_advertisement
        self._wanted: dict[Peer, list[Filter]] = {peer: [] for peer in neighbours}
        self._sent: dict[Peer, list[Filter]] = {peer: [] for peer in neighbours}
        self._announced: dict[Peer, list[Filter]] = {peer: [] for peer in neighbours}

    @property
    def state(self) -> int:
        tables = (*self._wanted.values(), *self._announced.values())
        return len(self.own) + sum(map(len, tables))

    def subscribe(self, filter: Filter) -> Sends:
        self.own.append(filter)
        return self._pass_on(None, filter)

    def advertise(self, filter: Filter) -> Sends:
        if not self._by_advertisement:
            return ()
        return [(peer, Advertisement(filter)) for peer in self._neighbours]

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        self._take(publication)
        further = publication.further()
        return [
            (peer, further)
            for peer, filters in self._wanted.items()
            if peer != sender and any(each.matches(publication.event) for each in filters)
        ]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if sender not in self._wanted:  # No neighbour.
            return ()
        if type(message) is Publication:
            return self.route(sender, message)
        if type(message) is Subscription:
            filters = self._wanted[sender]
            if any(each.covers(message.filter) for each in filters):
                return ()
            filters[:] = [each for each in filters if not message.filter.covers(each)]
            filters.append(message.filter)
            return self._pass_on(sender, message.filter)
        return self._announce(sender, message)

    def _pass_on(self, sender: Peer | None, filter: Filter) -> Sends:
        """Send a subscription on to where events may come from, unless a wider one was sent."""
        sends = []
        for peer in self._neighbours:
            sent = self._sent[peer]
            if peer == sender or any(each.covers(filter) for each in sent):
                continue
            if self._by_advertisement and not any(
                each.overlaps(filter) for each in self._announced[peer]
            ):
                continue
            sent[:] = [each for each in sent if not filter.covers(each)]
            sent.append(filter)
            sends.append((peer, Subscription(filter, self.me)))
        return sends

    def _announce(self, sender: Peer, message: Advertisement) -> Sends:
        """Pass an advertisement on, and send the subscriptions back that it is of interest to."""
        self._announced[sender].append(message.filter)
        sends: list[tuple[Peer, Any]] = [
            (peer, message) for peer in self._neighbours if peer != sender
        ]
        known = [*self.own]
        for peer, filters in self._wanted.items():
            known += filters if peer != sender else []
        for filter in known:
            if message.filter.overlaps(filter) and not any(
                each.covers(filter) for each in self._sent[sender]
            ):
                self._sent[sender].append(filter)
                sends.append((sender, Subscription(filter, self.me)))
        return sends


class Placement(Protocol):
    """Where the node is that is responsible for a topic."""

    def next(self, me: Peer, topic: str) -> Peer | None:
        """Return who is next on the way to it; None if it is this node."""


class Flat:
    """No master: a hash of the topic picks the node, and everybody knows all nodes."""

    def __init__(self, nodes: Sequence[Peer]) -> None:
        self._nodes = nodes

    def next(self, me: Peer, topic: str) -> Peer | None:
        node = self._nodes[key_of(topic) % len(self._nodes)]
        return None if node == me else node


class Hierarchical:
    """A master, which alone knows the workers; each of them has the topics of its hashes."""

    def __init__(self, master: Peer, workers: Sequence[Peer]) -> None:
        self._master = master
        self._workers = workers

    def next(self, me: Peer, topic: str) -> Peer | None:
        worker = self._workers[key_of(topic) % len(self._workers)]
        return worker if me == self._master else None if me == worker else self._master


class OnRing:
    """The ring of Chord: each node knows a few others."""

    def __init__(self, chord: Chord) -> None:
        self._chord = chord

    def next(self, me: Peer, topic: str) -> Peer | None:
        assert position_of(me) == self._chord.position
        return self._chord.next_hop(key_of(topic))


class Rendezvous(Router):
    """For filters that name a topic; what else they ask is judged where the topic is."""

    hears: ClassVar[tuple[type, ...]] = (Publication, Subscription, Delivery)

    def __init__(self, me: Peer, deliver: Deliver, placement: Placement) -> None:
        super().__init__(me, deliver)
        self._placement = placement
        self._subscribers: dict[str, list[tuple[Filter, Peer]]] = {}

    @property
    def state(self) -> int:
        return len(self.own) + sum(map(len, self._subscribers.values()))

    def subscribe(self, filter: Filter) -> Sends:
        if filter.topic is None:
            raise ValueError("a rendezvous is at a topic: the filter names none")
        self.own.append(filter)
        return self._meet(Subscription(filter, self.me), filter.topic)

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        topic = str(publication.event.get("topic", ""))
        following = self._placement.next(self.me, topic)
        if following is not None:
            return ((following, publication.further()),)
        reached: dict[Peer, None] = {
            peer: None
            for filter, peer in self._subscribers.get(topic, ())
            if filter.matches(publication.event)
        }
        if self.me in reached:
            self._take(publication)
        delivery = Delivery(publication.further())
        return [(peer, delivery) for peer in reached if peer != self.me]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if type(message) is Publication:
            return self.route(sender, message)
        if type(message) is Delivery:
            self._take(message.publication)
            return ()
        return self._meet(message, message.filter.topic)

    def _meet(self, subscription: Subscription, topic: str | None) -> Sends:
        if topic is None:
            return ()
        following = self._placement.next(self.me, topic)
        if following is not None:
            return ((following, subscription),)
        met = (subscription.filter, subscription.subscriber)
        self._subscribers.setdefault(topic, []).append(met)
        return ()


class Informed(Router):
    """Every period it exchanges what it knows of interests with a peer, pushes events to some who
    are interested and not known to have them, and offers others the names of what it holds."""

    hears: ClassVar[tuple[type, ...]] = (Publication, Interests, Held, Wanted)
    is_active: bool = True

    def __init__(self, me: Peer, deliver: Deliver, peers: PeerSelection, entropy: Entropy) -> None:
        super().__init__(me, deliver)
        self._peers = peers
        self._entropy = entropy
        self._interests: dict[Peer, tuple[Filter, ...]] = {}
        # By name: the event, the rounds it was held for, and who is known to have it.
        self._held: dict[EventName, tuple[Publication, int, dict[Peer, None]]] = {}

    @property
    def state(self) -> int:
        return sum(map(len, self._interests.values()))

    def subscribe(self, filter: Filter) -> Sends:
        self.own.append(filter)
        self._interests[self.me] = tuple(self.own)
        return ()

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        if self._take(publication):
            self._held[publication.name] = (publication, 0, {})
        if sender is not None and publication.name in self._held:
            self._held[publication.name][2][sender] = None
        return ()

    def tick(self, now: float) -> Sends:
        sends: list[tuple[Peer, Any]] = []
        peer = self._peers.select()
        if peer is not None:
            sends.append((peer, Interests(tuple(self._interests.items()), True)))
        offers: dict[Peer, list[EventName]] = {}
        for name, (publication, rounds, had_by) in list(self._held.items()):
            interested = self._interested(publication.event)
            if rounds < ROUNDS:
                open_to = [each for each in interested if each not in had_by]
                for each in some_of(open_to, FAN_OUT, self._entropy):
                    had_by[each] = None
                    sends.append((each, publication.further()))
            for each in some_of(interested, 1, self._entropy):
                offers.setdefault(each, []).append(name)
            if rounds >= HELD_ROUNDS:
                del self._held[name]
            else:
                self._held[name] = (publication, rounds + 1, had_by)
        return [*sends, *((each, Held(tuple(names))) for each, names in offers.items())]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        match message:
            case Publication():
                return self.route(sender, message)
            case Interests():
                return self._learn(sender, message)
            case Held():
                missing = tuple(name for name in message.names if name not in self._seen)
                return ((sender, Wanted(missing)),) if missing else ()
            case Wanted():
                held = (self._held.get(name) for name in message.names)
                return [(sender, each[0].further()) for each in held if each is not None]
        return ()

    def _learn(self, sender: Peer, message: Interests) -> Sends:
        answer = Interests(tuple(self._interests.items()), False)
        for peer, filters in message.filters:
            if len(filters) >= len(self._interests.get(peer, ())):
                self._interests[peer] = filters
        return ((sender, answer),) if message.is_question else ()

    def _interested(self, event: Event) -> list[Peer]:
        return [
            peer
            for peer, filters in self._interests.items()
            if peer != self.me and any(each.matches(event) for each in filters)
        ]
