"""Record: the only message the house knows."""

from typing import NamedTuple


class Record(NamedTuple):
    """What a producer says. A tuple, because millions of them are built a second."""

    key: bytes | None
    value: bytes | None  # None is a tombstone: on a compacted topic it deletes the key.
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1  # -1: not set; the batch builder is given the time.
    offset: int = -1  # -1: not in a log yet.
