"""Group commit: what is synced together, through the segments or through the journal."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from entrepot.core import limits
from entrepot.log.partition import RECENT_BYTES_MAX
from entrepot.log.policy import Durability, Policy
from sim.disk import SimFile
from tests.unit.log.bed import Bed, make, simulated

FEW = [f"few{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX)]
MANY = [f"many{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX + 1)]
ONE = len(make(b"x"))


@contextmanager
def syncs(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[list[str]]]:
    """The paths of every sync, one list per call."""
    calls: list[list[str]] = []
    sync = bed.disk.sync

    async def recorded(files: list[SimFile], directories: tuple[str, ...] = ()) -> object:
        calls.append([*(file.path for file in files), *directories])
        return await sync(files, directories)

    with monkeypatch.context() as patch:
        patch.setattr(bed.disk, "sync", recorded)
        yield calls


@pytest.fixture
def small_journal(monkeypatch: pytest.MonkeyPatch) -> None:
    """One round fills a file."""
    monkeypatch.setattr(limits, "JOURNAL_BYTES_MAX", 1)


async def everywhere(bed: Bed, names: list[str], value: bytes) -> None:
    for name in names:
        bed.append(name, make(value))
    await bed.committed()


def journals(bed: Bed) -> list[str]:
    return bed.disk.names("journal")


# --- rounds


@simulated
async def test_all_appends_of_a_tick_are_one_sync(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    with syncs(bed, monkeypatch) as calls:
        for _ in range(100):
            bed.append("t", make(b"x"))
        await bed.committed()
    assert calls == [[bed["t"].segments[0].path]]
    assert bed["t"].high_watermark == 101


@simulated
async def test_what_comes_during_a_round_is_the_next(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    rounds = bed.log.committer.rounds
    bed.append("t", make(b"b"))
    await asyncio.sleep(0.0001)
    for _ in range(50):
        bed.append("t", make(b"c"))
    await bed.committed()
    assert bed.log.committer.rounds == rounds + 2
    assert bed["t"].high_watermark == 52


@simulated
async def test_a_round_answers_only_what_it_covered(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    bed.append("t", make(b"b"))
    moved: list[int] = []
    bed["t"].listen("here", lambda: moved.append(bed["t"].high_watermark))
    await asyncio.sleep(0.0001)
    bed.append("t", make(b"c"))
    await bed.committed()
    assert moved == [2, 3]


@simulated
async def test_few_partitions_are_synced_as_they_are(bed: Bed) -> None:
    await bed.start(*FEW)
    await everywhere(bed, FEW, b"x")
    assert bed.log.committer.rounds_journaled == 0
    assert journals(bed) == []
    assert all(bed[name].offset_synced == 1 for name in FEW)


@simulated
async def test_many_partitions_go_through_the_journal(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bed.start(*MANY)
    await everywhere(bed, MANY, b"x")
    with syncs(bed, monkeypatch) as calls:
        await everywhere(bed, MANY, b"y")
    assert calls == [[f"journal/{name}" for name in journals(bed)]]
    assert bed.log.committer.rounds_journaled == 2
    assert all((bed[n].high_watermark, bed[n].offset_synced) == (2, 0) for n in MANY)
    assert all(bed.values(name) == [b"x", b"y"] for name in MANY)


@simulated
async def test_what_the_journal_has_survives(bed: Bed, seed: int) -> None:
    await bed.start(*MANY)
    await everywhere(bed, MANY, b"x")
    bed.crash()
    await bed.start(*MANY)
    assert [bed.values(name) for name in MANY] == [[b"x"]] * len(MANY)
    assert journals(bed) == []


@simulated
async def test_journal_and_direct_rounds_in_turn(bed: Bed, seed: int) -> None:
    policy = Policy(segment_bytes=3 * ONE)  # So that there are rolls in rounds of both kinds.
    await bed.start(*MANY, policy=policy)
    expected: dict[str, list[bytes | None]] = {name: [] for name in MANY}
    for number in range(8):
        touched = MANY if number % 2 else MANY[:2]
        await everywhere(bed, touched, b"%d" % number)
        for name in touched:
            expected[name].append(b"%d" % number)
    bed.crash()
    await bed.start(*MANY, policy=policy)
    assert {name: bed.values(name) for name in MANY} == expected


@simulated
async def test_several_rolls_in_one_journaled_round(bed: Bed, seed: int) -> None:
    policy = Policy(segment_bytes=ONE)
    await bed.start(*MANY, policy=policy)
    for value in (b"a", b"b", b"c", b"d"):
        for name in MANY:
            bed.append(name, make(value))
    await bed.committed()
    assert bed.log.committer.rounds_journaled == 1
    bed.crash()
    await bed.start(*MANY, policy=policy)
    assert [bed.values(name) for name in MANY] == [[b"a", b"b", b"c", b"d"]] * len(MANY)


@pytest.mark.usefixtures("small_journal")
@simulated
async def test_journal_files_take_turns_and_are_used_again(bed: Bed, seed: int) -> None:
    await bed.start(*MANY)
    for number in range(6):
        await everywhere(bed, MANY, b"%d" % number)
    assert len(journals(bed)) == 2
    await bed.committed()
    assert all(bed[name].offset_synced >= 5 for name in MANY), "released behind"
    bed.crash()
    await bed.start(*MANY)
    expected = [b"%d" % number for number in range(6)]
    assert [bed.values(name) for name in MANY] == [expected] * len(MANY)


# --- a commit that may wait


@simulated
async def test_a_commit_that_nobody_waits_for_leaves_rounds_alone(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bed.start("t", "late")
    await everywhere(bed, ["t", "late"], b"a")
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.0001
    with syncs(bed, monkeypatch) as calls:
        bed.append("late", make(b"b"), may_wait=True)
        bed.append("t", make(b"b"))
        await asyncio.sleep(0.001)
        assert bed["t"].high_watermark == 2
        assert calls == [[bed["t"].segments[0].path]]
        await asyncio.sleep(0.05)
    assert calls[1:] == [[bed["late"].segments[0].path]]
    assert bed["late"].high_watermark == 2


@simulated
async def test_a_journaled_round_takes_along_what_may_wait(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    await bed.start(*MANY, "late")
    await everywhere(bed, [*MANY, "late"], b"a")
    with syncs(bed, monkeypatch) as calls:
        bed.append("late", make(b"b"), may_wait=True)
        for name in MANY:
            bed.append(name, make(b"b"))
        await asyncio.sleep(0.1)
    assert len(calls) == 1
    assert bed["late"].high_watermark == 2


@simulated
async def test_a_commit_that_may_wait_does_not_when_hurried(bed: Bed) -> None:
    await bed.start("late")
    await bed.write("late", b"a")
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.0001
    bed.append("late", make(b"b"), may_wait=True)
    bed.call(bed.log.hurry)
    await asyncio.sleep(0.001)
    assert bed["late"].high_watermark == 2


@simulated
async def test_hurried_commits_share_a_sync(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    """As main rounds do: while one sync is under way, all that comes waits for one more."""
    await bed.start("late")
    await bed.write("late", b"a")
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.01
    with syncs(bed, monkeypatch) as calls:
        for number in range(20):
            bed.append("late", make(b"%d" % number), may_wait=True)
            bed.call(bed.log.hurry)
            await asyncio.sleep(0.0001)
        await bed.committed()
    assert bed["late"].high_watermark == 21
    assert len(calls) == 2


@simulated
async def test_nobody_waits_for_a_commit_that_may_wait(bed: Bed) -> None:
    """Its sync is under way when a round begins, which ends before it."""
    await bed.start("t", "late")
    await everywhere(bed, ["t", "late"], b"a")
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.1
    bed.append("late", make(b"b"), may_wait=True)
    bed.call(bed.log.hurry)
    await asyncio.sleep(0.001)
    bed.disk.habits.sync_seconds_min = bed.disk.habits.sync_seconds_max = 0.0001
    bed.append("t", make(b"b"))
    await asyncio.sleep(0.001)
    assert (bed["t"].high_watermark, bed["late"].high_watermark) == (2, 1)
    await bed.committed()
    assert bed["late"].high_watermark == 2


@simulated
async def test_a_commit_that_may_wait_and_rounds_of_both_kinds(bed: Bed, seed: int) -> None:
    await bed.start(*MANY, "late")
    expected: list[bytes | None] = []
    for number in range(60):
        value = b"%d" % number
        bed.append("late", make(value), may_wait=number % 5 > 0)
        expected.append(value)
        for name in MANY if number % 3 else MANY[:1]:
            bed.append(name, make(value))
        if number % 7 == 0:
            bed.call(bed.log.hurry)
        await bed.sleep_up_to(0.008)
    await bed.committed()
    bed.crash()
    await bed.start(*MANY, "late")
    assert bed["late"].stopped is None
    assert bed.values("late") == expected


@simulated
async def test_a_clean_stop_commits_what_may_wait(bed: Bed) -> None:
    await bed.start("late")
    await bed.write("late", b"a")
    bed.append("late", make(b"b"), may_wait=True)
    await bed.do(bed.log.close())
    assert bed["late"].high_watermark == 2


# --- what the journal gets without reading it back


@simulated
async def test_what_is_small_is_not_read_back(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    await bed.start(*MANY)
    await everywhere(bed, MANY, b"a")
    with monkeypatch.context() as patch:
        patch.setattr(SimFile, "read", None)
        await everywhere(bed, MANY, b"b")
    assert bed.log.committer.rounds_journaled == 2


@simulated
async def test_what_is_large_and_what_came_with_it_is_read_back(bed: Bed, seed: int) -> None:
    await bed.start(*MANY)
    values = [b"a", b"b" * RECENT_BYTES_MAX, b"c"]
    for name in MANY:
        for value in values:
            bed.append(name, make(value))
    await bed.committed()
    assert bed.log.committer.rounds_journaled == 1
    bed.crash()
    await bed.start(*MANY)
    assert [bed.values(name) for name in MANY] == [values] * len(MANY)


@simulated
async def test_what_comes_during_a_journaled_round_is_kept_for_the_next(
    bed: Bed, seed: int
) -> None:
    await bed.start(*MANY)
    for value in (b"a", b"b", b"c"):
        for name in MANY:
            bed.append(name, make(value))
        await asyncio.sleep(0.0001)
    await bed.committed()
    assert bed.log.committer.rounds_journaled == 2
    bed.crash()
    await bed.start(*MANY)
    assert [bed.values(name) for name in MANY] == [[b"a", b"b", b"c"]] * len(MANY)


# --- what is not permanent below the watermark must not be left out of the journal


@simulated
async def test_flush_messages_of_many_partitions_at_once(bed: Bed, seed: int) -> None:
    """The last of three is answered when all three are permanent, not it alone."""
    relaxed = Policy(Durability.OS, flush_messages=3)
    await bed.start(*MANY, policy=relaxed)
    for value in (b"a", b"b"):
        await everywhere(bed, MANY, value)
    assert all((bed[n].high_watermark, bed[n].offset_synced) == (2, 0) for n in MANY)
    await everywhere(bed, MANY, b"c")
    bed.crash()
    await bed.start(*MANY, policy=relaxed)
    assert [bed[name].stopped for name in MANY] == [None] * len(MANY)
    assert [bed.values(name) for name in MANY] == [[b"a", b"b", b"c"]] * len(MANY)


@simulated
async def test_a_relaxed_topic_made_strict(bed: Bed, seed: int) -> None:
    await bed.start(*MANY, policy=Policy(Durability.OS))
    await everywhere(bed, MANY, b"a")
    for name in MANY:
        bed[name].policy = Policy()
    await everywhere(bed, MANY, b"b")
    bed.crash()
    await bed.start(*MANY)
    assert [bed.values(name) for name in MANY] == [[b"a", b"b"]] * len(MANY)


@simulated
async def test_retention_takes_the_segment_the_watermark_is_in(bed: Bed, seed: int) -> None:
    policy = Policy(segment_bytes=ONE)
    await bed.start(*MANY, policy=policy)
    for name in MANY:
        await bed.write(name, b"old")
        bed[name].roll()
        bed[name]._visible = bed[name]._visible._replace(  # type: ignore[union-attr]
            segment=bed[name].segments[0], position=ONE
        )  # As after a roll while the commit was under way.
        await bed.do(bed.log.committer.sync([(bed[name], bed[name].end_mark())]))
        bed[name].delete_before(1)
        await bed.sweep(name)
        assert [segment.offset_base for segment in bed[name].segments] == [1]
    for value in (b"a", b"b"):
        for name in MANY:
            bed.append(name, make(value))
    await bed.committed()
    assert bed.log.committer.rounds_journaled == 1
    bed.crash()
    await bed.start(*MANY, policy=policy)
    assert [bed.values(name)[-2:] for name in MANY] == [[b"a", b"b"]] * len(MANY)


# --- many files


@simulated
async def test_more_partitions_than_descriptors(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "FILES_OPEN_MAX", 3)
    await bed.start(*MANY)
    for value in (b"a", b"b"):
        await everywhere(bed, MANY, value)
    assert len(bed.log._pool._files) == 3
    bed.crash()
    await bed.start(*MANY)
    assert [bed.values(name) for name in MANY] == [[b"a", b"b"]] * len(MANY)


@simulated
async def test_a_sync_is_done_in_slices(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("entrepot.log.commit._FILES_PER_SYNC", 1)
    await bed.start(*FEW)
    await everywhere(bed, FEW, b"x")
    with syncs(bed, monkeypatch) as calls:
        await everywhere(bed, FEW, b"y")
    assert [len(call) for call in calls] == [1] * len(FEW)
    assert all(bed[name].offset_synced == 2 for name in FEW)


@simulated
async def test_a_new_directory_is_synced_once(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    await bed.start(*FEW)
    with syncs(bed, monkeypatch) as calls:
        await everywhere(bed, FEW, b"x")
    assert sum(call.count("partitions") for call in calls) == 1
