"""The output of a connection: collected here, and written once in a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from entrepot.core.ports import Buffer, Link

_SMALL_BYTES = 1_024  # To copy chunks of this average costs less than to pass them one by one.


class Outbox:
    __slots__ = ("_chunks", "_link", "_wake", "bytes_waiting")

    def __init__(self, link: Link, wake: Callable[[], None]) -> None:
        """`wake` schedules a turn, which writes the outbox."""
        self._link = link
        self._wake = wake
        self._chunks: list[Buffer] = []
        self.bytes_waiting = 0

    @property
    def backlog(self) -> int:
        """Return how many bytes the operating system has not taken yet."""
        return self.bytes_waiting + self._link.backlog

    def send(self, chunks: Sequence[Buffer]) -> None:
        self._chunks += chunks
        if len(chunks) == 1:  # Mostly.
            self.bytes_waiting += len(chunks[0])
        else:
            self.bytes_waiting += sum(map(len, chunks))
        self._wake()

    def take(self) -> list[Buffer]:
        """Remove and return all chunks, to be written now."""
        chunks, size = self._chunks, self.bytes_waiting
        self._chunks, self.bytes_waiting = [], 0
        return joined(chunks, size) if len(chunks) > 1 else chunks


def joined(chunks: list[Buffer], size: int) -> list[Buffer]:
    """Return the chunks of that size together; as one, if they are small."""
    return [b"".join(chunks)] if size <= _SMALL_BYTES * len(chunks) else chunks
