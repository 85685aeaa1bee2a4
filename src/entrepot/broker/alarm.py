"""One timer for many deadlines: it calls back for each key when its time has come.

Thousands of deadlines may come at once, as when a consumer's locks end. Some are handled in each
turn of the loop, so that other requests do not wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic

from entrepot.broker.deadlines import Deadlines, K
from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.ports import Clock


class Alarm(Generic[K]):
    def __init__(
        self, clock: Clock, deadlines: Deadlines[K], ring: Callable[[K], None], faults: Faults
    ) -> None:
        self._faults = faults
        self._clock = clock
        self._deadlines = deadlines
        self._ring = ring
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def now(self) -> int:
        """Return the monotonic time in ms, which deadlines are in."""
        return int(self._clock.monotonic() * 1_000)

    def arm(self) -> None:
        """Set the timer for the earliest deadline. Called after deadlines were set."""
        next_ms = self._deadlines.next_ms
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        self.cancel()
        # `now` is rounded down, so it may be one short.
        delay_ms = max(0, next_ms - self.now()) + 1
        self._timer_ms = next_ms
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._ring_all)

    def cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _ring_all(self) -> None:
        self._timer = None
        now_ms, until_s = self.now(), self._clock.monotonic() + limits.TURN_MS / 1_000
        while (key := self._deadlines.pop_due(now_ms)) is not None:
            try:
                self._ring(key)
            except Exception as error:  # It affects one group or one transaction only.
                self._faults.caught(f"the deadline of {key}", error)
            if self._clock.monotonic() >= until_s:
                break
        self.arm()
