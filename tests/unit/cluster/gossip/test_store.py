"""Facts spread, and stores become equal, whatever is lost and in whatever order things come."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from entrepot.cluster.gossip.framework import Exchange, Machine, Mode, Stack
from entrepot.cluster.gossip.peers import Others, Uniform
from entrepot.cluster.gossip.store import Reconciliation, Store
from entrepot.lab.world import Rounds, SeededEntropy
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Entry


def cluster(count: int, mode: Mode | None, loses: Any = None) -> tuple[list[Store], Rounds]:
    entropy = SeededEntropy(7)
    stores = [Store(node) for node in range(count)]
    machines: list[Machine] = []
    for node, store in enumerate(stores):
        peers = Uniform(Others(count, node), entropy)
        machines.append(
            Reconciliation(store, peers) if mode is None else Exchange(store, peers, mode)
        )
    return stores, Rounds(machines, loses=loses)


@pytest.mark.parametrize("mode", [*Mode, None])
def test_states_are_identical_afterwards(mode: Mode | None) -> None:
    stores, world = cluster(12, mode)
    for node, store in enumerate(stores):
        for number in range(3):
            store.put(f"key {number % 2}", b"%d %d" % (node, number))
    for _ in range(60):
        world.run_round()
    expected = stores[0].entries()
    assert len(expected) == 12 * 2
    assert {store.get(5, "key 0") for store in stores} == {b"5 2"}
    assert all(store.entries() == expected for store in stores)


def test_push_tells_and_pull_asks() -> None:
    for mode, tells in ((Mode.PUSH, True), (Mode.PULL, False), (Mode.PUSH_PULL, True)):
        store, other = Store(0), Store(1)
        entropy = SeededEntropy(1)
        store.put("a", b"1")
        ours = Exchange(store, Uniform([1], entropy), mode)
        theirs = Exchange(other, Uniform([0], entropy), mode)
        other.put("b", b"2")
        ((peer, message),) = ours.tick(0)
        assert peer == 1
        answers = theirs.receive(0, message, 0)
        assert (other.get(0, "a") is not None) == tells
        for _, answer in answers:
            ours.receive(1, answer, 0)
        assert (store.get(1, "b") is not None) == (mode is not Mode.PUSH)


def test_a_digest_brings_only_what_is_missing() -> None:
    stores, world = cluster(2, None)
    stores[0].put("a", b"1")
    world.run_round()
    for _ in range(5):
        world.run_round()
    sent = [stores[1].newer(((0, 0),)), stores[1].newer(((0, 1),))]
    assert [len(each) for each in sent] == [1, 0]


def test_the_process_is_told_once_of_each_fact_of_others() -> None:
    told: list[Entry] = []
    store, other = Store(0, told.append), Store(1)
    entry = other.put("a", b"1")
    store.put("mine", b"")
    store.keep_all((entry, entry))
    store.keep_all((entry,))
    assert told == [entry]


def test_a_node_that_forgot_its_changes_goes_on_above_them() -> None:
    old, other = Store(0), Store(1)
    for number in range(5):
        old.put("load", b"%d" % number)
    other.keep_all(old.entries())
    new = Store(0)
    new.put("load", b"fresh")
    new.keep_all(other.entries())
    assert new.version(0) == 6
    other.keep_all(new.newer(((0, other.version(0)),)))
    assert other.get(0, "load") == b"fresh"


def test_no_packet_is_too_large_and_nothing_gets_lost_at_its_end() -> None:
    stores, world = cluster(2, None)
    for number in range(200):
        stores[0].put(f"key {number}", b"v" * 100)
    assert len(stores[0].newer(((0, 0),))) < 12
    for _ in range(60):
        world.run_round()
    assert stores[1].entries() == stores[0].entries()


def test_it_is_bounded() -> None:
    store = Store(0)
    entries = [Entry(1, n + 1, f"k{n}", b"") for n in range(limits.ENTRIES_MAX + 10)]
    store.keep_all(entries)
    assert len(store.entries()) == limits.ENTRIES_MAX
    with pytest.raises(ValueError, match="more than 10000 facts"):
        store.put("one more", b"")
    store.forget(1)
    assert store.entries() == []
    store.put("one more", b"")


steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 2), st.sampled_from("abc")),
        st.tuples(st.just("round"), st.just(0), st.just("")),
    ),
    max_size=25,
)


@settings(max_examples=40, deadline=None)
@given(steps, st.integers(0, 2**30), st.sampled_from([Mode.PUSH_PULL, None]))
def test_they_become_equal_when_changes_end(
    script: list[tuple[str, int, str]], seed: int, mode: Mode | None
) -> None:
    chance = SeededEntropy(seed)
    lossy = [True]
    stores, world = cluster(3, mode, lambda *_: lossy[0] and chance.below(3) == 0)
    newest: dict[tuple[int, str], bytes] = {}
    for number, (what, node, key) in enumerate(script):
        if what == "put":
            newest[node, key] = b"%d" % number
            stores[node].put(key, newest[node, key])
        else:
            world.run_round()
    lossy[0] = False
    for _ in range(25):
        world.run_round()
    for store in stores:
        assert {(e.owner, e.key): e.value for e in store.entries()} == newest


def test_a_stack_passes_each_message_to_the_machine_that_hears_it() -> None:
    store = Store(0)
    stack = Stack([Reconciliation(store, Uniform([1], SeededEntropy(1)))])
    assert stack.is_active
    assert len(stack.tick(0)) == 1
    assert stack.receive(1, object(), 0) == ()
