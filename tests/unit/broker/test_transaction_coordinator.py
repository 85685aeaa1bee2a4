"""Transactions on a broker whose disk loses what was not permanent."""

import asyncio
import errno

import pytest

from entrepot.broker import transaction_coordinator
from entrepot.broker.transaction import TIMEOUT_NEVER, ProducerIdentity, TransactionStatus
from entrepot.core import batch, limits
from entrepot.core.errors import (
    ConcurrentTransactions,
    FencedProducer,
    InvalidName,
    InvalidProducerMapping,
    InvalidTransactionTimeout,
    NotInTransaction,
    StorageError,
    TooManyTransactions,
)
from entrepot.core.marker import Marker, build_marker
from entrepot.log.policy import Durability
from tests.unit.broker.transaction_bed import ID, TIMEOUT_MS, TOPIC, V1, V2, Bed, make, on_broker


@on_broker
async def test_a_commit_is_seen_whole_and_an_abort_not_at_all(bed: Bed) -> None:
    """Proves N-04."""
    producer = await bed.init()
    for turn, commit in enumerate((True, False, True)):
        await bed.add(producer, 0, 1)
        await bed.write(producer, f"a{turn}", 0, sequence=turn)
        await bed.write(producer, f"b{turn}", 1, sequence=turn)
        assert f"a{turn}" not in bed.read(0)
        assert f"a{turn}" in bed.read(0, committed_only=False)
        await bed.end(producer, commit=commit)
    assert bed.read(0) == ["a0", "a2"]
    assert bed.read(1) == ["b0", "b2"]
    assert bed.read(0, committed_only=False) == ["a0", "a1", "a2"]


@pytest.mark.parametrize("durability", Durability)
@on_broker
async def test_whoever_the_watermark_wakes_sees_what_is_committed_and_no_more(
    bed: Bed, durability: Durability
) -> None:
    """The watermark, the last stable offset and the aborted ones move together."""
    seen: list[list[str]] = []
    bed.served_partition().partition.listen(bed, lambda: seen.append(bed.read()))
    producer = await bed.init()
    for turn, commit in enumerate((False, True)):
        await bed.add(producer, 0)
        await bed.write(producer, f"a{turn}", sequence=turn)
        await bed.end(producer, commit=commit)
    assert seen == [[], [], [], ["a1"]]


@on_broker
async def test_readers_of_committed_records_stop_at_the_oldest_open_transaction(bed: Bed) -> None:
    one, two = await bed.init("one"), await bed.init("two")
    await bed.add(one, 0, transactional_id="one")
    await bed.add(two, 0, transactional_id="two")
    await bed.write(one, "one", transactional_id="one")
    await bed.write(two, "two", transactional_id="two")
    bed.served_partition().append(make(ProducerIdentity(99, 0), "plain", transactional=False))
    await bed.end(two, commit=True, transactional_id="two")
    assert bed.read() == []
    assert bed.read(committed_only=False) == ["one", "two", "plain"]
    await bed.end(one, commit=False, transactional_id="one")
    assert bed.read() == ["two", "plain"]


@on_broker
async def test_a_batch_outside_of_a_transaction_is_refused(bed: Bed) -> None:
    producer = await bed.init()
    with pytest.raises(NotInTransaction):
        await bed.write(producer, "early")
    await bed.add(producer, 0)
    with pytest.raises(NotInTransaction):
        await bed.write(producer, "elsewhere", 1)
    with pytest.raises(NotInTransaction):
        bed.served_partition().append(make(producer, "nobody was asked"))
    await bed.write(producer, "good")
    with pytest.raises(batch.InvalidBatch):
        bed.served_partition().append(build_marker(Marker(*producer, True), 0))
    with pytest.raises(transaction_coordinator.transaction.InvalidTransactionState):
        bed.served_partition().append(make(producer, "plain", sequence=1, transactional=False))
    await bed.end(producer, commit=True)
    with pytest.raises(NotInTransaction):
        await bed.write(producer, "late", sequence=1)
    assert bed.read() == ["good"]


@on_broker
async def test_a_retry_is_written_once_and_not_believed_after_the_end(bed: Bed) -> None:
    """Proves N-03."""
    producer = await bed.init()
    await bed.add(producer, 0)
    assert await bed.write(producer, "x") == await bed.write(producer, "x")
    await bed.end(producer, commit=False)
    await bed.add(producer, 0)
    with pytest.raises(NotInTransaction):
        await bed.write(producer, "x")
    assert bed.read(committed_only=False) == ["x"]


@on_broker
async def test_a_newcomer_aborts_and_fences(bed: Bed) -> None:
    old = await bed.init()
    await bed.add(old, 0)
    await bed.write(old, "zombie")
    new = await bed.init()
    assert new.id == old.id
    assert new.epoch > old.epoch
    assert bed.read() == []
    assert (
        bed.served_partition().last_stable_offset == bed.served_partition().partition.high_watermark
    )
    for late in (
        bed.write(old, "later", sequence=1),
        bed.add(old, 0),
        bed.end(old, commit=True),
        bed.init(known=old),
    ):
        with pytest.raises(FencedProducer):
            await late
    await bed.add(new, 0)
    await bed.write(new, "good")
    await bed.end(new, commit=True)
    assert bed.read() == ["good"]


@on_broker
async def test_the_owner_goes_on_with_a_new_epoch_even_in_a_transaction(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "x")
    bumped = await bed.init(known=producer)
    assert (bumped.id, bumped.epoch > producer.epoch) == (producer.id, True)
    assert bed.read() == []
    await bed.add(bumped, 0)
    await bed.write(bumped, "y")
    await bed.end(bumped, commit=True)
    assert bed.read() == ["y"]


@on_broker
async def test_many_newcomers_at_once_leave_one_owner(bed: Bed) -> None:
    first = await bed.init()
    await bed.add(first, 0)
    await bed.write(first, "x")

    async def take() -> ProducerIdentity | None:
        try:
            return await bed.init()
        except ConcurrentTransactions:
            return None

    found = await asyncio.gather(*(take() for _ in range(5)))
    owners = [each for each in found if each is not None]
    assert len({owner.epoch for owner in owners}) == len(owners) > 0
    assert bed.found().producer == max(owners)


@on_broker
async def test_who_is_unknown_is_told_so(bed: Bed) -> None:
    nobody = ProducerIdentity(5, 0)
    for late in (bed.add(nobody, 0), bed.end(nobody, commit=True), bed.write(nobody, "x")):
        with pytest.raises(InvalidProducerMapping):
            await late
    for timeout_ms in (0, -1, limits.TRANSACTION_TIMEOUT_MS_MAX + 1):
        with pytest.raises(InvalidTransactionTimeout):
            await bed.broker.transactions.init_producer_id(ID, timeout_ms)


@on_broker
async def test_a_transaction_that_takes_too_long_is_aborted(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "slow")
    bed.clock.jump(-3_600_000)  # Whatever the wall clock says.
    await asyncio.sleep(TIMEOUT_MS / 1_000 - 1)
    await bed.add(producer, 1)  # Does not make it younger.
    assert bed.state() is TransactionStatus.ONGOING
    await asyncio.sleep(1.5)
    assert bed.state() is TransactionStatus.COMPLETE_ABORT
    assert bed.read() == []
    assert (
        bed.served_partition().last_stable_offset == bed.served_partition().partition.high_watermark
    )
    with pytest.raises(FencedProducer):
        await bed.end(producer, commit=True)
    with pytest.raises(FencedProducer):
        await bed.write(producer, "later", sequence=1)


@on_broker
async def test_it_does_not_get_younger_by_a_restart(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "slow")
    await asyncio.sleep(TIMEOUT_MS / 1_000 * 0.7)
    await bed.restart()
    assert bed.state() is TransactionStatus.ONGOING
    await asyncio.sleep(TIMEOUT_MS / 1_000 * 0.4)
    assert bed.state() is TransactionStatus.COMPLETE_ABORT


@pytest.mark.parametrize("commit", [True, False])
@on_broker
async def test_without_a_timeout_it_waits_for_the_decision(
    bed: Bed, commit: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONAL_ID_IDLE_MS_MAX", 5_000)
    producer = await bed.broker.transactions.init_producer_id(ID, TIMEOUT_NEVER)
    await bed.add(producer, 0)
    await bed.write(producer, "prepared")
    for _ in range(2):
        await asyncio.sleep(3 * TIMEOUT_MS / 1_000)
        assert bed.state() is TransactionStatus.ONGOING
        await bed.restart()
    await bed.end(producer, commit=commit)
    assert bed.read() == (["prepared"] if commit else [])
    await asyncio.sleep(6)
    assert ID not in bed.broker.transactions.transactions


@on_broker
async def test_an_id_nobody_uses_is_forgotten(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONAL_ID_IDLE_MS_MAX", 5_000)
    producer = await bed.init()
    await asyncio.sleep(4)
    await bed.add(producer, 0)
    await bed.end(producer, commit=True)
    await asyncio.sleep(4)
    assert bed.state() is TransactionStatus.COMPLETE_COMMIT
    await asyncio.sleep(2)
    assert ID not in bed.broker.transactions.transactions
    await bed.restart()
    assert ID not in bed.broker.transactions.transactions
    assert (await bed.init()).epoch == 0


@on_broker
async def test_there_are_not_too_many_ids(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "TRANSACTIONAL_IDS_MAX", 3)
    for number in range(3):
        await bed.init(f"id{number}")
    with pytest.raises(TooManyTransactions):
        await bed.init("another")
    await bed.init("id1")


@pytest.mark.parametrize("version", [V1, V2])
@on_broker
async def test_version_2_moves_the_epoch_and_markers_carry_it(bed: Bed, version: int) -> None:
    producer = await bed.init()
    for turn in range(3):
        await bed.add(producer, 0)
        await bed.write(producer, f"x{turn}", sequence=turn if version == V1 else 0)
        following = await bed.end(producer, commit=True, version=version)
        assert following.epoch == producer.epoch + (version == V2)
        again = await bed.end(producer, commit=True, version=version)
        assert again == following
        ((_, seen),) = bed.served_partition().producers.items()
        assert seen.epoch == following.epoch
        producer = following
    assert bed.read() == ["x0", "x1", "x2"]


@on_broker
async def test_markers_are_written_where_there_are_batches_only(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0, 1)
    await bed.write(producer, "x", 1)
    await bed.end(producer, commit=True)
    assert [bed.served_partition(number).partition.offset_end for number in range(3)] == [0, 2, 0]


@on_broker
async def test_a_topic_that_is_deleted_does_not_hold_up_the_end(bed: Bed) -> None:
    await bed.broker.create_topic("gone", 1)
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "x")
    places = [transaction_coordinator.TopicPartition("gone", 0)]
    await bed.broker.transactions.add_partitions(ID, producer, places)
    await bed.broker.delete_topic(bed.broker.topic("gone"))
    await bed.end(producer, commit=True)
    assert bed.state() is TransactionStatus.COMPLETE_COMMIT
    assert bed.read() == ["x"]


@on_broker
async def test_a_full_disk_puts_off_the_markers_not_the_decision(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0, 1)
    await bed.write(producer, "x", 0)
    await bed.write(producer, "y", 1)
    bed.disk.fail_next("write", errno.ENOSPC, f"partitions/{TOPIC}-1/*.log", count=2)
    await bed.end(producer, commit=True)
    assert bed.state() is TransactionStatus.PREPARE_COMMIT
    assert (bed.read(0), bed.read(1)) == (["x"], [])
    for late in (bed.add(producer, 0), bed.end(producer, commit=True), bed.init()):
        with pytest.raises(ConcurrentTransactions):
            await late
    await asyncio.sleep(4)
    assert bed.state() is TransactionStatus.COMPLETE_COMMIT
    assert (bed.read(0), bed.read(1)) == (["x"], ["y"])
    assert (
        bed.served_partition(0).partition.offset_end == 2
    )  # One marker, although it took two turns.


@on_broker
async def test_what_cannot_be_recorded_has_not_happened(bed: Bed) -> None:
    producer = await bed.init()
    state_files = "partitions/__transaction_state-*/*.log"
    bed.disk.fail_next("write", errno.ENOSPC, state_files)
    with pytest.raises(StorageError):
        await bed.add(producer, 0)
    assert bed.state() is TransactionStatus.EMPTY
    await bed.add(producer, 0)
    await bed.write(producer, "x")
    bed.disk.fail_next("write", errno.ENOSPC, state_files)
    with pytest.raises(StorageError):
        await bed.end(producer, commit=True)
    assert bed.state() is TransactionStatus.ONGOING
    await bed.end(producer, commit=True)
    assert bed.read() == ["x"]


@on_broker
async def test_a_failed_sync_of_the_decision_is_no_answer(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "x")
    bed.disk.fail_next("sync", errno.EIO, "partitions/__transaction_state-*/*.log", count=9)
    with pytest.raises(StorageError):
        await bed.end(producer, commit=True)
    assert bed.read() == []
    await bed.restart()
    # The decision may have survived or not; either way there is an end.
    if bed.state() is TransactionStatus.ONGOING:
        await bed.end(producer, commit=True)
    assert bed.state() is TransactionStatus.COMPLETE_COMMIT
    assert bed.read() == ["x"]


@on_broker
async def test_the_brokers_own_topics_are_not_for_others(bed: Bed) -> None:
    await bed.init()
    topic = bed.broker.topic("__transaction_state")
    served = bed.broker.served_partition(topic, 0)
    for late in (
        bed.broker.delete_topic(topic),
        bed.broker.create_partitions(topic, 50),
        bed.broker.delete_records(served, -1),
    ):
        with pytest.raises(InvalidName):
            await late
