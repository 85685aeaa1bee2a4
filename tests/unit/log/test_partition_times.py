"""A partition's records by time, and how it forgets them."""

import asyncio
import errno
from dataclasses import replace

import pytest

from entrepot.core.batch import Codec
from entrepot.core.errors import OffsetOutOfRange
from entrepot.log.policy import Durability, Policy
from tests.unit.log.bed import Bed, make, simulated

ONE = len(make(b"x"))
KEEP = Policy(retention_ms=-1)
TINY = replace(KEEP, segment_bytes=ONE, file_delete_delay_ms=1_000)  # A batch each.


async def timed(bed: Bed, *times: int, policy: Policy | None = None) -> None:
    """A topic with one record at each of these times."""
    await bed.start("t", policy=policy or TINY)
    for time_ms in times:
        bed.append("t", make(b"x", time_ms=time_ms))
        await bed.committed()


# --- by time


@pytest.mark.parametrize("segment_bytes", [ONE, 2 * ONE, 1_000_000])
@simulated
async def test_the_first_record_at_or_after_a_time(bed: Bed, segment_bytes: int) -> None:
    await timed(bed, 10, 30, 20, 40, policy=replace(KEEP, segment_bytes=segment_bytes))
    for time_ms, expected in (
        (0, (0, 10)), (10, (0, 10)), (11, (1, 30)), (20, (1, 30)), (30, (1, 30)),
        (31, (3, 40)), (40, (3, 40)), (41, None),
    ):  # fmt: skip
        assert bed["t"].offset_for_time(time_ms) == expected


@simulated
async def test_a_time_inside_a_batch(bed: Bed) -> None:
    await bed.start("t")
    for codec in Codec:
        first = bed.append("t", make(b"a", b"b", b"c", time_ms=5, codec=codec))
        await bed.committed()
        assert bed["t"].offset_for_time(5) == (0, 5)
        assert bed["t"].latest_time() == (0, 5)
        assert first == 3 * codec


@simulated
async def test_times_are_only_those_of_committed_and_kept_records(bed: Bed) -> None:
    await timed(bed, 10, 20, 30, policy=KEEP)
    bed.append("t", make(b"x", time_ms=99))
    assert bed["t"].offset_for_time(40) is None
    assert bed["t"].latest_time() == (2, 30)
    bed["t"].delete_before(1)
    assert bed["t"].offset_for_time(0) == (1, 20)
    await bed.committed()
    assert bed["t"].latest_time() == (3, 99)


@simulated
async def test_the_latest_record_is_not_always_the_last(bed: Bed) -> None:
    await timed(bed, 10, 50, 20)
    assert bed["t"].latest_time() == (1, 50)
    bed["t"].delete_before(2)
    assert bed["t"].latest_time() == (2, 20)


@pytest.mark.parametrize("segment_bytes", [ONE, 1_000_000])
@simulated
async def test_the_latest_of_what_is_left_of_a_segment(bed: Bed, segment_bytes: int) -> None:
    """Its latest batch may be deleted, or not committed yet."""
    await timed(bed, 50, 10, 30, 20, policy=replace(KEEP, segment_bytes=segment_bytes))
    bed["t"].delete_before(1)
    bed.append("t", make(b"x", time_ms=90))
    assert bed["t"].latest_time() == (2, 30)
    bed["t"].delete_before(3)
    assert bed["t"].latest_time() == (3, 20)


@simulated
async def test_a_look_up_by_time_through_a_sealed_index(bed: Bed) -> None:
    await bed.start("t", policy=replace(KEEP, durability=Durability.OS, segment_bytes=400_000))
    for number in range(300):
        bed.append("t", make(b"x" * 4_000, time_ms=1_000 + number))
    await asyncio.sleep(1)
    assert bed["t"].segments[0].sealed
    assert bed["t"].segments[0].index is None
    for number in (0, 1, 57, 98, 150, 299):
        assert bed["t"].offset_for_time(1_000 + number) == (number, 1_000 + number)


@simulated
async def test_a_lost_index_is_rebuilt(bed: Bed) -> None:
    await bed.start("t", policy=replace(KEEP, durability=Durability.OS, segment_bytes=400_000))
    for number in range(200):
        bed.append("t", make(b"x" * 4_000, time_ms=1_000 + number))
    await asyncio.sleep(1)
    first = bed["t"].segments[0]
    bed.disk.remove(first.path_of(".index"))
    assert bed["t"].offset_for_time(1_050) == (50, 1_050)
    found = bed["t"].read(60, 1)
    assert found is not None
    assert found.position == 60 * len(make(b"x" * 4_000))


# --- forgetting


@simulated
async def test_delete_before_hides_at_once(bed: Bed) -> None:
    await bed.start("t")
    bed.append("t", make(b"a", b"b", b"c"))
    await bed.committed()
    bed["t"].delete_before(2)
    assert bed.values("t") == [b"c"]
    assert (bed["t"].offset_start, bed["t"].offset_end) == (2, 3)


@simulated
async def test_delete_before_only_what_is_committed(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    bed.append("t", make(b"c"))
    bed["t"].delete_before(1)
    for offset in (0, 3, -1):
        with pytest.raises(OffsetOutOfRange):
            bed["t"].delete_before(offset)


@simulated
async def test_expiry_by_time(bed: Bed) -> None:
    await timed(bed, 1_000, 3_000, 2_000, 5_000, policy=Policy(segment_bytes=ONE, retention_ms=500))
    for now_ms, start in ((1_500, 0), (1_501, 1), (3_500, 1), (3_501, 3), (5_501, 4)):
        bed["t"].expire(now_ms)
        assert bed["t"].offset_start == start
    assert bed["t"].offset_end == 4


@simulated
async def test_expiry_by_bytes(bed: Bed) -> None:
    policy = Policy(segment_bytes=ONE, retention_ms=-1, retention_bytes=2 * ONE + 1)
    await timed(bed, 1, 2, 3, 4, 5, policy=policy)
    bed["t"].expire(10**15)
    assert bed["t"].offset_start == 2


@simulated
async def test_expiry_spares_what_is_not_committed(bed: Bed) -> None:
    await timed(bed, 1, policy=Policy(segment_bytes=2 * ONE, retention_ms=0, retention_bytes=0))
    bed.append("t", make(b"x", time_ms=1))
    bed["t"].expire(10**15)
    assert bed["t"].offset_start == 0


@simulated
async def test_expiry_spares_what_is_needed(bed: Bed) -> None:
    await timed(bed, 1, 2, 3, 4, policy=Policy(segment_bytes=2 * ONE, retention_ms=0))
    for needed, start in ((0, 0), (1, 0), (2, 2), (3, 2), (4, 4)):
        bed["t"].offset_needed = lambda needed=needed: needed  # type: ignore[misc]
        bed["t"].expire(10**15)
        assert bed["t"].offset_start == start


@simulated
async def test_records_without_a_time_expire_by_their_segment(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=ONE, retention_ms=500))
    bed.append("t", make(b"x", time_ms=-1))
    await bed.committed()
    opened_ms = bed["t"].segments[0].opened_ms
    bed["t"].expire(opened_ms + 500)
    assert bed["t"].offset_start == 0
    bed["t"].expire(opened_ms + 501)
    assert bed["t"].offset_start == 1


@simulated
async def test_forgotten_segments_are_marked_then_removed(bed: Bed) -> None:
    await timed(bed, 1, 2, 3, policy=TINY)
    bed["t"].delete_before(2)
    await bed.sweep("t")
    names = bed.names("t")
    assert [segment.offset_base for segment in bed["t"].segments] == [2]
    assert f"{0:020d}.log.deleted" in names
    assert f"{1:020d}.index.deleted" in names
    assert [name for name in names if name.endswith(".log")] == [f"{2:020d}.log"]
    await asyncio.sleep(2)
    assert not [name for name in bed.names("t") if name.endswith(".deleted")]
    assert bed.values("t") == [b"x"]


@simulated
async def test_old_segments_go_only_when_the_new_name_is_permanent(bed: Bed, seed: int) -> None:
    """Otherwise a power loss takes old and new, and offsets are given twice."""
    await timed(bed, 1, 2, 3)
    bed["t"].delete_before(3)
    await bed.sweep("t")
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 1, 2, 3]
    await bed.sleep_up_to(0.3)
    await bed.sweep("t")
    bed.crash()
    await bed.start("t", policy=TINY)
    assert bed["t"].stopped is None
    assert bed["t"].offset_end == 3
    bed["t"].delete_before(3)
    assert bed.append("t", make(b"next")) == 3


@simulated
async def test_an_emptied_partition_goes_on(bed: Bed) -> None:
    await timed(bed, 1, 2)
    bed["t"].delete_before(2)
    for _ in range(2):
        await bed.sweep("t")
        await asyncio.sleep(0.3)
    assert [segment.offset_base for segment in bed["t"].segments] == [2]
    await bed.write("t", b"c")
    assert bed.values("t") == [b"c"]
    await bed.stop()
    await bed.start("t", policy=TINY)
    assert bed.values("t") == [b"c"]
    assert (bed["t"].offset_start, bed["t"].offset_end) == (2, 3)


@simulated
async def test_what_is_still_to_be_synced_is_not_forgotten(bed: Bed) -> None:
    await bed.start("t", policy=Policy(Durability.OS, segment_bytes=ONE))
    for _ in range(3):
        bed.append("t", make(b"x"))
    bed["t"].delete_before(2)
    bed["t"].unsynced_names = False
    assert bed["t"].first_needed() == 0


@pytest.mark.parametrize("kind", ["log", "index", "view"])
@simulated
async def test_a_mark_that_fails_leaves_nothing_behind(bed: Bed, kind: str) -> None:
    """If an older file stayed while a newer one went, the next start would see damage."""
    await timed(bed, 1, 2, 3, 4)
    bed["t"].delete_before(3)
    bed.disk.fail_next("rename", errno.EIO, f"*{1:020d}.{kind}")
    await bed.sweep("t")
    assert [segment.offset_base for segment in bed["t"].segments] == [1, 2, 3]
    await bed.sweep("t")
    assert [segment.offset_base for segment in bed["t"].segments] == [3]
    await asyncio.sleep(2)
    assert bed.names("t") == [f"{3:020d}.log", f"{3:020d}.view", "begun"]
    bed.kill()
    await bed.start("t", policy=TINY)
    assert bed["t"].stopped is None
    assert bed["t"].offset_end == 4
