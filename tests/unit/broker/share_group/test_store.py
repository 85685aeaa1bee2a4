import errno
from uuid import UUID

import pytest

from entrepot.broker.settlements import Settlements
from entrepot.broker.share_group.coordinator import ShareCoordinator
from entrepot.broker.share_group.store import TOPIC, ShareGroupStore, ShareName, new_settlements
from entrepot.core.errors import InvalidName, StorageError
from tests.unit.broker.bed import Bed
from tests.unit.log.bed import simulated

A, B = UUID(int=1), UUID(int=2)


def lows(kept: dict[ShareName, Settlements]) -> dict[ShareName, int]:
    return {name: each.ledger(0, 1_000).offset_low for name, each in kept.items()}


async def fresh(bed: Bed) -> ShareGroupStore:
    await bed.start()
    store = ShareGroupStore(bed.broker, bed.clock)
    await bed.do(store.prepare())
    return store


def note(store: ShareGroupStore, name: ShareName, low: int) -> Settlements:
    settlements = new_settlements(name)
    settlements.note([], low)
    store.mark(settlements)
    return settlements


@simulated
async def test_what_is_kept(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    # The broker's own would forget what is of topics that it does not know.
    monkeypatch.setattr(ShareCoordinator, "open", lambda self: None)
    store = await fresh(bed)
    bed.call(store.name, "g", A, 3)
    bed.call(store.name, "g", B, 1)
    bed.call(store.name, "other", A, 1)
    bed.call(note, store, ShareName("g", A, 2), 7)
    settled = new_settlements(ShareName("g", B, 0))
    settled.note([range(5, 9)], 0)
    bed.call(store.mark, settled)
    await bed.do(store.kept())
    bed.crash()
    await bed.start()
    kept = ShareGroupStore(bed.broker, bed.clock).open()
    assert lows(kept) == {
        ("g", A, 0): 0,
        ("g", A, 1): 0,
        ("g", A, 2): 7,
        ("g", B, 0): 0,
        ("other", A, 0): 0,
    }
    ledger = kept[ShareName("g", B, 0)].ledger(0, 10)
    assert list(ledger.unsettled()) == [range(5)]


@simulated
async def test_what_is_forgotten(bed: Bed) -> None:
    store = await fresh(bed)
    bed.call(store.name, "g", A, 1)
    settlements = bed.call(note, store, ShareName("g", A, 0), 7)
    await bed.do(store.kept())
    bed.call(store.forget, "g", A, [settlements])
    await bed.do(store.kept())
    assert ShareGroupStore(bed.broker, bed.clock).open() == {}
    bed.call(store.name, "g", A, 1)
    await bed.do(store.kept())
    assert lows(ShareGroupStore(bed.broker, bed.clock).open()) == {("g", A, 0): 0}


@simulated
async def test_one_batch_for_a_turn_of_the_loop(bed: Bed) -> None:
    store = await fresh(bed)
    for number in range(10):
        bed.call(note, store, ShareName("g", A, number), 1)
    await bed.do(store.kept())
    assert len(list(bed.served_partition(TOPIC).partition.batches())) == 1
    await bed.do(store.kept())
    assert len(list(bed.served_partition(TOPIC).partition.batches())) == 1


@simulated
async def test_what_failed_is_tried_again(bed: Bed) -> None:
    store = await fresh(bed)
    bed.call(store.name, "g", A, 1)
    await bed.do(store.kept())
    bed.disk.fail_next("write", errno.ENOSPC, f"partitions/{TOPIC}*")

    async def settle() -> None:
        note(store, ShareName("g", A, 0), 3)
        await store.kept()

    with pytest.raises(StorageError):
        await bed.do(settle())
    settlements = new_settlements(ShareName("g", A, 0))
    settlements.note([], 4)
    bed.call(store.mark, settlements)
    await bed.do(store.kept())
    assert lows(ShareGroupStore(bed.broker, bed.clock).open()) == {("g", A, 0): 4}


@simulated
async def test_the_topic_is_the_brokers_own(bed: Bed) -> None:
    await fresh(bed)
    with pytest.raises(InvalidName):
        await bed.delete(TOPIC)


@simulated
async def test_damage_is_not_taken_for_no_groups(bed: Bed) -> None:
    await fresh(bed)
    bed.broker.served_partition(bed.broker.topic(TOPIC), 0).partition.refuse("a bad batch")
    store = ShareGroupStore(bed.broker, bed.clock)
    assert store.open() == {}
    with pytest.raises(StorageError, match="damaged: a bad batch"):
        store.check_readable()
