"""Chord: nodes and keys on a ring; whoever comes next after a key is responsible for it.

Each node knows some successors and its predecessor, and fingers: who is responsible for the key
half around the ring from it, a quarter, an eighth, and so on. A lookup goes to the finger that
comes closest before the key, so it halves the way that is left: it takes about half of log2 N
hops. Every period a node asks its successor for that one's neighbours, and so finds who has come
in between and who follows if it goes; and it looks one finger up again. Successors that do not
answer are given up. (Stoica and others, "Chord".)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from functools import lru_cache
from hashlib import sha256
from typing import Any, ClassVar

from entrepot.cluster.gossip.framework import PERIOD_S, Peer, Sends
from entrepot.wire.gossip.messages import AskNeighbours, Found, Lookup, Neighbours

BITS = 64
RING = 1 << BITS
SUCCESSORS = 8
SILENT_TICKS = 3  # After which a neighbour that was asked is given up.
LOOKUPS_MAX = 1_000
HOPS_MAX = 2 * BITS

Then = Callable[[Peer, int], None]  # Told who is responsible, and after how many hops.


def key_of(name: str) -> int:
    """Return the position of a name on the ring."""
    return int.from_bytes(sha256(name.encode()).digest()[:8], "big")


@lru_cache(maxsize=100_000)
def position_of(node: Peer) -> int:
    return key_of(f"node {node}")


def is_between(key: int, after: int, up_to: int) -> bool:
    """Return whether a key lies behind `after` on the ring, and not behind `up_to`."""
    return 0 < (key - after) % RING <= ((up_to - after) % RING or RING)


def packed(key: int) -> bytes:
    return key.to_bytes(8, "big")


class Chord:
    hears: ClassVar[tuple[type, ...]] = (Lookup, Found, AskNeighbours, Neighbours)
    is_active: ClassVar[bool] = True

    def __init__(self, me: Peer, period_s: float = PERIOD_S) -> None:
        self.period_s = period_s
        self.me = me
        self.position = position_of(me)
        self.before: Peer | None = None
        self.successors: list[Peer] = []  # None means: alone.
        self.fingers: dict[int, Peer] = {}  # By bit.
        self._lookups: dict[int, Then] = {}
        self._number = 0
        self._next_finger = 0
        self._before_silent = 0  # Ticks since the predecessor has asked for our neighbours.
        self._silent: dict[Peer, int] = {}  # Whom we asked, and for how many ticks.

    def arrange(self, members: Iterable[Peer]) -> None:
        """Take the place that this node has in the ring of these, which all know each other."""
        others = sorted((position_of(peer), peer) for peer in members if peer != self.me)
        self._take_successors([peer for _, peer in others])
        if not others:
            return
        positions = [position for position, _ in others]
        self.before = others[bisect_left(positions, self.position) - 1][1]
        for bit in range(BITS):
            key = (self.position + (1 << bit)) % RING
            peer = others[bisect_left(positions, key) % len(others)][1]
            if is_between(key, self.position, position_of(peer)):
                self.fingers[bit] = peer

    # What others ask of it.

    def join(self, known: Peer) -> Sends:
        """Return what is to be sent to find the own place, by way of a node that is known."""
        return ((known, self._new_lookup(self.position, lambda node, _: self.meet(node))),)

    def meet(self, node: Peer) -> None:
        """Know a node, which may be the next one."""
        self._take_successors([*self.successors, node])

    def lookup(self, key: int, then: Then) -> Sends:
        """Find who is responsible for a key; if it is this node, `then` is called at once."""
        responsible = self._responsible(key)
        if responsible is not None:
            then(responsible, 0)
            return ()
        following = self.next_hop(key)
        return () if following is None else ((following, self._new_lookup(key, then)),)

    def next_hop(self, key: int) -> Peer | None:
        """Return who is closer to the node that is responsible; None if it is this one."""
        responsible = self._responsible(key)
        if responsible is not None:
            return None if responsible == self.me else responsible
        way = (key - self.position) % RING
        best, far = self.successors[0], 0
        for peer in (*self.successors, *self.fingers.values()):
            gone = (position_of(peer) - self.position) % RING
            if far < gone < way:
                best, far = peer, gone
        return best

    def _responsible(self, key: int) -> Peer | None:
        """Return who is responsible for a key, if it is this node or the next."""
        if not self.successors:
            return self.me
        if self.before is not None and is_between(key, position_of(self.before), self.position):
            return self.me
        if is_between(key, self.position, position_of(self.successors[0])):
            return self.successors[0]
        return None

    def give_up(self, peer: Peer) -> None:
        """Take a node for gone."""
        self._silent.pop(peer, None)
        self.successors = [each for each in self.successors if each != peer]
        self.fingers = {bit: each for bit, each in self.fingers.items() if each != peer}
        if self.before == peer:
            self.before = None

    # The active side.

    def tick(self, now: float) -> Sends:
        for peer, ticks in list(self._silent.items()):
            if ticks >= SILENT_TICKS:
                self.give_up(peer)
            else:
                self._silent[peer] = ticks + 1
        self._before_silent += 1
        if self._before_silent > 2 * SILENT_TICKS:
            self.before = None
        if not self.successors:
            nearest = next(iter(self.fingers.values()), self.before)
            if nearest is None:
                return ()
            self.meet(nearest)
        sends = [(self.successors[0], AskNeighbours())]
        self._silent.setdefault(self.successors[0], 0)
        return [*sends, *self._renew_finger()]

    def _renew_finger(self) -> Sends:
        """Look up the next finger that is not simply the successor."""
        gap = (position_of(self.successors[0]) - self.position) % RING
        lowest = max(gap.bit_length() - 1, 0)
        self._next_finger = self._next_finger - 1 if self._next_finger > lowest else BITS - 1
        bit = self._next_finger
        for each in [each for each in self.fingers if each < lowest]:
            del self.fingers[each]

        def found(node: Peer, hops: int) -> None:
            if node != self.me:
                self.fingers[bit] = node

        return self.lookup((self.position + (1 << bit)) % RING, found)

    # The passive side.

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        self._silent.pop(sender, None)
        match message:
            case Lookup():
                return self._pass_on(message)
            case Found():
                then = self._lookups.pop(message.number, None)
                if then is not None:
                    then(message.node, message.hops)
            case AskNeighbours():
                return self._asked(sender)
            case Neighbours():
                self._learn(sender, message)
        return ()

    def _pass_on(self, lookup: Lookup) -> Sends:
        key = int.from_bytes(lookup.key, "big")
        responsible = self._responsible(key)
        if responsible is not None:
            return ((lookup.asker, Found(lookup.number, responsible, lookup.hops)),)
        following = self.next_hop(key)
        if following is None or lookup.hops >= HOPS_MAX:
            return ()
        further = Lookup(lookup.key, lookup.asker, lookup.number, lookup.hops + 1)
        return ((following, further),)

    def _asked(self, sender: Peer) -> Sends:
        """Tell neighbours; the sender may be a nearer predecessor than the one we know."""
        before = self.before
        if before is None or is_between(
            position_of(sender), position_of(before), (self.position - 1) % RING
        ):
            self.before = sender
        if sender == self.before:
            self._before_silent = 0
        if not self.successors:  # Two are a ring.
            self.meet(sender)
        return ((sender, Neighbours(before, tuple(self.successors[: SUCCESSORS - 1]))),)

    def _learn(self, sender: Peer, told: Neighbours) -> None:
        """Take the successor's successors for one's own, and who has come in between. What was
        known before does not count: some of it may be gone."""
        if sender in self.successors[:1]:
            between = () if told.before is None else (told.before,)
            self._take_successors((sender, *between, *told.successors))

    def _take_successors(self, known: Iterable[Peer]) -> None:
        """Keep the nearest ones."""
        others = dict.fromkeys(peer for peer in known if peer != self.me)
        self.successors = sorted(
            others, key=lambda peer: (position_of(peer) - self.position) % RING
        )[:SUCCESSORS]

    def _new_lookup(self, key: int, then: Then) -> Lookup:
        self._number += 1
        self._lookups[self._number] = then
        if len(self._lookups) > LOOKUPS_MAX:
            del self._lookups[next(iter(self._lookups))]
        return Lookup(packed(key), self.me, self._number, 1)
