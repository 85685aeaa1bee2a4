"""Record: what all messages are inside the broker, whatever the protocol."""

from typing import NamedTuple


class Record(NamedTuple):
    """A message. A tuple, because millions of them are built in a second."""

    key: bytes | None
    value: bytes | None  # None is a tombstone: on a compacted topic it deletes the key.
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int = -1  # -1 means: not set; then the batch's builder sets it.
    offset: int = -1  # -1 means: not in a log yet.
