"""Ended connections are closed some at a time, in order; and all at once when the broker stops."""

import asyncio
import itertools

import pytest

from entrepot.core.clock import SystemClock
from entrepot.net.closings import Closings


@pytest.mark.parametrize(("is_hurried", "at_once"), [(False, 1), (True, 100)])
def test_in_order_and_in_turns(
    monkeypatch: pytest.MonkeyPatch, is_hurried: bool, at_once: int
) -> None:
    seconds = itertools.count()
    monkeypatch.setattr(SystemClock, "monotonic", lambda self: float(next(seconds)))
    closed: list[int] = []

    async def body() -> None:
        closings, loop = Closings(SystemClock()), asyncio.get_running_loop()
        for number in range(100):
            closings.add(loop, lambda number=number: closed.append(number))  # type: ignore[misc]
        if is_hurried:
            closings.hurry()
        assert not closed
        await asyncio.sleep(0)
        assert len(closed) == at_once
        for _ in range(100):
            await asyncio.sleep(0)
        closings.add(loop, lambda: closed.append(100))
        await asyncio.sleep(0)

    asyncio.run(body())
    assert closed == [*range(101)]
