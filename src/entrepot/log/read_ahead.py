"""Reads a file from front to back in large parts, for who asks for its small batches one by one.

A start after a crash looks at every batch several times; with a call of the system for each, that
is most of the time it takes.
"""

from __future__ import annotations

from entrepot.core import limits
from entrepot.core.ports import File

_WINDOW_BYTES = 256 * limits.KIB


class ReadAhead:
    """As much of `File` as it takes to read. What it has read must not be written meanwhile."""

    def __init__(self, file: File) -> None:
        self._file = file
        self._window, self._start = b"", 0

    @property
    def path(self) -> str:
        return self._file.path

    def read(self, position: int, size: int) -> bytes:
        """Return up to `size` bytes; fewer only at the end of the file. Raises OSError."""
        if size >= _WINDOW_BYTES:
            return self._file.read(position, size)
        at = position - self._start
        if not 0 <= at <= at + size <= len(self._window):
            self._window = self._file.read(position, _WINDOW_BYTES)
            self._start, at = position, 0
        return self._window[at : at + size]
