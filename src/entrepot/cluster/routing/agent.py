"""A real node that routes events: who is there, the router of its strategy, packets in and out.

No sockets and no clock: it is told the time and what has arrived, and returns datagrams.

    Swim      who is there
    Streams   what a router says to another, in order, and again until it has arrived
    Router    where events, subscriptions and advertisements go

Nodes that believe the same of who is there are in the same *view*; its number is a hash of the
members and their incarnations, which only grow, so no view comes twice. In a new view the overlay
is laid out anew, each node has a new router, and says again what is subscribed and advertised
there. What was published a short while ago may have been on its way: it is published again, under
its name, and no subscriber gets it twice. So whatever the strategy, subscriptions outlive the nodes
that kept them, and an event outlives all nodes but the one where it was published.
"""

from __future__ import annotations

import struct
from collections import Counter, deque
from collections.abc import Sequence
from hashlib import sha256

import msgspec

from entrepot.cluster.gossip.agent import number_of
from entrepot.cluster.gossip.framework import Peer, Send, Sends
from entrepot.cluster.gossip.packets import Datagram, Packets
from entrepot.cluster.gossip.streams import Streams
from entrepot.cluster.gossip.swim import MemberState, Settings, Swim
from entrepot.cluster.routing.matching import Event, Filter
from entrepot.cluster.routing.messages import EventName, Message, Publication
from entrepot.cluster.routing.routers import Deliver, Router
from entrepot.cluster.routing.strategies import STRATEGIES, Place
from entrepot.core.ports import Address, Entropy
from entrepot.wire.gossip.messages import Arrived, MemberUpdate, Piece

SETTLING_PERIODS = 1.0  # For which nothing has changed, and a view begins.
AGAIN_PERIODS = 4.0  # After which, in a view, events are published again.
KEPT_PERIODS = 30.0  # For which an event is kept, to be published again.
KEPT_MAX = 1_000
SEEN_MAX = 100_000
FILTERS_MAX = 1_000  # Of the subscribers at one node; and as many advertisements.
HOPS_MAX = 128
WAITING_MAX = 1_000  # Pieces under way, and no event is taken in.

Members = tuple[tuple[Peer, int], ...]  # With their incarnations, in order.

_DECODER = msgspec.msgpack.Decoder(Message)
_ENCODER = msgspec.msgpack.Encoder()


class RoutingAgent:
    def __init__(
        self,
        me: MemberUpdate,
        cluster: str,
        strategy: str,
        entropy: Entropy,
        deliver: Deliver,
        *,
        secret: bytes | None = None,
        seeds: Sequence[Address] = (),
        settings: Settings | None = None,
        attributes: Sequence[str] = (),
    ) -> None:
        """`deliver` is told of each event that a subscriber of this node wants, once. The
        incarnation of a process must be higher than that of those before it with its number."""
        settings = settings or Settings()
        self.strategy = STRATEGIES[strategy]
        self.swim = Swim(me, entropy, settings)
        # Nodes of another strategy could not work with ours: they are another cluster.
        name = f"{cluster}: events by {strategy} {' '.join(attributes)}"
        self.packets = Packets(self.swim, name, secret, seeds)
        self.streams = Streams(self.swim.period_s)
        self.sent: Counter[str] = Counter()  # Messages of routers, by kind.
        self.malformed = 0
        self.views = 0
        self.view: Members = ()
        self._attributes = attributes
        self._entropy = entropy
        self._deliver = deliver
        self._period_s = settings.period_s
        self._subscriptions: list[Filter] = []
        self._advertisements: list[Filter] = []
        self._kept: deque[tuple[float, Publication]] = deque()
        self._delivered: dict[EventName, None] = {}
        self._number = 0
        self._coming: Members = ()  # What the next view will be, if it stays so.
        self._coming_since = 0.0
        self._again_at: float | None = None
        self._due = (0.0, 0.0)  # Of membership, and of the router.
        self.router: Router = self._router([me.node])

    # What is asked of this node.

    def subscribe(self, filter: Filter, now_ms: int) -> list[Datagram]:
        """Raises ValueError if the strategy cannot do with such a filter."""
        if len(self._subscriptions) >= FILTERS_MAX:
            raise ValueError(f"a node has at most {FILTERS_MAX} subscriptions")
        sends = self.router.subscribe(filter)
        self._subscriptions.append(filter)
        return self._routed(sends, now_ms)

    def unsubscribe(self, filter: Filter) -> None:
        """End a subscription here at once; in the other nodes' tables it ends with the view.
        Raises ValueError if there is none."""
        if filter not in self._subscriptions:
            raise ValueError("no such subscription")
        self._subscriptions.remove(filter)
        self.router.own.remove(filter)

    def advertise(self, filter: Filter, now_ms: int) -> list[Datagram]:
        if len(self._advertisements) >= FILTERS_MAX:
            raise ValueError(f"a node has at most {FILTERS_MAX} advertisements")
        self._advertisements.append(filter)
        return self._routed(self.router.advertise(filter), now_ms)

    def publish(self, event: Event, now: float, now_ms: int) -> list[Datagram]:
        self._number = max(self._number + 1, number_of(now, now_ms))
        publication = Publication((self.swim.me.node, self._number), dict(event), 0)
        self._kept.append((now, publication))
        if len(self._kept) > KEPT_MAX:
            self._kept.popleft()
        return self._routed(self.router.route(None, publication), now_ms)

    @property
    def is_busy(self) -> bool:
        """Return whether so much is under way that the next event had better wait."""
        return self.streams.waiting > WAITING_MAX

    def leave(self, now_ms: int) -> list[Datagram]:
        return self.packets.make(self.swim.leave(), now_ms)

    # What happens.

    def start(self, now: float) -> None:
        self._due = (now + self.swim.period_s, now + self._period_s)
        self._enter(self._members(), now)

    def wake_at(self) -> float:
        """Return when `tick` is to be called next."""
        return min(self._due)

    def tick(self, now: float, now_ms: int) -> list[Datagram]:
        swim_at, router_at = self._due
        found = self.packets.joining(now, now_ms)
        if swim_at <= now:
            swim_at = max(swim_at + self.swim.period_s, now)
            sends = [*self.swim.tick(now), *self.streams.tick(now)]
            found += self.packets.make(sends, now_ms)
            found += self._look_around(now, now_ms)
        if router_at <= now:
            router_at = max(router_at + self._period_s, now)
            if self.router.is_active:
                found += self._routed(self.router.tick(now), now_ms)
        self._due = (swim_at, router_at)
        return found

    def receive(self, data: bytes, source: Address, now: float, now_ms: int) -> list[Datagram]:
        """Take in a datagram; what is refused is counted and not answered."""
        packet = self.packets.read(data, now_ms)
        if packet is None:
            return []
        sends: list[Send] = []
        for message in packet.messages:
            if isinstance(message, Piece | Arrived):
                sends += self._pieces(packet.sender, message, now)
            elif type(message) in Swim.hears:
                sends += self.swim.receive(packet.sender, message, now)
        sends += self.streams.acknowledgements()
        return self.packets.make(sends, now_ms, packet.sender, source)

    def _pieces(self, sender: Peer, message: Piece | Arrived, now: float) -> Sends:
        answers, bodies = self.streams.receive(sender, message)
        sends = [*answers]
        for body in bodies:
            try:
                told = _DECODER.decode(body)
            except (msgspec.MsgspecError, RecursionError):
                self.malformed += 1
                continue
            if type(told) in self.router.hears and getattr(told, "hops", 0) <= HOPS_MAX:
                sends += self._cut(self.router.receive(sender, told, now))
        return sends

    def _routed(self, sends: Sends, now_ms: int) -> list[Datagram]:
        return self.packets.make(self._cut(sends), now_ms)

    def _cut(self, sends: Sends) -> Sends:
        """Return the pieces of messages that a router has sent."""
        pieces: list[Send] = []
        for peer, message in sends:
            self.sent[type(message).__name__] += 1
            pieces += self.streams.send(peer, _ENCODER.encode(message))
        return pieces

    # Views.

    def _members(self) -> Members:
        return tuple(
            (each.node, each.incarnation)
            for each in self.swim.members()
            if each.state <= MemberState.SUSPECT
        )

    def _look_around(self, now: float, now_ms: int) -> list[Datagram]:
        """Enter another view if who is there has changed, and stays so for a moment."""
        members = self._members()
        if members != self._coming:
            self._coming, self._coming_since = members, now
        settled = now - self._coming_since >= SETTLING_PERIODS * self._period_s
        if members != self.view and settled:
            return self._routed(self._enter(members, now), now_ms)
        if self._again_at is not None and now >= self._again_at:
            self._again_at = None
            return self._routed(self._again(now), now_ms)
        return []

    def _enter(self, members: Members, now: float) -> Sends:
        """Begin a view; return what is to be sent so that the others know what is wanted here."""
        self.view, self._coming = members, members
        self.views += 1
        self.streams.begin(self.view_number)
        self.router = self._router([node for node, _ in members])
        self._again_at = now + AGAIN_PERIODS * self._period_s
        return [
            *(send for each in self._advertisements for send in self.router.advertise(each)),
            *(send for each in self._subscriptions for send in self.router.subscribe(each)),
        ]

    def _again(self, now: float) -> Sends:
        """Publish again what may have been on its way when the view began."""
        while self._kept and now - self._kept[0][0] > KEPT_PERIODS * self._period_s:
            self._kept.popleft()
        return [send for _, each in self._kept for send in self.router.route(None, each)]

    @property
    def view_number(self) -> int:
        packed = b"".join(struct.pack(">QQ", *each) for each in self.view)
        return int.from_bytes(sha256(packed).digest()[:8], "big") >> 2

    def _router(self, members: Sequence[Peer]) -> Router:
        me = self.swim.me.node
        return self.strategy.make(Place(me, members, self._take, self._entropy, self._attributes))

    def _take(self, publication: Publication) -> None:
        if publication.name in self._delivered:
            return
        self._delivered[publication.name] = None
        if len(self._delivered) > SEEN_MAX:
            del self._delivered[next(iter(self._delivered))]
        self._deliver(publication)
