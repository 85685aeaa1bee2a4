"""The network below an overlay: routers, links, and hosts at their edge.

What an overlay sends from host to host goes over links, the same link perhaps many times: its
*stress* is how many copies of one message cross it. And it goes a longer way than it had to: the
*stretch* of a receiver is its delay by the overlay over that of the shortest path.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from entrepot.cluster.gossip.framework import Peer
from entrepot.cluster.overlay.graph import random_mesh
from entrepot.core.ports import Entropy

Link = tuple[int, int]
ROUTER_LINKS = 4


class Underlay:
    """Hosts are 0 to N - 1, each at some router; routers have the numbers from N on."""

    def __init__(self, hosts: int, routers: int, entropy: Entropy) -> None:
        self.hosts = hosts
        self._routers = routers
        self._graph = random_mesh(routers, ROUTER_LINKS, entropy)
        self._towards = [self._tree(router) for router in range(routers)]

    def path(self, one: Peer, other: Peer) -> list[Link]:
        """Return the links between two hosts."""
        if one == other:
            return []
        at, end = one % self._routers, other % self._routers
        nodes = [one, self.hosts + at]
        while at != end:
            at = self._towards[end][at]
            nodes.append(self.hosts + at)
        nodes.append(other)
        return [(min(a, b), max(a, b)) for a, b in pairwise(nodes)]

    def delay(self, one: Peer, other: Peer) -> int:
        return len(self.path(one, other))

    def stress(self, transmissions: list[tuple[Peer, Peer]]) -> Counter[Link]:
        """Return how often each link was crossed by messages between hosts."""
        return Counter(link for one, other in transmissions for link in self.path(one, other))

    def native_tree(self, source: Peer) -> dict[Link, None]:
        """Return the links of a multicast by the routers themselves: each is crossed once."""
        paths = [self.path(host, source) for host in range(self.hosts)]
        return {link: None for path in paths for link in path}

    def _tree(self, end: int) -> list[int]:
        """Return, for each router, the next one on the way to this one."""
        following = [-1] * self._routers
        following[end] = end
        waiting = [end]
        for router in waiting:
            for other in self._graph[router]:
                if following[other] < 0:
                    following[other] = router
                    waiting.append(other)
        return following
