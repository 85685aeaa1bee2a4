"""What every file needs: whole writes, few open at a time, replacement as a whole."""

import errno
from random import Random

import pytest

from entrepot.core import limits
from entrepot.log.files import FilePool, load, replace, seal, write_all
from entrepot.log.segment import Segment
from sim.disk import Habits, SimDisk
from tests.unit.log.bed import Bed, simulated

# --- whole writes


@pytest.mark.parametrize("number", range(20))
def test_short_writes_are_continued(number: int) -> None:
    random = Random(number)
    disk = SimDisk(random, Habits(short_write_chance=0.9))
    chunks = [random.randbytes(random.randrange(0, 300)) for _ in range(random.randrange(1, 40))]
    file = disk.open("x", create=True)
    file.truncate(10)
    assert write_all(file, 10, chunks) == sum(map(len, chunks))
    assert file.read(10, file.size()) == b"".join(chunks)


def test_more_chunks_than_one_call_takes() -> None:
    file = SimDisk(Random(0)).open("x", create=True)
    chunks = [bytes([number % 251]) for number in range(3_000)]
    assert write_all(file, 0, chunks) == 3_000
    assert file.read(0, 3_000) == b"".join(chunks)


def test_a_full_disk_is_an_error_not_a_short_write() -> None:
    disk = SimDisk(Random(0), Habits(capacity_bytes=100))
    with pytest.raises(OSError, match="No space"):
        write_all(disk.open("x", create=True), 0, [bytes(60), bytes(60)])


# --- open files


def test_the_file_unused_longest_is_let_go() -> None:
    disk = SimDisk(Random(0))
    pool = FilePool(disk, files_max=2)
    a, b = pool.get("a", create=True), pool.get("b", create=True)
    assert pool.get("a") is a
    pool.get("c", create=True)
    assert pool.get("a") is a
    assert pool.get("b") is not b


def test_a_file_let_go_stays_open_for_its_holder() -> None:
    pool = FilePool(SimDisk(Random(0)), files_max=1)
    a = pool.get("a", create=True)
    a.write(0, [b"mine"])
    pool.get("b", create=True)
    assert a.read(0, 4) == b"mine"
    assert pool.get("a").read(0, 4) == b"mine"


def test_a_forgotten_path_may_mean_another_file() -> None:
    disk = SimDisk(Random(0))
    disk.make_directory("d")
    pool = FilePool(disk, files_max=9)
    old, kept = pool.get("d/a", create=True), pool.get("d2", create=True)
    disk.rename("d/a", "d/b")
    pool.forget("d/a")
    assert pool.get("d/a", create=True) is not old
    pool.forget_below("d")
    assert pool.get("d2") is kept


def test_indexes_of_sealed_segments_are_let_go_and_no_others() -> None:
    pool = FilePool(SimDisk(Random(0)), files_max=1)
    segments = [Segment("d", number, 0) for number in range(limits.INDEXES_CACHED_MAX + 2)]
    segments[0].sealed = True
    for segment in segments:
        pool.keep_index(segment)
    assert segments[0].index is None
    assert segments[1].index is not None, "not on disk: it must not be lost"


# --- replacement


@simulated
async def test_a_replaced_file_is_the_new_one(bed: Bed) -> None:
    bed.disk.make_directory("d")
    for payload in (b"one", b"", b"two"):
        await replace(bed.disk, "d", "x", payload)
        assert load(bed.disk, "d/x") == payload
    assert bed.disk.names("d") == ["x"]


@simulated
async def test_after_a_power_loss_one_of_the_two_is_whole(bed: Bed, seed: int) -> None:
    await replace(bed.disk, "", "x", b"old" * 1_000)
    writing = bed.loop.create_task(replace(bed.disk, "", "x", b"new" * 2_000))
    await bed.sleep_up_to(0.03)
    done = writing.done()
    writing.cancel()
    bed.crash()
    found = load(bed.disk, "x")
    assert found == b"new" * 2_000 or (not done and found == b"old" * 1_000)


@simulated
async def test_a_replacement_that_fails_leaves_the_old_one(bed: Bed) -> None:
    await replace(bed.disk, "", "x", b"old")
    for operation in ("open", "write", "sync", "rename"):
        bed.disk.fail_next(operation, errno.EIO, "x*")
        with pytest.raises(OSError, match="Input/output"):
            await replace(bed.disk, "", "x", b"new")
        assert load(bed.disk, "x") == b"old", operation
    await replace(bed.disk, "", "x", b"new")
    assert load(bed.disk, "x") == b"new"


def test_what_is_missing_or_damaged_is_not_loaded() -> None:
    disk = SimDisk(Random(0))
    assert load(disk, "x") is None
    data = b"".join(seal(b"payload"))
    for bad in (b"", data[:3], data[:-1], data + b"!", data[:-1] + b"D"):
        disk.remove("x")
        disk.open("x", create=True).write(0, [bad])
        assert load(disk, "x") is None, bad
    disk.remove("x")
    disk.open("x", create=True).write(0, [data])
    assert load(disk, "x") == b"payload"
