"""Views of peer sampling stay full, connected and random, and forget who is gone."""

from entrepot.cluster.gossip.framework import Exchange
from entrepot.cluster.gossip.sampling import PeerSampling, Sampled
from entrepot.lab.averaging import sampling
from entrepot.lab.world import SeededEntropy


def test_who_is_asked_is_the_oldest_and_gives_up_its_place() -> None:
    entropy = SeededEntropy(1)
    one = PeerSampling(0, [1, 2, 3], entropy, 4)
    other = PeerSampling(1, [4, 5, 6, 7], entropy, 4)
    ours, theirs = Exchange(one, one), Exchange(other, other)
    ((peer, message),) = ours.tick(0)
    assert peer == 1
    assert 1 not in one.peers
    ((_, answer),) = theirs.receive(0, message, 0)
    ours.receive(1, answer, 0)
    assert 0 in other.peers  # The younger side knows the older now.
    assert 1 in one.peers
    assert len(one.peers) <= 4
    assert len(other.peers) <= 4


def test_half_of_the_nodes_are_killed() -> None:
    table = sampling(200, 20, 1, 12)
    first, last = table.rows[0], table.rows[-1]
    assert (first[3], first[6]) == (0.0, True)
    assert (last[1], last[5], last[6]) == (100, 0.0, True)


def test_any_of_a_view() -> None:
    entropy = SeededEntropy(1)
    assert Sampled(PeerSampling(0, [], entropy), entropy).select() is None
    sampled = Sampled(PeerSampling(0, [4, 5], entropy), entropy)
    assert {sampled.select() for _ in range(50)} == {4, 5}
