"""One at a time: what is done in steps, and must not be begun by others meanwhile.

Unlike a lock it is entered without waiting when it is free, so whoever can be served at once is.
"""

from __future__ import annotations

import asyncio
from collections import deque


class OneAtATime:
    """By name. Who waits enters in the order in which they came."""

    def __init__(self) -> None:
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}  # Of names that are entered.

    def __contains__(self, name: str) -> bool:
        """Whether somebody is in there."""
        return name in self._waiting

    def enter(self, name: str) -> None:
        assert name not in self._waiting, name
        self._waiting[name] = deque()

    async def wait_and_enter(self, name: str) -> None:
        if name not in self._waiting:
            self.enter(name)
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[name].append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # It was let in, and is gone.
                self.leave(name)
            raise

    def leave(self, name: str) -> None:
        """Let the next one in."""
        waiting = self._waiting[name]
        while waiting:
            place = waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        del self._waiting[name]
