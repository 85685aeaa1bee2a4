"""Handing on over an overlay: what a node does with a message from a neighbour.

One machine, and a rule that says to whom the message goes next:

    Flooding        the first time, to all neighbours but the sender
    LimitedFlooding each time, to all neighbours, the sender included, as long as hops are left
    RandomWalk      each time, to one neighbour
    ByChance        the first time, to each neighbour with probability p
    BlindCounter    the first F times, to B neighbours that are not known to have it
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from entrepot.cluster.gossip.framework import PERIOD_S, Peer, Sends
from entrepot.cluster.gossip.peers import happens, some_of
from entrepot.core.ports import Entropy
from entrepot.wire.gossip.messages import Carried

SEEN_MAX = 10_000  # Messages that a node recognises when they come again.
HOPS_MAX = 64  # Of rules that have no other limit.


@dataclass(slots=True)
class Sight:
    """What a node knows of one message."""

    received: int = 0
    had_by: dict[Peer, None] = field(default_factory=dict)  # Neighbours that sent it, or got it.


class Rule(Protocol):
    def next(self, neighbours: Sequence[Peer], sender: Peer | None, seen: Sight) -> Sequence[Peer]:
        """Return who gets the message next. `sender` is None at its origin."""


class Flooding:
    def next(self, neighbours: Sequence[Peer], sender: Peer | None, seen: Sight) -> Sequence[Peer]:
        return [each for each in neighbours if each != sender] if seen.received == 1 else ()


class LimitedFlooding:
    def next(self, neighbours: Sequence[Peer], sender: Peer | None, seen: Sight) -> Sequence[Peer]:
        return neighbours


@dataclass(frozen=True, slots=True)
class RandomWalk:
    entropy: Entropy

    def next(self, neighbours: Sequence[Peer], sender: Peer | None, seen: Sight) -> Sequence[Peer]:
        return some_of(neighbours, 1, self.entropy)


@dataclass(frozen=True, slots=True)
class ByChance:
    chance: float
    entropy: Entropy

    def next(self, neighbours: Sequence[Peer], sender: Peer | None, seen: Sight) -> Sequence[Peer]:
        if seen.received > 1:
            return ()
        others = [each for each in neighbours if each != sender]
        return [each for each in others if happens(self.chance, self.entropy)]


@dataclass(frozen=True, slots=True)
class BlindCounter:
    fan_out: int  # B.
    times: int  # F.
    entropy: Entropy

    def next(self, neighbours: Sequence[Peer], sender: Peer | None, seen: Sight) -> Sequence[Peer]:
        if seen.received > self.times:
            return ()
        others = [each for each in neighbours if each not in seen.had_by]
        return some_of(others, self.fan_out, self.entropy)


class Forwarding:
    hears: ClassVar[tuple[type, ...]] = (Carried,)
    is_active: ClassVar[bool] = False  # It does nothing of its own accord.

    def __init__(
        self,
        me: Peer,
        neighbours: Sequence[Peer],
        rule: Rule,
        deliver: Callable[[Carried], None],
    ) -> None:
        self.period_s = PERIOD_S
        self.neighbours = neighbours  # May be replaced or changed at any time.
        self._me = me
        self._rule = rule
        self._deliver = deliver
        self._number = 0
        self._seen: dict[tuple[Peer, int], Sight] = {}

    def send(self, body: bytes, ttl: int = HOPS_MAX) -> Sends:
        """Make a message, deliver it here, and return what is to be sent."""
        self._number += 1
        return self._take(None, Carried(self._me, self._number, 0, ttl, body))

    def tick(self, now: float) -> Sends:
        return ()

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        return self._take(sender, message)

    def _take(self, sender: Peer | None, message: Carried) -> Sends:
        name = (message.origin, message.number)
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = Sight()
            if len(self._seen) > SEEN_MAX:
                del self._seen[next(iter(self._seen))]
            self._deliver(message)
        seen.received += 1
        if sender is not None:
            seen.had_by[sender] = None
        if message.ttl == 0:
            return ()
        chosen = self._rule.next(self.neighbours, sender, seen)
        if not chosen:
            return ()
        seen.had_by.update(dict.fromkeys(chosen))
        following = Carried(
            message.origin, message.number, message.hops + 1, message.ttl - 1, message.body
        )
        return [(peer, following) for peer in chosen]
