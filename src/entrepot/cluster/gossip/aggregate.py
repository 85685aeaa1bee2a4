"""Aggregates of the values of all nodes: average, sum, count, minimum, maximum.

Two nodes that exchange take the mean of theirs: v_i, v_j := (v_i + v_j) / 2. The sum over all
nodes stays what it was, so every node comes to the average. What is answered is therefore not the
answering node's value but what the other has to add to its own, and it is right even if that one
has made another exchange meanwhile. An answer that was lost would take a part of the sum with it:
so a node repeats its question until it has the answer, and who is asked again answers the same.

The number of nodes comes from a second mean, over 1 at one node and 0 at all others; the sum is
the average times their number. An epoch begins the whole anew, for values that change and nodes
that come and go. (Jelasity and others, "Gossip-Based Aggregation in Large Dynamic Networks".)
"""

from __future__ import annotations

from math import isfinite
from typing import Any, ClassVar, NamedTuple

from entrepot.cluster.gossip.framework import PERIOD_S, Peer, PeerSelection, Sends
from entrepot.wire.gossip.messages import PushPull, Reply, Share

ANSWERS_MAX = 1_000  # Peers whose last answer is remembered.
REPEATS_MAX = 12  # Then the peer counts as gone, and what it may have been told as lost.


class Aggregates(NamedTuple):
    average: float
    total: float | None  # None: it is not known yet, nor is the count.
    nodes: float | None  # How many.
    minimum: float
    maximum: float


class Aggregation:
    """Both sides of an exchange, because it is either done at both nodes or at none."""

    hears: ClassVar[tuple[type, ...]] = (PushPull, Reply)
    is_active: ClassVar[bool] = True

    def __init__(
        self,
        value: float,
        peers: PeerSelection,
        *,
        counts: bool = False,
        period_s: float = PERIOD_S,
    ) -> None:
        """`counts` is true at one node: the number of nodes is found from there, in the next
        epoch if it changes."""
        self.period_s = period_s
        self._peers = peers
        self.counts = counts
        self._number = 0
        self._asked: tuple[Peer, PushPull, int] | None = None  # And how often.
        self._answers: dict[Peer, Reply] = {}
        self.epoch = 0
        self.last: Aggregates | None = None  # What came out of the epoch before.
        self._begin(value)

    def _begin(self, value: float) -> None:
        self.value = value  # This node's own.
        self.mean = self.minimum = self.maximum = value
        self._weight = 1.0 if self.counts else 0.0
        self._asked = None
        self._answers.clear()

    def found(self) -> Aggregates:
        """Return what this node takes for the aggregates, in the present epoch so far."""
        return Aggregates(self.mean, self.total, self.count, self.minimum, self.maximum)

    def restart(self, value: float | None = None) -> None:
        """Begin a new epoch, with this node's value of now; others follow when they hear of it."""
        self.last = self.found()
        self.epoch += 1
        self._begin(self.value if value is None else value)

    @property
    def count(self) -> float | None:
        """Return how many nodes there are, as far as this one knows; None before it knows."""
        return 1 / self._weight if self._weight > 0 else None

    @property
    def total(self) -> float | None:
        count = self.count
        return None if count is None else self.mean * count

    def tick(self, now: float) -> Sends:
        if self._asked is not None and self._asked[2] < REPEATS_MAX:
            peer, question, times = self._asked
            self._asked = (peer, question, times + 1)
            return ((peer, question),)
        chosen = self._peers.select()
        if chosen is None:
            return ()
        self._number += 1
        share = Share(self.epoch, self._number, self.mean, self._weight, self.minimum, self.maximum)
        self._asked = (chosen, PushPull(share), 1)
        return ((chosen, self._asked[1]),)

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        share = message.payload
        if type(share) is not Share or share.epoch < self.epoch or not _is_finite(share):
            return ()
        if share.epoch > self.epoch:
            self.last = self.found()
            self.epoch = share.epoch
            self._begin(self.value)
        if type(message) is Reply:
            self._take(sender, share)
            return ()
        before = self._answers.get(sender)
        if before is not None and type(before.payload) is Share:
            if before.payload.number == share.number:
                return ((sender, before),)  # It was lost.
            if before.payload.number > share.number:
                return ()  # A question of the past.
        return ((sender, self._give(sender, share)),)

    def _give(self, sender: Peer, share: Share) -> Reply:
        mean, weight = (self.mean - share.mean) / 2, (self._weight - share.weight) / 2
        answer = Reply(Share(self.epoch, share.number, mean, weight, self.minimum, self.maximum))
        self.mean -= mean
        self._weight -= weight
        self._widen(share)
        self._answers.pop(sender, None)
        self._answers[sender] = answer
        if len(self._answers) > ANSWERS_MAX:
            del self._answers[next(iter(self._answers))]
        return answer

    def _take(self, sender: Peer, share: Share) -> None:
        if self._asked is None or self._asked[0] != sender or self._number != share.number:
            return  # It was taken already.
        self._asked = None
        self.mean += share.mean
        self._weight += share.weight
        self._widen(share)

    def _widen(self, share: Share) -> None:
        self.minimum = min(self.minimum, share.minimum)
        self.maximum = max(self.maximum, share.maximum)


def _is_finite(share: Share) -> bool:
    return all(map(isfinite, (share.mean, share.weight, share.minimum, share.maximum)))
