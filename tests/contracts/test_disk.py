"""The disk as everything above it may rely on it."""

import asyncio
import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from entrepot.core.ports import Disk, File
from entrepot.log.disk import FileDisk
from sim.disk import SimDisk


def test_what_is_written_is_read(on_disk) -> None:
    async def body(disk: Disk) -> None:
        file = disk.open("a", create=True)
        assert file.path == "a"
        assert file.size() == 0
        assert file.write(0, [b"one", bytearray(b"two"), memoryview(b"-three")[1:]]) == 11
        assert file.read(0, 100) == b"onetwothree"
        assert file.read(3, 3) == b"two"
        assert file.read(11, 5) == b""
        assert file.read(50, 5) == b""
        assert file.read(0, 0) == b""
        file.write(3, [b"TWO"])
        assert disk.open("a").read(0, 100) == b"oneTWOthree"
        assert file.size() == 11

    on_disk(body)


def test_a_boot_has_one_name(on_disk) -> None:
    async def body(disk: Disk) -> None:
        assert disk.boot == disk.boot

    on_disk(body)


def test_there_is_room(on_disk) -> None:
    async def body(disk: Disk) -> None:
        found = await disk.space()
        assert 0 < found.free <= found.size

    on_disk(body)


def test_a_write_beyond_the_end_leaves_zeros(on_disk) -> None:
    async def body(disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.write(5, [b"x"])
        assert file.read(0, 10) == bytes(5) + b"x"
        assert file.write(100, []) == 0
        assert file.write(100, [b""]) == 0
        assert file.size() == 6

    on_disk(body)


def test_truncation_cuts_and_extends(on_disk) -> None:
    async def body(disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.write(0, [b"0123456789"])
        file.truncate(4)
        assert file.read(0, 10) == b"0123"
        file.truncate(6)
        assert file.read(0, 10) == b"0123\0\0"

    on_disk(body)


def test_more_chunks_than_the_system_takes_is_a_short_write(on_disk) -> None:
    async def body(disk: Disk) -> None:
        file = disk.open("a", create=True)
        chunks = [index.to_bytes(2, "big") for index in range(1500)]
        written = file.write(0, chunks)
        assert 0 < written < 3000
        while written < 3000:
            assert written % 2 == 0
            written += file.write(written, chunks[written // 2 :])
        assert file.read(0, 4000) == b"".join(chunks)

    on_disk(body)


def test_opening_what_is_not_a_file(on_disk) -> None:
    async def body(disk: Disk) -> None:
        disk.make_directory("d")
        disk.open("f", create=True)
        with pytest.raises(FileNotFoundError):
            disk.open("a")
        with pytest.raises(FileNotFoundError):
            disk.open("no/a", create=True)
        with pytest.raises(IsADirectoryError):
            disk.open("d")
        with pytest.raises(NotADirectoryError):
            disk.open("f/a", create=True)

    on_disk(body)


def test_a_closed_file_refuses(on_disk) -> None:
    async def body(disk: Disk) -> None:
        file = disk.open("a", create=True)
        file.write(0, [b"x"])
        file.close()
        file.close()
        uses: Sequence[Callable[[], object]] = (
            lambda: file.write(0, [b"y"]),
            lambda: file.read(0, 1),
            file.size,
            lambda: file.truncate(0),
            file.fileno,
        )
        for use in uses:
            with pytest.raises(OSError, match="closed") as caught:
                use()
            assert caught.value.errno == errno.EBADF
        assert disk.open("a").read(0, 10) == b"x"

    on_disk(body)


def test_names_are_sorted_and_a_missing_directory_has_none(on_disk) -> None:
    async def body(disk: Disk) -> None:
        assert disk.names("") == []
        disk.make_directory("b/c/d")
        disk.make_directory("b/c")
        for path in ("b/2", "b/10", "b/1", "a"):
            disk.open(path, create=True)
        assert disk.names("") == ["a", "b"]
        assert disk.names("b") == ["1", "10", "2", "c"]
        assert disk.names("b/c/d") == disk.names("nowhere") == disk.names("no/where") == []
        assert disk.exists("b/c/d")
        assert disk.exists("b/1")
        assert disk.exists("")
        assert not disk.exists("b/3")
        assert not disk.exists("no/where")
        assert not disk.exists("a/b")
        with pytest.raises(FileExistsError):
            disk.make_directory("a")
        with pytest.raises(NotADirectoryError):
            disk.make_directory("a/b")
        with pytest.raises(NotADirectoryError):
            disk.names("a")

    on_disk(body)


def test_a_rename_replaces_and_open_files_stay_what_they_were(on_disk) -> None:
    async def body(disk: Disk) -> None:
        disk.make_directory("d")
        disk.make_directory("e")
        old, new = disk.open("old", create=True), disk.open("d/new", create=True)
        old.write(0, [b"old"])
        new.write(0, [b"new"])
        disk.rename("old", "d/new")
        assert disk.names("") == ["d", "e"]
        assert disk.open("d/new").read(0, 9) == b"old"
        assert (old.read(0, 9), new.read(0, 9)) == (b"old", b"new")
        old.write(0, [b"OLD"])
        assert disk.open("d/new").read(0, 9) == b"OLD"
        disk.rename("d/new", "d/new")
        assert disk.names("d") == ["new"]
        with pytest.raises(FileNotFoundError):
            disk.rename("old", "other")
        with pytest.raises(FileNotFoundError):
            disk.rename("d/new", "no/new")
        with pytest.raises(IsADirectoryError):
            disk.rename("d/new", "e")

    on_disk(body)


def test_a_directory_is_renamed_with_all_it_holds(on_disk) -> None:
    async def body(disk: Disk) -> None:
        disk.make_directory("a/b")
        disk.open("a/b/f", create=True).write(0, [b"x"])
        disk.rename("a", "z")
        assert disk.names("") == ["z"]
        assert disk.open("z/b/f").read(0, 9) == b"x"

    on_disk(body)


def test_removing(on_disk) -> None:
    async def body(disk: Disk) -> None:
        disk.make_directory("d/e")
        file = disk.open("d/a", create=True)
        file.write(0, [b"x"])
        disk.remove("d/a")
        disk.remove("d/a")
        disk.remove("no/where")
        assert disk.names("d") == ["e"]
        assert file.read(0, 9) == b"x"  # It lives as long as somebody has it open.
        with pytest.raises(IsADirectoryError):
            disk.remove("d/e")
        disk.open("d/e/f", create=True)
        disk.remove_directory("d")
        disk.remove_directory("d")
        assert disk.names("") == []
        with pytest.raises(FileNotFoundError):
            disk.open("d/e/f", create=True)

    on_disk(body)


def test_discarding(on_disk) -> None:
    async def body(disk: Disk) -> None:
        disk.make_directory("d/e")
        disk.open("d/e/f", create=True)
        file = disk.open("a", create=True)
        file.write(0, [b"x"])
        disk.open("b", create=True)
        assert await disk.discard(["a", "d", "no/where"]) == [None, None, None]
        assert disk.names("") == ["b"]
        assert file.read(0, 9) == b"x"  # It lives as long as somebody has it open.
        assert await disk.discard(["a", "d"]) == [None, None]
        assert await disk.discard([]) == []

    on_disk(body)


def test_sync_answers_for_each_file_then_each_directory(on_disk) -> None:
    async def body(disk: Disk) -> None:
        disk.make_directory("d")
        good, closed = disk.open("d/a", create=True), disk.open("d/b", create=True)
        closed.close()
        answers = await disk.sync([good, closed, good], ["d", "gone", ""])
        assert [type(answer) for answer in answers] == [
            type(None),
            OSError,
            type(None),
            type(None),
            FileNotFoundError,
            type(None),
        ]
        assert await disk.sync([]) == []

    on_disk(body)


def test_a_directory_whose_sync_failed_fails_from_then_on(
    on_disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its names may be lost, and the system tells only one of those who asked."""

    def fail(number: int) -> None:
        raise OSError(errno.EIO, "lost")

    async def body(disk: Disk) -> None:
        disk.make_directory("d/e")
        if isinstance(disk, SimDisk):
            disk.fail_next("sync", errno.EIO, "d")
        with monkeypatch.context() as patch:
            patch.setattr("os.fsync", fail)
            await disk.sync([], ["d"])
        failed, other = await disk.sync([], ["d", "d/e"])
        assert failed is not None
        assert failed.errno == errno.EIO
        assert other is None
        disk.rename("d", "f")
        disk.make_directory("d")
        assert await disk.sync([], ["d"]) == [None], "another of that name"

    on_disk(body)


def test_many_syncs_at_once_and_a_file_closed_meanwhile(on_disk) -> None:
    async def body(disk: Disk) -> None:
        files = [disk.open(f"f{index}", create=True) for index in range(20)]
        for file in files:
            file.write(0, [file.path.encode()])
        waiting = [asyncio.ensure_future(disk.sync([file], [""])) for file in files]
        await asyncio.sleep(0.000_1)  # They have begun.
        for file in files:
            file.close()
        assert await asyncio.gather(*waiting) == [[None, None]] * 20

    on_disk(body)


def test_a_lock_is_held_once(on_disk) -> None:
    async def body(disk: Disk) -> None:
        disk.lock("lock")
        with pytest.raises(BlockingIOError):
            disk.lock("lock")
        disk.lock("another")
        assert disk.names("") == ["another", "lock"]

    on_disk(body)


def test_the_next_process_finds_what_was_synced(on_disk, tmp_path: Path) -> None:
    async def body(disk: Disk) -> None:
        disk.lock("lock")
        disk.make_directory("d/e")
        file = disk.open("d/e/tmp", create=True)
        file.write(0, [b"payload"])
        disk.rename("d/e/tmp", "d/e/f")
        assert await disk.sync([file], ["d/e", "d", ""]) == [None] * 4
        again = _next_process(disk, tmp_path)
        assert again.names("") == ["d", "lock"]
        assert again.names("d/e") == ["f"]
        assert again.open("d/e/f").read(0, 99) == b"payload"
        again.lock("lock")

    on_disk(body)


def _next_process(disk: Disk, root: Path) -> Disk:
    if isinstance(disk, SimDisk):
        return disk.crash()
    assert isinstance(disk, FileDisk)
    disk.close()
    return FileDisk(root)


def test_twins_agree_on_anything(seed: int, tmp_path: Path) -> None:
    """The same random operations on both: the same answers, the same errors."""
    random = Random(seed)
    twins: list[Disk] = [FileDisk(tmp_path), SimDisk(Random(seed))]
    files: list[list[File]] = [[], []]
    for _ in range(150):
        operation = _random_operation(random, len(files[0]))
        answers = [
            _answer(operation, disk, opened) for disk, opened in zip(twins, files, strict=True)
        ]
        assert answers[0] == answers[1]


Operation = Callable[[Disk, list[File]], object]


def _answer(operation: Operation, disk: Disk, files: list[File]) -> object:
    try:
        return operation(disk, files)
    except OSError as error:
        return type(error)


def _random_operation(random: Random, opened: int) -> Operation:
    path, other = ("/".join(random.choices("abc", k=random.randint(1, 3))) for _ in range(2))
    create = random.random() < 0.7
    if random.random() < 0.5:
        return random.choice(
            (
                lambda disk, files: files.append(disk.open(path, create=create)),
                lambda disk, files: disk.make_directory(path),
                lambda disk, files: disk.remove(path) if disk.exists(path) else None,
                lambda disk, files: disk.names(path),
                lambda disk, files: disk.exists(path),
                lambda disk, files: _rename(disk, path, other),
            )
        )
    if not opened:
        return lambda disk, files: None
    index, position, size = random.randrange(opened), random.randrange(9_000), random.randrange(99)
    data = random.randbytes(size)
    return random.choice(
        (
            lambda disk, files: files[index].write(position, [data, data]),
            lambda disk, files: files[index].read(position, size),
            lambda disk, files: files[index].read(0, 20_000),
            lambda disk, files: files[index].size(),
            lambda disk, files: files[index].truncate(position),
        )
    )


def _rename(disk: Disk, old: str, new: str) -> None:
    """Files over files only: what else a system allows is its own affair."""
    if not _is_directory(disk, old) and not _is_directory(disk, new):
        disk.rename(old, new)


def _is_directory(disk: Disk, path: str) -> bool:
    try:
        disk.names(path)
    except NotADirectoryError:
        return False
    return disk.exists(path)
