"""Subscriptions as points: of n attributes, in a space of 2n dimensions, as Meghdoot has it.

A filter says of each attribute from where to where it may be: two coordinates. An event has one
value for each, so those who want it are the points whose lower coordinates are not above its
values and whose upper ones are not below: a box of the space. A subscription goes to the node in
whose zone its point is. An event goes to a node of its box, and from there to all others of it;
each looks at what it keeps, and sends the event to those who want it.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import atan, inf, pi
from typing import Any, ClassVar

from entrepot.cluster.gossip.framework import Peer, Sends
from entrepot.cluster.overlay.zones import Zone, ZoneMap
from entrepot.cluster.routing.matching import Event, Filter, Operator, Value
from entrepot.cluster.routing.messages import Delivery, EventName, Publication, Subscription
from entrepot.cluster.routing.routers import SEEN_MAX, Deliver, Router

_LETTERS = 6  # Of a text: what is further back makes no difference to where it is.


def coordinate(value: Value) -> float:
    """Return where a value is between 0 and 1, in order."""
    if isinstance(value, str):
        return sum(byte / 256.0 ** (n + 1) for n, byte in enumerate(value.encode()[:_LETTERS]))
    return 0.5 + atan(value / 100) / pi


class Points(Router):
    hears: ClassVar[tuple[type, ...]] = (Publication, Subscription, Delivery)

    def __init__(
        self, me: Peer, deliver: Deliver, attributes: Sequence[str], zones: ZoneMap
    ) -> None:
        super().__init__(me, deliver)
        self._attributes = attributes
        self._zones = zones
        self._kept: list[tuple[Filter, Peer]] = []
        self._passed: dict[EventName, None] = {}

    @property
    def state(self) -> int:
        return len(self.own) + len(self._kept)

    def subscribe(self, filter: Filter) -> Sends:
        sends = self._place(Subscription(filter, self.me))
        self.own.append(filter)
        return sends

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if type(message) is Publication:
            return self.route(sender, message)
        if type(message) is Delivery:
            self._take(message.publication)
            return ()
        return self._place(message)

    def route(self, sender: Peer | None, publication: Publication) -> Sends:
        values = self._values(publication.event)
        if values is None:  # Without one of the attributes: no point wants it.
            return ()
        if not _wants(self._zones.mine, values):
            following = self._zones.next([*values, *values])
            return () if following is None else ((following, publication.further()),)
        if publication.name in self._passed:
            return ()
        self._passed[publication.name] = None
        if len(self._passed) > SEEN_MAX:
            del self._passed[next(iter(self._passed))]
        further = publication.further()
        sends: list[tuple[Peer, Any]] = [
            (peer, further)
            for peer, zone in self._zones.neighbours.items()
            if peer != sender and _wants(zone, values)
        ]
        return sends + self._deliveries(publication)

    def _deliveries(self, publication: Publication) -> list[tuple[Peer, Any]]:
        reached: dict[Peer, None] = {
            peer: None for filter, peer in self._kept if filter.matches(publication.event)
        }
        if self.me in reached:
            self._take(publication)
        delivery = Delivery(publication.further())
        return [(peer, delivery) for peer in reached if peer != self.me]

    def _place(self, subscription: Subscription) -> Sends:
        following = self._zones.next(self._point(subscription.filter))
        if following is not None:
            return ((following, subscription),)
        self._kept.append((subscription.filter, subscription.subscriber))
        return ()

    def _point(self, filter: Filter) -> list[float]:
        """Return the lower coordinates of all attributes, and then the upper ones."""
        low = dict.fromkeys(self._attributes, 0.0)
        high = dict.fromkeys(self._attributes, 1.0)
        for each in filter.constraints:
            name, value = each.attribute, coordinate(each.value)
            if name not in low:
                raise ValueError(f"the space has no attribute {name}")
            if each.operator in (Operator.EQUAL, Operator.MORE):
                low[name] = max(low[name], value)
            if each.operator in (Operator.EQUAL, Operator.LESS):
                high[name] = min(high[name], value)
        return [*low.values(), *high.values()]

    def _values(self, event: Event) -> list[float] | None:
        found = [event.get(name, inf) for name in self._attributes]
        return None if inf in found else [coordinate(each) for each in found]


def _wants(zone: Zone, values: Sequence[float]) -> bool:
    """Return whether a point that wants such an event may be in a zone."""
    count = len(values)
    return all(zone.low[n] <= value <= zone.high[count + n] for n, value in enumerate(values))
