"""Closes connections in turns: when ten thousand end at once, nobody else waits for all of them.

What is to be done for an ended connection, also by its receiver, is added here. It is done in
order, for a few milliseconds in each iteration of the event loop.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from collections import deque
from collections.abc import Callable

from entrepot.core import limits
from entrepot.core.ports import Clock


class Closings:
    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._waiting: deque[Callable[[], None]] = deque()
        self._is_scheduled = False
        self._is_hurried = False

    def add(self, loop: AbstractEventLoop, close: Callable[[], None]) -> None:
        """Call this soon, not now: the caller may be what it closes. It must not fail."""
        self._waiting.append(close)
        if not self._is_scheduled:
            self._is_scheduled = True
            loop.call_soon(self._close_some, loop)

    def hurry(self) -> None:
        """Do all of it in the next iteration: the broker stops."""
        self._is_hurried = True

    def _close_some(self, loop: AbstractEventLoop) -> None:
        clock = self.clock
        until_s = clock.monotonic() + limits.TURN_MS / 1_000
        while self._waiting:
            self._waiting.popleft()()
            if clock.monotonic() >= until_s and not self._is_hurried:
                break
        self._is_scheduled = bool(self._waiting)
        if self._is_scheduled:
            loop.call_soon(self._close_some, loop)
