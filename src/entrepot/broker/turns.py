"""Runs long work in turns of a few milliseconds, so that short requests do not wait for it.

Work in steps (`core.steps`) runs until its turn is over and then waits for its next one. In
each iteration of the event loop one waiting piece of work goes on, the one that waited longest:
however many long requests there are, a short one waits for one turn at most. Cancelling the
awaitable ends the work where it is.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from entrepot.core import limits
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps, parts

T = TypeVar("T")


class Turns:
    """The turns of a node. A node has one such object."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # One for each piece of work that waits for its next turn, in order.
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._background: dict[asyncio.Future[None], None] = {}
        self._calls: deque[Callable[[], None]] = deque()
        self._is_calling = False  # Whether `_call_waiting` comes in the next iteration.
        self._number = 1  # Of this iteration, if anybody has asked for it.
        self._is_ending = False  # Whether `_end` comes at the end of this iteration,
        self._at_end: list[Callable[[], None]] = []  # and what it calls.
        self.spent = 0  # In this iteration; see `spend`.
        self._begun = 0  # Also in this iteration; see `has_room`.

    def begin(self, steps: Steps[T]) -> T | Awaitable[T]:
        """Run the first turn now. Return the result, or an awaitable when more turns are needed."""
        try:
            self._take(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        return self._go_on(steps)

    async def run(self, steps: Steps[T]) -> T:
        """Run all steps, in turns."""
        result = self.begin(steps)
        return await result if isinstance(result, Awaitable) else result

    def start(self, steps: Steps[None]) -> None:
        """Run all steps in the background; the first turn is now."""
        result = self.begin(steps)
        if isinstance(result, Awaitable):
            self._keep(result)

    def start_each(self, calls: Sequence[Callable[[], None]]) -> None:
        """Call these in the background, CHANGES_AT_ONCE_MAX in each turn, the first now.

        For calls that cause more work than they take themselves.
        """
        for call in calls[: limits.CHANGES_AT_ONCE_MAX]:
            call()
        if len(calls) > limits.CHANGES_AT_ONCE_MAX:
            self._keep(self._call_rest(calls))

    async def _call_rest(self, calls: Sequence[Callable[[], None]]) -> None:
        for some in parts(calls[limits.CHANGES_AT_ONCE_MAX :], limits.CHANGES_AT_ONCE_MAX):
            await self.next()
            for call in some:
                call()

    def call(self, action: Callable[[], None]) -> None:
        """Call this now; or in one of the next iterations, if others were called in this one.

        For what may come for very many at the same time, as the end of a time to live.
        """
        if self._is_calling:
            self._calls.append(action)
            return
        self._is_calling = True
        asyncio.get_running_loop().call_soon(self._call_waiting)
        action()

    def call_soon(self, action: Callable[[], None]) -> None:
        """Call this in one of the next iterations, for what very many may do at the same time."""
        self._calls.append(action)
        if not self._is_calling:
            self._is_calling = True
            asyncio.get_running_loop().call_soon(self._call_waiting)

    def has_room(self) -> bool:
        """Return whether one more request may begin in this iteration of the loop, and count it.

        If not, too many clients ask at the same time, and it is to begin with `call_soon`. Requests
        that take less need not ask: so they do not wait for all the others.
        """
        self.number()
        self._begun += 1
        return self._begun <= limits.REQUESTS_AT_ONCE_MAX and not self._calls

    def _call_waiting(self) -> None:
        clock = self._clock
        until_s = clock.monotonic() + limits.TURN_MS / 1_000
        try:
            for _ in range(len(self._calls)):  # What these cause comes in the next iteration.
                self._calls.popleft()()
                if clock.monotonic() >= until_s:
                    break
        finally:
            self._is_calling = bool(self._calls)
            if self._calls:
                asyncio.get_running_loop().call_soon(self._call_waiting)

    def number(self) -> int:
        """Return a number that is the same all through an iteration of the loop, and then
        greater."""
        if not self._is_ending:
            self._is_ending = True
            asyncio.get_running_loop().call_soon(self._end)
        return self._number

    def spend(self, cost: int) -> None:
        """Add to `spent`: how much was done in this iteration of the loop of what is bounded for
        all together, however many do a little of it."""
        self.number()
        self.spent += cost

    def at_end(self, call: Callable[[], None]) -> None:
        """Call this when all is done that is ready in this iteration of the loop.

        The loop is asked once for all who want it: with hundreds of queues that get a message
        each, that is cheaper than one callback for each. What is called must not raise.
        """
        self._at_end.append(call)
        if not self._is_ending:
            self._is_ending = True
            asyncio.get_running_loop().call_soon(self._end)

    def _end(self) -> None:
        self._is_ending = False
        self._number += 1
        self.spent = self._begun = 0
        calls, self._at_end = self._at_end, []
        for call in calls:
            call()

    def _keep(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._background[task] = None
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Future[None]) -> None:
        del self._background[task]
        if not task.cancelled():
            task.result()

    def _take(self, steps: Steps[T]) -> None:
        """Run one turn. Raises StopIteration when the work is done."""
        clock = self._clock
        until_s = clock.monotonic() + limits.TURN_MS / 1_000
        while True:
            next(steps)
            if clock.monotonic() >= until_s:
                return

    async def _go_on(self, steps: Steps[T]) -> T:
        try:
            while True:
                await self.next()
                self._take(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        finally:
            steps.close()

    def next(self) -> Awaitable[None]:
        """Wait for the next turn."""
        loop = asyncio.get_running_loop()
        waiting = loop.create_future()
        self._waiting.append(waiting)
        if len(self._waiting) == 1:
            loop.call_soon(self._wake)
        return waiting

    def _wake(self) -> None:
        """Resume the work that waited longest. Cancelled ones are skipped."""
        while self._waiting:
            waiting = self._waiting[0]
            if not waiting.done():
                waiting.set_result(None)
                break
            self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._wake)


async def gathered(works: Iterable[Awaitable[T]]) -> list[T]:
    """Await all, CHANGES_AT_ONCE_MAX at a time: many share a commit, and each wait is short.

    Each awaitable is taken from `works` only when its time comes.
    """
    results: list[T] = []
    for some in parts(works, limits.CHANGES_AT_ONCE_MAX):
        results += await asyncio.gather(*some)
    return results
