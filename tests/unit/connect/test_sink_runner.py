"""Handfuls: how many records a sink is given at once."""

import asyncio
from collections.abc import Iterator
from typing import Any, cast

from entrepot.client.reader import Message, Reader
from entrepot.connect.interface import Sink
from entrepot.connect.settings import Batch, Settings
from entrepot.connect.sink_runner import Intake
from tests.unit.connect.alone import PART, message


class Pages:
    """A reader that has these records, a page at a time."""

    def __init__(self, *pages: list[bytes]) -> None:
        self.positions = {PART: 0}
        self.polls = 0
        self._pages = list(pages)

    async def poll(self, wait_ms: int) -> Iterator[Message]:
        self.polls += 1
        if not self._pages:
            await asyncio.sleep(wait_ms / 1000)
        return self._take(self._pages.pop(0) if self._pages else [])

    def _take(self, page: list[bytes]) -> Iterator[Message]:
        for value in page:
            self.positions[PART] += 1
            yield message(self.positions[PART] - 1, value)


def gathered(pages: Pages, ends: dict[Any, int] | None, **batch: Any) -> list[list[int]]:
    settings = Settings("n", "x", topic="t", batch=Batch(**{"wait_ms": 30, **batch}))

    async def work() -> list[list[int]]:
        intake = Intake(cast(Reader, pages), settings, cast(Sink, Sink), ends, asyncio.Event())
        found = []
        while not intake.is_done():
            taken = await intake.gather()
            # What was not taken was not passed.
            assert intake.positions[PART] == sum(map(len, found)) + len(taken)
            found.append([each.record.offset for each in taken])
        return found

    return asyncio.run(work())


def test_a_page_is_divided() -> None:
    pages = Pages([b"x"] * 5)
    assert gathered(pages, {PART: 5}, records=2) == [[0, 1], [2, 3], [4]]
    assert pages.polls == 1


def test_pages_are_joined_while_there_is_time() -> None:
    pages = Pages([b"x"], [b"x"], [b"x"])
    assert gathered(pages, {PART: 3}, records=10) == [[0, 1, 2]]


def test_bytes_are_a_bound_too() -> None:
    pages = Pages([b"x" * 10] * 4)
    assert gathered(pages, {PART: 4}, records=10, bytes=15) == [[0, 1], [2, 3]]
