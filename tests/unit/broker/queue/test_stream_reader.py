"""A topic as a stream: every reader sees what is committed, from its own place on."""

import errno

import pytest

from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.stream_reader import StreamReader, Where, offset_at, offset_of
from entrepot.broker.served_partition import ServedPartition
from entrepot.core import batch, limits
from entrepot.core.errors import Corruption, StorageError
from entrepot.core.marker import Marker, build_marker
from entrepot.core.neutral import Formats
from entrepot.core.record import Record
from tests.unit.broker.bed import Bed
from tests.unit.broker.queue.lane_bed import bodies
from tests.unit.log.bed import make, simulated


def reader(served: ServedPartition, offset: int = 0) -> StreamReader:
    return StreamReader(served, Formats(), offset)


def drain(source: StreamReader, count: int = 1_000) -> list[Piece]:
    pieces = []
    while source.is_behind:
        pieces += source.read(count)
    assert source.read(count) == []
    return pieces


async def filled(bed: Bed, *batches: bytes, **settings: str) -> ServedPartition:
    await bed.start()
    await bed.create("t", **settings)
    for data in batches:
        await bed.commit("t", data)
    return bed.served_partition("t")


@simulated
async def test_from_an_offset_to_the_end_and_on(bed: Bed) -> None:
    served = await filled(bed, make(b"0", b"1", b"2"), make(b"3", b"4"))
    source = reader(served, 1)
    pieces = source.read(3)
    assert [offset for offsets, _ in pieces for offset in offsets] == [1, 2, 3]
    assert bodies(pieces) == [b"1", b"2", b"3"]
    assert bodies(drain(source)) == [b"4"]
    woken = list[int]()
    source.listen(lambda: woken.append(1))
    await bed.commit("t", make(b"5"))
    assert woken
    assert bodies(drain(source)) == [b"5"]
    source.close()
    await bed.commit("t", make(b"6"))
    assert len(woken) == 1


@simulated
async def test_an_offset_that_is_not_there_yet(bed: Bed) -> None:
    served = await filled(bed, make(b"0"))
    source = reader(served, 2)
    await bed.commit("t", make(b"1"))
    assert (source.read(9), source.is_behind) == ([], False)
    await bed.commit("t", make(b"2", b"3"))
    assert bodies(drain(source)) == [b"2", b"3"]


@simulated
async def test_read_ahead_is_bounded(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STREAM_READ_AHEAD_BYTES", 300)
    batches = [make(b"%d" % number) for number in range(50)]
    served = await filled(bed, *batches)
    source = reader(served)
    assert bodies(source.read(1)) == [b"0"]
    assert len(source._ahead) < 5
    assert bodies(drain(source, 7)) == [b"%d" % number for number in range(1, 50)]


@simulated
async def test_transactions_are_seen_when_they_are_committed(bed: Bed) -> None:
    served = await filled(bed, make(b"0"))

    def write(producer: int, value: bytes) -> None:
        data = batch.build(
            [Record(None, value)],
            now_ms=1,
            producer_id=producer,
            producer_epoch=0,
            sequence_first=0,
            transactional=True,
        )
        bed.call(served.write, data)

    def end(producer: int, *, committed: bool) -> None:
        bed.call(served.write, build_marker(Marker(producer, 0, committed, 0), 1))

    source = reader(served)
    write(1, b"kept")
    write(2, b"aborted")
    await bed.commit("t", make(b"after"))
    assert bodies(drain(source)) == [b"0"]
    end(2, committed=False)
    end(1, committed=True)
    await bed.commit("t", make(b"last"))
    assert bodies(drain(source)) == [b"kept", b"after", b"last"]
    assert bodies(drain(reader(served, 2))) == [b"after", b"last"]


@simulated
async def test_where_to_begin(bed: Bed) -> None:
    served = await filled(bed)
    assert [offset_of(served, where) for where in Where] == [0, 0, 0]
    await bed.commit("t", make(b"0", b"1"))
    await bed.commit("t", make(b"2", b"3"))
    assert [offset_of(served, where) for where in Where] == [0, 2, 4]
    bed.call(served.write, build_marker(Marker(1, 0, True, 0), 1))
    await bed.commit("t", make(b"5"))
    assert offset_of(served, Where.LAST) == 5
    await bed.do(bed.broker.delete_records(served, 1))
    assert offset_of(served, Where.FIRST) == 1
    assert bodies(drain(reader(served)))[0] == b"1"


@simulated
async def test_the_last_batch_is_not_a_marker(bed: Bed) -> None:
    served = await filled(bed, make(b"0", b"1"), make(b"2"))
    bed.call(served.write, build_marker(Marker(1, 0, True, 0), 1))
    await bed.broker._log.committer.drain()
    assert served.last_stable_offset == 4
    assert offset_of(served, Where.LAST) == 2


@simulated
async def test_a_time_has_an_offset(bed: Bed) -> None:
    now_ms = bed.clock.now_ms()
    served = await filled(bed, *[make(b"x", time_ms=now_ms + step) for step in (0, 10, 20)])
    assert [offset_at(served, now_ms + step) for step in (-5, 5, 20, 21)] == [0, 1, 2, 3]
    bed.disk.fail_next("read", errno.EIO, "*/t-0/*", count=9)
    with pytest.raises(StorageError):
        offset_at(served, now_ms + 5)
    with pytest.raises(StorageError):
        reader(served).read(1)


@simulated
async def test_gaps_of_compaction(bed: Bed) -> None:
    await bed.start()
    await bed.create("t", cleanup_policy="compact")
    served = bed.served_partition("t")
    whole = batch.build([Record(b"k", b"%d" % number) for number in range(5)], now_ms=1)
    kept = [each for each in batch.records(whole) if each.offset in (1, 4)]
    bed.call(served.write, batch.retain(whole, kept))
    await bed.broker._log.committer.drain()
    pieces = drain(reader(served, 2))
    [(offsets, run)] = pieces
    [(envelope, body)] = run.messages
    assert (offsets, envelope.subject, body) == (range(4, 5), "k", b"4")


@simulated
async def test_nonsense_stops_the_reader_where_it_is(bed: Bed) -> None:
    served = await filled(bed, make(b"0"))
    bed.call(served.write, *batch.build_plain([b"\x02\x00"], 1, 0, 0))
    await bed.commit("t", make(b"2"))
    source = reader(served)
    with pytest.raises(Corruption):
        source.read(9)
    assert bodies(source.read(9)) == [b"0"]
    with pytest.raises(Corruption):
        source.read(9)
