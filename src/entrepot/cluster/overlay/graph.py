"""Graphs of nodes 0 to N - 1, as each node's neighbours."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from hashlib import sha256

from entrepot.cluster.gossip.peers import some_of
from entrepot.core.ports import Entropy

Graph = list[list[int]]


def torus(side: int) -> Graph:
    """Make a square whose edges meet: every node has four neighbours."""
    graph: Graph = []
    for node in range(side * side):
        row, column = divmod(node, side)
        graph.append(
            [
                (row - 1) % side * side + column,
                row * side + (column - 1) % side,
                row * side + (column + 1) % side,
                (row + 1) % side * side + column,
            ]
        )
    return graph


def tree(count: int, children: int) -> Graph:
    """Make a tree in which every inner node has as many children; node 0 is the root."""
    graph: Graph = [[] for _ in range(count)]
    for node in range(1, count):
        _link(graph, node, (node - 1) // children)
    return graph


def random_mesh(count: int, degree: int, entropy: Entropy) -> Graph:
    """Make a connected graph in which every node has about `degree` neighbours, any."""
    graph: Graph = [[] for _ in range(count)]
    for _ in range(degree // 2):  # Each ring through all nodes gives everybody two.
        ring = some_of(range(count), count, entropy)
        for index in range(count - 1, 0, -1):
            other = entropy.below(index + 1)
            ring[index], ring[other] = ring[other], ring[index]
        for index, node in enumerate(ring):
            other = ring[index - 1]
            if node != other and other not in graph[node]:
                _link(graph, node, other)
    return graph


def rings(nodes: Sequence[int], count: int) -> dict[int, list[int]]:
    """Make a connected graph of some nodes, the same wherever it is made: so many rings through all
    of them, each in another order. It stays connected without any one of them."""
    graph: dict[int, list[int]] = {node: [] for node in nodes}
    for number in range(count):
        ring = sorted(nodes, key=lambda node: sha256(f"{number} {node}".encode()).digest())
        for index, node in enumerate(ring):
            other = ring[index - 1]
            if node != other and other not in graph[node]:
                graph[node].append(other)
                graph[other].append(node)
    return graph


def scale_free(count: int, links: int, entropy: Entropy) -> Graph:
    """Make a graph that grew: each new node links to some, the more likely the more links they
    have (Barabási and Albert)."""
    graph: Graph = [[] for _ in range(count)]
    ends: list[int] = []  # Each node as often as it has links.
    for node in range(1, count):
        chosen: dict[int, None] = {}
        while len(chosen) < min(links, node):
            chosen[ends[entropy.below(len(ends))] if node > links else len(chosen)] = None
        for other in chosen:
            _link(graph, node, other)
            ends += (node, other)
    return graph


def distances(graph: Graph, begin: int) -> list[int]:
    """Return how many hops each node is away; -1 if it cannot be reached."""
    found = [-1] * len(graph)
    found[begin] = 0
    waiting = deque([begin])
    while waiting:
        node = waiting.popleft()
        for other in graph[node]:
            if found[other] < 0:
                found[other] = found[node] + 1
                waiting.append(other)
    return found


def _link(graph: Graph, one: int, other: int) -> None:
    graph[one].append(other)
    graph[other].append(one)
