"""After a crash: what the journal has and the segments have not."""

import asyncio
import errno

from entrepot.core import limits
from entrepot.log.policy import Policy
from tests.unit.log.bed import Bed, make, simulated

NAMES = [f"t{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX + 1)]
FIRST, *OTHERS = NAMES
ONE = len(make(b"x"))
ACKED: list[bytes | None] = [b"a", b"b"]


async def journaled(bed: Bed, policy: Policy | None = None) -> None:
    """Two answered rounds that are permanent in the journal only."""
    await bed.start(*NAMES, policy=policy)
    for value in (b"a", b"b"):
        for name in NAMES:
            bed.append(name, make(value))
        await bed.committed()
    assert bed.log.committer.rounds_journaled == 2


def lose_segments(bed: Bed) -> None:
    bed.disk.remove_directory(bed.directory(FIRST))


def everything(bed: Bed) -> list[list[bytes | None]]:
    return [bed.values(name) for name in NAMES]


@simulated
async def test_a_lost_file_comes_back(bed: Bed) -> None:
    await journaled(bed)
    bed.kill()
    lose_segments(bed)
    await bed.start(*NAMES)
    assert everything(bed) == [ACKED] * len(NAMES)
    assert bed.disk.names("journal") == []
    bed.crash()
    await bed.start(*NAMES)
    assert everything(bed) == [ACKED] * len(NAMES), "it was synced before the journal went"


@simulated
async def test_a_replay_that_is_cut_short_is_done_again(bed: Bed, seed: int) -> None:
    await journaled(bed)
    for _ in range(4):
        bed.crash()
        starting = bed.loop.create_task(bed.start(*NAMES))
        await bed.sleep_up_to(0.02)
        starting.cancel()
    bed.crash()
    await bed.start(*NAMES)
    assert everything(bed) == [ACKED] * len(NAMES)


@simulated
async def test_a_torn_tail_is_filled_up_from_the_journal(bed: Bed) -> None:
    await journaled(bed)
    bed.kill()
    bed.disk.open(f"{bed.directory(FIRST)}/{0:020d}.log").truncate(ONE + 20)
    await bed.start(*NAMES)
    assert everything(bed) == [ACKED] * len(NAMES)


async def break_off(bed: Bed) -> None:
    """The first partition lost what had been permanent in its segments, below the journal's."""
    await bed.start(*NAMES)
    await bed.write(FIRST, b"0")
    bed.kill()
    await journaled(bed)
    bed.kill()
    lose_segments(bed)
    bed.disk.remove("recovery.checkpoint")


@simulated
async def test_a_gap_before_the_journal_is_refused_at_every_start(bed: Bed) -> None:
    await break_off(bed)
    for _ in range(3):
        await bed.start(*NAMES)
        assert bed[FIRST].stopped == (
            f"partitions/{FIRST}-0 ends at offset 0, but the journal goes on at 1"
        )
        assert [bed.values(name)[:2] for name in OTHERS] == [ACKED] * len(OTHERS)
        await asyncio.sleep(10)
        await bed.do(bed.log.close())
        bed.kill()


@simulated
async def test_a_refused_partition_does_not_stop_the_journal(bed: Bed, seed: int) -> None:
    await break_off(bed)
    await bed.start(*NAMES, "spare")
    for value in (b"c", b"d"):
        for name in (*OTHERS, "spare"):
            bed.append(name, make(value))
        await bed.committed()
    assert bed.log.committer.rounds_journaled == 2
    bed.crash()
    await bed.start(*NAMES, "spare")
    assert bed[FIRST].refused
    assert [bed.values(name) for name in OTHERS] == [[*ACKED, b"c", b"d"]] * len(OTHERS)


@simulated
async def test_what_could_not_be_read_once_is_replayed_later(bed: Bed, seed: int) -> None:
    """A refusal because of a passing error must not cost what was answered."""
    await journaled(bed)
    bed.crash()
    bed.disk.fail_next("open", errno.EMFILE, f"*/{FIRST}-0/*")
    await bed.start(*NAMES)
    assert bed[FIRST].refused
    await asyncio.sleep(10)
    bed.crash()
    await bed.start(*NAMES)
    assert everything(bed) == [ACKED] * len(NAMES)
    assert bed.disk.names("journal") == []


@simulated
async def test_a_sync_that_fails_at_the_start_keeps_the_journal(bed: Bed, seed: int) -> None:
    await journaled(bed)
    bed.crash()
    bed.disk.fail_next("sync", errno.EIO, f"*/{FIRST}-0/*.log")
    await bed.start(*NAMES)
    assert bed[FIRST].stopped is not None
    bed.crash()
    await bed.start(*NAMES)
    assert everything(bed) == [ACKED] * len(NAMES)


@simulated
async def test_a_full_disk_at_the_start_loses_nothing(bed: Bed) -> None:
    await journaled(bed)
    bed.kill()
    lose_segments(bed)
    bed.disk.habits.capacity_bytes = 0
    await bed.start(*NAMES)
    assert bed[FIRST].stopped == f"partitions/{FIRST}-0/{0:020d}.log: No space left on device"
    bed.kill()
    bed.disk.habits.capacity_bytes = None
    await bed.start(*NAMES)
    assert everything(bed) == [ACKED] * len(NAMES)


@simulated
async def test_a_replay_that_rolls_saves_no_view(bed: Bed) -> None:
    """Nobody has folded anything yet: a view saved now would say that nothing was written."""
    tiny = Policy(segment_bytes=ONE)
    await bed.start(*NAMES, policy=tiny)
    for name in NAMES:
        partition = bed[name]
        partition.view_snapshot = lambda p=partition: b"as of %d" % p.offset_end
    for value in (b"a", b"b", b"c"):
        for name in NAMES:
            bed.append(name, make(value))
    await bed.committed()
    bed.kill()
    for base in (1, 2):
        for kind in ("log", "view"):
            bed.disk.remove(f"{bed.directory(FIRST)}/{base:020d}.{kind}")
    await bed.start(*NAMES, policy=tiny)
    assert bed.values(FIRST) == [b"a", b"b", b"c"]
    assert bed.opened[FIRST].saved is None
    saved = bed.opened[OTHERS[0]].saved
    assert saved is not None
    assert (saved.offset, saved.state) == (2, b"as of 2")


@simulated
async def test_a_view_of_lost_batches_is_not_believed(bed: Bed, seed: int) -> None:
    tiny = Policy(segment_bytes=ONE)
    await bed.start("t", policy=tiny)
    snapshots: list[bytes] = []

    def snapshot() -> bytes:
        snapshots.append(b"as of %d, life 1" % bed["t"].offset_end)
        return snapshots[-1]

    bed["t"].view_snapshot = snapshot
    await bed.write("t", b"a", b"b")
    for value in (b"c", b"d", b"e"):
        bed.append("t", make(value))
    bed.crash()
    await bed.start("t", policy=tiny)
    end = bed["t"].offset_end
    bed["t"].view_snapshot = lambda: b"as of %d, life 2" % bed["t"].offset_end
    await bed.write("t", b"f", b"g", b"h")
    bed.crash()
    await bed.start("t", policy=tiny)
    saved = bed.opened["t"].saved
    assert saved is not None
    life = 2 if saved.offset >= end else 1
    assert saved.state == b"as of %d, life %d" % (saved.offset, life)
