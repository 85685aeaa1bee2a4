"""The length limit of a queue: which messages it refuses, or how many it drops from its head.

Only ready messages count. Messages that consumers have room for are delivered at once, so they
are never too many.
"""

from __future__ import annotations

from collections.abc import Sequence

from entrepot.broker.queue.settings import QueueSettings, WhenFull
from entrepot.core.message import Message


class LengthLimit:
    def __init__(self, settings: QueueSettings) -> None:
        self._length_max = settings.length_max
        self._bytes_max = settings.length_bytes_max
        is_limited = self._length_max is not None or self._bytes_max is not None
        self.refuses = is_limited and settings.when_full is not WhenFull.DROP_OLDEST
        self.drops = is_limited and settings.when_full is WhenFull.DROP_OLDEST
        self.counts_bytes = self._bytes_max is not None

    def excess(self, ready_count: int) -> int:
        """Return how many messages are too many."""
        return 0 if self._length_max is None else max(0, ready_count - self._length_max)

    def is_too_large(self, ready_bytes: int) -> bool:
        return self._bytes_max is not None and ready_bytes > self._bytes_max

    def refused(
        self, messages: Sequence[Message], waiting: int, waiting_bytes: int, room: int
    ) -> Sequence[int]:
        """Return the places of the messages that exceed the limit.

        `waiting` messages of `waiting_bytes` come before them; consumers have room for `room`.
        """
        passing = max(0, room - waiting)
        waiting = max(0, waiting - room)
        if self._bytes_max is None:
            assert self._length_max is not None
            return range(len(messages))[max(0, passing + self._length_max - waiting) :]
        places: list[int] = []
        if passing:
            waiting_bytes = 0
        for place in range(passing, len(messages)):
            size = len(messages[place][1])
            is_too_long = self._length_max is not None and waiting >= self._length_max
            if is_too_long or waiting_bytes + size > self._bytes_max:
                places.append(place)
            else:
                waiting += 1
                waiting_bytes += size
        return places
