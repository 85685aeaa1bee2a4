"""Which nodes hold the replicas of new partitions: a pure function of the nodes there are.

Leaders go round, so that each node leads about as many as any other. The replicas of a partition
are on different nodes, and in different racks as long as there are racks left; nodes of a machine
are of one rack, so its failure takes one replica.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from entrepot.cluster.state import Node


def place(nodes: Sequence[Node], partitions: int, replicas: int, first: int = 0) -> list[list[int]]:
    """Return the nodes of each partition, the preferred leader first.

    `first` is where the round begins: another number for each topic, or the first nodes would
    lead all topics that have few partitions.
    """
    assert 0 < replicas <= len(nodes), (replicas, len(nodes))
    ring = _alternating(nodes)
    placed: list[list[int]] = []
    for number in range(first, first + partitions):
        turned = [ring[(number + step) % len(ring)] for step in range(len(ring))]
        # Each time around, the followers of a node are others, so that its load spreads when it
        # fails.
        shift = number // len(ring) % max(1, len(ring) - 1)
        followers = turned[1 + shift :] + turned[1 : 1 + shift]
        placed.append([node.id for node in _spread([turned[0], *followers], replicas)])
    return placed


def _alternating(nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes so that neighbours are of different racks where that is possible."""
    racks: dict[str, list[Node]] = {}
    for node in sorted(nodes, key=lambda node: node.id):
        racks.setdefault(node.rack or f"node {node.id}", []).append(node)
    columns = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [node for column in columns for node in column if node is not None]


def _spread(candidates: Sequence[Node], count: int) -> list[Node]:
    """Return the first so many nodes; those of a new rack before those of one that is in use."""
    chosen: list[Node] = []
    others: list[Node] = []
    for node in candidates:
        is_new = not node.rack or all(node.rack != each.rack for each in chosen)
        (chosen if is_new else others).append(node)
    return [*chosen, *others][:count]
