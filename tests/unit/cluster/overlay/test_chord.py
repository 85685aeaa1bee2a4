"""Chord: the ring settles, heals, and finds who is responsible in log N hops."""

from entrepot.cluster.overlay.chord import RING, Chord, is_between, key_of, position_of
from entrepot.lab.ways import ring_of, settle
from entrepot.lab.world import Rounds


def ring(count: int) -> tuple[list[Chord], Rounds]:
    chords = [Chord(node) for node in range(count)]
    world = Rounds(chords)
    ring_of(chords, world)
    return chords, world


def responsible(nodes: list[int], key: int) -> int:
    return min(nodes, key=lambda node: (position_of(node) - key) % RING)


def found(chords: list[Chord], world: Rounds, asker: int, key: int) -> tuple[int, int]:
    answers: list[tuple[int, int]] = []
    world.send(asker, chords[asker].lookup(key, lambda *answer: answers.append(answer)))
    (answer,) = answers
    return answer


def test_between_on_a_ring() -> None:
    assert is_between(5, 3, 5)
    assert not is_between(3, 3, 5)
    assert is_between(1, RING - 1, 2)
    assert not is_between(3, RING - 1, 2)
    assert is_between(7, 3, 3)  # All the way around.


def test_alone() -> None:
    chord = Chord(7)
    answers: list[tuple[int, int]] = []
    assert chord.lookup(key_of("x"), lambda *answer: answers.append(answer)) == ()
    assert answers == [(7, 0)]
    assert chord.tick(0) == ()


def test_every_lookup_is_right_and_short() -> None:
    chords, world = ring(100)
    nodes = list(range(100))
    hops = []
    for number in range(300):
        key = key_of(f"key {number}")
        node, way = found(chords, world, number % 100, key)
        assert node == responsible(nodes, key)
        hops.append(way)
    assert sum(hops) / len(hops) < 3.4  # Half of log2 100.
    assert max(hops) <= 7


def test_a_ring_of_two() -> None:
    chords, world = ring(2)
    assert [chord.successors for chord in chords] == [[1], [0]]
    for number in range(20):
        key = key_of(f"{number}")
        assert found(chords, world, 0, key)[0] == responsible([0, 1], key)


def test_it_heals_when_a_third_is_gone_at_once() -> None:
    chords, world = ring(60)
    world.down = dict.fromkeys(range(0, 60, 3))
    alive = [node for node in range(60) if node not in world.down]
    assert settle(chords, world) < 40
    for _ in range(30):
        world.run_round()
    for number in range(100):
        key = key_of(f"key {number}")
        assert found(chords, world, alive[number % 40], key)[0] == responsible(alive, key)
    assert not any(peer in world.down for node in alive for peer in chords[node].successors)


def test_two_rings_become_one_when_one_node_meets_another() -> None:
    chords = [Chord(node) for node in range(20)]
    world = Rounds(chords)
    for node in range(1, 10):
        world.send(node, chords[node].join(0))
    for node in range(11, 20):
        world.send(node, chords[node].join(10))
    for _ in range(40):
        world.run_round()
    for node in range(20):  # As membership tells it.
        for other in range(20):
            chords[node].meet(other)
    assert settle(chords, world) < 40


def test_a_ring_that_is_laid_out_at_once() -> None:
    nodes = [number * 7 + 3 for number in range(60)]
    chords = [Chord(node) for node in nodes]
    for chord in chords:
        chord.arrange(nodes)
    place = dict(zip(nodes, chords, strict=True))
    hops = []
    for number in range(300):
        key = key_of(f"key {number}")
        at, way = nodes[number % 60], 0
        while (following := place[at].next_hop(key)) is not None:
            at, way = following, way + 1
        assert at == responsible(nodes, key)
        hops.append(way)
    assert sum(hops) / len(hops) < 4
    assert max(hops) <= 7
    alone = Chord(5)
    alone.arrange([5])
    assert alone.next_hop(key_of("x")) is None
