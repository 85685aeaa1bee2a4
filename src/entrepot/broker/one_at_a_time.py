"""Mutual exclusion by name, for work in steps.

Unlike an asyncio.Lock it can be entered without awaiting when it is free, so that a request
that can be served at once is.
"""

from __future__ import annotations

import asyncio
from collections import deque


class OneAtATime:
    """One holder for each name. Waiting ones enter in the order in which they came."""

    def __init__(self) -> None:
        # Name -> those who wait for it. A name that is held has an entry.
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def __contains__(self, name: str) -> bool:
        """Return whether the name is held."""
        return name in self._waiting

    def enter(self, name: str) -> None:
        """Take the name, which must be free."""
        assert name not in self._waiting, name
        self._waiting[name] = deque()

    async def wait_and_enter(self, name: str) -> None:
        """Take the name when it is free."""
        if name not in self._waiting:
            self.enter(name)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[name].append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # It got the name and was cancelled: pass it on.
                self.leave(name)
            raise

    def leave(self, name: str) -> None:
        """Release the name, or pass it to the next that waits."""
        waiting = self._waiting[name]
        while waiting:
            place = waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        del self._waiting[name]
