"""Bimodal multicast: a digest names what there is, who misses it asks, and gets it again."""

from entrepot.cluster.gossip.bimodal import (
    DIGEST_IDS_MAX,
    DIGEST_PERIOD_S,
    SOLICIT_IDS_MAX,
    Bimodal,
)
from entrepot.cluster.gossip.peers import Uniform
from entrepot.lab.world import SeededEntropy
from entrepot.wire.gossip.messages import Event, EventDigest, Retransmit, Solicit


class Node:
    def __init__(self, me: int, peer: int, **choices: int) -> None:
        self.got: list[tuple[bytes, float]] = []
        self.machine = Bimodal(
            me,
            Uniform([peer], SeededEntropy(me)),
            lambda event, now: self.got.append((event.body, now)),
            **choices,
        )


def test_the_period_of_digests_is_a_tenth_of_a_second() -> None:
    assert DIGEST_PERIOD_S == 0.1
    assert Node(0, 1).machine.period_s == 0.1
    fast = Bimodal(0, Uniform([1], SeededEntropy(0)), lambda event, now: None, period_s=0.02)
    assert fast.period_s == 0.02


def test_who_missed_the_multicast_is_repaired() -> None:
    one, other = Node(0, 1), Node(1, 0)
    sends = one.machine.multicast(b"event", [1], 0.0)
    assert sends == [(1, Event(0, 1, b"event"))]  # And this one is lost.
    ((_, digest),) = one.machine.tick(0.1)
    assert digest == EventDigest(((0, 1),))  # The name, not the event.
    ((_, solicit),) = other.machine.receive(0, digest, 0.1)
    assert solicit == Solicit(((0, 1),))
    ((_, again),) = one.machine.receive(1, solicit, 0.1)
    assert again == Retransmit(Event(0, 1, b"event"))
    other.machine.receive(0, again, 0.2)
    assert other.got == [(b"event", 0.2)]
    assert other.machine.receive(0, digest, 0.3) == ()  # It asks no more.


def test_an_event_is_delivered_once() -> None:
    node = Node(1, 0)
    for _ in range(3):
        node.machine.receive(0, Event(0, 1, b"event"), 0.0)
        node.machine.receive(0, Retransmit(Event(0, 1, b"event")), 0.0)
    assert len(node.got) == 1


def test_after_some_rounds_it_is_offered_no_more() -> None:
    node = Node(0, 1, rounds=3)
    node.machine.multicast(b"event", [], 0.0)
    assert [len(node.machine.tick(n)) for n in range(4)] == [1, 1, 1, 0]
    assert not node.machine.is_active
    assert node.machine.receive(1, Solicit(((0, 1),)), 1.0) == []


def test_what_one_packet_asks_for_is_bounded() -> None:
    one, other = Node(0, 1), Node(1, 0)
    for number in range(200):
        one.machine.multicast(b"%d" % number, [], 0.0)
    ((_, digest),) = one.machine.tick(0.1)
    assert len(digest.ids) == DIGEST_IDS_MAX
    ((_, solicit),) = other.machine.receive(0, digest, 0.1)
    assert solicit.ids == digest.ids[-SOLICIT_IDS_MAX:]
