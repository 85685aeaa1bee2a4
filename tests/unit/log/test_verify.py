"""What `verify` says of a log is what recovery does with it."""

import asyncio
from collections.abc import Callable

import pytest

from entrepot.log.log import CHECKPOINT_EVERY_S
from entrepot.log.policy import Durability, Policy
from entrepot.log.verify import Verdict, verify
from tests.unit.log.bed import Bed, make, simulated

ONE = len(make(b"x"))
TINY = Policy(segment_bytes=ONE)
RELAXED = Policy(Durability.OS, segment_bytes=2 * ONE)
GOOD, UNFINISHED, ASIDE, CORRUPT = Verdict
SETTLED_S = CHECKPOINT_EVERY_S + 1


def path(base: int, kind: str = "log") -> str:
    return f"partitions/t-0/{base:020d}.{kind}"


def verdicts(bed: Bed) -> list[Verdict]:
    return [report.verdict for report in verify(bed.disk)]


def files(bed: Bed) -> dict[str, bytes]:
    return {name: bed.read_file(f"partitions/t-0/{name}") for name in bed.names("t")}


async def agree(bed: Bed, policy: Policy) -> None:
    """Recovery, with every seal checked, does what the verdicts say."""
    found, before = verdicts(bed), files(bed)
    assert files(bed) == before, "verify reads only"
    await bed.start("t", policy=policy, check_all=True)
    assert bed["t"].refused == (CORRUPT in found)
    if CORRUPT not in found:
        aside = sum(name.endswith(".aside") for name in bed.names("t"))
        assert aside == found.count(ASIDE)
        bed.kill()
        assert set(verdicts(bed)) <= {GOOD}


@simulated
async def test_an_empty_disk(bed: Bed) -> None:
    assert verdicts(bed) == []


@simulated
async def test_a_good_log(bed: Bed) -> None:
    await bed.start("t", "u", policy=TINY)
    await bed.write("t", b"a", b"b")
    await bed.write("u", b"c")
    bed.kill()
    reports = list(verify(bed.disk))
    assert [(r.path, r.size, r.offset_base, r.offset_end, r.verdict) for r in reports] == [
        (path(0), ONE, 0, 1, GOOD),
        (path(1), ONE, 1, 2, GOOD),
        (path(0).replace("t-0", "u-0"), ONE, 0, 1, GOOD),
    ]
    await agree(bed, TINY)


@simulated
async def test_an_unfinished_tail(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    bed.kill()
    file = bed.disk.open(path(0))
    file.write(ONE, [make(b"b")[:-1]])
    (report,) = verify(bed.disk)
    assert (report.verdict, report.size, report.offset_end) == (UNFINISHED, 2 * ONE - 1, 1)
    assert report.detail == f"not a whole batch at byte {ONE}, offset 1"
    await agree(bed, Policy())


@simulated
async def test_what_follows_an_unfinished_segment(bed: Bed) -> None:
    await bed.start("t", policy=RELAXED)
    for value in (b"a", b"b", b"c", b"d", b"e"):
        bed.append("t", make(value))
    bed.kill()
    bed.flip(path(0), ONE + 30)
    assert verdicts(bed) == [UNFINISHED, ASIDE, ASIDE]
    await agree(bed, RELAXED)


@simulated
async def test_a_segment_that_ends_too_early(bed: Bed) -> None:
    await bed.start("t", policy=RELAXED)
    for value in (b"a", b"b", b"c"):
        bed.append("t", make(value))
    bed.kill()
    bed.disk.open(path(0)).truncate(ONE)
    assert verdicts(bed) == [UNFINISHED, ASIDE]
    await agree(bed, RELAXED)


@pytest.mark.parametrize("position", [0, 10, 16, 20, 30, 65])
@simulated
async def test_a_bit_in_a_sealed_segment(bed: Bed, position: int) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    bed.kill()
    bed.flip(path(1), position)
    assert verdicts(bed) == [GOOD, CORRUPT, GOOD]
    await agree(bed, TINY)


@simulated
async def test_a_bit_below_the_recovery_point(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await asyncio.sleep(SETTLED_S)
    await bed.write("t", b"c")
    bed.kill()
    bed.flip(path(0), ONE + 30)
    (report,) = verify(bed.disk)
    assert report.verdict is CORRUPT
    assert "everything below offset 2 was permanent" in report.detail
    await agree(bed, Policy())


@simulated
async def test_a_bit_above_the_recovery_point(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await asyncio.sleep(SETTLED_S)
    await bed.write("t", b"c")
    bed.kill()
    bed.flip(path(0), 2 * ONE + 30)
    assert verdicts(bed) == [UNFINISHED]
    await agree(bed, Policy())


@simulated
async def test_any_bit_after_a_clean_stop(bed: Bed) -> None:
    """Everything was permanent then."""
    await bed.start("t")
    await bed.write("t", b"a", b"b", b"c")
    await bed.stop()
    bed.flip(path(0), -1)
    assert verdicts(bed) == [CORRUPT]
    await agree(bed, Policy())


def lose_middle(bed: Bed) -> None:
    bed.disk.remove(path(1))


def lose_end(bed: Bed) -> None:
    bed.disk.remove(path(3))


def shorten_sealed(bed: Bed) -> None:
    bed.disk.open(path(1)).truncate(ONE - 1)


def shorten_end(bed: Bed) -> None:
    bed.disk.open(path(3)).truncate(0)


def damage_with_seal(bed: Bed) -> None:
    bed.flip(path(1), 30)
    bed.flip(path(1, "index"), 30)


@pytest.mark.parametrize(
    "harm", [lose_middle, lose_end, shorten_sealed, shorten_end, damage_with_seal]
)
@simulated
async def test_lost_and_shortened_files(bed: Bed, harm: Callable[[Bed], None]) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c", b"d")
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    harm(bed)
    assert verdicts(bed).count(CORRUPT) == 1
    await agree(bed, TINY)


@simulated
async def test_a_failed_roll_left_an_empty_file(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b", b"c")
    bed.kill()
    bed.disk.open(path(1), create=True)
    assert verdicts(bed) == [GOOD]
    await agree(bed, Policy())


@simulated
async def test_verdicts_and_recovery_agree_after_any_power_loss(bed: Bed, seed: int) -> None:
    await bed.start("t", policy=RELAXED)
    for number in range(12):
        bed.append("t", make(b"%d" % number * 99))
        await bed.sleep_up_to(0.05)
    bed.crash()
    assert CORRUPT not in verdicts(bed)
    await agree(bed, RELAXED)
