"""How much memory the messages of memory lanes take. If it is too much, publishers must wait.

Above the limit the use counts as high, and it does so until it is below three quarters of the
limit, so that listeners are not called all the time.
"""

from __future__ import annotations

from collections.abc import Callable

from entrepot.core import limits


class MemoryUse:
    def __init__(self, bytes_max: int = limits.TRANSIENT_BYTES_MAX) -> None:
        self._bytes_high = bytes_max
        self._bytes_low = bytes_max // 4 * 3
        self._listeners: dict[object, Callable[[bool], None]] = {}
        self.size = 0  # Bytes, about.
        self.is_high = False

    @property
    def bytes_max(self) -> int:
        return self._bytes_high

    def listen(self, token: object, listener: Callable[[bool], None]) -> None:
        """Call `listener` whenever `is_high` changes, until `unlisten`."""
        self._listeners[token] = listener

    def unlisten(self, token: object) -> None:
        self._listeners.pop(token, None)

    def change(self, size: int) -> None:
        """Add `size` bytes, which may be negative."""
        self.size += size
        is_high = self.size > (self._bytes_low if self.is_high else self._bytes_high)
        if is_high is not self.is_high:
            self.is_high = is_high
            for listener in list(self._listeners.values()):
                listener(is_high)
