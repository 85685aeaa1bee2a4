"""A crash in every state of a transaction, and what the next start makes of it."""

import asyncio
import contextlib
import errno

import pytest

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.broker.served_partition import committed
from entrepot.broker.transaction import ProducerIdentity, TransactionStatus
from entrepot.core.errors import (
    FencedProducer,
    InvalidProducerMapping,
    NotInTransaction,
    StorageError,
)
from entrepot.core.marker import Marker, build_marker
from entrepot.core.record import Record
from entrepot.log.partition import Partition
from entrepot.log.policy import Durability
from tests.unit.broker.transaction_bed import ID, TOPIC, V1, V2, Bed, make, on_broker


async def written(bed: Bed, *, power: bool = True) -> ProducerIdentity:
    producer = await bed.init()
    await bed.add(producer, 0, 1)
    await bed.write(producer, "x", 0)
    await bed.write(producer, "y", 1)
    bed.crash(power=power)
    await bed.start()
    return producer


@pytest.mark.parametrize("power", [True, False])
@on_broker
async def test_in_empty(bed: Bed, power: bool) -> None:
    producer = await bed.init()
    bed.crash(power=power)
    await bed.start()
    assert bed.found().producer == producer
    assert (await bed.init()).epoch == producer.epoch + 1


@pytest.mark.parametrize("power", [True, False])
@pytest.mark.parametrize("commit", [True, False])
@on_broker
async def test_in_ongoing(bed: Bed, power: bool, commit: bool) -> None:
    producer = await written(bed, power=power)
    assert bed.state() is TransactionStatus.ONGOING
    assert (bed.read(0), bed.read(1)) == ([], [])
    await bed.write(producer, "z", 0, sequence=1)
    await bed.end(producer, commit=commit)
    assert bed.read(0) == (["x", "z"] if commit else [])
    assert bed.read(1) == (["y"] if commit else [])


@pytest.mark.parametrize("durability", Durability)
@on_broker
async def test_a_kill_takes_nothing_whatever_the_durability(
    bed: Bed, durability: Durability
) -> None:
    producer = await written(bed, power=False)
    assert (bed.state(), bed.read(0)) == (TransactionStatus.ONGOING, [])
    await bed.end(producer, commit=True)
    bed.crash(power=False)
    await bed.start()
    assert (bed.read(0), bed.read(1)) == (["x"], ["y"])


@pytest.mark.parametrize("durability", [Durability.INTERVAL, Durability.OS])
@on_broker
async def test_a_lost_marker_does_not_commit_what_was_aborted(
    bed: Bed, durability: Durability
) -> None:
    """In transaction version 1 the next transaction has the same epoch. So after a power failure
    that may have taken anything, no transaction goes on."""
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "aborted")
    size = bed.served_partition().partition.size
    await bed.end(producer, commit=False)
    await bed.add(producer, 0)
    for partition in bed.broker._log.partitions.values():
        if partition.segments:
            await bed.inside(bed.broker._log.flush(partition))
    bed.crash()
    bed.disk.open(bed.served_partition().partition.segments[-1].path).truncate(size)  # Not synced.
    await bed.start()
    with pytest.raises(InvalidProducerMapping):
        await bed.end(producer, commit=True)
    assert (bed.read(), bed.read(committed_only=False)) == ([], ["aborted"])
    newcomer = await bed.init()
    assert newcomer.id != producer.id
    bed.crash(power=False)
    await bed.start()
    assert bed.found().producer == newcomer


@pytest.mark.parametrize("durability", [Durability.OS])
@on_broker
async def test_a_full_disk_after_a_power_failure(
    bed: Bed, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be forgotten for good is forgotten again by the next start, after a kill too."""

    def not_now(transactional_id: str) -> Record:
        raise StorageError("not now")

    await bed.init()
    for partition in bed.broker._log.partitions.values():
        if partition.segments:
            await bed.inside(bed.broker._log.flush(partition))
    bed.crash()
    with monkeypatch.context() as patch:
        patch.setattr("entrepot.broker.transaction_coordinator.forgotten_record", not_now)
        await bed.start()
    for power in (False, False, True):
        assert ID not in bed.broker.transactions.transactions
        bed.crash(power=power)
        await bed.start()


@pytest.mark.parametrize("version", [V1, V2])
@pytest.mark.parametrize("commit", [True, False])
@on_broker
async def test_at_any_moment_of_the_end(bed: Bed, commit: bool, version: int) -> None:
    """Either nothing was decided, or everything follows from the decision."""
    producer = await bed.init()
    outcomes = set()
    for delay_us in range(0, 40_000, 1_000):
        await bed.add(producer, 0, 1)
        await bed.write(producer, f"x{delay_us}", 0)
        await bed.write(producer, f"y{delay_us}", 1)
        bed.inside(bed.broker.transactions.end(ID, producer, commit=commit, version=version))
        await asyncio.sleep(delay_us / 1_000_000)
        before = bed.state()
        await bed.restart()
        after = bed.state()
        outcomes.add((before, after))
        assert after in (
            TransactionStatus.ONGOING,
            TransactionStatus.COMPLETE_COMMIT if commit else TransactionStatus.COMPLETE_ABORT,
        )
        if (
            after is not TransactionStatus.ONGOING
        ):  # The client asks again, and is told what was done.
            await bed.end(producer, commit=commit, version=version)
        is_seen = commit and after is not TransactionStatus.ONGOING
        for number, value in ((0, f"x{delay_us}"), (1, f"y{delay_us}")):
            assert (value in bed.read(number)) is is_seen
            assert value in bed.read(number, committed_only=False)
        producer = await bed.init()
        assert (
            len(bed.served_partition(0).isolation.open)
            == len(bed.served_partition(1).isolation.open)
            == 0
        )
    # Before the decision is permanent, after it, and after all that follows from it.
    assert len(outcomes) >= 3, outcomes


@on_broker
async def test_in_complete(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "x", 0)
    await bed.end(producer, commit=True)
    await bed.restart()
    assert bed.state() is TransactionStatus.COMPLETE_COMMIT
    await bed.end(producer, commit=True)
    assert bed.read() == ["x"]
    assert bed.served_partition().partition.offset_end == 2


@on_broker
async def test_a_clean_stop_keeps_it_all_too(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "x", 0)
    await bed.end(producer, commit=False)
    await bed.add(producer, 0)
    await bed.write(producer, "y", 0, sequence=1)
    await bed.inside(bed.broker.close())
    bed.crash(power=False)
    await bed.start()
    assert bed.state() is TransactionStatus.ONGOING
    assert bed.read() == []
    await bed.end(producer, commit=True)
    assert bed.read() == ["y"]


@on_broker
async def test_an_end_under_way_at_a_clean_stop_is_waited_for(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "x", 0)
    ending = bed.inside(bed.broker.transactions.end(ID, producer, commit=True, version=V1))
    await asyncio.sleep(0)
    await bed.inside(bed.broker.close())
    await ending
    bed.crash(power=True)
    await bed.start()
    assert bed.read() == ["x"]


async def stray(bed: Bed, producer: ProducerIdentity) -> None:
    served = bed.served_partition()
    appended = served.append(make(producer, "stray"), lambda header: None)
    await committed(served.partition, appended.offset_end)


@on_broker
async def test_what_was_never_recorded_is_aborted(bed: Bed) -> None:
    """As when a partition joins with its first batch, and only the batch survives."""
    producer = await bed.init()
    await bed.inside(stray(bed, producer))
    await bed.restart()
    assert bed.read() == []
    assert bed.served_partition().last_stable_offset == 2
    await bed.add(producer, 0)
    with pytest.raises(NotInTransaction):
        await bed.write(producer, "stray")  # The retry must not be taken for written.
    await bed.end(producer, commit=False)


@on_broker
async def test_a_stray_waits_for_room_on_the_disk(bed: Bed) -> None:
    await bed.inside(stray(bed, await bed.init()))
    await bed.inside(bed.broker.close())
    bed.crash(power=False)
    bed.disk.fail_next("write", errno.ENOSPC, f"partitions/{TOPIC}-0/*.log", count=2)
    await bed.start()
    assert bed.served_partition().last_stable_offset == 0
    await asyncio.sleep(3)
    assert bed.served_partition().last_stable_offset == 2


@on_broker
async def test_a_joining_batch_and_its_record_share_a_commit(bed: Bed) -> None:
    """Whenever the power fails: what was answered can be committed, the rest is nothing."""
    answers = set()
    for turn in range(20):
        producer = await bed.init()
        answered: list[str] = []
        bed.inside(joining(bed, producer, f"v{turn}", answered))
        await asyncio.sleep(turn / 1_000)
        await bed.restart()
        if answered:
            assert bed.state() is TransactionStatus.ONGOING
        await bed.end(producer, commit=bool(answered), version=V2)
        assert [value for value in bed.read(2) if value == f"v{turn}"] == answered
        assert not bed.served_partition(2).isolation.open
        answers.add(bool(answered))
    assert answers == {True, False}


async def joining(bed: Bed, producer: ProducerIdentity, value: str, answered: list[str]) -> None:
    waits: list[tuple[Partition, int]] = []

    def admit(header: object) -> None:
        recorded = bed.broker.transactions.join_transaction(
            ID, producer, [TopicPartition(TOPIC, 2)]
        )
        assert recorded is not None
        waits.append(recorded)

    served = bed.served_partition(2)
    appended = served.append(make(producer, value), admit)
    for partition, offset_end in (*waits, (served.partition, appended.offset_end)):
        await committed(partition, offset_end)
    answered.append(value)


@on_broker
async def test_damage_in_the_state_is_not_guessed_around(bed: Bed) -> None:
    producer = await bed.init()
    await bed.add(producer, 0)
    await bed.write(producer, "x", 0)
    number = bed.broker.transactions._served_partition_of(ID).partition.id.number
    path = f"partitions/__transaction_state-{number}/{0:020d}.log"
    await bed.inside(bed.broker.close())
    bed.crash(power=False)
    file = bed.disk.open(path)
    file.write(80, [b"\xff\xff\xff\xff"])
    await bed.start()
    with pytest.raises(StorageError):
        await bed.end(producer, commit=True)
    with pytest.raises(StorageError):
        await bed.init()
    assert bed.read() == []
    assert bed.served_partition().isolation.open  # Nobody knows whether it was decided.


@on_broker
async def test_aborted_transactions_below_the_log_start_are_forgotten(bed: Bed) -> None:
    producer = await bed.init()
    for turn in range(4):
        await bed.add(producer, 0)
        await bed.write(producer, f"x{turn}", sequence=turn)
        await bed.end(producer, commit=False)
    served = bed.served_partition()
    assert len(served.isolation.aborted(0, 100)) == 4
    await bed.inside(bed.broker.delete_records(served, 4))
    await bed.inside(bed.broker.close())
    bed.crash(power=False)
    await bed.start()
    assert bed.served_partition().isolation.aborted(0, 100) == [(producer.id, 4), (producer.id, 6)]


@on_broker
async def test_a_foreign_marker_only_speaks_of_epochs(bed: Bed) -> None:
    bed.served_partition().write(build_marker(Marker(77, 5, committed=False), 0))
    with pytest.raises(FencedProducer):
        bed.served_partition().append(make(ProducerIdentity(77, 4), "old"), lambda header: None)
    assert bed.served_partition().isolation.aborted(0, 100) == []


@on_broker
async def test_an_old_decision_says_nothing_of_the_next_transaction(bed: Bed) -> None:
    """Its end and what came after it were lost, but for a batch of the next transaction."""
    before = set()
    for turn in range(30):
        producer = await bed.init()
        await bed.add(producer, 2)
        await bed.write(producer, f"good{turn}", 2)
        following = await bed.end(producer, commit=True, version=V2)
        bed.disk.fail_next("sync", errno.EIO, "partitions/__transaction_state-*/*.log")
        bed.inside(joining_in_vain(bed, following, f"stray{turn}"))
        await asyncio.sleep(0.05)
        bed.crash()
        await bed.start()
        before.add(bed.state())
        assert bed.read(2) == [f"good{number}" for number in range(turn + 1)]
    assert before == {TransactionStatus.COMPLETE_COMMIT, TransactionStatus.ONGOING}


async def joining_in_vain(bed: Bed, producer: ProducerIdentity, value: str) -> None:
    with contextlib.suppress(StorageError):
        await joining(bed, producer, value, [])


def no_marker(marker: Marker, now_ms: int) -> bytes:
    raise StorageError("not now")


async def left_open(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> ProducerIdentity:
    """Crash until a batch is there whose transaction was not recorded, and which cannot be
    aborted at once either. Returns the producer that goes on."""
    for _ in range(30):
        producer = await bed.init()
        bed.disk.fail_next("sync", errno.EIO, "partitions/__transaction_state-*/*.log")
        bed.inside(joining_in_vain(bed, producer, "stray"))
        await asyncio.sleep(0.05)
        bed.crash()
        with monkeypatch.context() as patch:
            patch.setattr("entrepot.broker.transaction_coordinator.build_marker", no_marker)
            await bed.start()
        if bed.served_partition(2).isolation.open and bed.state() is not TransactionStatus.ONGOING:
            return await bed.init()
        await asyncio.sleep(1.5)
    raise AssertionError("nothing was left open")


@pytest.mark.parametrize("version", [V1, V2])
@on_broker
async def test_what_nobody_knew_of_is_aborted_before_the_producer_goes_on(
    bed: Bed, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its marker would else commit what a crash left, too."""
    producer = await left_open(bed, monkeypatch)
    with pytest.raises(StorageError, match="an earlier transaction"):
        await joining(bed, producer, "early", [])
    await asyncio.sleep(1.5)
    await bed.add(producer, 2)
    await bed.write(producer, "good", 2)
    await bed.end(producer, commit=True, version=version)
    assert bed.read(2) == ["good"]
    assert not bed.served_partition(2).isolation.open


@on_broker
async def test_a_commit_leaves_alone_what_it_did_not_write(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition is in the transaction, but its batches there are of an earlier one."""
    producer = await left_open(bed, monkeypatch)
    await bed.add(producer, 0, 2)
    await bed.write(producer, "good", 0)
    await bed.end(producer, commit=True)
    await asyncio.sleep(1.5)
    assert (bed.read(0), bed.read(2)) == (["good"], [])
    assert not bed.served_partition(2).isolation.open


@on_broker
async def test_offsets_nobody_knew_of_are_not_pending(bed: Bed) -> None:
    """A transaction that came after would else commit them, too."""
    place, groups = TopicPartition(TOPIC, 0), bed.broker.groups
    producer = await bed.init()
    offset = CommittedOffset(7, -1, "", 0)
    await bed.inside(groups.commit_offsets("g", "", -1, {place: offset}, producer=producer))
    assert bed.broker.groups._commits.offsets.is_pending("g", place)
    await bed.restart()
    assert not bed.broker.groups._commits.offsets.is_pending("g", place)
    assert bed.broker.groups.fetch_offsets("g", [place], require_stable=True) == {place: None}
