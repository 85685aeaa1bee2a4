"""Deadlines by key, in one heap: for all groups, or all transactions.

Nearly every deadline is moved before it comes: each heartbeat moves one. So moving it later
only stores the new time, and the entry in the heap is corrected when it comes up. An idle
member costs a dictionary update per heartbeat, and a heap entry per session timeout.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._when: dict[K, int] = {}
        # Time of the key's entry in the heap; never after its deadline.
        self._queued: dict[K, int] = {}
        self._heap: list[tuple[int, int, K]] = []
        self._serial = 0  # Orders equal times, so that keys are not compared.

    def set(self, key: K, when_ms: int) -> None:
        self._when[key] = when_ms
        queued = self._queued.get(key)
        if queued is None or when_ms < queued:
            self._push(key, when_ms)

    def cancel(self, key: K) -> None:
        self._when.pop(key, None)

    def cancel_all(self, is_meant: Callable[[K], bool]) -> None:
        """Cancel the deadlines of all keys that are meant."""
        for key in [key for key in self._when if is_meant(key)]:
            del self._when[key]

    def get(self, key: K) -> int | None:
        return self._when.get(key)

    @property
    def next_ms(self) -> int | None:
        """Return when `due` should be called next, in ms; nothing is due before."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[K]:
        """Remove and return the keys whose time has come, earliest first."""
        return list(iter(lambda: self.pop_due(now_ms), None))

    def pop_due(self, now_ms: int) -> K | None:
        """Remove and return the key whose time came first, if any has come."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue  # Another entry of the key replaced it.
            del self._queued[key]
            when_ms = self._when.get(key)
            if when_ms is not None and when_ms <= now_ms:
                del self._when[key]
                return key
            if when_ms is not None:
                self._push(key, when_ms)
        return None

    def _push(self, key: K, when_ms: int) -> None:
        self._queued[key] = when_ms
        self._serial += 1
        heapq.heappush(self._heap, (when_ms, self._serial, key))
