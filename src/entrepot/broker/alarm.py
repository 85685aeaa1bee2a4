"""One timer for many deadlines: it rings for each when its time has come.

Thousands may come at once, as when a consumer's locks end: they have their turn, and then the
others, and then the rest of them.
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
        """Deadlines are of the clock that cannot jump."""
        return int(self._clock.monotonic() * 1_000)

    def arm(self) -> None:
        """After deadlines were set: be there for the earliest."""
        next_ms = self._deadlines.next_ms
        if next_ms is None or (self._timer is not None and self._timer_ms <= next_ms):
            return
        self.cancel()
        delay_ms = max(0, next_ms - self.now()) + 1  # Rounded down, `now` may be one short.
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
            except Exception as error:  # It is one group's, or one transaction's.
                self._faults.caught(f"the deadline of {key}", error)
            if self._clock.monotonic() >= until_s:
                break
        self.arm()
