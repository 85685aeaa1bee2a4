"""Group commit when the disk fails, or a partition goes, in the middle of it."""

import asyncio
import errno
from collections.abc import Sequence

import pytest

from entrepot.core import limits
from entrepot.core.ports import File
from entrepot.log.partition import Waiter
from entrepot.log.policy import Durability, Policy
from sim.disk import SimDisk
from tests.unit.log.bed import Bed, make, simulated

MANY = [f"many{number}" for number in range(10)]  # More than are synced directly.
FIRST, *OTHERS = MANY


@pytest.fixture
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round fills a file."""
    monkeypatch.setattr(limits, "JOURNAL_BYTES_MAX", 1)


class OneByOneDisk(SimDisk):
    """Syncs file after file and answers at the end, as the real disk's workers do."""

    async def sync(
        self, files: Sequence[File], directories: Sequence[str] = ()
    ) -> list[OSError | None]:
        answers: list[OSError | None] = []
        for file in files:
            answers += await super().sync([file])
        return answers + await super().sync([], directories)


def to_all(bed: Bed, value: bytes, names: Sequence[str] = MANY) -> None:
    for name in names:
        bed.append(name, make(value))


def answers(bed: Bed, names: Sequence[str] = MANY) -> dict[str, list[str]]:
    """What those are told who wait for all there is."""
    heard: dict[str, list[str]] = {name: [] for name in names}

    def hear(name: str) -> Waiter:
        return lambda error: heard[name].append(str(error))

    for name in names:
        bed[name].when_committed(bed[name].offset_end, hear(name))
    return heard


# --- a journal that fails


@pytest.mark.parametrize("operation", ["open", "write", "sync"])
@simulated
async def test_a_journal_that_fails_is_given_up(bed: Bed, operation: str, seed: int) -> None:
    await bed.start(*MANY)
    to_all(bed, b"a")
    await bed.committed()
    bed.disk.fail_next(operation, errno.EIO, "*.journal")  # type: ignore[arg-type]
    if operation == "open":
        bed.log.committer._journal._file = None  # type: ignore[union-attr]
    to_all(bed, b"b")
    heard = answers(bed)
    await bed.committed()
    assert heard == {name: ["None"] for name in MANY}
    assert all(bed[name].offset_synced == 2 for name in MANY), "synced as they are instead"
    to_all(bed, b"c")
    await bed.committed()
    assert bed.log.committer.rounds_journaled == 1
    bed.crash()
    await bed.start(*MANY)
    assert [bed.values(name) for name in MANY] == [[b"a", b"b", b"c"]] * len(MANY)
    assert bed.disk.names("journal") == []


@simulated
async def test_a_journal_whose_name_cannot_be_made_permanent_is_not_used(
    bed: Bed, seed: int
) -> None:
    """Somebody else was told: the data directory's sync failed, for a checkpoint."""
    await bed.start(*MANY)
    bed.append(FIRST, make(b"a"))
    await bed.committed()
    bed.disk.fail_next("sync", errno.EIO, "")
    await bed.do(bed.log._write_recovery_checkpoint())
    to_all(bed, b"b", OTHERS)
    await bed.committed()
    bed.crash()
    await bed.start(*MANY)
    assert [bed.values(name) for name in OTHERS] == [[b"b"]] * len(OTHERS)


@simulated
async def test_a_full_disk_spares_what_fits(bed: Bed, seed: int) -> None:
    """No room for the journal, but the segments have the batches."""
    await bed.start(*MANY)
    to_all(bed, b"a")
    await bed.committed()
    to_all(bed, b"b" * 1_000)
    bed.disk.habits.capacity_bytes = 0
    heard = answers(bed)
    await bed.committed()
    assert heard == {name: ["None"] for name in MANY}
    bed.crash()
    bed.disk.habits.capacity_bytes = None
    await bed.start(*MANY)
    assert [bed.values(name) for name in MANY] == [[b"a", b"b" * 1_000]] * len(MANY)


# --- one of many


@simulated
async def test_a_sync_that_fails_for_one_of_many(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    few = MANY[:5]
    monkeypatch.setattr(limits, "SEGMENTS_SYNCED_DIRECTLY_MAX", len(few))
    await bed.start(*few)
    to_all(bed, b"a", few)
    bed.disk.fail_next("sync", errno.EIO, f"*/{few[2]}-0/*.log")
    heard = answers(bed, few)
    await bed.committed()
    assert heard.pop(few[2]) == [f"partitions/{few[2]}-0: sync failed: Input/output error"]
    assert list(heard.values()) == [["None"]] * 4


@simulated
async def test_the_directory_of_all_new_partitions_fails(bed: Bed) -> None:
    """The system tells of it once; it is still true for each of them, now and later."""
    await bed.start("old", "a", "b", "late")
    await bed.write("old", b"x")
    to_all(bed, b"x", ["a", "b"])
    bed.disk.fail_next("sync", errno.EIO, "partitions")
    heard = answers(bed, ["a", "b"])
    await bed.committed()
    assert ["sync failed" in str(told) for told in heard.values()] == [True, True]
    to_all(bed, b"x", ["late", "old"])
    heard = answers(bed, ["late", "old"])
    await bed.committed()
    assert "sync failed" in heard["late"][0]
    assert heard["old"] == ["None"], "its name has long been permanent"


@pytest.mark.usefixtures("small_journal")
@simulated
async def test_a_release_that_fails_keeps_the_journal(bed: Bed, seed: int) -> None:
    """What was answered is in the journal alone: neither file may be used again."""
    await bed.start(*MANY)
    to_all(bed, b"a")
    await bed.committed()
    bed.disk.fail_next("sync", errno.EIO, f"*/{FIRST}-0/*.log")
    for value in (b"b", b"c", b"d", b"e"):
        to_all(bed, value, OTHERS)
        if bed[FIRST].stopped is None:
            bed.append(FIRST, make(value))
        await bed.committed()
    assert bed[FIRST].stopped is not None
    served = bed.values(FIRST)
    assert served[0] == b"a"
    bed.crash()
    await bed.start(*MANY)
    assert bed[FIRST].stopped is None
    assert bed.values(FIRST)[: len(served)] == served
    assert [bed.values(n) for n in OTHERS] == [[b"a", b"b", b"c", b"d", b"e"]] * len(OTHERS)


@pytest.mark.usefixtures("small_journal")
@simulated
async def test_a_release_fails_while_a_round_waits_for_it(bed: Bed, seed: int) -> None:
    bed.disk = OneByOneDisk(bed.loop.random("disk"))
    await bed.start(*MANY)
    to_all(bed, b"a")
    await bed.committed()
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.01
    bed.disk.fail_next("sync", errno.EIO, f"*/{FIRST}-0/*.log")
    to_all(bed, b"b")
    await asyncio.sleep(0.05)  # The second file is full, the first is being released.
    assert bed[FIRST].high_watermark == 2
    to_all(bed, b"c")
    await bed.committed()
    assert bed[FIRST].stopped is not None
    served = bed.values(FIRST)
    bed.crash()
    await bed.start(*MANY)
    assert bed.values(FIRST)[: len(served)] == served
    assert [bed.values(name) for name in OTHERS] == [[b"a", b"b", b"c"]] * len(OTHERS)


# --- a partition that goes


@simulated
async def test_a_partition_is_dropped_during_a_round(bed: Bed, seed: int) -> None:
    few = MANY[:3]
    await bed.start(*few)
    to_all(bed, b"a", few)
    dropped, heard = bed[few[0]], answers(bed, few)
    await bed.sleep_up_to(0.02)
    told = heard[few[0]] == ["None"]
    bed.call(bed.log.drop, dropped)
    await bed.committed()
    assert told or heard[few[0]] == [f"partitions/{few[0]}-0 is deleted"]
    assert heard[few[1]] == heard[few[2]] == ["None"]
    assert bed.disk.names("partitions") == [f"{name}-0" for name in few[1:]]


@pytest.mark.usefixtures("small_journal")
@simulated
async def test_partitions_dropped_during_journaled_rounds_harm_nobody(bed: Bed, seed: int) -> None:
    """Neither in the round, nor while it waits for a release, nor in the release itself."""
    doomed = [f"doomed{number}" for number in range(4)]
    await bed.start(*MANY, *doomed)
    for number, name in enumerate(doomed):
        to_all(bed, b"%d" % number)
        to_all(bed, b"x", doomed[number:])
        await bed.sleep_up_to(0.02)
        bed.call(bed.log.drop, bed[name])
    await bed.committed()
    rounds = bed.log.committer.rounds_journaled
    to_all(bed, b"4")
    await bed.committed()
    assert bed.log.committer.rounds_journaled == rounds + 1, "the journal is still in use"
    bed.crash()
    await bed.start(*MANY)
    assert [bed.values(n) for n in MANY] == [[b"0", b"1", b"2", b"3", b"4"]] * len(MANY)


# --- two syncs of one partition


@simulated
async def test_a_sync_behind_and_a_sync_in_front(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one behind meets the failure and answers late; the one in front must not succeed."""
    monkeypatch.setattr(limits, "SEGMENTS_SYNCED_DIRECTLY_MAX", 5)
    bed.disk = OneByOneDisk(bed.loop.random("disk"))
    await bed.start(*MANY)
    await bed.write(FIRST, b"a")
    to_all(bed, b"b", OTHERS[:4])
    await bed.committed()
    to_all(bed, b"c", [FIRST, *OTHERS[:4]])
    marks = [(bed[name], bed[name].end_mark()) for name in (FIRST, *OTHERS[:4])]
    bed.disk.fail_next("sync", errno.EIO, f"*/{FIRST}-0/*.log")
    behind = bed.loop.create_task(bed.log.committer.sync(marks))
    heard = answers(bed, [FIRST])
    await behind
    await bed.committed()
    assert "sync failed" in heard[FIRST][0]
    assert bed[FIRST].offset_synced == 1
    assert all(bed[name].offset_synced == 2 for name in OTHERS[:4])


class WorkerDisk(SimDisk):
    """A sync that was begun goes on, whoever waits for it: as in the real disk's workers."""

    async def sync(
        self, files: Sequence[File], directories: Sequence[str] = ()
    ) -> list[OSError | None]:
        return await asyncio.shield(asyncio.create_task(super().sync(files, directories)))


@simulated
async def test_a_failure_is_heard_although_nobody_waits_any_more(bed: Bed) -> None:
    """A sync that is cancelled and fails afterwards must not be followed by one that succeeds."""
    bed.disk = WorkerDisk(bed.loop.random("disk"))
    await bed.start("t")
    await bed.write("t", b"a")
    bed["t"].policy = Policy(Durability.OS)
    bed.append("t", make(b"b"))
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.005
    bed.disk.fail_next("sync", errno.EIO, "*.log")
    waiting = bed.loop.create_task(bed.log.flush(bed["t"]))
    await asyncio.sleep(0.0001)
    waiting.cancel()
    await bed.do(bed.log.close())
    assert bed["t"].stopped is not None
    assert bed["t"].offset_synced == 1
    assert not bed.disk.exists("clean.checkpoint")


@simulated
async def test_retention_between_two_syncs(bed: Bed, seed: int) -> None:
    policy = Policy(segment_bytes=4 * len(make(b"10")), file_delete_delay_ms=0)
    await bed.start("t", policy=policy)
    for number in range(30):
        bed.append("t", make(b"%d" % number))
        await bed.sleep_up_to(0.004)
        bed["t"].delete_before(bed["t"].high_watermark)
        bed.call(bed.log.sweep, bed["t"])
        if number % 7 == 0:
            await bed.do(bed.log.committer.sync([(bed["t"], bed["t"].end_mark())]))
    await bed.committed()
    assert bed["t"].stopped is None
    bed["t"].delete_before(30)
    for _ in range(3):
        bed.call(bed.log.sweep, bed["t"])
        await asyncio.sleep(0.3)
    assert [segment.offset_base for segment in bed["t"].segments] == [30]
    bed.crash()
    await bed.start("t", policy=policy)
    assert bed["t"].stopped is None
    assert bed["t"].offset_end == 30
