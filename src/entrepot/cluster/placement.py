"""Which nodes hold the replicas of new partitions: a pure function of the nodes there are.

Leaders go round, so that each node leads about as many as any other. The replicas of a partition
are on different nodes, in different racks as long as there are racks left, and on different
machines as long as there are machines left: so the failure of one takes one replica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from entrepot.cluster.state import Node


def with_room(nodes: Sequence[Node], partition_bytes: int) -> list[Node]:
    """Return the nodes on whose disk a partition fits that may have so many bytes."""
    return [each for each in nodes if not each.disk_bytes or each.disk_bytes >= partition_bytes]


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
        racks.setdefault(_rack(node), []).append(node)
    columns = zip_longest(*(racks[rack] for rack in sorted(racks)))
    return [node for column in columns for node in column if node is not None]


def _machine(node: Node) -> str:
    """Return what is the same for nodes on one machine: where others find them."""
    return node.host or f"node {node.id}"


def _rack(node: Node) -> str:
    """Return the rack; a machine without one is a rack of its own."""
    return node.rack or _machine(node)


def _spread(candidates: Sequence[Node], count: int) -> list[Node]:
    """Return so many nodes: each time the first of those whose rack is in use least, and among
    these, whose machine is."""
    chosen: list[Node] = []
    left = [*candidates]
    racks, machines = Counter[str](), Counter[str]()
    while left and len(chosen) < count:
        best = min(left, key=lambda node: (racks[_rack(node)], machines[_machine(node)]))
        left.remove(best)
        chosen.append(best)
        racks[_rack(best)] += 1
        machines[_machine(best)] += 1
    return chosen
