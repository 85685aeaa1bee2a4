"""What a connection is about to say: gathered, and written once for a turn.

While a block of input is worked through everything waits for its end. What comes up at other
times, as when a commit is through, is written when the loop has done what it was about to do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from entrepot.core.ports import Buffer, Link
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.method import Method


class Outbox:
    __slots__ = (
        "_after",
        "_before",
        "_chunks",
        "_is_woken",
        "_link",
        "bytes_waiting",
        "is_held",
        "writes",
    )

    def __init__(self, link: Link, before: Callable[[], None], after: Callable[[], None]) -> None:
        """Called before every write, for there may be something to add, and after it."""
        self._link = link
        self._before = before
        self._after = after
        self._chunks: list[Buffer] = []
        self._is_woken = False  # A write is about to come.
        self.bytes_waiting = 0
        self.is_held = False  # There is a turn, which writes at its end.
        self.writes = 0  # So far.

    @property
    def backlog(self) -> int:
        """Bytes that the system has not taken."""
        return self.bytes_waiting + self._link.backlog

    def method(self, channel: int, method: Method) -> None:
        self.send((method_frame(channel, method),))

    def send(self, chunks: Sequence[Buffer]) -> None:
        self._chunks += chunks
        self.bytes_waiting += sum(map(len, chunks))
        self.wake()

    def wake(self) -> None:
        """Write soon: at the end of the turn, or in the loop's next."""
        if not self.is_held and not self._is_woken:
            self._is_woken = True
            asyncio.get_running_loop().call_soon(self._link.guard, self._flush_once)

    def _flush_once(self) -> None:
        self._is_woken = False
        self.flush()

    def flush(self) -> None:
        self.is_held = True
        self._before()
        self.is_held = False
        if self._chunks:
            chunks, self._chunks, self.bytes_waiting = self._chunks, [], 0
            self.writes += 1
            self._link.send(chunks)
        self._after()
