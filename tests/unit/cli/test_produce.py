"""Lines, from whatever standard input is."""

import asyncio
import os
from pathlib import Path

import pytest

from entrepot.cli.produce import read_lines


async def collect(descriptor: int) -> list[bytes]:
    return [line async for line in read_lines(descriptor)]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (b"", []),
        (b"\n", [b""]),
        (b"a\nb\n", [b"a", b"b"]),
        (b"a\r\nb", [b"a", b"b"]),
        (b"\n\nx", [b"", b"", b"x"]),
        (b"x" * 3_000_000 + b"\ny", [b"x" * 3_000_000, b"y"]),
    ],
)
def test_a_file(tmp_path: Path, text: bytes, lines: list[bytes]) -> None:
    path = tmp_path / "input"
    path.write_bytes(text)
    descriptor = os.open(path, os.O_RDONLY)
    assert asyncio.run(collect(descriptor)) == lines
    os.close(descriptor)


def test_a_pipe_gives_lines_as_they_come() -> None:
    async def work() -> None:
        reading, writing = os.pipe()
        lines = read_lines(reading)
        os.write(writing, b"first\nsec")
        assert await anext(lines) == b"first"
        second = asyncio.ensure_future(anext(lines))
        await asyncio.sleep(0.01)
        assert not second.done()
        os.write(writing, b"ond\n")
        assert await second == b"second"
        os.close(writing)
        with pytest.raises(StopAsyncIteration):
            await anext(lines)
        os.close(reading)

    asyncio.run(work())


def test_progress_counts_every_byte(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"0123456789\n" * 200_000)
    descriptor = os.open(path, os.O_RDONLY)
    sizes: list[int] = []

    async def work() -> int:
        return len([line async for line in read_lines(descriptor, sizes.append)])

    assert asyncio.run(work()) == 200_000
    assert sum(sizes) == path.stat().st_size
    os.close(descriptor)
