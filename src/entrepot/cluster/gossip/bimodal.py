"""Bimodal multicast (pbcast): a multicast that may lose, then repair by gossip.

An event is first sent to everybody once, unreliably. Beside that, every 100 ms each node sends a
digest to a random peer: the names of the events it has, not the events. Who misses some solicits
them, and gets them again. After some rounds an event is no longer offered, and forgotten. So
either almost all nodes deliver an event or almost none, hardly ever some; and those who deliver it
do so at once, or some rounds later. (Birman and others, "Bimodal Multicast".)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from entrepot.cluster.gossip.framework import Peer, PeerSelection, Sends
from entrepot.wire.gossip.messages import (
    Event,
    EventDigest,
    EventId,
    Retransmit,
    Solicit,
)

DIGEST_PERIOD_S = 0.1
ROUNDS = 10  # For which a node offers an event.
EVENTS_MAX = 1_000  # That a node has and offers.
SEEN_MAX = 10_000  # Names of events that are not taken again.
DIGEST_IDS_MAX = 60
SOLICIT_IDS_MAX = 20  # One round repairs so much; each event is one packet.


class Bimodal:
    hears: ClassVar[tuple[type, ...]] = (Event, EventDigest, Solicit, Retransmit)

    def __init__(
        self,
        me: Peer,
        peers: PeerSelection,
        deliver: Callable[[Event, float], None],
        *,
        rounds: int = ROUNDS,
        period_s: float = DIGEST_PERIOD_S,
    ) -> None:
        self.period_s = period_s
        self._me = me
        self._peers = peers
        self._deliver = deliver
        self._rounds = rounds
        self._number = 0
        self._held: dict[EventId, tuple[Event, int]] = {}  # And the rounds that are left.
        self._seen: dict[EventId, None] = {}

    @property
    def is_active(self) -> bool:
        return bool(self._held)

    def multicast(
        self, body: bytes, everybody: Iterable[Peer], now: float, number: int | None = None
    ) -> Sends:
        """Make an event, deliver it here, and return what is to be sent, once and unreliably.

        `number` is for a node that was restarted: numbers must not come twice.
        """
        self._number = self._number + 1 if number is None else number
        event = Event(self._me, self._number, body)
        self._keep(event, now)
        return [(peer, event) for peer in everybody]

    def tick(self, now: float) -> Sends:
        peer = self._peers.select()
        digest = EventDigest(tuple(self._held)[-DIGEST_IDS_MAX:])
        for name, (event, rounds) in list(self._held.items()):
            if rounds > 1:
                self._held[name] = (event, rounds - 1)
            else:
                del self._held[name]
        return () if peer is None or not digest.ids else ((peer, digest),)

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        match message:
            case Event():
                self._keep(message, now)
            case Retransmit():
                self._keep(message.event, now)
            case EventDigest():
                missing = tuple(name for name in message.ids if name not in self._seen)
                if missing:  # The youngest first: they are repaired before they are forgotten.
                    return ((sender, Solicit(missing[-SOLICIT_IDS_MAX:])),)
            case Solicit():
                found = (self._held.get(name) for name in message.ids[:SOLICIT_IDS_MAX])
                return [(sender, Retransmit(each[0])) for each in found if each is not None]
        return ()

    def _keep(self, event: Event, now: float) -> None:
        name = (event.sender, event.number)
        if name in self._seen:
            return
        self._seen[name] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        self._held[name] = (event, self._rounds)
        if len(self._held) > EVENTS_MAX:
            del self._held[next(iter(self._held))]
        self._deliver(event, now)
