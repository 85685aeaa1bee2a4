"""Which nodes hold what: never two replicas on a node, racks first, leaders in turn."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from entrepot.cluster.placement import place, with_room
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


@given(st.lists(st.sampled_from("abc"), min_size=1, max_size=9), st.integers(1, 4))
def test_replicas_are_on_different_machines_while_there_are_some(
    machines: list[str], replicas: int
) -> None:
    for rack in ("", "one"):
        nodes = [Node(number, host, 0, rack) for number, host in enumerate(machines)]
        for each in place(nodes, 12, min(replicas, len(nodes))):
            there = {machines[number] for number in each}
            assert len(there) == min(len(each), len(set(machines)))


def test_racks_count_before_machines() -> None:
    nodes = [Node(1, "a", 0, "x"), Node(2, "a", 0, "x"), Node(3, "b", 0, "x"), Node(4, "c", 0, "y")]
    for each in place(nodes, 12, 2):
        assert 4 in each
    for each in place(nodes, 12, 3):
        assert 4 in each
        assert 3 in each


def test_a_partition_that_may_become_larger_than_a_disk_is_not_placed_there() -> None:
    nodes = [Node(1, "a", 0, disk_bytes=100), Node(2, "b", 0, disk_bytes=99), Node(3, "c", 0)]
    assert [node.id for node in with_room(nodes, 100)] == [1, 3]
    assert with_room(nodes, -1) == nodes
