"""All partitions of a node: starts and stops, flushing, housekeeping, dropping."""

import asyncio
import errno
import logging
from dataclasses import replace

import pytest

from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.log.log import Log
from entrepot.log.policy import Durability, Policy
from sim.disk import SimDisk
from tests.unit.log.bed import Bed, headed, identity, make, simulated

ONE = len(make(b"x"))
TINY = Policy(segment_bytes=ONE, file_delete_delay_ms=1_000)
NAMES = [f"t{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX + 1)]

# --- clean and unclean


@simulated
async def test_a_clean_stop_and_start(bed: Bed) -> None:
    await bed.start(*NAMES, "empty", policy=TINY)
    assert not bed.log.clean
    for name in NAMES:
        bed.append(name, make(b"a"))
        bed.append(name, make(b"b"))
    await bed.committed()
    bed[NAMES[0]].delete_before(1)
    await bed.stop()
    assert bed.disk.names("journal") == []
    await bed.start(*NAMES, "empty", policy=TINY)
    assert bed.log.clean
    assert [bed.values(name) for name in NAMES] == [[b"b"]] + [[b"a", b"b"]] * (len(NAMES) - 1)
    assert bed.values("empty") == []
    assert bed.append("empty", make(b"x")) == 0
    assert bed.append(NAMES[0], make(b"x")) == 2


@simulated
async def test_a_clean_start_opens_no_segment(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    await bed.start(*NAMES, policy=TINY)
    for name in NAMES:
        await bed.write(name, b"a", b"b", b"c")
    await bed.stop()
    opened: list[str] = []
    disk_open = bed.disk.open

    def recorded(path: str, *, create: bool = False) -> object:
        opened.append(path)
        return disk_open(path, create=create)

    monkeypatch.setattr(bed.disk, "open", recorded)
    await bed.start(*NAMES, policy=TINY)
    assert [path for path in opened if "/" in path] == []
    bed.values(NAMES[0])
    assert [path for path in opened if "/" in path] != []


@simulated
async def test_a_stop_without_any_append(bed: Bed) -> None:
    await bed.start("t")
    await bed.stop()
    await bed.start("t")
    assert bed.log.clean
    assert (bed["t"].offset_start, bed["t"].offset_end) == (0, 0)


@simulated
async def test_the_power_fails_right_after_a_clean_stop(bed: Bed, seed: int) -> None:
    await bed.start(*NAMES, policy=replace(TINY, durability=Durability.OS))
    for name in NAMES:
        for value in (b"a", b"b", b"c"):
            bed.append(name, make(value))
    await bed.do(bed.log.close())
    bed.crash()
    await bed.start(*NAMES)
    assert bed.log.clean
    assert [bed.values(name) for name in NAMES] == [[b"a", b"b", b"c"]] * len(NAMES)


@simulated
async def test_the_power_fails_during_a_clean_stop(bed: Bed, seed: int) -> None:
    await bed.start(*NAMES, policy=TINY)
    for value in (b"a", b"b"):
        for name in NAMES:
            bed.append(name, make(value))
        await bed.committed()
    closing = bed.loop.create_task(bed.do(bed.log.close()))
    await bed.sleep_up_to(0.1)
    bed.crash()
    closing.cancel()
    await bed.start(*NAMES, policy=TINY)
    assert [bed.values(name) for name in NAMES] == [[b"a", b"b"]] * len(NAMES)


@simulated
async def test_the_power_fails_right_after_the_next_start(bed: Bed, seed: int) -> None:
    """The clean checkpoint must be gone for good before it becomes untrue."""
    await bed.start("t")
    await bed.write("t", b"a")
    await bed.stop()
    await bed.start("t")
    await bed.write("t", b"b")
    bed.crash()
    await bed.start("t")
    assert not bed.log.clean
    assert bed.values("t") == [b"a", b"b"]


@simulated
async def test_the_power_fails_during_a_clean_start(bed: Bed, seed: int) -> None:
    await bed.start(*NAMES)
    for name in NAMES:
        bed.append(name, make(b"a"))
    await bed.committed()
    await bed.stop()
    for _ in range(3):
        starting = bed.loop.create_task(bed.start(*NAMES))
        await bed.sleep_up_to(0.05)
        starting.cancel()
        bed.crash()
    await bed.start(*NAMES)
    assert [bed.values(name) for name in NAMES] == [[b"a"]] * len(NAMES)


@simulated
async def test_after_a_kill_the_start_is_a_recovery(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    await bed.stop()
    await bed.start("t")
    bed.kill()
    await bed.start("t")
    assert not bed.log.clean
    assert bed.values("t") == [b"a"]


@simulated
async def test_a_full_check_does_not_believe_a_clean_stop(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await bed.stop()
    bed.flip(f"{bed.directory('t')}/{0:020d}.log", 30)
    await bed.start("t", check_all=True)
    assert bed["t"].refused


@pytest.mark.parametrize("pattern", ["clean.checkpoint*", "*.index"])
@simulated
async def test_a_full_disk_makes_a_stop_unclean_and_nothing_worse(bed: Bed, pattern: str) -> None:
    large = b"x" * 4_500_000
    await bed.start("t")
    await bed.write("t", large)
    bed.disk.fail_next("write", errno.ENOSPC, pattern)
    await bed.stop()
    await bed.start("t")
    assert bed.values("t") == [large]


@simulated
async def test_a_directory_has_one_broker(bed: Bed) -> None:
    await bed.start("t")
    with pytest.raises(BlockingIOError):
        Log(bed.disk, bed.clock).begin()


@simulated
async def test_nothing_is_appended_once_it_stops(bed: Bed) -> None:
    await bed.start("t")
    await bed.do(bed.log.close())
    with pytest.raises(StorageError, match="stopping"):
        bed.append("t", make(b"x"))


# --- what an answer means


@pytest.mark.parametrize("durability", list(Durability))
@simulated
async def test_a_kill_loses_nothing(bed: Bed, durability: Durability) -> None:
    await bed.start("t", policy=Policy(durability))
    bed.append("t", make(b"a"))
    await bed.committed()
    assert bed["t"].high_watermark == 1
    bed.kill()
    await bed.start("t")
    assert bed.values("t") == [b"a"]


@simulated
async def test_what_is_left_to_the_system_is_not_written_again(bed: Bed) -> None:
    """Or else a start after a kill takes as long as the disk takes for all that is unsynced."""
    policy = Policy(Durability.OS)
    await bed.start("t", policy=policy)
    await bed.do(bed.log.remember_boot())
    await bed.write("t", b"a")
    bed.kill()
    bed.disk.fail_next("write", errno.EIO, "*.log")
    bed.disk.fail_next("sync", errno.EIO, "*.log")
    await bed.start("t", policy=policy)
    assert bed.values("t") == [b"a"]
    assert bed["t"].high_watermark == 1
    assert bed["t"].offset_synced == 0, "it is not permanent yet"
    bed.kill()  # The next disk has no faults.
    await bed.start("t", policy=policy)
    await bed.stop()
    bed.crash()
    await bed.start("t", policy=policy)
    assert bed.values("t") == [b"a"]


@simulated
async def test_a_start_knows_a_kill_from_a_power_failure(bed: Bed) -> None:
    async def start() -> bool:
        await bed.start("t", policy=Policy(Durability.OS))
        return bed.log.power_failed

    assert await start()  # Nobody can say: it is the first.
    bed.kill()
    assert await start(), "it was not seen to"
    await bed.do(bed.log.remember_boot())
    bed.kill()
    assert not await start()
    bed.crash()
    assert await start()
    await bed.do(bed.log.remember_boot())
    await bed.stop()
    bed.crash()
    assert not await start(), "after a clean stop all is permanent"


@simulated
async def test_a_system_that_does_not_name_its_boots(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SimDisk, "boot", "")
    await bed.start("t")
    await bed.do(bed.log.remember_boot())
    bed.kill()
    await bed.start("t")
    assert bed.log.power_failed


@simulated
async def test_interval_syncs_every_second(bed: Bed, seed: int) -> None:
    await bed.start("t", policy=Policy(Durability.INTERVAL))
    bed.append("t", make(b"a"))
    await asyncio.sleep(0.9)
    assert bed["t"].offset_synced == 0
    await asyncio.sleep(0.3)
    assert bed["t"].offset_synced == 1
    bed.append("t", make(b"b"))
    bed.crash()
    await bed.start("t")
    assert bed.values("t") in ([b"a"], [b"a", b"b"])


@simulated
async def test_flush_ms(bed: Bed) -> None:
    await bed.start("t", policy=Policy(Durability.OS, flush_ms=5_000))
    bed.append("t", make(b"a"))
    await asyncio.sleep(3)
    bed.append("t", make(b"b"))
    await asyncio.sleep(1.9)
    assert bed["t"].offset_synced == 0
    await asyncio.sleep(0.3)
    assert bed["t"].offset_synced == 2


@simulated
async def test_flush_messages(bed: Bed, seed: int) -> None:
    await bed.start("t", policy=Policy(Durability.OS, flush_messages=3))
    bed.append("t", make(b"a"), make(b"b"))
    assert (bed["t"].high_watermark, bed["t"].offset_synced) == (2, 0)
    bed.append("t", make(b"c"))
    assert bed["t"].high_watermark == 2, "this one waits"
    await bed.committed()
    assert (bed["t"].high_watermark, bed["t"].offset_synced) == (3, 3)
    bed.crash()
    await bed.start("t")
    assert bed.values("t") == [b"a", b"b", b"c"]


@simulated
async def test_os_seals_what_is_full(bed: Bed) -> None:
    await bed.start("t", policy=replace(TINY, durability=Durability.OS))
    for value in (b"a", b"b", b"c"):
        bed.append("t", make(value))
    await asyncio.sleep(1)
    assert [segment.sealed for segment in bed["t"].segments] == [True, True, False]


# --- housekeeping


@simulated
async def test_retention_runs_by_itself(bed: Bed) -> None:
    await bed.start("t", policy=replace(TINY, retention_ms=60_000))
    await bed.write("t", b"a", b"b")
    await asyncio.sleep(30)
    bed.append("t", make(b"c", time_ms=bed.clock.now_ms()))
    await asyncio.sleep(40)
    assert bed.values("t") == [b"c"]
    await asyncio.sleep(120)
    assert bed.values("t") == []
    assert (bed["t"].offset_start, bed["t"].offset_end) == (3, 3)
    assert [name for name in bed.names("t") if name.endswith((".log", ".deleted"))] == [
        f"{3:020d}.log"
    ]


@simulated
async def test_retention_says_what_it_removes(bed: Bed, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "entrepot.log")
    await bed.start("t", policy=replace(TINY, retention_ms=60_000))
    for _ in range(2):
        bed.append("t", make(b"a", time_ms=bed.clock.now_ms()))
    await asyncio.sleep(100)
    assert bed.values("t") == []
    said = [(each.levelname, each.getMessage()) for each in caplog.records]
    removed = [text for level, text in said if level == "INFO" and "retention removes" in text]
    assert len(removed) == 1
    assert removed[0].startswith("t-0: retention removes 2 records, offsets 0 to 1, ")
    assert not [text for level, text in said if level == "WARNING"]


@simulated
async def test_records_with_old_timestamps_are_warned_of(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    await bed.start("t", policy=replace(TINY, retention_ms=600_000))
    for _ in range(2):
        bed.append("t", make(b"a", time_ms=1_000))
    await asyncio.sleep(40)
    assert bed.values("t") == []
    (said,) = (each.getMessage() for each in caplog.records if each.levelname == "WARNING")
    assert said.startswith("t-0: retention removes 2 records, offsets 0 to 1, ")
    assert "although they were written not long ago" in said
    assert "1970-01-01" in said


@simulated
async def test_retention_of_many_partitions_is_summed_up(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "entrepot.log")
    names = [f"t{number}" for number in range(25)]
    await bed.start(*names, policy=replace(TINY, retention_ms=60_000))
    for name in names:
        bed.append(name, make(b"a", time_ms=bed.clock.now_ms()))
    await asyncio.sleep(100)
    said = [each.getMessage() for each in caplog.records]
    assert len([text for text in said if "retention removes" in text]) == 21
    assert "retention removes 5 records of 5 more partitions" in said


@pytest.mark.parametrize("operation", ["open", "write", "rename", "remove", "sync"])
@simulated
async def test_a_failing_disk_does_not_end_the_housekeeping(bed: Bed, operation: str) -> None:
    await bed.start("a", "b", policy=replace(TINY, retention_ms=10_000))
    await bed.write("a", b"x", b"y")
    await bed.write("b", b"x", b"y")
    bed.disk.fail_next(operation, errno.ENOSPC, "*a-0*", count=3)  # type: ignore[arg-type]
    bed.disk.fail_next(operation, errno.ENOSPC, "recovery*", count=1)  # type: ignore[arg-type]
    await asyncio.sleep(200)
    assert bed.values("b") == []
    assert [name for name in bed.names("b") if name.endswith(".log")] == [f"{2:020d}.log"]
    if bed["a"].stopped is None:
        assert bed["a"].offset_start == 2


@simulated
async def test_marked_files_do_not_outlive_a_stop(bed: Bed) -> None:
    await bed.start("t", policy=replace(TINY, file_delete_delay_ms=60_000))
    await bed.write("t", b"a", b"b", b"c")
    bed["t"].delete_before(2)
    await bed.sweep("t")
    assert any(name.endswith(".deleted") for name in bed.names("t"))
    await bed.stop()
    await bed.start("t")
    assert not any(name.endswith(".deleted") for name in bed.names("t"))


# --- partitions that go and come


@simulated
async def test_a_dropped_partition_goes_after_a_while(bed: Bed) -> None:
    await bed.start("t", "other", policy=TINY)
    await bed.write("t", b"a", b"b")
    found = bed["t"].read(0, 1)
    assert found is not None
    bed.call(bed.log.drop, bed["t"])
    assert bed.disk.names("partitions") == []
    assert len(bed.disk.names("deleted")) == 1
    assert found.file.read(found.position, found.size), "a reader in flight is not disturbed"
    await asyncio.sleep(2)
    assert bed.disk.names("deleted") == []


@simulated
async def test_a_partition_without_files_is_dropped(bed: Bed) -> None:
    await bed.start("t")
    bed.call(bed.log.drop, bed["t"])
    assert identity("t") not in bed.log.partitions


@simulated
async def test_orphans_are_removed_at_the_start(bed: Bed) -> None:
    await bed.start("t", "gone")
    await bed.write("t", b"a")
    await bed.write("gone", b"b")
    bed.kill()
    bed.disk.make_directory("deleted/x-0")
    await bed.start("t")
    assert bed.disk.names("partitions") == ["t-0"]
    assert not bed.disk.exists("deleted")
    assert bed.values("t") == [b"a"]


@simulated
async def test_a_removed_orphan_does_not_come_back_as_another(bed: Bed, seed: int) -> None:
    """Its name is free for a new topic: what was removed must be removed for good."""
    await bed.start("t", "gone", policy=TINY)
    await bed.write("gone", b"old", b"older")
    bed.kill()
    await bed.start("t", policy=TINY)
    bed.crash()
    await bed.start("t", "gone#2", policy=TINY)
    assert (bed["gone#2"].offset_end, bed["gone#2"].stopped) == (0, None)


@pytest.mark.parametrize("clean", [True, False])
@simulated
async def test_a_new_partition_does_not_find_what_a_deletion_left(bed: Bed, clean: bool) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"old", b"older")
    if clean:
        await bed.stop()
    else:
        bed.kill()
    await bed.start("t", policy=TINY)
    bed.disk.fail_next("rename", errno.EIO, "partitions/t-0")
    bed.call(bed.log.drop, bed["t"])
    assert bed.disk.exists("partitions/t-0")
    partition = bed.call(bed.log.open, identity("t#2"), "t", TINY).partition
    assert (partition.offset_end, partition.stopped) == (0, None)
    partition.append(headed(make(b"new")))
    assert [name for name in bed.names("t") if name.endswith(".log")] == [f"{0:020d}.log"]


@simulated
async def test_what_retention_took_does_not_come_back_after_a_clean_stop(
    bed: Bed, seed: int
) -> None:
    """Beside a clean checkpoint nobody would miss it, and later it would be a gap."""
    tiny = replace(TINY, file_delete_delay_ms=0)
    await bed.start("t", policy=tiny)
    await bed.write("t", b"a", b"b", b"c")
    bed["t"].delete_before(2)
    await bed.sweep("t")
    await bed.do(bed.log.close())
    bed.crash()
    await bed.start("t", policy=tiny)
    await bed.write("t", b"d", b"e")
    bed["t"].delete_before(4)
    await bed.sweep("t")
    bed.kill()
    await bed.start("t", policy=tiny)
    assert bed["t"].stopped is None
    assert bed.values("t")[-1:] == [b"e"]
