"""What only real files do: descriptors, worker threads, other processes."""

import asyncio
import errno
import fcntl
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from entrepot.core import limits
from entrepot.log import disk as disk_module
from entrepot.log.disk import FileDisk, ReadOnlyDisk


def is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError as error:
        return error.errno != errno.EBADF
    return True


def test_a_descriptor_closes_with_its_file(tmp_path: Path) -> None:
    disk = FileDisk(tmp_path)
    closed, dropped = disk.open("a", create=True), disk.open("b", create=True)
    numbers = closed.fileno(), dropped.fileno()
    assert all(map(is_open, numbers))
    closed.close()
    del dropped
    assert not any(map(is_open, numbers))


def test_descriptors_are_not_inherited(tmp_path: Path) -> None:
    file = FileDisk(tmp_path).open("a", create=True)
    assert fcntl.fcntl(file.fileno(), fcntl.F_GETFD) & fcntl.FD_CLOEXEC


@pytest.mark.parametrize(
    ("soft", "expected"),
    [
        (1_024, 256),
        (1_000_000, limits.FILES_OPEN_MAX),
        (resource.RLIM_INFINITY, limits.FILES_OPEN_MAX),
    ],
)
def test_files_take_a_share_of_the_descriptors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, soft: int, expected: int
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, soft))
    assert FileDisk(tmp_path).files_max == expected


def test_a_write_is_the_systems_at_once(tmp_path: Path) -> None:
    FileDisk(tmp_path).open("a", create=True).write(0, [b"x"])
    assert (tmp_path / "a").read_bytes() == b"x"


def test_a_missing_root_is_made_with_its_parents(tmp_path: Path) -> None:
    FileDisk(tmp_path / "a" / "b").open("c", create=True)
    assert (tmp_path / "a" / "b" / "c").exists()


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    with pytest.raises(NotADirectoryError):
        FileDisk(tmp_path / "f")
    with pytest.raises(NotADirectoryError):
        FileDisk(tmp_path / "f" / "g")


def test_a_failed_sync_is_that_files_answer_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FileDisk(tmp_path, uses_kernel=False)
    files = [disk.open(name, create=True) for name in "abc"]
    sync, bad = disk_module._sync_descriptor, files[1].fileno()

    def fail(number: int) -> None:
        if number == bad:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        sync(number)

    monkeypatch.setattr(disk_module, "_sync_descriptor", fail)
    answers = asyncio.run(disk.sync(files, [""]))
    assert [answer and answer.errno for answer in answers] == [None, errno.EIO, None, None]
    disk.close()


def test_a_descriptor_in_a_sync_is_not_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a file opened meanwhile would be synced in place of the one that was meant."""
    disk = FileDisk(tmp_path, uses_kernel=False)
    begun, go_on = threading.Event(), threading.Event()
    synced: list[int] = []

    def wait(number: int) -> None:
        begun.set()
        assert go_on.wait(10)
        synced.append(os.fstat(number).st_ino)

    monkeypatch.setattr(disk_module, "_sync_descriptor", wait)

    async def main() -> None:
        file = disk.open("a", create=True)
        sync = asyncio.create_task(disk.sync([file]))
        await asyncio.to_thread(begun.wait, 10)
        file.close()
        others = [disk.open(f"other {index}", create=True) for index in range(10)]
        go_on.set()
        assert await sync == [None]
        assert len(others) == 10

    asyncio.run(main())
    assert synced == [(tmp_path / "a").stat().st_ino]
    disk.close()


def test_a_long_sync_does_not_hold_up_a_short_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = FileDisk(tmp_path, uses_kernel=False)
    slow, fast = disk.open("slow", create=True), disk.open("fast", create=True)
    go_on = threading.Event()
    slow_number = slow.fileno()
    monkeypatch.setattr(
        disk_module, "_sync_descriptor", lambda number: number == slow_number and go_on.wait(10)
    )

    async def main() -> None:
        background = asyncio.create_task(disk.sync([slow]))
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            assert await disk.sync([fast]) == [None]
        assert not background.done()
        go_on.set()
        assert await background == [None]

    asyncio.run(main())
    disk.close()


def test_close_stops_the_workers_and_lets_the_lock_go(tmp_path: Path) -> None:
    before = threading.active_count()
    disk = FileDisk(tmp_path, uses_kernel=False)
    disk.lock("lock")
    asyncio.run(disk.sync([disk.open("a", create=True)]))
    assert threading.active_count() > before
    with pytest.raises(BlockingIOError):
        FileDisk(tmp_path).lock("lock")
    disk.close()
    assert threading.active_count() == before
    FileDisk(tmp_path).lock("lock")


def test_a_lock_keeps_other_processes_out_until_this_one_ends(tmp_path: Path) -> None:
    program = (
        "import sys; from entrepot.log.disk import FileDisk\n"
        "disk = FileDisk(sys.argv[1]); disk.lock('lock'); print('held', flush=True); input()"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", program, tmp_path],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        disk = FileDisk(tmp_path)
        with pytest.raises(BlockingIOError):
            disk.lock("lock")
        holder.kill()
    disk.lock("lock")


def test_discarding_leaves_the_loop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of a gigabyte takes the system a good part of a second."""
    threads: list[int] = []
    unlink = os.unlink

    def watched(path: str) -> None:
        threads.append(threading.get_ident())
        unlink(path)

    monkeypatch.setattr(os, "unlink", watched)
    (tmp_path / "a").write_bytes(b"abc")
    disk = FileDisk(tmp_path)
    assert asyncio.run(disk.discard(["a"])) == [None]
    disk.close()
    assert threads
    assert threading.get_ident() not in threads


def test_a_disk_for_reading_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc")
    disk = ReadOnlyDisk(tmp_path)
    assert disk.open("a").read(1, 2) == b"bc"
    for change in (
        lambda: disk.open("b", create=True),
        lambda: disk.open("a").write(0, [b"x"]),
        lambda: disk.make_directory("d"),
        lambda: disk.rename("a", "b"),
        lambda: disk.remove("a"),
        lambda: disk.remove_directory("a"),
        lambda: disk.lock("lock"),
    ):
        with pytest.raises(OSError, match=r"Read-only file system|Bad file descriptor"):
            change()
    with pytest.raises(OSError, match="Read-only file system"):
        asyncio.run(disk.discard(["a"]))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a", b"abc")]
    with pytest.raises(NotADirectoryError):
        ReadOnlyDisk(tmp_path / "missing")


def test_a_lock_is_seen_and_not_kept(tmp_path: Path) -> None:
    owner, reader = FileDisk(tmp_path), ReadOnlyDisk(tmp_path)
    assert not reader.is_locked("lock")
    owner.lock("lock")
    assert reader.is_locked("lock")
    owner.close()
    assert not reader.is_locked("lock")
    FileDisk(tmp_path).lock("lock")


# --- who else may look


def modes(root: Path) -> dict[str, int]:
    """Of everything there is, by its path."""
    paths = [root, *sorted(root.rglob("*"))]
    return {str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in paths}


def test_what_is_made_is_for_nobody_else(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        disk = FileDisk(tmp_path / "parent" / "data")
        disk.make_directory("a/b")
        disk.open("a/b/file", create=True)
        disk.lock("lock")
    finally:
        os.umask(before)
    found = modes(tmp_path / "parent" / "data")
    assert found == {".": 0o700, "a": 0o700, "a/b": 0o700, "a/b/file": 0o600, "lock": 0o600}
    assert modes(tmp_path)["parent"] == 0o777, "what is above is not the broker's"


def test_what_was_made_before_is_tightened_once(tmp_path: Path) -> None:
    root = tmp_path / "data"
    (root / "a" / "b").mkdir(parents=True, mode=0o755)
    elsewhere = tmp_path / "elsewhere"
    for path in (root / "a" / "b" / "file", elsewhere):
        path.write_text("x")
        path.chmod(0o644)
    (root / "link").symlink_to(elsewhere)
    root.chmod(0o755)
    ReadOnlyDisk(root)
    assert modes(root)["."] == 0o755
    FileDisk(root)
    found = modes(root)
    del found["link"]
    assert found == {".": 0o700, "a": 0o700, "a/b": 0o700, "a/b/file": 0o600}
    assert elsewhere.stat().st_mode & 0o777 == 0o644, "a link leads out of the tree"
    (root / "a").chmod(0o750)
    FileDisk(root)
    assert modes(root)["a"] == 0o750, "below a closed directory nobody looks"
