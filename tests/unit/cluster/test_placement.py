"""Which nodes hold what: never two replicas on a node, racks first, leaders in turn."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from entrepot.cluster.placement import place
from entrepot.cluster.state import Node

RACKS = st.lists(st.sampled_from(["", "a", "b", "c"]), min_size=1, max_size=9)


@given(RACKS, st.integers(1, 30), st.integers(1, 5), st.integers(0, 20))
def test_replicas_are_apart_and_leaders_spread(
    racks: list[str], partitions: int, replicas: int, first: int
) -> None:
    nodes = [Node(number, "", 0, rack) for number, rack in enumerate(racks)]
    replicas = min(replicas, len(nodes))
    placed = place(nodes, partitions, replicas, first)
    assert [len(set(each)) for each in placed] == [replicas] * partitions
    leaders = Counter({node.id: 0 for node in nodes}) | Counter(each[0] for each in placed)
    led = [leaders[node.id] for node in nodes]
    assert max(led) - min(led) <= 1
    # A rack of its own for each without a name.
    apart = len({rack for rack in racks if rack}) + racks.count("")
    for each in placed:
        names = [racks[number] or f"node {number}" for number in each]
        assert len(set(names)) == min(replicas, apart)


def test_followers_of_a_leader_are_not_always_the_same() -> None:
    nodes = [Node(number, "", 0) for number in range(4)]
    placed = place(nodes, 12, 2)
    assert {each[1] for each in placed if each[0] == 0} == {1, 2, 3}
