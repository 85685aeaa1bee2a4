"""Records by key go to the disk once in a turn, whatever the disk does meanwhile."""

import asyncio
import errno

import pytest

from entrepot.broker.record_store import RecordStore
from entrepot.core.errors import StorageError
from entrepot.core.record import Record
from tests.unit.broker.bed import Bed
from tests.unit.log.bed import simulated

TOPIC = "__sessions"
PLACE = f"*/{TOPIC}-0/*"


def found(bed: Bed) -> tuple[RecordStore, dict[bytes, bytes]]:
    """A store, and what it has found."""
    values: dict[bytes, bytes] = {}

    def apply(record: Record) -> None:
        assert record.key is not None
        values.pop(record.key, None)
        if record.value is not None:
            values[record.key] = record.value

    store = RecordStore(bed.broker, bed.clock, TOPIC)
    store.open(apply)
    return store, values


async def committed(bed: Bed, store: RecordStore, *records: Record) -> StorageError | None:
    answer: asyncio.Future[StorageError | None] = bed.loop.create_future()

    def put() -> None:
        store.put(*records)
        store.when_committed(answer.set_result)

    bed.call(put)
    return await answer


@simulated
async def test_the_newest_of_a_key_counts(bed: Bed) -> None:
    await bed.start()
    store, values = found(bed)
    assert values == {}
    assert await committed(bed, store) is None  # Nothing to wait for.
    rows = [Record(b"a", b"1"), Record(b"b", b"1"), Record(b"a", b"2"), Record(b"c", b"1")]
    assert await committed(bed, store, *rows) is None
    assert await committed(bed, store, Record(b"b", None)) is None
    bed.crash()
    await bed.start()
    assert found(bed)[1] == {b"a": b"2", b"c": b"1"}


@simulated
async def test_what_is_put_in_a_turn_is_one_batch(bed: Bed) -> None:
    await bed.start()
    store, _ = found(bed)
    await committed(bed, store, *[Record(b"%d" % number, b"") for number in range(100)])
    await committed(bed, store, Record(b"x", bytes(1_000_000)), Record(b"y", bytes(1_000_000)))
    partition = bed.served_partition(TOPIC).partition
    assert len([*partition.batches()]) == 3  # The last two are large.


@simulated
async def test_nobody_is_told_before_it_is_permanent(bed: Bed) -> None:
    await bed.start()
    store, _ = found(bed)
    await committed(bed, store, Record(b"a", b"1"))
    told: list[StorageError | None] = []
    bed.call(store.put, Record(b"a", b"2"))
    bed.call(store.when_committed, told.append)
    await asyncio.sleep(0)
    assert told == []
    bed.crash()
    await bed.start()
    assert found(bed)[1][b"a"] in (b"1", b"2")


@simulated
async def test_a_full_disk_is_tried_again(bed: Bed) -> None:
    await bed.start()
    store, _ = found(bed)
    await committed(bed, store, Record(b"a", b"1"))
    bed.disk.fail_next("write", errno.ENOSPC, PLACE, count=2)
    assert isinstance(await committed(bed, store, Record(b"a", b"2")), StorageError)
    await asyncio.sleep(5)
    bed.crash()
    await bed.start()
    assert found(bed)[1] == {b"a": b"2"}


@simulated
async def test_a_stopped_partition_takes_no_more(bed: Bed) -> None:
    await bed.start()
    store, _ = found(bed)
    await committed(bed, store, Record(b"a", b"1"))
    bed.disk.fail_next("sync", errno.EIO, f"*/{TOPIC}-0/*.log")
    assert isinstance(await committed(bed, store, Record(b"a", b"2")), StorageError)
    assert isinstance(await committed(bed, store, Record(b"a", b"3")), StorageError)
    await asyncio.sleep(5)


@pytest.mark.pure
@simulated
async def test_what_is_put_while_the_partition_stops(bed: Bed) -> None:
    """Whoever hears that it stopped may want to write that down."""
    await bed.start()
    store, _ = found(bed)
    await committed(bed, store, Record(b"a", b"1"))
    bed.call(bed.served_partition(TOPIC).partition.refuse, "the disk has failed")
    write = bed.served_partition(TOPIC).write

    def write_and_tell(*batches: bytes) -> object:
        store.put(Record(b"b", b"1"))
        return write(*batches)

    store._served.write = write_and_tell  # type: ignore[union-attr, method-assign, assignment]
    assert isinstance(await committed(bed, store, Record(b"a", b"2")), StorageError)
    await asyncio.sleep(5)  # Nothing is written, and nothing fails.
    assert isinstance(await committed(bed, store, Record(b"a", b"3")), StorageError)


@simulated
async def test_damage_is_told(bed: Bed) -> None:
    await bed.start()
    store, _ = found(bed)
    await committed(bed, store, Record(b"a", b"1"))
    await committed(bed, store, Record(b"b", b"1"))
    await bed.stop()  # Cleanly: so it is not what a crash left at the end.
    bed.flip(f"partitions/{TOPIC}-0/00000000000000000000.log", 20)
    await bed.start()
    store, values = found(bed)
    assert (store.failure is None, values) == (False, {})
