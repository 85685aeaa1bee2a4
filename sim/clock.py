"""A clock that shows the simulated loop's time.

Wall time can be made to jump, monotonic time cannot: that is the difference code
has to survive.
"""

from asyncio import AbstractEventLoop

START_MS = 1_750_000_000_000  # Any date will do, as long as every run has the same.


class SimClock:
    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self.offset_ms = START_MS  # Wall time is this far ahead of the loop's.

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000) + self.offset_ms

    def monotonic(self) -> float:
        return self._loop.time()

    def jump(self, milliseconds: int) -> None:
        """Somebody set the clock: forwards, or backwards when negative."""
        self.offset_ms += milliseconds
