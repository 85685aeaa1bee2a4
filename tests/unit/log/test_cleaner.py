"""Compaction: the last record of each key, at its offset, whatever crashes in between."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar, cast

import pytest

from entrepot.core import batch, limits
from entrepot.core.record import Record
from entrepot.log.policy import Policy
from tests.unit.log.bed import Bed, simulated

T = TypeVar("T")

COMPACT = Policy(
    segment_bytes=400, compacts=True, expires=False, tombstone_ms=1_000, dirty_ratio_min=0.1
)


def keyed(key: bytes, value: bytes | None, **options: int) -> bytes:
    return batch.build([Record(key, value)], now_ms=1, **options)


async def fill(bed: Bed, *rows: tuple[bytes, bytes | None]) -> None:
    for key, value in rows:
        bed.append("t", keyed(key, value))
        await bed.committed()


def contents(bed: Bed) -> list[tuple[int, bytes | None, bytes | None]]:
    """What a reader sees, following the offsets it is given."""
    partition, offset = bed["t"], 0
    rows: list[tuple[int, bytes | None, bytes | None]] = []
    while (found := partition.read(offset, 1_000_000)) is not None:
        data = found.file.read(found.position, found.size)
        for position, header in batch.walk(data):
            batch.check(data[position : position + header.size], allow_gaps=True)
            for record in batch.records(data[position : position + header.size]):
                if record.offset >= offset:
                    rows.append((record.offset, record.key, record.value))
            offset = header.offset_last + 1
    return rows


@simulated
async def test_the_last_record_of_each_key_stays_at_its_offset(bed: Bed) -> None:
    await bed.start("t", policy=COMPACT)
    await fill(bed, *((f"k{n % 3}".encode(), f"v{n}".encode()) for n in range(40)))
    before = contents(bed)
    segments = len(bed["t"].segments)
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    after = contents(bed)
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    assert len(bed["t"].segments) < segments, "what has become small is joined"
    views = [name for name in bed.disk.names(bed["t"].directory) if name.endswith(".view")]
    assert len(views) <= len(bed["t"].segments), "nothing is left of the others"
    assert contents(bed) == after
    assert [row for row in before if row in after] == after, "offsets and order as before"
    assert len(after) < len(before)
    last = {key: (offset, value) for offset, key, value in before}
    assert {key: (offset, value) for offset, key, value in after} == last
    assert bed["t"].offset_end == 40


@simulated
async def test_a_batch_with_some_records_replaced_keeps_the_others(bed: Bed) -> None:
    await bed.start("t", policy=COMPACT)
    rows = [Record(b"a", b"1"), Record(b"b", b"1"), Record(b"c", b"1")]
    bed.append("t", batch.build(rows, now_ms=1, codec=batch.Codec.LZ4))
    await fill(bed, (b"b", b"2"), *((f"x{n}".encode(), b"y" * 50) for n in range(10)))
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    assert contents(bed)[:3] == [(0, b"a", b"1"), (2, b"c", b"1"), (3, b"b", b"2")]


@simulated
async def test_a_tombstone_stays_a_while_after_it_was_first_met(bed: Bed) -> None:
    await bed.start("t", policy=COMPACT)
    filler = [(f"x{n}".encode(), b"y" * 60) for n in range(8)]
    await fill(bed, (b"gone", b"1"), (b"gone", None), *filler)
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    assert (1, b"gone", None) in contents(bed)
    bed.clock.jump(2_000)
    await fill(bed, *filler)
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    assert not [row for row in contents(bed) if row[1] == b"gone"]


@simulated
async def test_only_what_is_dirty_enough_is_due(bed: Bed) -> None:
    policy = replace(COMPACT, dirty_ratio_min=0.6)
    await bed.start("t", policy=policy)
    await fill(bed, *((f"k{n}".encode(), b"v" * 50) for n in range(30)))
    assert bed.log.cleaner.is_due(bed["t"])
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    assert not bed.log.cleaner.is_due(bed["t"])
    await fill(bed, *((f"k{n}".encode(), b"v" * 50) for n in range(8)))
    assert not bed.log.cleaner.is_due(bed["t"]), "a few new ones among many old ones"
    bed["t"].policy = replace(policy, compaction_lag_ms_max=1)
    bed.clock.jump(1_000)
    assert bed.log.cleaner.is_due(bed["t"]), "but not for ever"
    bed["t"].policy = replace(policy, compaction_lag_ms_min=2**50, dirty_ratio_min=0.0)
    assert not bed.log.cleaner.is_due(bed["t"]), "too young"


@simulated
async def test_a_reader_in_a_gap_goes_on_behind_it(bed: Bed) -> None:
    await bed.start("t", policy=COMPACT)
    await fill(bed, *((b"k", f"v{n}".encode() * 20) for n in range(30)))
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    first = contents(bed)[0][0]
    assert first > 5
    for offset in range(first + 1):
        header = None
        while header is None or not header.count:  # It passes what says: here is nothing.
            found = bed["t"].read(offset, 1)
            assert found is not None
            header = batch.read_header(found.file.read(found.position, found.size))
            assert offset < header.offset_end
            offset = header.offset_end
        assert header.offset_first == first


@simulated
async def test_aborted_records_and_settled_markers_go(bed: Bed) -> None:
    await bed.start("t", policy=COMPACT)
    ours = {"producer_id": 7, "producer_epoch": 0}
    for sequence, value in enumerate((b"1", b"2")):
        data = batch.build(
            [Record(f"a{value!r}".encode(), value)], now_ms=1, transactional=True,
            sequence_first=sequence, **ours,
        )  # fmt: skip
        bed.append("t", data)
    marker = batch.build(
        [Record(b"\0\0\0\0", b"\0\0\0\0\0\0")], now_ms=1, transactional=True, control=True, **ours
    )
    bed.append("t", marker)
    bed["t"].is_aborted = lambda producer_id, offset: producer_id == 7 and offset < 2
    filler = [(f"x{n}".encode(), b"y" * 60) for n in range(8)]
    await fill(bed, *filler)
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    assert contents(bed)[0][0] == 2, "the marker is still there"
    bed.clock.jump(2_000)
    await fill(bed, *filler)
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    assert contents(bed)[0][0] > 2


@simulated
async def test_power_may_fail_at_any_moment_of_a_pass(bed: Bed, seed: int) -> None:
    await bed.start("t", policy=COMPACT)
    await fill(bed, *((f"k{n % 5}".encode(), f"v{n}".encode()) for n in range(40)))
    last = {key: (offset, value) for offset, key, value in contents(bed)}
    for _ in range(4):
        bed.call(lambda: bed.loop.create_task(bed.log.cleaner.clean(bed["t"])))
        await bed.sleep_up_to(0.08)
        bed.crash()
        await bed.start("t", policy=COMPACT, check_all=bool(seed % 2))
        assert bed["t"].stopped is None, bed["t"].stopped
        assert {key: (offset, value) for offset, key, value in contents(bed)} == last
        assert bed["t"].offset_end == 40


@simulated
async def test_a_batch_that_cannot_be_read_stays_and_holds_up_nothing(bed: Bed) -> None:
    """Written when the topic was not compacted yet, when nobody looked into it."""
    await bed.start("t", policy=COMPACT)
    await fill(bed, *((b"k", f"v{n}".encode()) for n in range(10)))
    nonsense = batch._assemble(batch.read_header(keyed(b"k", b"v")), b"\xff" * 40)
    bed.append("t", nonsense)
    await bed.committed()
    await fill(bed, *((b"k", f"w{n}".encode()) for n in range(20)))
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    data = b"".join(bed.read_file(segment.path) for segment in bed["t"].segments)
    assert b"\xff" * 40 in data
    assert b"v0" not in data


@pytest.mark.parametrize("codec", [batch.Codec.NONE, batch.Codec.GZIP])
@simulated
async def test_a_long_batch_is_looked_at_in_slices_and_packed_by_the_worker(
    bed: Bed, monkeypatch: pytest.MonkeyPatch, codec: batch.Codec
) -> None:
    await bed.start("t", policy=replace(COMPACT, segment_bytes=20_000))
    rows = [(b"k%d" % n, b"v") for n in range(3_500)]
    long = batch.build([Record(*row, timestamp_ms=9) for row in rows], now_ms=1, codec=codec)
    monkeypatch.setattr(limits, "BATCH_BYTES_AT_ONCE_MAX", 5_000)
    packed: list[object] = []

    async def worker(work: Callable[[], T], /) -> T:
        packed.append(cast("partial[T]", work).func)
        return work()

    monkeypatch.setattr(bed.log.cleaner, "_worker", worker)
    bed.append("t", long)
    await fill(bed, (b"k0", b"new"), (b"k2000", b"new"))
    await fill(bed, *((b"rest", bytes(4_000)) for _ in range(6)))
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def counted(delay_s: float) -> None:
        pauses.append(delay_s)
        await sleep(delay_s)

    monkeypatch.setattr(asyncio, "sleep", counted)
    await bed.do(bed.log.cleaner.clean(bed["t"]))
    found = contents(bed)
    gone = (0, 2_000)
    kept = [(n, *row) for n, row in enumerate(rows) if n not in gone]
    assert found[: len(kept)] == kept
    assert found[len(kept) :][:2] == [(3_500, b"k0", b"new"), (3_501, b"k2000", b"new")]
    assert packed == [batch.records, batch.records, batch.retain]
    assert pauses.count(0) > 18, "of 3,500 records, in each of six ways of looking at them"
