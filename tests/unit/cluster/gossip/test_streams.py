"""Messages in order, each once, over a net that loses, repeats and disorders datagrams."""

from random import Random
from typing import Any

import pytest

from entrepot.cluster.gossip.streams import Streams
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Arrived, Piece

VIEW = 7


class Pair:
    """Two nodes, 0 and 1, of one view."""

    def __init__(self, seed: int = 1, loss: float = 0.0) -> None:
        self.random = Random(seed)
        self.loss = loss
        self.ends = (Streams(0.1), Streams(0.1))
        self.got: tuple[list[bytes], list[bytes]] = ([], [])
        self.net: list[tuple[int, int, Any]] = []
        for end in self.ends:
            end.begin(VIEW)

    def send(self, sender: int, body: bytes) -> None:
        self.put(sender, self.ends[sender].send(1 - sender, body))

    def put(self, sender: int, sends: Any) -> None:
        self.net += [(sender, peer, message) for peer, message in sends]

    def run(self) -> None:
        """Have what is on the net arrive, in any order."""
        while self.net:
            sender, peer, message = self.net.pop(self.random.randrange(len(self.net)))
            if self.random.random() < self.loss:
                continue
            if self.random.random() < self.loss:
                self.net.append((sender, peer, message))
            sends, bodies = self.ends[peer].receive(sender, message)
            self.got[peer].extend(bodies)
            self.put(peer, sends)
            self.put(peer, self.ends[peer].acknowledgements())

    def tick(self) -> None:
        for number, end in enumerate(self.ends):
            self.put(number, end.tick(0.0))
        self.run()


@pytest.mark.parametrize("chance", range(5))
def test_all_arrive_in_order_and_once(chance: int) -> None:
    pair = Pair(chance, loss=0.3)
    told = [b"%d " % number * (number % 7 * 150) for number in range(300)]
    for body in told:
        pair.send(0, body)
        pair.send(1, body[::-1])
    pair.run()
    for _ in range(1_000):
        pair.tick()
    assert pair.got[1] == told
    assert pair.got[0] == [body[::-1] for body in told]
    assert not any(end.waiting or end.is_active or end.dropped for end in pair.ends)


def test_only_some_are_under_way_at_once() -> None:
    pair = Pair()
    for _ in range(3 * limits.PIECES_UNDER_WAY_MAX):
        pair.send(0, b"x")
    assert len(pair.net) == limits.PIECES_UNDER_WAY_MAX
    pair.run()
    assert len(pair.got[1]) == 3 * limits.PIECES_UNDER_WAY_MAX
    assert pair.ends[0].repeated == 0


def test_somebody_who_is_silent_costs_little() -> None:
    pair = Pair(loss=1.0)
    for _ in range(limits.PIECES_UNDER_WAY_MAX):
        pair.send(0, b"x")
    pair.run()
    for _ in range(30):
        pair.tick()
    assert pair.ends[0].repeated == limits.PIECES_UNDER_WAY_MAX + 9


def test_what_is_of_another_view_does_not_count() -> None:
    pair = Pair()
    pair.ends[1].begin(VIEW + 1)
    pair.send(0, b"early")
    pair.run()
    assert pair.got[1] == []
    assert pair.ends[0].waiting == 1
    pair.ends[1].begin(VIEW)  # Now it is there, too.
    for _ in range(5):
        pair.tick()
    assert pair.got[1] == [b"early"]
    pair.send(0, b"late")
    pair.ends[0].begin(VIEW + 1)  # What is under way ends with the view.
    assert pair.ends[0].waiting == 0


def test_what_is_too_much_is_dropped_and_counted() -> None:
    end = Streams(0.1)
    end.begin(VIEW)
    assert end.send(1, bytes(limits.PIECES_MAX * limits.CARRIED_BYTES_MAX + 1)) == ()
    assert end.dropped == 1
    for _ in range(limits.PIECES_WAITING_MAX + 5):
        end.send(1, b"x")
    assert end.dropped == 6


def test_nonsense_changes_nothing() -> None:
    pair = Pair()
    pair.send(0, b"one")
    end, other = pair.ends
    for number in (5, 1 << 61):
        assert end.receive(1, Arrived(VIEW, number)) == ((), [])
    assert end.receive(9, Arrived(VIEW, 1)) == ((), [])
    assert other.receive(0, Piece(VIEW, 1 << 61, True, b"far")) == ((), [])
    pair.run()
    assert pair.got[1] == [b"one"]
    assert end.waiting == 0
