"""What retention has removed, in words for the broker's log.

Retention by time counts the records' own timestamps, as in Kafka. So records that were written
with old timestamps, from an archive or a test, are gone within a minute: whoever wrote them is
told why.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import NamedTuple

from entrepot.log import layout

log = logging.getLogger("entrepot.log")

_LINES_MAX = 20  # Of one round over all partitions.


class Expired(NamedTuple):
    """What retention took out of a partition."""

    offset_first: int
    offset_end: int
    size: int
    newest_ms: int  # The timestamp of the newest record.
    # Some of it was written within half of the time that it should be kept: its timestamps are old.
    is_early: bool


class Report:
    """One round of retention over all partitions: a line for each of the first, then one for the
    others."""

    def __init__(self) -> None:
        self._lines = self._more = self._more_offsets = 0

    def add(self, directory: str, expired: Expired) -> None:
        count = expired.offset_end - expired.offset_first
        if self._lines == _LINES_MAX and not expired.is_early:
            self._more += 1
            self._more_offsets += count
            return
        name = directory.removeprefix(f"{layout.PARTITIONS}/")
        last = expired.offset_end - 1
        removed = f"{count} record{'' if count == 1 else 's'}, offsets {expired.offset_first}"
        removed += f" to {last}, {expired.size} bytes"
        if expired.is_early:
            log.warning(
                "%s: retention removes %s, although they were written not long ago: the newest has "
                "the timestamp %s, and retention.ms counts timestamps. Set retention.ms=-1 or "
                "message.timestamp.type=LogAppendTime to keep such records",
                name,
                removed,
                _time(expired.newest_ms),
            )
        else:
            self._lines += 1
            log.info("%s: retention removes %s", name, removed)

    def end(self) -> None:
        if self._more:
            log.info(
                "retention removes %d records of %d more partitions", self._more_offsets, self._more
            )


def _time(ms: int) -> str:
    try:
        return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="seconds")
    except (OverflowError, ValueError, OSError):
        return f"{ms} ms"  # No date: the producer made it up.
