"""Syncs by the kernel, and what happens where it does not offer them."""

import asyncio
import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import uvloop

from entrepot.log import disk as disk_module
from entrepot.log import kernel_sync
from entrepot.log.disk import FileDisk
from entrepot.log.kernel_sync import KernelSyncs


class Opened:
    def __init__(self, number: int) -> None:
        self.number = number


@pytest.fixture
def syncs() -> Iterator[KernelSyncs]:
    try:
        opened = KernelSyncs()
    except OSError as error:
        pytest.skip(f"no asynchronous syncs here: {error.strerror}")
    yield opened
    opened.close()


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Opened]:
    number = os.open(tmp_path / "a", os.O_RDWR | os.O_CREAT)
    os.write(number, b"x" * 5_000)
    yield Opened(number)
    os.close(number)


async def started(syncs: KernelSyncs, file: Opened) -> OSError | None:
    done = syncs.start(file)
    assert done is not None
    return await asyncio.wait_for(done, 30)


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run])
def test_a_file_is_synced_on_one_loop_after_another(syncs, file, run) -> None:
    assert run(started(syncs, file)) is None
    assert run(started(syncs, file)) is None


def test_many_at_once_are_limited(syncs, file) -> None:
    async def main() -> None:
        every = [syncs.start(file) for _ in range(100)]
        under_way = [each for each in every if each is not None]
        assert len(under_way) == kernel_sync._AT_ONCE_MAX
        assert await asyncio.gather(*under_way) == [None] * len(under_way)
        assert await started(syncs, file) is None

    asyncio.run(main())


def test_what_cannot_be_synced_is_not_started(syncs) -> None:
    reader, writer = os.pipe()

    async def main() -> None:
        assert syncs.start(Opened(writer)) is None

    asyncio.run(main())
    os.close(reader)
    os.close(writer)


def test_a_failure_is_the_answer(syncs, file, monkeypatch) -> None:
    call = syncs._call

    def failing(number: int, *arguments: object) -> int:
        count = call(number, *arguments)
        if number == syncs._get_events and count:
            found = [*kernel_sync._EVENT.unpack_from(syncs._events, 0)]
            found[2] = -errno.EIO
            kernel_sync._EVENT.pack_into(syncs._events, 0, *found)
        return count

    monkeypatch.setattr(syncs, "_call", failing)
    error = asyncio.run(started(syncs, file))
    assert error is not None
    assert (error.errno, error.strerror) == (errno.EIO, os.strerror(errno.EIO))


def test_whoever_does_not_wait_any_more_is_not_answered(syncs, file) -> None:
    async def main() -> None:
        done = syncs.start(file)
        assert done is not None
        done.cancel()
        assert await started(syncs, file) is None

    asyncio.run(main())


def test_close_waits_for_what_is_under_way(file) -> None:
    async def main() -> None:
        try:
            syncs = KernelSyncs()
        except OSError as error:
            pytest.skip(f"no asynchronous syncs here: {error.strerror}")
        done = syncs.start(file)
        syncs.close()
        assert done is not None
        assert done.result() is None

    asyncio.run(main())


def test_a_disk_needs_no_thread_for_a_few_files(syncs, tmp_path: Path) -> None:
    async def main() -> None:
        files = [disk.open(name, create=True) for name in "abc"]
        assert await disk.sync(files[:1]) == [None]
        assert await disk.sync(files[:2]) == [None] * 2
        assert threading.active_count() == before
        files[1].close()
        answers = await disk.sync(files[:2])
        assert [answer and answer.errno for answer in answers] == [None, errno.EBADF]
        assert await disk.sync(files[:1], [""]) == [None] * 2
        assert threading.active_count() > before

    before = threading.active_count()
    disk = FileDisk(tmp_path)
    asyncio.run(main())
    disk.close()


def test_threads_do_it_where_the_kernel_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> KernelSyncs:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(disk_module, "KernelSyncs", refuse)
    synced: list[int] = []
    monkeypatch.setattr(disk_module, "_sync_descriptor", synced.append)
    disk = FileDisk(tmp_path)
    file = disk.open("a", create=True)

    async def main() -> None:
        assert await disk.sync([file]) == [None]
        assert await disk.sync([file]) == [None]

    asyncio.run(main())
    disk.close()
    assert synced == [file.fileno()] * 2
