"""A rumor is told until it meets too many who know it."""

import pytest

from entrepot.cluster.gossip.peers import Others, Uniform
from entrepot.cluster.gossip.rumor import HOT_MAX, Interest, RumorMonger
from entrepot.cluster.gossip.store import Store
from entrepot.lab.world import Rounds, SeededEntropy
from entrepot.wire.gossip.messages import Feedback, Rumor


def two(k: int, interest: Interest, *, with_feedback: bool = True) -> list[RumorMonger]:
    entropy = SeededEntropy(1)
    return [
        RumorMonger(
            Store(node), Uniform([1 - node], entropy), entropy,
            k=k, interest=interest, with_feedback=with_feedback,
        )
        for node in range(2)
    ]  # fmt: skip


@pytest.mark.parametrize("with_feedback", [True, False])
def test_the_counter_counts(with_feedback: bool) -> None:
    one, _ = two(3, Interest.COUNTER, with_feedback=with_feedback)
    entry = Store(0).put("news", b"")
    one.tell(entry)
    for _ in range(3):
        assert one.is_active
        assert one.tick(0) == [(1, Rumor(entry))]
        one.receive(1, Feedback(0, 1, False), 0)  # Who did not know costs no interest.
        one.receive(1, Feedback(0, 1, True), 0) if with_feedback else None
    assert not one.is_active
    assert one.tick(0) == []


def test_who_hears_it_first_tells_it_too() -> None:
    one, other = two(1, Interest.COIN)
    entry = Store(0).put("news", b"")
    one.tell(entry)
    ((_, rumor),) = one.tick(0)
    assert other.receive(0, rumor, 0) == ((0, Feedback(0, 1, False)),)
    assert other.is_active
    assert other.receive(0, rumor, 0) == ((0, Feedback(0, 1, True)),)


def test_the_coin_stops_with_chance_p() -> None:
    """With p_stop = 1/4 it takes four meetings in the mean."""
    entropy = SeededEntropy(5)
    met = 0
    for _ in range(2_000):
        monger = RumorMonger(Store(0), Uniform([1], entropy), entropy, k=4)
        monger.tell(Store(0).put("news", b""))
        while monger.is_active:
            monger.receive(1, Feedback(0, 1, True), 0)
            met += 1
    assert met / 2_000 == pytest.approx(4, rel=0.1)


def test_the_fan_out_is_how_many_are_told_each_time() -> None:
    entropy = SeededEntropy(1)
    for fan_out in (1, 3):
        monger = RumorMonger(Store(0), Uniform(Others(50, 0), entropy), entropy, fan_out=fan_out)
        monger.tell(Store(0).put("news", b""))
        assert len(monger.tick(0)) == fan_out


def test_a_larger_fan_out_takes_fewer_rounds() -> None:
    rounds = []
    for fan_out in (1, 4):
        entropy = SeededEntropy(1)
        stores = [Store(node) for node in range(500)]
        mongers = [
            RumorMonger(store, Uniform(Others(500, node), entropy), entropy, k=4, fan_out=fan_out)
            for node, store in enumerate(stores)
        ]
        world = Rounds(mongers)
        mongers[0].tell(stores[0].put("news", b""))
        while sum(store.version(0) for store in stores) < 480:
            world.run_round()
        rounds.append(world.round)
    assert rounds[1] < rounds[0] / 1.5


def test_it_is_bounded() -> None:
    monger, _ = two(1, Interest.COIN)
    store = Store(0)
    for number in range(HOT_MAX + 10):
        monger.tell(store.put(f"{number}", b""))
    assert len(monger.tick(0)) == HOT_MAX
