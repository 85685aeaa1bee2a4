"""Handing on over an overlay: to whom, how often, and how far."""

from entrepot.cluster.multicast.forwarding import (
    BlindCounter,
    ByChance,
    Flooding,
    Forwarding,
    LimitedFlooding,
    RandomWalk,
    Rule,
)
from entrepot.cluster.overlay.graph import distances, random_mesh, scale_free, torus, tree
from entrepot.lab.neighbours import Dissemination
from entrepot.lab.world import SeededEntropy
from entrepot.wire.gossip.messages import Carried


def node(rule: Rule) -> Forwarding:
    return Forwarding(0, [1, 2, 3], rule, lambda message: None)


def carried(hops: int = 1, ttl: int = 5) -> Carried:
    return Carried(9, 1, hops, ttl, b"m")


def test_flooding_to_all_but_the_sender_once() -> None:
    machine = node(Flooding())
    assert machine.receive(2, carried(), 0) == [(1, carried(2, 4)), (3, carried(2, 4))]
    assert machine.receive(1, carried(), 0) == ()


def test_flooding_reaches_all_over_shortest_paths() -> None:
    graph = random_mesh(200, 6, SeededEntropy(1))
    found = Dissemination(graph, Flooding())
    assert [found.hops[n] for n in range(200)] == distances(graph, 0)
    links = sum(map(len, graph)) // 2
    assert found.messages == 2 * links - (200 - 1)


def test_limited_flooding_includes_the_sender_and_ends() -> None:
    machine = node(LimitedFlooding())
    assert [peer for peer, _ in machine.receive(2, carried(1, 2), 0)] == [1, 2, 3]
    assert [peer for peer, _ in machine.receive(2, carried(1, 2), 0)] == [1, 2, 3]  # Again.
    assert machine.receive(2, carried(3, 0), 0) == ()
    graph = torus(5)
    for ttl in (1, 2, 3):
        found = Dissemination(graph, LimitedFlooding(), ttl=ttl)
        near = [n for n, hops in enumerate(distances(graph, 0)) if hops <= ttl]
        assert sorted(found.hops) == near
        assert found.messages == sum(4**hop for hop in range(1, ttl + 1))


def test_a_random_walk_is_one_message_a_hop() -> None:
    entropy = SeededEntropy(1)
    found = Dissemination(torus(5), RandomWalk(entropy), ttl=30)
    assert found.messages == 30
    assert 5 < found.reached <= 25
    machine = node(RandomWalk(entropy))
    assert {machine.receive(1, carried(), 0)[0][0] for _ in range(50)} == {1, 2, 3}


def test_by_chance() -> None:
    entropy = SeededEntropy(1)
    graph = torus(4)
    assert Dissemination(graph, ByChance(1.0, entropy)).messages == (
        Dissemination(graph, Flooding()).messages
    )
    assert Dissemination(graph, ByChance(0.0, entropy)).messages == 0


def test_the_blind_counter() -> None:
    """At most F times, to at most B, and never to one that is known to have it."""
    machine = node(BlindCounter(2, 2, SeededEntropy(1)))
    first = machine.receive(1, carried(), 0)
    assert sorted(peer for peer, _ in first) == [2, 3]
    assert machine.receive(2, carried(), 0) == ()  # All have it.
    machine = Forwarding(0, range(1, 20), BlindCounter(2, 2, SeededEntropy(1)), lambda _: None)
    sends = [machine.receive(peer, carried(), 0) for peer in (1, 2, 3)]
    assert [len(each) for each in sends] == [2, 2, 0]
    told = [peer for each in sends for peer, _ in each]
    assert len(set(told)) == 4
    assert 1 not in told


def test_graphs() -> None:
    entropy = SeededEntropy(1)
    for graph in (tree(40, 3), torus(6), random_mesh(40, 4, entropy), scale_free(40, 3, entropy)):
        assert min(distances(graph, 0)) == 0  # All can be reached.
        for one, neighbours in enumerate(graph):
            assert one not in neighbours
            assert len(set(neighbours)) == len(neighbours)
            assert all(one in graph[other] for other in neighbours)
    assert sum(map(len, tree(40, 3))) == 2 * 39
    degrees = sorted(map(len, scale_free(500, 3, entropy)))
    assert degrees[250] <= 4
    assert degrees[-1] > 20
