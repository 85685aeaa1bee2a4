"""The two checkpoints: what they say, and when they are believed."""

import asyncio

import msgspec
from crc32c import crc32c

from entrepot.log.checkpoint import (
    SegmentState,
    read_clean_checkpoint,
    read_recovery_checkpoint,
)
from entrepot.log.log import CHECKPOINT_EVERY_S
from entrepot.log.policy import Durability, Policy
from tests.unit.log.bed import Bed, identity, make, simulated

ONE = len(make(b"x"))


def contents(bed: Bed, name: str) -> object:
    """By hand, as docs/formats/checkpoint.md has it."""
    data = bed.read_file(name)
    assert int.from_bytes(data[:4], "big") == crc32c(data[4:])
    return msgspec.msgpack.decode(data[4:])


# --- clean


@simulated
async def test_the_bytes_of_a_clean_checkpoint(bed: Bed) -> None:
    await bed.start("t", "empty", policy=Policy(segment_bytes=2 * ONE, retention_ms=-1))
    bed["t"].view_snapshot = lambda: b"a view"
    opened = []
    for time_ms in (7, 9, 8):
        bed.append("t", make(b"x", time_ms=time_ms))
        await bed.committed()
        opened.append(bed["t"].segments[-1].opened_ms)
    bed["t"].delete_before(1)
    await bed.stop()
    segments = [
        [0, 2, 2 * ONE, 9, 1, opened[0], True, False],
        [2, 3, ONE, 8, 2, opened[2], False, False],
    ]
    assert contents(bed, "clean.checkpoint") == [
        [identity("t").topic.bytes, 0, 1, segments, b"a view", [[0, 0]]],
        [identity("empty").topic.bytes, 0, 0, [], b"", []],
    ]


@simulated
async def test_a_clean_start_finds_everything(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=2 * ONE, retention_ms=-1))
    bed["t"].view_snapshot = lambda: b"a view"
    for time_ms in (7, 9, 8):
        bed.append("t", make(b"x", time_ms=time_ms))
    await bed.committed()
    before = bed["t"].segments
    await bed.stop()
    await bed.start("t", policy=Policy(segment_bytes=2 * ONE, retention_ms=-1))
    for old, new in zip(before, bed["t"].segments, strict=True):
        for name in SegmentState.__struct_fields__:
            assert getattr(old, name) == getattr(new, name)
    saved = bed.opened["t"].saved
    assert saved is not None
    assert (saved.offset, saved.state) == (3, b"a view")
    assert bed["t"].latest_time() == (1, 9)
    assert (bed["t"].high_watermark, bed["t"].offset_synced) == (3, 3)


@simulated
async def test_a_clean_checkpoint_is_gone_after_the_start(bed: Bed) -> None:
    await bed.start("t")
    await bed.stop()
    assert read_clean_checkpoint(bed.disk) is not None
    await bed.start("t")
    assert not bed.disk.exists("clean.checkpoint")


@simulated
async def test_a_damaged_clean_checkpoint_is_not_believed(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await bed.stop()
    bed.flip("clean.checkpoint", 20)
    await bed.start("t")
    assert not bed.log.clean
    assert bed.values("t") == [b"a", b"b"]
    assert not bed.disk.exists("clean.checkpoint")


# --- recovery


@simulated
async def test_the_bytes_of_a_recovery_checkpoint(bed: Bed) -> None:
    await bed.start("t", "empty", "relaxed")
    await bed.write("t", b"a", b"b")
    bed["relaxed"].policy = Policy(Durability.OS)
    await asyncio.sleep(CHECKPOINT_EVERY_S + 1)
    bed.append("relaxed", make(b"a"))
    await asyncio.sleep(CHECKPOINT_EVERY_S + 1)
    assert contents(bed, "recovery.checkpoint") == [
        [identity("t").topic.bytes, 0, "partitions/t-0", 2, 0]
    ]


@simulated
async def test_a_recovery_checkpoint_follows(bed: Bed) -> None:
    await bed.start("t")
    for number in range(1, 4):
        await bed.write("t", b"x")
        await asyncio.sleep(CHECKPOINT_EVERY_S + 1)
        (row,) = read_recovery_checkpoint(bed.disk).rows
        assert (row.id, row.offset, row.offset_base) == (identity("t"), number, 0)


@simulated
async def test_a_recovery_checkpoint_says_only_what_is_permanent(bed: Bed, seed: int) -> None:
    """Whatever else is going on, and whenever the power fails."""
    await bed.start("t", policy=Policy(Durability.OS, flush_messages=2, segment_bytes=3 * ONE))
    for _ in range(3):
        for number in range(6):
            bed.append("t", make(b"%d" % number))
            await bed.sleep_up_to(1)
        bed.crash()
        rows = read_recovery_checkpoint(bed.disk).rows
        await bed.start("t", policy=Policy(Durability.OS, segment_bytes=3 * ONE))
        assert bed["t"].stopped is None
        assert all(bed["t"].offset_end >= row.offset for row in rows)


@simulated
async def test_without_a_recovery_checkpoint_nothing_is_known(bed: Bed) -> None:
    assert read_recovery_checkpoint(bed.disk).point(identity("t")) == (None, 0)
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await asyncio.sleep(CHECKPOINT_EVERY_S + 1)
    bed.kill()
    assert read_recovery_checkpoint(bed.disk).point(identity("u")) == (0, 0)
    assert read_recovery_checkpoint(bed.disk).point(identity("t")) == (0, 2)
    bed.flip("recovery.checkpoint", 9)
    assert read_recovery_checkpoint(bed.disk).point(identity("t")) == (None, None)
    await bed.start("t")
    assert bed.values("t") == [b"a", b"b"]
