"""After a crash: what is mended, what is refused, and that doing it twice changes nothing."""

import asyncio
import errno

import pytest

from entrepot.core import batch
from entrepot.core.errors import Corruption, StorageError
from entrepot.log.log import CHECKPOINT_EVERY_S
from entrepot.log.policy import Durability, Policy
from entrepot.log.recovery import PROGRESS_S, Progress
from entrepot.log.segment import Segment
from sim.disk import SimFile
from tests.unit.log.bed import Bed, make, simulated

ONE = len(make(b"x"))
TINY = Policy(segment_bytes=ONE)  # A batch each.
SETTLED_S = CHECKPOINT_EVERY_S + 1  # By then the recovery checkpoint has everything.


def path(name: str, base: int, kind: str = "log") -> str:
    return f"{Bed.directory(name)}/{base:020d}.{kind}"


def logs(bed: Bed) -> list[str]:
    return [name for name in bed.names("t") if name.endswith(".log")]


async def restart(bed: Bed, policy: Policy | None = None) -> None:
    """Recover, die, recover again: the second time must find the same."""
    await bed.start("t", policy=policy)
    found = (bed["t"].stopped, bed["t"].offset_end)
    bed.kill()
    await bed.start("t", policy=policy)
    assert (bed["t"].stopped, bed["t"].offset_end) == found


def append_to_file(bed: Bed, file_path: str, data: bytes) -> None:
    file = bed.disk.open(file_path)
    file.write(file.size(), [data])


@simulated
async def test_small_batches_are_read_many_at_once(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, reads = 2_000, list[int]()
    await bed.start("t")
    bed.append("t", *[make(b"%d" % number) for number in range(count)])
    await bed.committed()
    bed.kill()
    read = SimFile.read

    def counting(self: SimFile, position: int, size: int) -> bytes:
        reads.append(size)
        return read(self, position, size)

    with monkeypatch.context() as patch:
        patch.setattr(SimFile, "read", counting)
        await bed.start("t")
        assert [*bed["t"].headers(0)][-1][0].offset_first == count - 1
    assert len(reads) < count / 10
    assert bed.values("t") == [b"%d" % number for number in range(count)]


# --- an unfinished tail is cut off


@pytest.mark.parametrize(
    "tail",
    [
        make(b"torn")[:-1],
        make(b"torn")[:30],
        b"\0" * 5_000,
        b"\xff" * 100,
        make(b"flipped")[:-1] + b"!",
        make(b"whole, but of offset 0"),
    ],
    ids=["torn", "header", "zeros", "ones", "checksum", "offset"],
)
@simulated
async def test_a_torn_tail_is_cut_off(
    bed: Bed, tail: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    bed.kill()
    append_to_file(bed, path("t", 0), tail)
    await restart(bed)
    assert bed.values("t") == [b"a", b"b"]
    assert f"cut off {len(tail)} bytes of an unfinished write" in caplog.text
    assert len(bed.read_file(path("t", 0))) == 2 * ONE
    await bed.write("t", b"c")
    assert bed.values("t") == [b"a", b"b", b"c"]


@simulated
async def test_what_was_written_but_not_synced_may_stay(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    bed.append("t", make(b"b"))
    bed.kill()
    await restart(bed)
    assert bed.values("t") == [b"a", b"b"]


@simulated
async def test_a_hole_above_the_recovery_point_ends_the_log(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    await asyncio.sleep(SETTLED_S)
    await bed.write("t", b"b", b"c")
    bed.kill()
    bed.flip(path("t", 0), ONE + 30)
    await restart(bed)
    assert bed["t"].stopped is None
    assert bed.values("t") == [b"a"]


@simulated
async def test_later_segments_are_put_aside(bed: Bed) -> None:
    await bed.start("t", policy=Policy(Durability.OS, segment_bytes=ONE))
    for value in (b"a", b"b", b"c"):
        bed.append("t", make(value))
    bed.kill()
    bed.flip(path("t", 1), 30)
    await restart(bed, TINY)
    assert bed.values("t") == [b"a"]
    assert f"{2:020d}.log.aside" in bed.names("t")
    assert f"{2:020d}.view" not in bed.names("t")
    await bed.write("t", b"d", b"e")
    bed.crash()
    await restart(bed, TINY)
    assert bed.values("t") == [b"a", b"d", b"e"]


@simulated
async def test_a_segment_that_lost_its_last_writes_whole(bed: Bed) -> None:
    """The next one's name made it to the disk and these bytes did not."""
    await bed.start("t", policy=Policy(Durability.OS, segment_bytes=2 * ONE))
    for value in (b"a", b"b", b"c"):
        bed.append("t", make(value))
    bed.kill()
    bed.disk.open(path("t", 0)).truncate(ONE)
    await restart(bed, TINY)
    assert bed["t"].stopped is None
    assert bed.values("t") == [b"a"]
    assert logs(bed) == [f"{0:020d}.log"]


@simulated
async def test_a_crash_anywhere_in_a_roll(bed: Bed, seed: int) -> None:
    policy = Policy(segment_bytes=2 * ONE)
    await bed.start("t", policy=policy)
    await bed.write("t", b"0")
    for number in range(1, 6):
        bed.append("t", make(b"%d" % number))
    await bed.sleep_up_to(0.03)
    answered = bed["t"].high_watermark
    for _ in range(3):
        bed.crash()
        starting = bed.loop.create_task(bed.start("t", policy=policy))
        await bed.sleep_up_to(0.02)  # The power fails again in the middle of recovery.
        starting.cancel()
    bed.crash()
    await bed.start("t", policy=policy)
    assert bed["t"].stopped is None
    found = bed.values("t")
    assert found == [b"%d" % number for number in range(len(found))]
    assert len(found) >= answered


# --- damage in what was permanent is refused, again and again


async def refused(bed: Bed, policy: Policy | None = None) -> str:
    """Why the partition is refused: at this start, and at every later one."""
    reasons = []
    files = {name: bed.read_file(f"{bed.directory('t')}/{name}") for name in bed.names("t")}
    for _ in range(3):
        await bed.start("t", policy=policy)
        reasons.append(bed["t"].stopped)
        with pytest.raises(Corruption):
            bed["t"].read(0, 1)
        with pytest.raises(StorageError):
            bed.append("t", make(b"x"))
        await asyncio.sleep(SETTLED_S)
        await bed.do(bed.log.close())
        bed.kill()
    assert {name: bed.read_file(f"{bed.directory('t')}/{name}") for name in bed.names("t")} == files
    assert reasons[0] is not None
    assert reasons == [reasons[0]] * 3
    return reasons[0]


@simulated
async def test_damage_below_the_recovery_point(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await asyncio.sleep(SETTLED_S)
    await bed.write("t", b"c")
    bed.kill()
    bed.flip(path("t", 0), ONE + 30)
    assert await refused(bed) == (
        "partitions/t-0/00000000000000000000.log: the checksum does not match at byte 69, "
        "offset 1; everything below offset 2 was permanent"
    )


@simulated
async def test_damage_in_a_sealed_segment(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    bed.kill()
    bed.flip(path("t", 1), 30)
    await bed.start("t", policy=TINY)
    assert bed["t"].stopped is None, "a sealed segment is trusted"
    bed.kill()
    await bed.start("t", policy=TINY, check_all=True)
    assert bed["t"].stopped is not None
    assert "in a sealed part" in bed["t"].stopped


@simulated
async def test_a_sealed_segment_that_is_too_short(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    bed.kill()
    bed.disk.open(path("t", 1)).truncate(ONE - 1)
    assert f"has {ONE - 1} bytes, but {ONE} were permanent" in await refused(bed, TINY)


@simulated
async def test_a_seal_speaks_for_the_segments_before_it(bed: Bed) -> None:
    """Its own seal is damaged too, but a later one says that all was permanent."""
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c", b"d")
    bed.kill()
    bed.flip(path("t", 1), 30)
    bed.flip(path("t", 1, "index"), 30)
    bed.disk.remove("recovery.checkpoint")
    await bed.start("t", policy=TINY)
    assert bed["t"].stopped is not None
    assert "everything below offset 2 was permanent" in bed["t"].stopped


@simulated
async def test_a_missing_segment(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c", b"d")
    bed.kill()
    bed.disk.remove(path("t", 1))
    assert "ends at offset 1, but the next segment starts at 2" in await refused(bed, TINY)


@simulated
async def test_missing_segments_at_the_end(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    bed.disk.remove(path("t", 2))
    assert "ends at offset 2, but everything below offset 3" in await refused(bed, TINY)


@simulated
async def test_a_missing_directory(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    bed.disk.remove_directory("partitions/t-0")
    assert "ends at offset 0, but everything below offset 3" in await refused(bed, TINY)


@simulated
async def test_a_whole_file_cut_at_a_batch(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b", b"c")
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    bed.disk.open(path("t", 0)).truncate(ONE)
    assert "ends at offset 1, but everything below offset 3" in await refused(bed)


@simulated
async def test_a_disk_that_cannot_be_read_refuses_but_loses_nothing(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    bed.disk.fail_next("read", errno.EIO, "*.log")
    await bed.start("t")
    assert bed["t"].refused
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    await bed.start("t")
    assert bed.values("t") == [b"a", b"b"]


@simulated
async def test_a_recovery_point_is_not_forgotten_by_a_recovery_that_fails(bed: Bed) -> None:
    """The sync of the recovered fails: the next start must still know what was permanent."""
    await bed.start("t")
    await bed.write("t", b"a", b"b")
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    bed.disk.fail_next("sync", errno.EIO, "*.log")
    await bed.start("t")
    assert bed["t"].stopped is not None
    assert bed["t"].high_watermark == 0, "what is not known to be permanent is not served"
    await asyncio.sleep(SETTLED_S)
    bed.kill()
    bed.flip(path("t", 0), 30)
    await bed.start("t")
    assert bed["t"].refused


# --- seals that are lost, damaged or outlived


@pytest.mark.parametrize("harm", ["remove", "flip", "empty"])
@simulated
async def test_a_seal_that_is_gone_costs_a_walk(bed: Bed, harm: str) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b", b"c")
    bed.kill()
    seal = path("t", 1, "index")
    if harm == "flip":
        bed.flip(seal, 20)
    else:
        bed.disk.open(seal).truncate(0)
        if harm == "remove":
            bed.disk.remove(seal)
    await restart(bed, TINY)
    assert bed.values("t") == [b"a", b"b", b"c"]
    assert [segment.sealed for segment in bed["t"].segments] == [True, True, False]


@simulated
async def test_a_seal_outlived_by_its_segment(bed: Bed, seed: int) -> None:
    """A clean stop seals a large active segment; its removal may be lost with the power."""
    large = b"x" * 4_500_000
    await bed.start("t")
    await bed.write("t", large)
    await bed.stop()
    assert bed.disk.exists(path("t", 0, "index"))
    seal = bed.read_file(path("t", 0, "index"))
    await bed.start("t")
    await bed.write("t", b"a")
    bed.append("t", make(b"b"))
    bed.crash()
    if not bed.disk.exists(path("t", 0, "index")):
        bed.disk.open(path("t", 0, "index"), create=True).write(0, [seal])
    await restart(bed)
    assert bed["t"].stopped is None
    found = [len(value or b"") for value in bed.values("t")]
    assert found in ([4_500_000, 1], [4_500_000, 1, 1])
    bed.kill()
    bed.flip(path("t", 0), 1_000)
    await bed.start("t")
    assert bed["t"].refused, "what the seal spoke of was permanent, whatever came after"


@simulated
async def test_leftovers_are_swept(bed: Bed) -> None:
    await bed.start("t", policy=TINY)
    await bed.write("t", b"a", b"b")
    bed.kill()
    for name in (f"{7:020d}.log.deleted", "x.tmp", f"{9:020d}.index", f"{9:020d}.view"):
        bed.disk.open(f"partitions/t-0/{name}", create=True)
    await restart(bed, TINY)
    assert sorted(bed.names("t")) == [
        f"{0:020d}.index", f"{0:020d}.log", f"{1:020d}.log", f"{1:020d}.view", "begun",
    ]  # fmt: skip


# --- what recovery does not change


@simulated
async def test_times_and_bounds_are_found_again(bed: Bed) -> None:
    keep = Policy(segment_bytes=2 * ONE, retention_ms=-1)
    await bed.start("t", policy=keep)
    for time_ms in (5, 9, 7, 3, 8):
        bed.append("t", make(b"x", time_ms=time_ms))
    await bed.committed()
    bed.crash()
    await bed.start("t", policy=keep)
    partition = bed["t"]
    assert [segment.offset_base for segment in partition.segments] == [0, 2, 4]
    assert [segment.timestamp_max for segment in partition.segments] == [9, 7, 8]
    assert (partition.latest_time(), partition.offset_for_time(8)) == ((1, 9), (1, 9))
    assert (partition.high_watermark, partition.offset_synced) == (5, 5)
    for offset in range(5):
        found = partition.read(offset, 1)
        assert found is not None
        assert batch.read_header(found.file.read(found.position, 61)).offset_first == offset


# --- how far it is


@simulated
async def test_a_recovery_that_takes_long_says_how_far_it_is(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="entrepot.log")
    progress = Progress(bed.clock)
    segment = Segment(Bed.directory("t"), 0, 0)
    for seconds in (0.5, 1.0, 0.6, 0.1, PROGRESS_S):
        await asyncio.sleep(seconds)
        progress.looked_at(segment)
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 2
    assert lines[0].startswith("recovering: 3 segments so far, 0.0 GiB, 2 s; now in partitions/t")
    assert lines[1].startswith("recovering: 5 segments so far")
