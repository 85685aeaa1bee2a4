"""Scribe: a tree grown along the routes of Chord, and repaired along them."""

from collections import Counter

from entrepot.cluster.gossip.framework import Stack
from entrepot.cluster.multicast.scribe import Scribe
from entrepot.cluster.overlay.chord import RING, Chord, key_of, packed, position_of
from entrepot.lab.ways import joined, scribe_nodes, settle
from entrepot.lab.world import Rounds
from entrepot.wire.gossip.messages import GroupJoin, GroupMessage


class House:
    def __init__(self, count: int) -> None:
        self.got: Counter[tuple[int, bytes]] = Counter()
        self.chords, self.scribes = scribe_nodes(count, self._delivered)
        self.world = Rounds(joined(self.chords, self.scribes, []))

    def _delivered(self, node: int):  # type: ignore[no-untyped-def]
        return lambda message: self.got.update([(node, message.body)])

    def join(self, name: str, *nodes: int) -> None:
        for node in nodes:
            self.world.send(node, self.scribes[node].join(name))

    def send(self, node: int, name: str, body: bytes) -> None:
        self.world.send(node, self.scribes[node].send(name, body))


def root_of(name: str, nodes: list[int]) -> int:
    return min(nodes, key=lambda node: (position_of(node) - key_of(name)) % RING)


def test_the_root_is_responsible_for_the_groups_name() -> None:
    house = House(40)
    house.join("g", 3, 17, 29)
    root = root_of("g", list(range(40)))
    assert house.scribes[root].is_in_tree("g")
    house.world.send(5, house.scribes[5].send("g", b"m"))
    assert house.got == {(node, b"m"): 1 for node in (3, 17, 29)}


def test_a_join_stops_at_the_first_node_in_the_tree() -> None:
    """Who was in no tree becomes a forwarder and hands the join on; who was, does not."""
    chord = Chord(1)
    chord.meet(2)
    chord.before = 2
    name = next(n for n in map(str, range(100)) if chord.next_hop(key_of(n)) == 2)
    scribe = Scribe(chord, lambda message: None)
    join = GroupJoin(packed(key_of(name)))
    assert scribe.receive(8, join, 0) == [(2, join)]
    assert scribe.receive(9, join, 0) == ()
    assert scribe.children(name) == [8, 9]


def test_many_to_many_and_to_all() -> None:
    """Every member of every group sends; groups overlap, and one has everybody."""
    house = House(30)
    groups = {"some": [1, 5, 9, 13], "others": [5, 6, 7], "all": list(range(30))}
    for name, members in groups.items():
        house.join(name, *members)
    for name, members in groups.items():
        for member in members:
            house.send(member, name, f"{name} {member}".encode())
    expected = Counter(
        (node, f"{name} {member}".encode())
        for name, members in groups.items()
        for member in members
        for node in members
    )
    assert house.got == expected


def test_each_member_gets_one_copy_and_the_source_sends_one() -> None:
    house = House(64)
    house.join("g", *range(0, 64, 2))
    house.world.sent.clear()
    house.send(63, "g", b"m")
    assert set(house.got.values()) == {1}
    assert len(house.got) == 32
    in_tree = sum(scribe.is_in_tree("g") for scribe in house.scribes)
    assert house.world.sent[GroupMessage] == in_tree - 1


def test_who_leaves_gets_no_more_and_forwarders_go_with_their_children() -> None:
    house = House(40)
    house.join("g", 3, 17, 29)
    for node in (3, 17):
        house.world.send(node, house.scribes[node].leave("g"))
    house.send(0, "g", b"m")
    assert house.got == {(29, b"m"): 1}
    house.world.send(29, house.scribes[29].leave("g"))
    assert not any(scribe.is_in_tree("g") for scribe in house.scribes)


def test_the_tree_is_repaired_when_nodes_die_the_root_first() -> None:
    house = House(40)
    members = [1, 8, 15, 22, 29, 36]
    house.join("g", *members)
    gone = dict.fromkeys([root_of("g", list(range(40)))])
    inner = [n for n in range(40) if house.scribes[n].is_in_tree("g") and n not in members]
    gone |= dict.fromkeys(inner[:3])
    house.world.down = gone
    settle(house.chords, house.world)
    for _ in range(10):
        house.world.run_round()
    house.send(members[1] if members[0] in gone else members[0], "g", b"m")
    assert house.got == {(node, b"m"): 1 for node in members if node not in gone}


def test_a_stack_runs_both() -> None:
    chord = Chord(1)
    stack = Stack((chord, Scribe(chord, lambda message: None)))
    assert stack.tick(0) == []
