"""What the simulated disk does that a real one rarely lets you see."""

import asyncio
import errno
from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from sim.disk import Habits, SimDisk
from sim.loop import SimLoop, run

PAGE = 4096
SECTOR = 512
SEEDS = range(300)


def over_seeds(
    before: Callable[[SimDisk], object], look: Callable[[SimDisk], object]
) -> Counter[object]:
    """Do something, lose power, and count what is found, over many seeds."""
    found: Counter[object] = Counter()
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        before(disk)
        found[look(disk.crash())] += 1
    return found


def synced(disk: SimDisk, path: str, content: bytes) -> None:
    """A file that is on the platter, with its name."""
    file = disk.open(path, create=True)
    file.write(0, [content])
    assert run(0, lambda _: disk.sync([file], [""])) == [None, None]


def read(disk: SimDisk, path: str) -> bytes | None:
    return disk.open(path).read(0, 1 << 20) if disk.exists(path) else None


def test_what_was_synced_is_never_touched() -> None:
    def before(disk: SimDisk) -> None:
        synced(disk, "f", b"s" * 5_000)
        disk.open("f").write(5_000, [b"u" * 20_000])

    found = over_seeds(before, lambda disk: disk.open("f").read(0, 5_000))
    assert found == {b"s" * 5_000: len(SEEDS)}


def test_what_was_not_synced_is_kept_lost_or_torn() -> None:
    def before(disk: SimDisk) -> None:
        synced(disk, "f", b"o" * 4 * PAGE)
        disk.open("f").write(0, [b"n" * 4 * PAGE])

    def look(disk: SimDisk) -> str:
        content = disk.open("f").read(0, 1 << 20)
        sectors = [content[at : at + SECTOR] for at in range(0, len(content), SECTOR)]
        assert all(sector in (b"o" * SECTOR, b"n" * SECTOR) for sector in sectors)
        pages = {content[at : at + PAGE] for at in range(0, len(content), PAGE)}
        if pages == {b"n" * PAGE}:
            return "kept"
        if pages == {b"o" * PAGE}:
            return "lost"
        return "mixed" if pages == {b"o" * PAGE, b"n" * PAGE} else "torn"

    found = over_seeds(before, look)
    assert min(found[fate] for fate in ("kept", "lost", "mixed", "torn")) > 20
    assert found == over_seeds(before, look)


def test_an_appended_file_ends_anywhere_and_may_have_holes() -> None:
    def before(disk: SimDisk) -> None:
        synced(disk, "f", b"s" * 100)
        for index in range(8):
            disk.open("f").write(100 + index * PAGE, [b"u" * PAGE])

    def look(disk: SimDisk) -> str:
        content = disk.open("f").read(100, 1 << 20)
        assert len(content) % PAGE == 0
        assert set(content) <= {0, ord("u")}
        if not content:
            return "nothing"
        if 0 in content:
            return "zeros at the end" if content.rstrip(b"\0").count(0) == 0 else "a hole"
        return "everything" if len(content) == 8 * PAGE else "shorter"

    found = over_seeds(before, look)
    fates = ("nothing", "zeros at the end", "a hole", "everything", "shorter")
    assert min(found[fate] for fate in fates) > 5


def test_an_older_state_of_a_page_may_be_what_is_left() -> None:
    def before(disk: SimDisk) -> None:
        synced(disk, "f", b"0" * SECTOR)
        for state in (b"1", b"2", b"3"):
            disk.open("f").write(0, [state * SECTOR])

    found = over_seeds(before, lambda disk: read(disk, "f"))
    assert found.keys() == {digit * SECTOR for digit in (b"0", b"1", b"2", b"3")}


def test_a_truncation_happens_or_not_and_before_what_follows_it() -> None:
    def before(disk: SimDisk) -> None:
        synced(disk, "f", b"o" * 2 * SECTOR)
        disk.open("f").truncate(0)
        disk.open("f").write(0, [b"n" * SECTOR])

    found = over_seeds(before, lambda disk: read(disk, "f"))
    assert found.keys() == {b"o" * 2 * SECTOR, b"", b"n" * SECTOR, b"\0" * SECTOR}


def test_a_new_name_is_gone_unless_its_directory_was_synced() -> None:
    def before(disk: SimDisk) -> None:
        disk.make_directory("d")
        file = disk.open("d/f", create=True)
        file.write(0, [b"x"])
        run(0, lambda _: disk.sync([file], ["d"]))  # But not "": "d" itself may be gone.

    found = over_seeds(before, lambda disk: (disk.names(""), disk.names("d")) != ([], []))
    assert found[True] > 50
    assert found[False] > 50


def test_names_appear_in_any_order() -> None:
    def before(disk: SimDisk) -> None:
        for name in "abc":
            disk.open(name, create=True)

    found = over_seeds(before, lambda disk: "".join(disk.names("")))
    assert found.keys() == {"", "a", "b", "c", "ab", "ac", "bc", "abc"}
    assert found["a"] + found["ab"] > found["c"] + found["bc"], "but mostly in the one they had"


def test_names_go_in_any_order() -> None:
    def before(disk: SimDisk) -> None:
        for name in "abc":
            disk.open(name, create=True)
        run(0, lambda _: disk.sync([], [""]))
        disk.remove("a")
        disk.rename("b", "d")

    found = over_seeds(before, lambda disk: "".join(disk.names("")))
    assert found.keys() == {"abc", "bc", "acd", "cd"}


def test_directories_do_not_wait_for_each_other() -> None:
    def before(disk: SimDisk) -> None:
        disk.make_directory("d")
        disk.make_directory("e")
        run(0, lambda _: disk.sync([], [""]))
        disk.open("d/f", create=True)
        disk.open("e/f", create=True)

    found = over_seeds(before, lambda disk: (len(disk.names("d")), len(disk.names("e"))))
    assert found.keys() == {(0, 0), (0, 1), (1, 0), (1, 1)}


@pytest.mark.parametrize("new", ["new", "d/new"])
def test_a_rename_is_whole_or_not_there(new: str) -> None:
    def before(disk: SimDisk) -> None:
        disk.make_directory("d")
        synced(disk, "tmp", b"after")
        synced(disk, new, b"before")
        run(0, lambda _: disk.sync([], ["d", ""]))
        disk.rename("tmp", new)

    found = over_seeds(before, lambda disk: (read(disk, "tmp"), read(disk, new)))
    assert found.keys() == {(None, b"after"), (b"after", b"before")}


def test_a_synced_rename_between_directories_stays() -> None:
    def before(disk: SimDisk) -> None:
        disk.make_directory("d")
        synced(disk, "f", b"x")
        disk.rename("f", "d/f")
        run(0, lambda _: disk.sync([], ["d"]))

    found = over_seeds(before, lambda disk: (disk.exists("f"), disk.names("d")[:1] == ["f"]))
    assert found == {(False, True): len(SEEDS)}


def test_what_led_to_a_synced_rename_stays_with_it() -> None:
    def before(disk: SimDisk) -> None:
        disk.make_directory("d")
        run(0, lambda _: disk.sync([], [""]))
        disk.open("tmp", create=True)
        disk.rename("tmp", "d/f")
        run(0, lambda _: disk.sync([], ["d"]))

    found = over_seeds(before, lambda disk: (disk.exists("tmp"), disk.exists("d/f")))
    assert found == {(False, True): len(SEEDS)}


def test_a_sync_of_a_directory_covers_the_names_it_had_at_the_start() -> None:
    def world(seed: int) -> tuple[str, ...]:
        async def main(loop: SimLoop) -> tuple[str, ...]:
            disk = SimDisk(loop.random("disk"))
            disk.open("a", create=True)
            sync = asyncio.create_task(disk.sync([], [""]))
            await asyncio.sleep(0.000_1)
            disk.open("b", create=True)
            assert await sync == [None]
            return tuple(disk.crash().names(""))

        return run(seed, main)

    assert set(map(world, SEEDS)) == {("a",), ("a", "b")}


def test_a_removed_file_may_come_back_whole() -> None:
    def before(disk: SimDisk) -> None:
        synced(disk, "f", b"x" * 3 * PAGE)
        disk.remove("f")

    found = over_seeds(before, lambda disk: read(disk, "f"))
    assert found.keys() == {None, b"x" * 3 * PAGE}


def test_a_killed_process_loses_nothing_but_power_still_can() -> None:
    def before(disk: SimDisk) -> SimDisk:
        disk.open("f", create=True).write(0, [b"x" * PAGE])
        survivor = disk.kill()
        assert survivor.open("f").read(0, PAGE) == b"x" * PAGE
        return survivor

    found = Counter(read(before(SimDisk(Random(seed))).crash(), "f") for seed in SEEDS)
    assert found[b"x" * PAGE] > 20
    assert found[None] > 20


def test_a_sync_covers_what_was_written_before_it_began() -> None:
    def world(seed: int) -> bytes:
        async def main(loop: SimLoop) -> bytes:
            disk = SimDisk(loop.random("disk"))
            file = disk.open("f", create=True)
            file.write(0, [b"a" * SECTOR])
            first = asyncio.create_task(disk.sync([file], [""]))
            await asyncio.sleep(0.000_1)
            file.write(SECTOR, [b"b" * SECTOR])
            second = asyncio.create_task(disk.sync([file]))
            await asyncio.sleep(0.000_1)
            file.write(0, [b"c" * SECTOR])
            await asyncio.wait([first, second], return_when=asyncio.FIRST_COMPLETED)
            if second.done():
                await first
                return b""  # Not the case that is looked for.
            return disk.crash().open("f").read(0, PAGE)

        return run(seed, main)

    found = {content for content in map(world, SEEDS) if content}
    assert found <= {
        first * SECTOR + second
        for first in (b"a", b"c")
        for second in (b"", b"b" * SECTOR, b"\0" * SECTOR)
    }
    assert len(found) > 3


def test_syncs_overtake_each_other_without_harm() -> None:
    async def main(loop: SimLoop) -> None:
        disk = SimDisk(loop.random("disk"))
        file = disk.open("f", create=True)

        async def append(index: int) -> None:
            await asyncio.sleep(index / 10_000)
            file.write(index * 100, [b"%d" % (index % 10) * 100])
            assert await disk.sync([file], [""]) == [None, None]

        await asyncio.gather(*(append(index) for index in range(50)))
        expected = b"".join(b"%d" % (index % 10) * 100 for index in range(50))
        assert disk.crash().open("f").read(0, 9_999) == expected

    for seed in range(20):
        run(seed, main)


def test_the_old_disk_is_dead_after_a_crash() -> None:
    async def main(loop: SimLoop) -> None:
        disk = SimDisk(loop.random("disk"))
        file = disk.open("f", create=True)
        waiting = asyncio.create_task(disk.sync([file]))
        await asyncio.sleep(0.000_1)
        disk.crash()
        for use in (
            lambda: file.write(0, [b"x"]),
            lambda: file.read(0, 1),
            file.size,
            lambda: disk.open("f", create=True),
            lambda: disk.exists("f"),
            lambda: disk.names(""),
            lambda: disk.remove("f"),
            lambda: disk.lock("lock"),
            disk.crash,
        ):
            with pytest.raises(OSError, match="gone") as caught:
                use()
            assert caught.value.errno == errno.ESTALE
        with pytest.raises(OSError, match="gone"):
            await waiting
        file.close()

    run(0, main)


def test_faults_on_request() -> None:
    disk = SimDisk(Random(0))
    file = disk.open("a/b".replace("/", "-"), create=True)
    disk.fail_next("write", errno.EIO, "a-*", count=2)
    disk.fail_next("read", errno.EIO, "z")
    for _ in range(2):
        with pytest.raises(OSError, match="a-b") as caught:
            file.write(0, [b"x"])
        assert caught.value.errno == errno.EIO
    assert file.write(0, [b"x"]) == 1
    assert file.read(0, 1) == b"x"
    disk.fail_next("truncate", errno.EIO)
    with pytest.raises(OSError, match="a-b"):
        file.truncate(0)
    disk.fail_next("open", errno.EMFILE)
    with pytest.raises(OSError, match="a-b"):
        disk.open("a-b")
    disk.fail_next("rename", errno.EIO)
    with pytest.raises(OSError, match="a-b"):
        disk.rename("a-b", "c")
    disk.fail_next("make_directory", errno.ENOSPC)
    with pytest.raises(OSError, match="d"):
        disk.make_directory("d")
    disk.fail_next("remove", errno.EIO)
    with pytest.raises(OSError, match="a-b"):
        disk.remove("a-b")
    assert disk.names("") == ["a-b"]


def test_a_failed_sync_is_reported_once_and_its_bytes_are_lost() -> None:
    def before(disk: SimDisk) -> None:
        synced(disk, "f", b"s" * PAGE)
        file = disk.open("f")
        file.write(PAGE, [b"u" * 8 * PAGE])
        disk.fail_next("sync", errno.EIO, "f")
        (error,) = run(0, lambda _: disk.sync([file]))
        assert error is not None
        assert error.errno == errno.EIO
        assert run(0, lambda _: disk.sync([file])) == [None]
        assert file.read(PAGE, 1) == b"u"  # The cache still has it.

    found = over_seeds(before, lambda disk: read(disk, "f"))
    assert found[b"s" * PAGE + b"u" * 8 * PAGE] < len(SEEDS) / 2
    assert all(content is not None and content[:PAGE] == b"s" * PAGE for content in found)


def test_a_failed_sync_of_a_directory_is_not_mended_by_another() -> None:
    def before(disk: SimDisk) -> None:
        disk.open("f", create=True)
        disk.fail_next("sync", errno.EIO)
        (error,) = run(0, lambda _: disk.sync([], [""]))
        assert error is not None
        assert run(0, lambda _: disk.sync([], [""])) == [error]

    assert over_seeds(before, lambda disk: disk.exists("f"))[False] > 50


def test_but_by_one_of_the_next_process() -> None:
    """Data is lost for good; names are in the filesystem's journal, which is in order."""
    for seed in SEEDS:
        disk = SimDisk(Random(seed))
        disk.open("f", create=True)
        disk.fail_next("sync", errno.EIO)
        run(0, lambda _, disk=disk: disk.sync([], [""]))
        disk = disk.kill()
        assert run(0, lambda _, disk=disk: disk.sync([], [""])) == [None]
        assert disk.crash().exists("f")


def test_a_disk_that_lies_is_found_out() -> None:
    def before(disk: SimDisk) -> None:
        disk.habits.sync_is_noop = True
        synced(disk, "f", b"x" * PAGE)

    found = over_seeds(before, lambda disk: read(disk, "f"))
    assert found[b"x" * PAGE] < len(SEEDS) / 2


def test_short_writes() -> None:
    disk = SimDisk(Random(0), Habits(short_write_chance=0.5))
    file = disk.open("f", create=True)
    sizes = [file.write(0, [b"x" * 50, b"y" * 50]) for _ in range(200)]
    assert min(sizes) > 0
    assert max(sizes) == 100
    assert 50 < sum(size < 100 for size in sizes) < 150
    assert {file.write(0, [b"x"]) for _ in range(50)} == {1}


def test_a_full_disk() -> None:
    disk = SimDisk(Random(0), Habits(capacity_bytes=1_000))
    file, other = disk.open("f", create=True), disk.open("other", create=True)
    assert file.write(0, [b"x" * 900]) == 900
    assert other.write(0, [b"x" * 900]) == 100
    with pytest.raises(OSError, match="No space") as caught:
        other.write(100, [b"x"])
    assert caught.value.errno == errno.ENOSPC
    assert file.write(100, [b"y" * 100]) == 100  # In place takes no room.
    assert other.write(50, [b"z" * 100]) == 50
    disk.remove("f")
    assert other.write(100, [b"x" * 900]) == 900


def test_habits_and_locks_after_a_crash() -> None:
    disk = SimDisk(Random(0), Habits(capacity_bytes=10))
    disk.lock("lock")
    disk.fail_next("open", errno.EIO)
    again = disk.crash()
    assert again.habits.capacity_bytes == 10
    again.lock("lock")
