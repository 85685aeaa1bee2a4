"""Graphs: what every node makes of the same numbers alone."""

import pytest

from entrepot.cluster.overlay.graph import rings


@pytest.mark.parametrize("count", [1, 2, 3, 4, 7, 30])
def test_rings_stay_connected_without_any_one(count: int) -> None:
    nodes = [number * 11 + 5 for number in range(count)]
    graph = rings(nodes, 2)
    assert graph == rings(nodes, 2)
    assert all(node in graph[other] for node, others in graph.items() for other in others)
    assert all(len(others) <= 4 for others in graph.values())
    for gone in nodes:
        left = [node for node in nodes if node != gone]
        reached = left[:1]
        for node in reached:  # It grows while it is read.
            reached += [n for n in graph[node] if n != gone and n not in reached]
        assert sorted(reached) == sorted(left)
