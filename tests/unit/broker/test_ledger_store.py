"""What was settled goes to the disk once in a turn, whatever the disk does meanwhile."""

import asyncio
import errno

import pytest

from entrepot.broker.ledger_store import LedgerStore
from entrepot.broker.virtual_host.queue_maker import LEDGERS as TOPIC
from entrepot.core import batch, limits
from entrepot.core.errors import StorageError
from entrepot.core.faults import Faults
from entrepot.core.record import Record
from tests.unit.broker.queue.lane_bed import LaneBed, identity, run, take
from tests.unit.log.bed import simulated


def written(bed: LaneBed) -> list[list[Record]]:
    return [list(batch.records(data)) for data in bed.served_partitions[TOPIC].partition.batches()]


async def started(bed: LaneBed, *names: str) -> None:
    """Ten messages in each lane, all of them taken."""
    await bed.start(*names)
    for name in names:
        await bed.publish(name, run(*[b"x"] * 10))
        take(bed.lanes[name], 10)


@simulated
async def test_one_batch_in_a_turn_for_all_lanes(bed: LaneBed) -> None:
    await started(bed, "a", "b")
    for offset in range(3):
        bed.settle("a", offset)
        bed.settle("b", offset)
    await bed.settlements("a")
    assert [len(each) for each in written(bed)] == [2]
    bed.settle("a", 3)
    await bed.settlements("a")
    assert [len(each) for each in written(bed)] == [2, 1]


@simulated
async def test_nothing_new_is_nothing_to_write_and_nothing_to_wait_for(bed: LaneBed) -> None:
    await started(bed, "a")
    await bed.settlements("a")
    bed.settle("a", 99)
    await bed.settlements("a")
    assert written(bed) == []


@simulated
async def test_before_it_is_permanent_nobody_is_told(bed: LaneBed) -> None:
    await started(bed, "a")
    told = list[StorageError | None]()
    bed.settle("a", 0)
    bed.call(bed.lanes["a"].when_settlements_committed, told.append)
    await asyncio.sleep(0)
    assert told == []
    await bed.settlements("a")
    assert told == [None]


@simulated
async def test_settlements_that_nobody_waits_for_are_gathered_and_synced_later(
    bed: LaneBed,
) -> None:
    await started(bed, "a")
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.0001
    partition = bed.served_partitions[TOPIC].partition
    bed.settle("a", 0)
    await asyncio.sleep(0.001)
    bed.settle("a", 1)
    await asyncio.sleep(0.001)
    assert partition.offset_end == 0
    await asyncio.sleep(limits.COMMIT_DEFERRED_MS / 1_000)
    assert (partition.offset_end, partition.high_watermark) == (1, 0)
    await asyncio.sleep(limits.COMMIT_DEFERRED_MS / 1_000)
    assert partition.high_watermark == 1


@simulated
async def test_what_is_settled_by_its_delivery_is_written_at_the_end_of_the_turn(
    bed: LaneBed,
) -> None:
    """Its commit may wait all the same."""
    await started(bed, "a")
    partition = bed.served_partitions[TOPIC].partition
    bed.settle("a", 0)
    bed.call(bed.lanes["a"].hurry)
    await asyncio.sleep(0.001)
    assert (partition.offset_end, partition.high_watermark) == (1, 0)


@simulated
async def test_who_waits_for_a_settlement_does_not_wait_for_others(bed: LaneBed) -> None:
    await started(bed, "a")
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.0001
    bed.settle("a", 0)
    told = list[StorageError | None]()
    bed.call(bed.lanes["a"].when_settlements_committed, told.append)
    await asyncio.sleep(0.001)
    assert told == [None]


@simulated
async def test_what_is_more_than_a_settlement_is_synced_at_once(bed: LaneBed) -> None:
    """A message that is deferred must not come early after a crash."""
    await started(bed, "a")
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.0001
    bed.settle("a", 0)
    bed.call(bed.lanes["a"].deferred, 7, 10**15)
    await asyncio.sleep(0.001)
    assert bed.served_partitions[TOPIC].partition.high_watermark == 2


@simulated
async def test_a_full_disk_is_tried_again(bed: LaneBed) -> None:
    await started(bed, "a")
    bed.disk.fail_next("write", errno.ENOSPC, f"*/{TOPIC}-0/*", count=3)
    bed.settle("a", 0, 5)
    with pytest.raises(StorageError):
        await bed.settlements("a")
    bed.settle("a", 1)
    await asyncio.sleep(10)
    bed.settle("a", 7)
    await bed.settlements("a")
    bed.crash()
    await bed.start("a")
    assert bed.ready("a") == [2, 3, 4, 6, 8, 9]


@simulated
async def test_a_stopped_partition_is_told_and_kept_away_from(bed: LaneBed) -> None:
    await started(bed, "a")
    bed.disk.fail_next("sync", errno.EIO, f"*/{TOPIC}-0/*.log")
    bed.settle("a", 0)
    with pytest.raises(StorageError):
        await bed.settlements("a")
    for offset in (1, 2):
        bed.settle("a", offset)
        with pytest.raises(StorageError):
            await bed.settlements("a")
    assert (bed.store._dirty, bed.store._unwritten) == ({}, {})
    bed.call(bed.lanes["a"].drop)
    bed.kill()
    await bed.start("a")
    assert bed.ready("a")[-7:] == [3, 4, 5, 6, 7, 8, 9]


@simulated
async def test_who_waits_is_told_when_a_write_fails_by_a_mistake_of_ours(bed: LaneBed) -> None:
    """A lane's records cannot be made: the store stops, and says so to all who wait."""
    await started(bed, "a")
    bed.faults = Faults()
    bed.settle("a", 0)
    (settlements,) = bed.store._dirty
    settlements._changed["?"] = None  # type: ignore[index]  # No number of a page.
    with pytest.raises(StorageError, match="internal error"):
        await bed.settlements("a")
    assert bed.faults.count == 1


@simulated
async def test_of_a_dropped_lane_nothing_is_left(bed: LaneBed) -> None:
    await started(bed, "a", "b")
    for name in "ab":
        bed.settle(name, 0, 1, 5)
        bed.call(bed.lanes[name].deferred, 7, 10**15)
    await bed.settlements("a")
    bed.settle("a", 2)
    bed.call(bed.lanes["a"].drop)
    await bed.settlements("b")
    bed.kill()
    await bed.start("a", "b")
    assert bed.ready("a") == list(range(10))
    assert bed.ready("b") == [2, 3, 4, 6, 8, 9]


@simulated
async def test_lanes_that_nobody_asks_for_are_forgotten(bed: LaneBed) -> None:
    """A crash came between the deletion of a queue and that of its ledger."""
    await started(bed, "a", "b")
    bed.settle("a", 0)
    bed.settle("b", 0, 4)
    await bed.settlements("a")
    bed.kill()
    await bed.start("a")
    await bed.settlements("a")
    count = len(written(bed))
    bed.kill()
    await bed.start("a")
    await bed.settlements("a")
    assert len(written(bed)) == count, "once is enough"
    assert bed.ready("a") == list(range(1, 10))
    store = LedgerStore(bed, bed.clock, TOPIC, "queues")  # type: ignore[arg-type]
    store.open()
    assert store.settlements(identity("b")).is_empty
    assert not store.settlements(identity("a")).is_empty


@simulated
async def test_compaction_keeps_what_counts(bed: LaneBed) -> None:
    await bed.start("a")
    for number in range(60):
        await bed.publish("a", run(b"x"))
        take(bed.lanes["a"], 1)
        if number not in (20, 40):
            bed.settle("a", number)
        await bed.settlements("a")
    await asyncio.sleep(30)
    assert len(written(bed)) < 50
    bed.crash()
    await bed.start("a")
    assert bed.ready("a") == [20, 40]


@simulated
async def test_many_records_are_several_batches_one_lane_is_one(
    bed: LaneBed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await started(bed, "a", "b")
    monkeypatch.setattr("entrepot.core.limits.QUEUE_BATCH_BYTES", 50)
    for name in "ab":
        bed.settle(name, 0, 2, 4, 6)
    await bed.settlements("a")
    assert [len(each) for each in written(bed)] == [2, 2]


@simulated
async def test_after_the_end_nothing_is_written(bed: LaneBed) -> None:
    await started(bed, "a")
    bed.settle("a", 0)
    bed.call(bed.store.close)
    assert len(written(bed)) == 1
    bed.settle("a", 1)
    with pytest.raises(StorageError, match="stopping"):
        await bed.settlements("a")
    await asyncio.sleep(5)
    assert len(written(bed)) == 1


@simulated
async def test_a_store_without_a_topic_makes_it_when_it_is_needed(bed: LaneBed) -> None:
    await bed.start()
    bed.topics.clear()
    store = LedgerStore(bed, bed.clock, TOPIC, "queues")  # type: ignore[arg-type]
    store.open()
    told = list[StorageError | None]()
    store.when_committed(told.append)
    assert told == [None]
    await store.prepare()
    await store.prepare()
    assert store._served is bed.served_partitions[TOPIC]


@simulated
async def test_damage_is_not_taken_for_nothing_settled(bed: LaneBed) -> None:
    await bed.start()
    bed.served_partitions[TOPIC].partition.refuse("a bad batch")
    store = LedgerStore(bed, bed.clock, TOPIC, "queues")  # type: ignore[arg-type]
    store.open()
    with pytest.raises(StorageError, match="damaged: a bad batch"):
        await store.prepare()
