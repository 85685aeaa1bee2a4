"""Peer sampling: a node knows a few others, and always other ones.

With many nodes nobody can know all. Each keeps a small view, exchanges half of it with the oldest
of its peers, itself in it with age 0, and keeps the youngest of what both had. So views stay
random, and who is gone ages until nobody knows it. (Jelasity and others, "Gossip-Based Peer
Sampling"; Voulgaris and others, "Cyclon".)
"""

from __future__ import annotations

from collections.abc import Iterable

from entrepot.cluster.gossip.framework import Peer
from entrepot.cluster.gossip.peers import some_of
from entrepot.core.ports import Entropy
from entrepot.wire.gossip.messages import Descriptors

VIEW_NODES = 20


class PeerSampling:
    """The data of a push-pull exchange, and the selection of its peers."""

    def __init__(
        self, me: Peer, known: Iterable[Peer], entropy: Entropy, nodes_max: int = VIEW_NODES
    ) -> None:
        self._me = me
        self._entropy = entropy
        self._nodes_max = nodes_max
        self._ages = dict.fromkeys(list(known)[:nodes_max], 0)
        self._told: list[Peer] = []  # In the exchange under way: these may be given up for others.

    @property
    def peers(self) -> list[Peer]:
        return list(self._ages)

    def select(self) -> Peer | None:
        """Return the oldest peer, and take it out: it comes back younger if it is alive."""
        for peer in self._ages:
            self._ages[peer] += 1
        oldest = max(self._ages, key=self._ages.__getitem__, default=None)
        if oldest is not None:
            del self._ages[oldest]
        return oldest

    def select_to_send(self, peer: Peer) -> Descriptors:
        self._told = some_of(self.peers, self._nodes_max // 2 - 1, self._entropy)
        nodes = [(self._me, 0), *((each, self._ages[each]) for each in self._told)]
        return Descriptors(tuple(node for node in nodes if node[0] != peer))

    def answer(self, peer: Peer, payload: Descriptors) -> Descriptors:
        mine = self.select_to_send(peer)
        self.keep(peer, payload)
        return mine

    def keep(self, peer: Peer, payload: Descriptors) -> None:
        for node, age in payload.nodes:
            if node != self._me and age <= self._ages.get(node, age):
                self._ages[node] = age
        for each in self._told:
            if len(self._ages) > self._nodes_max:
                self._ages.pop(each, None)
        while len(self._ages) > self._nodes_max:
            del self._ages[max(self._ages, key=self._ages.__getitem__)]


class Sampled:
    """Any of the peers in a view, for what else is gossiped."""

    def __init__(self, sampling: PeerSampling, entropy: Entropy) -> None:
        self._sampling = sampling
        self._entropy = entropy

    def select(self) -> Peer | None:
        chosen = some_of(self._sampling.peers, 1, self._entropy)
        return chosen[0] if chosen else None
