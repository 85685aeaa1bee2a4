"""What is refused, and where things end."""

from __future__ import annotations

VALUE_BYTES_MAX = 256 * 1024  # Of a message that is converted, and of what it becomes.
SCHEMA_BYTES_MAX = 64 * 1024
DEPTH_MAX = 32
NODES_MAX = 100_000  # Values in a document, all levels together.
FORMATS_MAX = 1_000
RULES_MAX = 1_000


class Refused(ValueError):
    """A format, a rule or a message that is not as it should be. The text says why."""


def check_size(data: bytes, size_max: int = VALUE_BYTES_MAX) -> None:
    if len(data) > size_max:
        raise Refused(f"{len(data)} bytes are more than {size_max}")


def check_document(document: object) -> None:
    """Refuse what is nested too deep, or has too many values. Needs no recursion itself."""
    level: list[object] = [document]
    count = 0
    for _ in range(DEPTH_MAX):
        below: list[object] = []
        for each in level:
            if isinstance(each, dict):
                below.extend(each.values())
            elif isinstance(each, list):
                below.extend(each)
        count += len(below)
        if count > NODES_MAX:
            raise Refused(f"more than {NODES_MAX} values")
        if not below:
            return
        level = below
    raise Refused(f"nested deeper than {DEPTH_MAX}")


def encoded(text: str) -> bytes:
    """Return a text as UTF-8, within the bounds."""
    try:
        data = text.encode()
    except UnicodeEncodeError:
        raise Refused("half a character") from None
    check_size(data)
    return data
