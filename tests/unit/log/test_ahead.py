"""A large batch that is written before it is appended, and what may happen meanwhile."""

import asyncio
import errno

import pytest

from entrepot.core import batch, limits
from entrepot.core.ports import Buffer
from entrepot.log import ahead
from entrepot.log.policy import Policy
from tests.unit.log.bed import Bed, make, simulated

LARGE = bytes(range(256)) * 4


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ahead, "SLICE_BYTES", 100)


def large() -> list[Buffer]:
    """A batch in chunks, as the broker's own are."""
    data = make(LARGE)
    return [data[: batch.HEADER_BYTES], data[batch.HEADER_BYTES :]]


async def ahead_of(bed: Bed, chunks: list[Buffer]) -> None:
    await bed.do(bed.log.write_ahead(bed["t"], chunks))


def append(bed: Bed, chunks: list[Buffer]) -> int:
    return bed.call(bed.log.append, bed["t"], [(batch.read_header(chunks[0]), chunks)])


def file_of(bed: Bed, number: int = -1) -> bytes:
    return bed.read_file(bed["t"].segments[number].path)


@simulated
async def test_it_is_there_once_it_is_appended(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    chunks, size = large(), bed["t"].size
    await ahead_of(bed, chunks)
    assert (bed["t"].size, bed.values("t")) == (size, [b"a"])
    assert len(file_of(bed)) == size + sum(map(len, chunks))
    written: list[int] = []
    file = bed["t"]._ahead.file  # type: ignore[union-attr]
    write = type(file).write
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            type(file),
            "write",
            lambda own, at, some: written.append(sum(map(len, some))) or write(own, at, some),
        )
        assert append(bed, chunks) == 1
    assert written[0] == batch.HEADER_BYTES
    await bed.committed()
    await bed.write("t", b"b")
    assert bed.values("t") == [b"a", LARGE, b"b"]


@simulated
async def test_others_have_their_turn(bed: Bed) -> None:
    await bed.start("t")
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.ensure_future(count())
    await ahead_of(bed, large())
    counting.cancel()
    assert turns > len(LARGE) // 100 - 1


@simulated
async def test_another_append_comes_first(bed: Bed) -> None:
    await bed.start("t")
    chunks = large()
    writing = asyncio.ensure_future(ahead_of(bed, chunks))
    for _ in range(5):
        await asyncio.sleep(0)
    bed.append("t", make(b"a"))
    await writing
    assert len(file_of(bed)) == bed["t"].size == len(make(b"a"))
    append(bed, chunks)
    await bed.committed()
    assert bed.values("t") == [b"a", LARGE]


@simulated
async def test_the_segment_is_closed_meanwhile(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    chunks = large()
    await ahead_of(bed, chunks)
    bed.call(bed["t"].roll)
    assert len(file_of(bed, 0)) == len(make(b"a"))
    append(bed, chunks)
    await bed.committed()
    assert bed.values("t") == [b"a", LARGE]


@simulated
async def test_one_that_does_not_fit_has_a_segment_of_its_own(bed: Bed) -> None:
    await bed.start("t", policy=Policy(segment_bytes=500))
    await bed.write("t", b"a")
    chunks = large()
    await ahead_of(bed, chunks)
    append(bed, chunks)
    await bed.committed()
    assert [segment.offset_base for segment in bed["t"].segments] == [0, 1]
    assert bed.values("t") == [b"a", LARGE]


@simulated
async def test_a_crash_takes_it(bed: Bed, seed: int) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    writing = asyncio.ensure_future(ahead_of(bed, large()))
    for _ in range(seed):
        await asyncio.sleep(0)
    bed.append("t", make(b"b"))
    await bed.committed()
    writing.cancel()
    await ahead_of(bed, large())
    (bed.kill if seed % 2 else bed.crash)()
    await bed.start("t")
    assert bed.values("t") == [b"a", b"b"]
    await bed.write("t", b"c")
    assert bed.values("t") == [b"a", b"b", b"c"]


@simulated
async def test_a_clean_stop_takes_it(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    await ahead_of(bed, large())
    size, path = bed["t"].size, bed["t"].segments[0].path
    await bed.stop()
    assert len(bed.read_file(path)) == size
    await bed.start("t")
    await bed.write("t", b"b")
    assert bed.values("t") == [b"a", b"b"]


@simulated
async def test_a_full_disk_is_the_appends_to_tell(bed: Bed) -> None:
    await bed.start("t")
    await bed.write("t", b"a")
    chunks = large()
    with pytest.MonkeyPatch.context() as patch:

        def refuse(*_: object) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        patch.setattr(ahead, "write_all", refuse)
        await ahead_of(bed, chunks)
    assert len(file_of(bed)) == bed["t"].size
    append(bed, chunks)
    await bed.committed()
    assert bed.values("t") == [b"a", LARGE]


@simulated
async def test_the_journal_has_no_copy_of_it(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "JOURNAL_PARTITION_BYTES_MAX", 500)
    names = [f"t{number}" for number in range(limits.SEGMENTS_SYNCED_DIRECTLY_MAX + 2)]
    await bed.start(*names, "large")
    for name in names:
        bed.append(name, make(b"a"))
    bed.append("large", make(LARGE))
    assert bed["large"].uncommitted_bytes == len(make(LARGE))
    await bed.committed()
    assert bed.log.committer.rounds_journaled == 1
    assert bed["large"].offset_journaled == 0
    assert bed["large"].offset_synced == 1
    assert bed["large"].uncommitted_bytes == 0
    assert bed.values("large") == [LARGE]
