"""After a crash: files whose names are gone, and what is known of those that must be there."""

import asyncio

import msgspec
import pytest

from entrepot.core import limits
from entrepot.core.errors import Corruption
from entrepot.log.checkpoint import read_recovery_checkpoint
from entrepot.log.files import seal
from entrepot.log.log import CHECKPOINT_EVERY_S, TICK_S
from entrepot.log.policy import Durability, Policy
from entrepot.log.segment import build_index
from entrepot.log.verify import Verdict, verify
from tests.unit.log.bed import Bed, make, simulated

ONE = len(make(b"x"))
TINY = Policy(segment_bytes=ONE, file_delete_delay_ms=0)  # A batch each.
NAMES = [f"t{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX + 1)]
FIRST = NAMES[0]
SETTLED_S = CHECKPOINT_EVERY_S + 1
KEPT: list[bytes | None] = [b"a", b"b", b"c"]


def path(name: str, base: int, kind: str = "log") -> str:
    return f"{Bed.directory(name)}/{base:020d}.{kind}"


async def refusal(bed: Bed, policy: Policy = TINY) -> str:
    """Why the partition is refused: at this start and at the next two."""
    reasons = []
    for _ in range(3):
        await bed.start("t", policy=policy)
        reasons.append(bed["t"].stopped)
        assert bed["t"].refused
        with pytest.raises(Corruption):
            bed["t"].read(0, 1)
        await asyncio.sleep(SETTLED_S)
        bed.kill()
    assert reasons[0] is not None
    assert reasons[1:] == [reasons[1]] * 2
    return reasons[0]


async def delete_before(bed: Bed, offset: int) -> None:
    bed["t"].delete_before(offset)
    await bed.sweep("t")


# --- what the journal has is not passed over


async def journaled_over_segments(bed: Bed) -> None:
    """Three answered rounds, a segment each: names and bytes are permanent in the journal only."""
    await bed.start(*NAMES, policy=TINY)
    for value in KEPT:
        for name in NAMES:
            bed.append(name, make(value or b""))
        await bed.committed()
    assert bed.log.committer.rounds_journaled == 3
    bed.kill()


@pytest.mark.parametrize("lost", [[0], [1], [2], [0, 1], [0, 2], [1, 2]])
@simulated
async def test_any_names_may_be_gone_that_the_journal_speaks_for(bed: Bed, lost: list[int]) -> None:
    await journaled_over_segments(bed)
    for base in lost:
        bed.disk.remove(path(FIRST, base))
    await bed.start(*NAMES, policy=TINY)
    assert bed[FIRST].stopped is None
    assert bed.values(FIRST) == KEPT
    bed.crash()
    await bed.start(*NAMES, policy=TINY)
    assert bed.values(FIRST) == KEPT


@simulated
async def test_a_journal_is_kept_while_its_first_entries_cannot_be_placed(bed: Bed) -> None:
    """Nothing tells where the log began: files that begin later may be all, or not."""
    await journaled_over_segments(bed)
    bed.disk.remove(path(FIRST, 0))
    bed.flip("recovery.checkpoint", 0)
    await bed.start(*NAMES, policy=TINY)
    assert bed[FIRST].stopped is not None
    assert "the journal has offset 0" in bed[FIRST].stopped
    assert bed.disk.names("journal") != []


@simulated
async def test_a_name_put_aside_does_not_come_back(bed: Bed, seed: int) -> None:
    """A segment without its predecessor, never answered: gone for good before others are."""
    await bed.start(*NAMES, policy=TINY)
    bed.append(FIRST, make(b"x"))
    bed.append(FIRST, make(b"y"))
    bed.kill()
    bed.disk.remove(path(FIRST, 0))
    await bed.start(*NAMES, policy=TINY)
    assert bed[FIRST].offset_end == 0
    for value in KEPT:
        for name in NAMES:
            bed.append(name, make(value or b""))
        await bed.committed()
    bed.crash()
    await bed.start(*NAMES, policy=TINY)
    assert [bed.values(name) for name in NAMES] == [KEPT] * len(NAMES)


@simulated
async def test_a_sealed_segment_has_a_permanent_successor(bed: Bed, seed: int) -> None:
    """The segments behind the journal are synced and the power fails: nothing is refused."""
    await bed.start(*NAMES, policy=TINY)
    for value in KEPT:
        for name in NAMES:
            bed.append(name, make(value or b""))
        await bed.committed()
    bed.loop.create_task(bed.do(bed.log.flush(bed[FIRST])))
    await bed.sleep_up_to(0.03)
    bed.crash()
    await bed.start(*NAMES, policy=TINY)
    assert [bed.values(name) for name in NAMES] == [KEPT] * len(NAMES)


# --- files that must be there


@pytest.mark.parametrize("base", [0, 1, 2])
@simulated
async def test_a_segment_that_is_gone_after_a_clean_stop(bed: Bed, base: int) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    await bed.stop()
    bed.disk.remove(path("t", base))
    assert await refusal(bed) == f"{path('t', base)} is missing"


@simulated
async def test_the_first_segment_gone_after_a_crash(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    bed.kill()
    bed.disk.remove(path("t", 0))
    bed.disk.remove(path("t", 0, "index"))
    reports = list(verify(bed.disk))
    assert reports[0].verdict is Verdict.CORRUPT
    assert "begins at offset 1, but its first segment began at 0" in reports[0].detail
    assert "begins at offset 1, but its first segment began at 0" in await refusal(bed)


@simulated
async def test_the_first_segment_gone_after_retention(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c", b"d")
    await delete_before(bed, 2)
    assert [segment.offset_base for segment in bed["t"].segments] == [2, 3]
    bed.crash()
    await bed.start("t", policy=TINY)
    assert bed["t"].offset_start == 2
    bed.kill()
    bed.disk.remove(path("t", 2))
    assert "begins at offset 3, but its first segment began at 2" in await refusal(bed)


@simulated
async def test_the_last_segment_gone_at_once_after_a_crash(bed: Bed) -> None:
    """The recovery checkpoint has not heard of it, but the seal before it has."""
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    bed.kill()
    bed.disk.remove(path("t", 2))
    assert list(verify(bed.disk))[-1].verdict is Verdict.CORRUPT
    assert "the segment that follows it is missing" in await refusal(bed)


@simulated
async def test_the_only_segment_gone_at_once_after_a_crash(bed: Bed) -> None:
    """The recovery checkpoint has not heard of the partition."""
    await bed.start("t")
    await bed.write("t", b"a")
    bed.kill()
    bed.disk.remove(path("t", 0))
    assert list(verify(bed.disk))[-1].verdict is Verdict.CORRUPT
    assert "has no segment, but it had one that was permanent" in await refusal(bed)


@simulated
async def test_the_only_segment_gone_soon_after_its_first_batch(bed: Bed) -> None:
    await bed.start("t")
    await asyncio.sleep(CHECKPOINT_EVERY_S / 2)
    await bed.write("t", b"a")
    await asyncio.sleep(3 * TICK_S)
    bed.kill()
    bed.disk.remove(path("t", 0))
    assert "ends at offset 0, but everything below offset 1" in await refusal(bed)


@simulated
async def test_retention_may_have_happened_in_any_order(bed: Bed, seed: int) -> None:
    """Marking is three renames a segment, and a power loss keeps any of them."""
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c", b"d", b"e")
    bed["t"].delete_before(3)
    bed.call(bed.log.sweep, bed["t"])
    await bed.sleep_up_to(3 * TICK_S)
    bed.crash()
    assert not [r for r in verify(bed.disk) if r.verdict is Verdict.CORRUPT]
    await bed.start("t", policy=TINY)
    assert bed["t"].stopped is None
    assert bed.values("t")[-2:] == [b"d", b"e"]


@simulated
async def test_a_segment_is_not_let_go_before_the_checkpoint_knows(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    await asyncio.sleep(SETTLED_S)
    bed.disk.fail_next("write", 28, "recovery.checkpoint.tmp", 1_000)
    await delete_before(bed, 2)
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 1, 2]


@simulated
async def test_a_compaction_may_overtake_retention(bed: Bed) -> None:
    """The exchange was decided, then retention let the first of the segments go."""
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    await asyncio.sleep(SETTLED_S)
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 1, 2]
    rows = msgspec.msgpack.decode(bed.read_file("recovery.checkpoint")[4:])
    rows[0][4] = 1  # As if retention had let go of the first.
    bed.kill()
    joined = bed.disk.open(path("t", 0))
    joined.write(ONE, [bed.read_file(path("t", 1))])
    first = bed["t"].segments[0]
    first.size, first.offset_end, first.compacted = 2 * ONE, 2, True
    first.index = build_index(joined, first)
    bed.disk.open(path("t", 0, "index")).write(0, [first.seal_bytes()])
    bed.disk.remove(path("t", 1))
    bed.disk.remove(path("t", 1, "index"))
    file = bed.disk.open("recovery.checkpoint")
    file.truncate(0)
    file.write(0, seal(msgspec.msgpack.encode(rows)))
    await bed.start("t", policy=TINY)
    assert bed["t"].stopped is None
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 2]


# --- the checkpoint itself


@simulated
async def test_a_damaged_recovery_checkpoint_is_reported_and_everything_checked(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    await bed.start("t", "u", policy=TINY)
    for name in ("t", "u"):
        await bed.write(name, b"a", b"b", b"c")
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    bed.flip("recovery.checkpoint", 9)
    bed.flip(path("u", 1), 30)  # In a sealed segment, which is not looked at otherwise.
    await bed.start("t", "u", policy=TINY)
    assert "recovery.checkpoint is damaged" in caplog.text
    assert bed.values("t") == [b"a", b"b", b"c"]
    assert bed["u"].refused
    assert not read_recovery_checkpoint(bed.disk).is_damaged, "a new one is in its place"


@simulated
async def test_a_damaged_recovery_checkpoint_lets_nothing_be_cut_off(bed: Bed) -> None:
    """Nobody knows whether the damage was permanent or an unfinished write."""
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    bed.flip("recovery.checkpoint", 9)
    bed.flip(path("t", 0), ONE + 30)
    before = bed.read_file(path("t", 0))
    assert "the recovery checkpoint was damaged" in await refusal(bed, Policy())
    assert bed.read_file(path("t", 0)) == before


@simulated
async def test_damage_that_a_clean_stop_makes_harmless_is_reported(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    await bed.stop()
    bed.flip("recovery.checkpoint", 9)
    await bed.start("t")
    assert "recovery.checkpoint is damaged" in caplog.text
    assert bed.values("t") == [b"a"]


@simulated
async def test_a_damaged_clean_checkpoint_is_reported(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    await bed.stop()
    bed.flip("clean.checkpoint", 9)
    await bed.start("t")
    assert "clean.checkpoint is damaged" in caplog.text
    assert not bed.log.clean
    assert bed.values("t") == [b"a"]


@simulated
async def test_a_checkpoint_without_first_offsets_believes_the_files(bed: Bed) -> None:
    """As earlier versions wrote it: four fields a row."""
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    await delete_before(bed, 1)
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    rows = msgspec.msgpack.decode(bed.read_file("recovery.checkpoint")[4:])
    file = bed.disk.open("recovery.checkpoint")
    file.truncate(0)
    file.write(0, seal(msgspec.msgpack.encode([row[:4] for row in rows])))
    await bed.start("t", policy=TINY)
    assert bed["t"].stopped is None
    assert bed.values("t") == [b"b", b"c"]


@simulated
async def test_a_partition_left_to_the_system_is_not_refused(bed: Bed, seed: int) -> None:
    """With durability `os` a power loss may take any of it: what is left is a beginning."""
    loose = Policy(Durability.OS, segment_bytes=ONE)
    await bed.start("t", policy=loose)
    for number in range(4):
        bed.append("t", make(b"%d" % number))
        await bed.sleep_up_to(0.2)
    bed.crash()
    await bed.start("t", policy=loose)
    assert bed["t"].stopped is None
    found = bed.values("t")
    assert found == [b"%d" % number for number in range(len(found))]
