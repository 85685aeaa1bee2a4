"""A partition on a failing disk: what is undone, what stops it, and what it says."""

import asyncio
import errno

import pytest

from entrepot.core.errors import StorageError
from entrepot.log.policy import Durability, Policy
from sim.disk import Operation
from tests.unit.log.bed import Bed, make, simulated

ONE = len(make(b"x"))
SEGMENT = "*.log"

# --- failed writes are undone


@simulated
async def test_a_full_disk_is_undone_and_survived(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    bed.disk.habits.capacity_bytes = 2 * ONE + 300  # Room for a part of the next.
    with pytest.raises(StorageError, match=r"0000\.log: No space left"):
        bed.append("t", make(b"b" * 1_000), make(b"c"))
    path = bed["t"].segments[0].path
    assert len(bed.read_file(path)) == ONE
    assert bed["t"].stopped is None
    bed.disk.habits.capacity_bytes = None
    await bed.write("t", b"d")
    assert bed.values("t") == [b"a", b"d"]
    bed.crash()
    await bed.start("t")
    assert bed.values("t") == [b"a", b"d"]


@simulated
async def test_a_failed_write_is_undone(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    bed.disk.habits.short_write_chance = 1.0
    for after in range(1, 4):
        bed.disk.fail_next("write", errno.EIO, SEGMENT, count=1)
        with pytest.raises(StorageError, match="Input/output"):
            bed.append("t", *(make(b"lost") for _ in range(after)))
        assert bed["t"].offset_end == 1
    bed.append("t", make(b"b"))
    await bed.committed()
    assert bed.values("t") == [b"a", b"b"]


@simulated
async def test_the_first_write_fails(bed: Bed) -> None:
    await bed.start("t")
    bed.disk.fail_next("write", errno.ENOSPC, SEGMENT)
    with pytest.raises(StorageError):
        bed.append("t", make(b"a"))
    await bed.write("t", b"b")
    assert bed.values("t") == [b"b"]
    assert bed.records("t")[0].offset == 0


@simulated
async def test_an_undo_that_fails_stops_the_partition(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    heard: list[object] = []
    bed.disk.fail_next("write", errno.EIO, SEGMENT)
    bed.disk.fail_next("truncate", errno.EIO, SEGMENT)
    bed["t"].when_committed(2, heard.append)
    with pytest.raises(StorageError):
        bed.append("t", make(b"b"))
    assert bed["t"].stopped is not None
    assert "could not be cut off" in bed["t"].stopped
    assert len(heard) == 1
    with pytest.raises(StorageError, match="could not be cut off"):
        bed.append("t", make(b"c"))
    assert bed.values("t") == [b"a"]


@pytest.mark.parametrize("error", [errno.EMFILE, errno.EIO])
@simulated
async def test_a_segment_that_cannot_be_opened_now_can_be_later(bed: Bed, error: int) -> None:
    """Nothing was written, so there is nothing to undo and no reason to stop."""
    await bed.start("t")
    await bed.write("t", b"a")
    bed.log._pool.forget_below(bed.directory("t"))
    bed.disk.fail_next("open", error, SEGMENT, count=2)
    for _ in range(2):
        with pytest.raises(StorageError):
            bed.append("t", make(b"b"))
    await bed.write("t", b"c")
    assert bed.values("t") == [b"a", b"c"]


@simulated
async def test_a_segment_that_is_gone_is_not_made_anew(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    path = bed["t"].segments[0].path
    bed.log._pool.forget(path)
    bed.disk.remove(path)
    with pytest.raises(StorageError, match="No such file"):
        bed.append("t", make(b"b"))
    assert not bed.disk.exists(path)


# --- failed rolls


@pytest.mark.parametrize("operation", ["open", "truncate", "write"])
@simulated
async def test_a_roll_that_fails_can_be_tried_again(bed: Bed, operation: Operation) -> None:
    await bed.start("t", policy=Policy(segment_bytes=2 * ONE))
    await bed.write("t", b"a")
    bed.disk.fail_next(operation, errno.ENOSPC, f"*{1:020d}*")
    with pytest.raises(StorageError):
        bed.append("t", make(b"too large for the first" * 9))
    assert (bed["t"].offset_end, len(bed["t"].segments)) == (1, 1)
    await bed.write("t", b"b", b"c")
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 2]
    for start in (bed.kill, bed.crash):
        start()
        await bed.start("t", policy=Policy(segment_bytes=2 * ONE))
        assert bed["t"].stopped is None
        assert bed.values("t") == [b"a", b"b", b"c"]


@simulated
async def test_what_a_failed_roll_left_does_not_harm_later(bed: Bed) -> None:
    """The segments around it go; an empty one between offsets would look like a loss."""
    small = Policy(segment_bytes=2 * ONE)
    await bed.start("t", policy=small)
    await bed.write("t", b"a")
    bed.disk.fail_next("write", errno.ENOSPC, "*.view")
    with pytest.raises(StorageError):
        bed.append("t", make(b"too large for the first" * 9))
    await bed.write("t", b"b", b"c", b"d", b"e")
    bed["t"].delete_before(2)
    await bed.sweep("t")
    bed.kill()
    await bed.start("t", policy=small)
    assert bed["t"].stopped is None
    assert bed.values("t") == [b"c", b"d", b"e"]


@simulated
async def test_a_failed_roll_that_cannot_be_undone_stops_the_partition(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=ONE))
    await bed.write("t", b"a")
    bed.disk.fail_next("write", errno.ENOSPC, "*.view")
    bed.disk.fail_next("remove", errno.EIO, f"*{1:020d}.log")
    with pytest.raises(StorageError):
        bed.append("t", make(b"b"))
    assert bed["t"].stopped == f"partitions/t-0/{1:020d}.log: Input/output error"
    bed.kill()
    await bed.start("t")
    await bed.write("t", b"c")
    assert bed.values("t") == [b"a", b"c"]


@simulated
async def test_a_seal_that_cannot_be_written_costs_only_the_index(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    small = Policy(segment_bytes=ONE)
    await bed.start("t", policy=small)
    bed.disk.fail_next("write", errno.ENOSPC, "*.index", count=2)
    await bed.write("t", b"a", b"b", b"c", b"d")
    assert "no index for" in caplog.text
    assert bed.values("t") == [b"a", b"b", b"c", b"d"]
    await bed.stop()
    await bed.start("t", policy=small)
    assert bed.log.clean
    assert bed.values("t") == [b"a", b"b", b"c", b"d"]


@simulated
async def test_reopening_a_segment_that_fails_is_a_storage_error(bed: Bed) -> None:
    large = b"x" * 5_000_000
    await bed.start("t")
    await bed.write("t", large)
    await bed.stop()
    await bed.start("t")
    assert bed["t"].segments[0].sealed
    bed.disk.fail_next("remove", errno.EIO, "*.index")
    with pytest.raises(StorageError, match="Input/output"):
        bed.append("t", make(b"b"))
    await bed.write("t", b"c")
    assert bed.values("t") == [large, b"c"]
    bed.crash()
    await bed.start("t")
    assert bed.values("t") == [large, b"c"]


# --- failed syncs


@pytest.mark.parametrize("pattern", [SEGMENT, "partitions/t-0", "partitions"])
@simulated
async def test_a_failed_sync_stops_the_partition_for_good(bed: Bed, pattern: str) -> None:
    await bed.start("t", "other")
    await bed.write("other", b"x")
    heard: list[object] = []
    bed.disk.fail_next("sync", errno.EIO, pattern)
    bed.append("t", make(b"a"))
    bed["t"].when_committed(1, heard.append)
    await bed.committed()
    assert bed["t"].stopped == "partitions/t-0: sync failed: Input/output error"
    assert [str(error) for error in heard] == [bed["t"].stopped]
    assert (bed["t"].high_watermark, bed["t"].offset_synced) == (0, 0)
    with pytest.raises(StorageError, match="sync failed"):
        bed.append("t", make(b"b"))
    await bed.write("other", b"y")
    assert bed.values("other") == [b"x", b"y"], "the others go on"


@simulated
async def test_a_failed_sync_is_never_tried_again(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    bed.disk.fail_next("sync", errno.EIO, SEGMENT)
    bed.append("t", make(b"b"))
    await bed.committed()
    synced: list[str] = []
    sync = bed.disk.sync

    async def recorded(files, directories=()):  # type: ignore[no-untyped-def]
        synced.extend(file.path for file in files)
        return await sync(files, directories)

    monkeypatch.setattr(bed.disk, "sync", recorded)
    await asyncio.sleep(60)
    await bed.do(bed.log.close())
    assert [path for path in synced if path.endswith(".log")] == []
    assert not bed.disk.exists("clean.checkpoint"), "a stopped partition is not a clean stop"


@simulated
async def test_what_was_answered_before_a_failed_sync_is_still_there(bed: Bed, seed: int) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    bed.disk.fail_next("sync", errno.EIO, SEGMENT)
    bed.append("t", make(b"c"))
    await bed.committed()
    bed.crash()
    await bed.start("t")
    assert bed["t"].stopped is None
    assert bed.values("t")[:2] == [b"a", b"b"]


@simulated
async def test_what_a_failed_sync_left_in_memory_is_written_again(bed: Bed, seed: int) -> None:
    """After a kill the pages look clean; what recovery finds and serves must be permanent."""
    await bed.start("t")
    bed.append("t", make(b"a"), make(b"b" * 5_000))
    bed.disk.fail_next("sync", errno.EIO, SEGMENT)
    await bed.committed()
    bed.kill()
    await bed.start("t")
    served = bed.values("t")
    bed.crash()
    await bed.start("t")
    assert bed.values("t")[: len(served)] == served


@simulated
async def test_a_relaxed_partition_stops_too(bed: Bed) -> None:
    await bed.start("t", policy=Policy(Durability.INTERVAL))
    bed.append("t", make(b"a"))
    bed.disk.fail_next("sync", errno.EIO, SEGMENT)
    await asyncio.sleep(2)
    assert bed["t"].stopped is not None
    assert bed.values("t") == [b"a"]


@simulated
async def test_a_segment_that_cannot_be_opened_for_its_sync_stops_the_partition(bed: Bed) -> None:
    await bed.start("t", "other")
    bed.append("t", make(b"a"))
    bed.append("other", make(b"b"))
    bed.log._pool.forget_below(bed.directory("t"))
    bed.disk.fail_next("open", errno.EIO, "*t-0/*.log")
    await bed.committed()
    assert bed["t"].stopped is not None
    assert bed.values("other") == [b"b"]
