"""The wait of a fetch for more bytes than there are."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from entrepot.broker.served_partition import ServedPartition
from entrepot.core.ports import Clock
from entrepot.gateway.kafka.fetch_session import Key


class Wait:
    """The wait for more bytes, until one of the partitions has them or the time is over.

    A consumer of one partition waits many times a second, and nearly never until the time is over.
    So a wait that is over may leave its timer to the next one, which is as long: when it ends, it
    is set again for what is left.
    """

    __slots__ = ("_clock", "_end", "_listening", "_timer", "_until_s", "is_over", "size", "sizes")

    def __init__(self, clock: Clock, end: Callable[[], None]) -> None:
        self.is_over = True
        self.size = 0  # How many bytes the partitions have together.
        self.sizes: dict[Key, int] = {}  # How many each of them has.
        self._clock = clock
        self._end = end
        self._until_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._listening: list[ServedPartition] = []

    def begin(self, seconds: float) -> None:
        self.is_over = False
        self.size = 0
        self.sizes.clear()
        self._until_s = self._clock.monotonic() + seconds
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        if self.is_over:
            return
        left_s = self._until_s - self._clock.monotonic()
        if left_s <= 0:
            self._end()
        else:
            self._timer = asyncio.get_running_loop().call_later(left_s, self._ring)

    def listen(
        self, served: ServedPartition, moved: Callable[[], object], *, to_appends: bool = False
    ) -> None:
        """Call `moved` whenever the partition's high watermark moves, or after each append."""
        served.partition.listen(self, moved, to_appends=to_appends)
        self._listening.append(served)

    def cancel(self) -> None:
        """End the wait without an answer."""
        self.rest()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def rest(self) -> None:
        """End the wait, and leave the timer to the next one."""
        self.is_over = True
        for served in self._listening:
            served.partition.unlisten(self)
        self._listening.clear()
