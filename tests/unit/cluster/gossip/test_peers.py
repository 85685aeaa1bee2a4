"""Peers are chosen evenly; or the one least often contacted."""

from collections import Counter

import pytest

from entrepot.cluster.gossip.peers import LeastContacted, Others, Uniform, happens, some_of
from entrepot.lab.world import SeededEntropy


def test_uniform_over_the_live_nodes() -> None:
    live = [3, 5, 8, 9]
    selection = Uniform(live, SeededEntropy(1))
    seen = Counter(selection.select() for _ in range(8_000))
    assert set(seen) == set(live)
    assert all(1_850 < count < 2_150 for count in seen.values())
    live.remove(5)
    assert 5 not in [selection.select() for _ in range(200)]
    live.clear()
    assert selection.select() is None


def test_the_least_contacted() -> None:
    live = list(range(10))
    selection = LeastContacted(live, SeededEntropy(1))
    for turn in range(1, 6):
        assert sorted(selection.select() for _ in range(10)) == live, turn
    live.append(10)  # It catches up first.
    assert [selection.select() for _ in range(5)] == [10] * 5
    live.remove(3)
    assert 3 not in [selection.select() for _ in range(30)]
    live.clear()
    assert selection.select() is None


def test_others() -> None:
    others = Others(5, 2)
    assert list(others) == [0, 1, 3, 4]
    assert others[1:3] == [1, 3]
    with pytest.raises(IndexError):
        others[4]


def test_some_of() -> None:
    entropy = SeededEntropy(1)
    seen = Counter(tuple(sorted(some_of([1, 2, 3, 4], 2, entropy))) for _ in range(6_000))
    assert len(seen) == 6
    assert all(850 < count < 1_150 for count in seen.values())
    assert some_of([1, 2], 5, entropy) == [1, 2]
    assert some_of([], 1, entropy) == []


def test_chances() -> None:
    entropy = SeededEntropy(1)
    assert not any(happens(0, entropy) for _ in range(100))
    assert all(happens(1, entropy) for _ in range(100))
    assert 400 < sum(happens(0.5, entropy) for _ in range(1_000)) < 600
