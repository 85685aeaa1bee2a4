"""Long work, a few milliseconds at a time.

Work in steps (`core.steps`) runs until its turn is over and then waits for its next one. In
each turn of the loop one of those that wait goes on, the one that waited longest: however
many ask for much at once, those who ask for little wait no longer than one turn. Who cancels
the waiting ends the work where it is.
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
    """One for each node."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: deque[asyncio.Future[None]] = deque()  # For their next turn.
        self._background: dict[asyncio.Future[None], None] = {}

    def begin(self, steps: Steps[T]) -> T | Awaitable[T]:
        """Take the first turn at once: the result, or an awaitable when that was not enough."""
        try:
            self._take(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        return self._go_on(steps)

    async def run(self, steps: Steps[T]) -> T:
        """Do all of it, a turn at a time."""
        result = self.begin(steps)
        return await result if isinstance(result, Awaitable) else result

    def start(self, steps: Steps[None]) -> None:
        """Do it in the background, beginning now. It goes on whoever asked for it."""
        result = self.begin(steps)
        if isinstance(result, Awaitable):
            self._keep(result)

    def start_each(self, calls: Sequence[Callable[[], None]]) -> None:
        """Call them in the background, some in each turn, beginning now: what each of them sets
        in motion takes longer than the call itself."""
        for call in calls[: limits.CHANGES_AT_ONCE_MAX]:
            call()
        if len(calls) > limits.CHANGES_AT_ONCE_MAX:
            self._keep(self._call_rest(calls))

    async def _call_rest(self, calls: Sequence[Callable[[], None]]) -> None:
        for some in parts(calls[limits.CHANGES_AT_ONCE_MAX :], limits.CHANGES_AT_ONCE_MAX):
            await self.next()
            for call in some:
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
        """One turn. Raises StopIteration when the work is done."""
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
        """Let the one go on that waited longest. Those that were cancelled are passed over."""
        while self._waiting:
            waiting = self._waiting[0]
            if not waiting.done():
                waiting.set_result(None)
                break
            self._waiting.popleft()
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._wake)


async def gathered(works: Iterable[Awaitable[T]]) -> list[T]:
    """Wait for all: so many at once that one commit serves many, and so few that it is soon
    over. They are made when their time comes."""
    results: list[T] = []
    for some in parts(works, limits.CHANGES_AT_ONCE_MAX):
        results += await asyncio.gather(*some)
    return results
