"""The output of a connection: collected here, and written once in a turn."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from entrepot.core.ports import Buffer, Link
from entrepot.gateway.outbox import joined


class Outbox:
    __slots__ = ("_chunks", "_is_closed", "_wake", "bytes_waiting", "link")

    def __init__(self, link: Link, wake: Callable[[], None]) -> None:
        """`wake` schedules a turn, which writes the outbox."""
        self.link = link
        self._wake = wake
        self._chunks: list[Buffer] = []
        self._is_closed = False
        self.bytes_waiting = 0

    @property
    def backlog(self) -> int:
        """Return how many bytes the operating system has not taken yet."""
        return self.bytes_waiting + self.link.backlog

    def send(self, chunk: Buffer) -> None:
        if not self._is_closed:
            chunks = self._chunks
            if not chunks:  # Otherwise a turn is scheduled already.
                self._wake()
            chunks.append(chunk)
            self.bytes_waiting += len(chunk)

    def send_all(self, chunks: Sequence[Buffer]) -> None:
        if not self._is_closed:
            if not self._chunks:
                self._wake()
            self._chunks += chunks
            self.bytes_waiting += sum(map(len, chunks))

    def take(self) -> list[Buffer]:
        """Remove and return all chunks, to be written now."""
        chunks, size = self._chunks, self.bytes_waiting
        self._chunks, self.bytes_waiting = [], 0
        return joined(chunks, size) if len(chunks) > 1 else chunks

    def close(self) -> None:
        """Ignore what is sent from now on."""
        self._is_closed = True
        self._wake = _do_nothing


def _do_nothing() -> None:
    """Stand for `wake`, which would refer to the connection."""
