"""Rumor mongering: news is told to random peers until it meets too many who know it.

A node that hears a fact for the first time is *hot*: every period it tells some peers, its
fan-out. It loses interest by chance or by a counter, and either with the feedback of whom it told
(only a peer who knew already costs interest) or blindly (each telling does). Who lost interest
never tells again, so some nodes may never hear it, the residue; anti-entropy beside it reaches
them. (Demers and others, "Epidemic Algorithms for Replicated Database Maintenance".)
"""

from __future__ import annotations

from enum import Enum
from typing import Any, ClassVar

from entrepot.cluster.gossip.framework import PERIOD_S, Peer, PeerSelection, Sends
from entrepot.cluster.gossip.peers import happens
from entrepot.cluster.gossip.store import Store
from entrepot.core.ports import Entropy
from entrepot.wire.gossip.messages import Entry, Feedback, Rumor

HOT_MAX = 1_000  # Rumors that one node tells at a time; of more, only anti-entropy knows.


class Interest(Enum):
    """How interest is lost, where 1/k is the chance p_stop."""

    COIN = "coin"  # With the chance 1/k each time.
    COUNTER = "counter"  # After k times.


class RumorMonger:
    hears: ClassVar[tuple[type, ...]] = (Rumor, Feedback)

    def __init__(
        self,
        store: Store,
        peers: PeerSelection,
        entropy: Entropy,
        *,
        k: int = 2,
        fan_out: int = 1,
        interest: Interest = Interest.COIN,
        with_feedback: bool = True,
        period_s: float = PERIOD_S,
    ) -> None:
        self.period_s = period_s
        self._store = store
        self._peers = peers
        self._entropy = entropy
        self._k = k
        self._fan_out = fan_out
        self._interest = interest
        self._with_feedback = with_feedback
        # By owner and version: the message, and how often it met somebody who knew.
        self._hot: dict[tuple[Peer, int], tuple[Rumor, int]] = {}

    @property
    def is_active(self) -> bool:
        return bool(self._hot)

    def tell(self, entry: Entry) -> None:
        """Begin to tell a fact that this node has just put into its store."""
        if len(self._hot) < HOT_MAX:
            self._hot[entry.owner, entry.version] = (Rumor(entry), 0)

    def tick(self, now: float) -> Sends:
        sends = []
        for rumor, _ in list(self._hot.values()):
            for _ in range(self._fan_out):
                peer = self._peers.select()
                if peer is not None:
                    sends.append((peer, rumor))
                    if not self._with_feedback:
                        self._tire((rumor.entry.owner, rumor.entry.version))
        return sends

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if type(message) is Feedback:
            if message.was_known:
                self._tire((message.owner, message.version))
            return ()
        entry = message.entry
        is_news = self._store.keep_next(entry)
        if is_news:
            self.tell(entry)
        if not self._with_feedback:
            return ()
        return ((sender, Feedback(entry.owner, entry.version, not is_news)),)

    def _tire(self, key: tuple[Peer, int]) -> None:
        if key not in self._hot:
            return
        rumor, met = self._hot[key]
        if self._interest is Interest.COIN:
            if happens(1 / self._k, self._entropy):
                del self._hot[key]
        elif met + 1 >= self._k:
            del self._hot[key]
        else:
            self._hot[key] = (rumor, met + 1)
