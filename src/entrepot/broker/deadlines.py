"""One heap of deadlines, for all groups or all transactions.

Nearly every deadline is moved before it comes: each heartbeat moves one. So moving it
later only notes the new time; the old entry of the heap finds it when it comes up.
An idle member costs a dictionary entry per heartbeat, and a heap entry per session.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


class Deadlines(Generic[K]):
    def __init__(self) -> None:
        self._when: dict[K, int] = {}
        self._queued: dict[K, int] = {}  # The key's entry in the heap; never after its deadline.
        self._heap: list[tuple[int, int, K]] = []
        self._serial = 0  # Keys are not compared: of equal times, the first set comes first.

    def set(self, key: K, when_ms: int) -> None:
        self._when[key] = when_ms
        queued = self._queued.get(key)
        if queued is None or when_ms < queued:
            self._push(key, when_ms)

    def cancel(self, key: K) -> None:
        self._when.pop(key, None)

    def get(self, key: K) -> int | None:
        return self._when.get(key)

    @property
    def next_ms(self) -> int | None:
        """When to look again; nothing is due before."""
        return self._heap[0][0] if self._heap else None

    def due(self, now_ms: int) -> list[K]:
        """Those whose time has come, earliest first; they are gone from here."""
        return list(iter(lambda: self.pop_due(now_ms), None))

    def pop_due(self, now_ms: int) -> K | None:
        """The earliest whose time has come; it is gone from here."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, key = heapq.heappop(self._heap)
            if self._queued.get(key) != queued_ms:
                continue  # An earlier entry took its place.
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
