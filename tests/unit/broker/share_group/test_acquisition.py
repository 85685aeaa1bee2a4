"""Which batches cover what is acquired, and where there is nothing for anybody."""

import pytest

from entrepot.broker.share_group.share_partition import AcknowledgeType, ShareDelivery
from entrepot.core import batch, limits
from tests.unit.broker.share_group.stage import Stage
from tests.unit.log.bed import make, simulated

ONE, OTHER = object(), object()


def values(found: ShareDelivery | None) -> list[bytes | None]:
    """Of the records that are the consumer's, out of the batches it is sent."""
    assert found is not None
    own = [offset for each in found.acquired for offset in each.offsets]
    data = b"".join(each.file.read(each.position, each.size) for each in found.batches)
    return [
        record.value
        for position, header in batch.walk(data)
        for record in batch.records(data[position : position + header.size])
        if record.offset in own
    ]


def sent(found: ShareDelivery | None) -> list[int]:
    """The first offsets of the batches."""
    assert found is not None
    data = b"".join(each.file.read(each.position, each.size) for each in found.batches)
    return [header.offset_first for _, header in batch.walk(data)]


@simulated
async def test_whole_batches_or_just_as_many(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(5, 5, 5)
    assert bed.acquire(ONE, 3) == [(range(5), 1)]
    assert bed.acquire(ONE, 7) == [(range(5, 15), 1)]
    await bed.fill(10)
    assert bed.acquire(ONE, 3, is_strict=True) == [(range(15, 18), 1)]
    found = bed.delivery(OTHER, 3, is_strict=True)
    assert (values(found), sent(found)) == ([b"18", b"19", b"20"], [15])


@simulated
async def test_batches_between_are_not_sent(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(2, 2, 2, 2)
    bed.acquire(ONE)
    bed.tell(ONE, AcknowledgeType.RELEASE, range(1), range(6, 7))
    found = bed.delivery(OTHER)
    assert (values(found), sent(found)) == ([b"0", b"6"], [0, 6])


@simulated
async def test_one_batch_is_sent_once(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(9)
    bed.acquire(ONE)
    bed.tell(ONE, AcknowledgeType.RELEASE, range(1), range(4, 5), range(8, 9))
    found = bed.delivery(OTHER)
    assert (values(found), sent(found)) == ([b"0", b"4", b"8"], [0])


@simulated
async def test_bytes_are_bounded_but_for_the_first_batch(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(3, 3, 3)
    size = len(make(b"0", b"1", b"2"))
    assert bed.acquire(ONE, size=1) == [(range(3), 1)]
    assert bed.acquire(ONE, size=2 * size) == [(range(3, 9), 1)]
    bed.call(bed.share().release, ONE)
    bed.acquire(ONE)
    bed.tell(ONE, AcknowledgeType.RELEASE, range(1), range(6, 7))
    assert bed.acquire(OTHER, size=1) == [(range(1), 3)]


@simulated
async def test_segments_are_no_borders(bed: Stage) -> None:
    await bed.open("t")
    await bed.do(bed.broker.alter_settings(bed.broker.topic("t"), {"segment.bytes": "100"}))
    await bed.fill(2, 2, 2)
    assert len(bed.served_partition("t").partition.segments) == 3
    assert values(bed.delivery(ONE)) == [b"%d" % number for number in range(6)]


@simulated
async def test_not_too_far_ahead_of_what_is_open(bed: Stage) -> None:
    await bed.open("t", share_partition_max_record_locks="4")
    await bed.fill(3, 3, 3)
    assert bed.acquire(ONE, 3) == [(range(3), 1)]
    assert bed.acquire(ONE, 3) == [(range(3, 6), 1)]  # The rest of a batch may go beyond.
    assert bed.acquire(ONE) == []
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(2, 6))
    assert bed.acquire(ONE) == []
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(2))
    assert bed.acquire(ONE) == [(range(6, 9), 1)]


@simulated
async def test_one_poll_goes_no_further_than_the_locks_allow(bed: Stage) -> None:
    await bed.open("t", share_partition_max_record_locks="4")
    await bed.fill(*[1] * 20)
    assert bed.acquire(ONE, 10) == [(range(4), 1)]
    bed.tell(ONE, AcknowledgeType.RELEASE, range(2))
    assert bed.acquire(OTHER, 10) == [(range(2), 2)]
    await bed.settle(OTHER, AcknowledgeType.ACCEPT, range(2))
    assert bed.acquire(OTHER, 10) == [(range(4, 6), 1)]


@simulated
async def test_where_the_number_is_strict_so_are_the_locks(bed: Stage) -> None:
    await bed.open("t", share_partition_max_record_locks="4")
    await bed.fill(9)
    assert bed.acquire(ONE, 10, is_strict=True) == [(range(4), 1)]
    assert bed.acquire(ONE, 10, is_strict=True) == []


@simulated
async def test_a_batch_without_measure_is_cut(bed: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "SHARE_RECORDS_MAX", 10)
    await bed.open("t")
    await bed.fill(25)
    assert bed.acquire(ONE, 1) == [(range(10), 1)]
    assert bed.acquire(ONE, 1) == [(range(10, 20), 1)]
    assert bed.acquire(ONE, 1) == [(range(20, 25), 1)]


# --- transactions


@simulated
async def test_only_what_is_committed(bed: Stage) -> None:
    """Aborted records, and markers once there are any, are settled on the way."""
    await bed.open("t", share_isolation_level="read_committed")
    await bed.transaction(2, commits=False)
    await bed.transaction(2, commits=True, producer=2)
    await bed.fill(1)
    assert bed.acquire(ONE, is_strict=True) == [(range(3, 5), 1), (range(6, 7), 1)]
    await bed.settle(ONE, AcknowledgeType.ACCEPT, range(3, 5), range(6, 7))
    assert (bed.share().ledger.offset_low, bed.share().lag) == (7, 0)


@simulated
async def test_nothing_but_aborted_ones(bed: Stage) -> None:
    await bed.open("t", share_isolation_level="read_committed")
    await bed.transaction(3, commits=False)
    assert bed.acquire(ONE, 1) == []
    assert bed.share().ledger.offset_low == 4
    await bed.transaction(3, commits=False)
    await bed.fill(1)
    assert bed.acquire(ONE, 1) == [(range(8, 9), 1)]


@simulated
async def test_an_open_transaction_is_the_end(bed: Stage) -> None:
    await bed.open("t", share_isolation_level="read_committed")
    await bed.fill(1)
    data = make(b"x", producer=5)
    header = batch.read_header(data)
    opened = batch._assemble(header._replace(attributes=0x10), data[batch.HEADER_BYTES :])
    bed.call(bed.served_partition("t").write, opened)
    await bed.fill(1)
    assert bed.acquire(ONE) == [(range(1), 1)]
    await bed.configure(share_isolation_level="read_uncommitted")
    assert bed.acquire(ONE) == [(range(1, 3), 1)]
    bed.tell(ONE, AcknowledgeType.RELEASE, range(1, 3))
    await bed.configure(share_isolation_level="read_committed")
    assert bed.acquire(ONE) == []  # Not settled, either.
    assert bed.share().lag == 3


@pytest.mark.pure
@simulated
async def test_what_compaction_took_is_settled(bed: Stage) -> None:
    await bed.open("t")
    await bed.fill(2, 2, 2)
    partition = bed.served_partition("t").partition
    lost = partition.read

    def read(offset: int, bytes_max: int, limit: int | None = None) -> object:
        return lost(max(offset, 4), bytes_max, limit)  # As if nothing were below 4.

    partition.read = read  # type: ignore[method-assign, assignment]
    assert bed.acquire(ONE) == [(range(4, 6), 1)]
    assert bed.share().ledger.offset_low == 4
