"""A timer that calls an action at a time; if it is set to several times, at the earliest.

The system's clock may be changed meanwhile: so the timer waits for an hour at most, and then looks
whether it is time. The time of very many timers may come at once: then their actions are called in
turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from entrepot.broker.ledger import NEVER
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.ports import Clock


class Timer:
    __slots__ = ("_action", "_clock", "_handle", "_is_due", "_turns", "_when_ms")

    def __init__(self, clock: Clock, turns: Turns, action: Callable[[], None]) -> None:
        self._clock = clock
        self._turns = turns
        self._action = action
        self._is_due = False  # The action is called when it is its turn.
        self._handle: asyncio.TimerHandle | None = None
        self._when_ms = NEVER

    def set(self, when_ms: int) -> None:
        """Call the action at that time, unless the timer is already set to an earlier one."""
        if when_ms < self._when_ms:
            self.stop()
            self._when_ms = when_ms
            wait_ms = min(max(0, when_ms - self._clock.now_ms()), limits.QUEUE_TIMER_MS_MAX)
            self._handle = asyncio.get_running_loop().call_later(wait_ms / 1_000, self._ring)

    def stop(self) -> None:
        self._when_ms = NEVER
        self._is_due = False
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _ring(self) -> None:
        when_ms = self._when_ms
        self.stop()
        if when_ms > self._clock.now_ms():
            self.set(when_ms)
        else:
            self._is_due = True
            self._turns.call(self._act)

    def _act(self) -> None:
        if self._is_due:
            self._is_due = False
            self._action()
