"""The output of a connection: collected here, and written once in a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from entrepot.core.ports import Buffer, Link

_JOINED_BYTES_MAX = 4_096  # Copying so little costs less than passing the system several pieces.


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
        """Remove and return all chunks, to be written now; as one, if they are small."""
        chunks, size = self._chunks, self.bytes_waiting
        self._chunks, self.bytes_waiting = [], 0
        if len(chunks) > 1 and size <= _JOINED_BYTES_MAX:
            return [b"".join(chunks)]
        return chunks
