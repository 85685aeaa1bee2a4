"""Long work, a few milliseconds at a time: counted in turns of the loop, not in time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from entrepot.broker.turns import Turns, gathered
from entrepot.core import limits
from entrepot.core.steps import Steps

STEPS_A_TURN = 4


class TickingClock:
    """Each look at it takes a while, so that a turn has so many steps."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def now_ms(self) -> int:
        return int(self._now_s * 1_000)

    def monotonic(self) -> float:
        self._now_s += limits.TURN_MS / 1_000 / STEPS_A_TURN
        return self._now_s


def counting(count: int, done: list[int]) -> Steps[int]:
    for number in range(count):
        done.append(number)
        yield
    return count


def run(body: Callable[[Turns], Coroutine[Any, Any, None]]) -> None:
    """On the real loop, whose turns are what is counted."""
    asyncio.run(body(Turns(TickingClock())))


def test_short_work_is_done_at_once() -> None:
    async def body(turns: Turns) -> None:
        assert turns.begin(counting(3, [])) == 3

    run(body)


def test_others_have_their_turn_in_between() -> None:
    async def body(turns: Turns) -> None:
        done: list[int] = []
        seen: list[int] = []

        def look() -> None:
            seen.append(len(done))
            if len(done) < 20:
                asyncio.get_running_loop().call_soon(look)

        look()
        assert await turns.run(counting(20, done)) == 20
        assert max(after - before for before, after in pairwise(seen)) <= 5
        assert len(seen) >= 20 // STEPS_A_TURN

    run(body)


def test_of_many_that_wait_one_goes_on_in_each_turn_of_the_loop() -> None:
    async def body(turns: Turns) -> None:
        works: list[list[int]] = [[] for _ in range(5)]
        tasks = [asyncio.ensure_future(turns.run(counting(40, each))) for each in works]
        await asyncio.sleep(0)  # All have had their first turn.
        total, steps = sum(map(len, works)), []
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            now = sum(map(len, works))
            steps.append(now - total)
            total = now
        assert max(steps) <= STEPS_A_TURN + 1
        assert [task.result() for task in tasks] == [40] * 5

    run(body)


def test_work_that_is_cancelled_ends_where_it_is() -> None:
    async def body(turns: Turns) -> None:
        done: list[int] = []
        others: list[int] = []
        closed = False

        def work() -> Steps[None]:
            nonlocal closed
            try:
                yield from counting(1_000, done)
            finally:
                closed = True

        task = asyncio.ensure_future(turns.run(work()))
        other = asyncio.ensure_future(turns.run(counting(50, others)))
        await asyncio.sleep(0)
        assert done
        task.cancel()
        await other
        assert closed
        assert len(done) < 20

    run(body)


def test_what_goes_wrong_is_raised_whenever_it_does() -> None:
    async def body(turns: Turns) -> None:
        def work() -> Steps[None]:
            yield from counting(10, [])
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await turns.run(work())

    run(body)


def test_in_the_background() -> None:
    async def body(turns: Turns) -> None:
        done: list[int] = []

        def work() -> Steps[None]:
            yield from counting(10, done)

        turns.start(work())
        assert 0 < len(done) < 10
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(done) == 10

    run(body)


def test_many_changes_are_begun_some_at_a_time() -> None:
    async def main() -> None:
        running = most = 0

        async def change(number: int) -> int:
            nonlocal running, most
            running += 1
            most = max(most, running)
            await asyncio.sleep(0)
            running -= 1
            return number

        works: list[Awaitable[int]] = [change(number) for number in range(250)]
        assert await gathered(works) == list(range(250))
        assert most == limits.CHANGES_AT_ONCE_MAX

    asyncio.run(main())


def test_what_many_calls_set_in_motion_is_spread_over_turns() -> None:
    async def body(turns: Turns) -> None:
        called: list[int] = []
        count = 3 * limits.CHANGES_AT_ONCE_MAX - 10
        turns.start_each([partial(called.append, number) for number in range(count)])
        seen = [len(called)]
        for _ in range(20):
            await asyncio.sleep(0)
            seen.append(len(called))
        assert called == list(range(count))
        most = limits.CHANGES_AT_ONCE_MAX
        assert seen[0] == most
        assert max(after - before for before, after in pairwise(seen)) == most

    run(body)


def test_so_many_requests_begin_in_an_iteration_of_the_loop_and_others_when_it_is_their_turn() -> (
    None
):
    async def body(turns: Turns) -> None:
        begun: list[int] = []
        count = limits.REQUESTS_AT_ONCE_MAX + 20

        def ask(number: int) -> None:
            if turns.has_room():
                begun.append(number)
            else:
                turns.call_soon(partial(begun.append, number))

        for number in range(count):
            ask(number)
        seen = [len(begun)]
        assert seen == [limits.REQUESTS_AT_ONCE_MAX]
        await asyncio.sleep(0)
        ask(count)  # A new iteration, but others wait longer.
        while len(begun) <= count:
            seen.append(len(begun))
            await asyncio.sleep(0)
        assert begun == [*range(count + 1)]
        assert max(after - before for before, after in pairwise(seen)) <= STEPS_A_TURN + 1
        assert turns.has_room()

    run(body)


def test_what_is_for_the_end_of_an_iteration_comes_after_all_that_was_ready() -> None:
    async def body(turns: Turns) -> None:
        loop = asyncio.get_running_loop()
        seen: list[tuple[str, int]] = []

        def come(name: str) -> None:
            seen.append((name, turns.number()))
            if name != "third":
                turns.at_end(partial(end, name))

        def end(name: str) -> None:
            seen.append((f"end of {name}", turns.number()))
            if name == "first":
                turns.at_end(partial(end, "the end"))

        for name in ("first", "second", "third"):
            loop.call_soon(come, name)
        for _ in range(3):
            await asyncio.sleep(0)
        names, numbers = zip(*seen, strict=True)
        assert names == (
            *("first", "second", "third", "end of first", "end of second"),
            "end of the end",
        )
        first = numbers[0]
        assert numbers == (*[first] * 3, *[first + 1] * 2, first + 2)


def test_what_many_do_later_is_spread_over_turns_of_the_loop() -> None:
    async def body(turns: Turns) -> None:
        called: list[int] = []
        for number in range(20):
            turns.call_soon(partial(called.append, number))
        assert not called
        counts = []
        while len(called) < 20:
            await asyncio.sleep(0)
            counts.append(len(called))
        assert called == [*range(20)]
        assert max(after - before for before, after in pairwise([0, *counts])) <= STEPS_A_TURN + 1

    run(body)
