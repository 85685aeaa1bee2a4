"""What just happened: the last lines of the broker's log, for the page that shows them.

A handler of the log keeps the newest lines at level INFO and above, as text, and numbers them. A
worker's thread may log, too, so nothing is sent from here: whoever watches asks for the lines
after a number.
"""

from __future__ import annotations

import logging
from collections import deque
from itertools import takewhile
from typing import NamedTuple

from entrepot.wire.http import limits as http_limits

_PART = "entrepot."


class Line(NamedTuple):
    number: int
    time_ms: int
    level: str  # "info", "warning", "error".
    part: str  # Of the broker that says it.
    text: str


class Feed(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._lines: deque[Line] = deque(maxlen=http_limits.WATCH_TEXTS_MAX)
        self._count = 0

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
        except Exception:
            self.handleError(record)
            return
        level = "error" if record.levelno >= logging.ERROR else record.levelname.lower()
        self.add(round(record.created * 1_000), level, record.name.removeprefix(_PART), text)

    def add(self, time_ms: int, level: str, part: str, text: str) -> None:
        self._count += 1
        cut = text[: http_limits.WATCH_TEXT_CHARACTERS_MAX]
        readable = cut.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
        self._lines.append(Line(self._count, time_ms, level, part, readable))

    def after(self, number: int) -> list[Line]:
        """Return the lines with higher numbers, the oldest first; not more than are kept."""
        lines = tuple(self._lines)
        return list(takewhile(lambda line: line.number > number, reversed(lines)))[::-1]
