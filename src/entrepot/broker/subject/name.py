"""Names of subjects: their two spellings, their levels, and what is allowed.

A name has levels. Some protocols write `/` between them (a *path*, `sensors/7/heat`), others `.`
(a *subject*, `sensors.7.heat`). The broker uses the second spelling. A level may contain the
other spelling's separator as an ordinary character: `v1.2/heat` has two levels. So the two
characters are swapped when a name changes its spelling: `v1/2.heat`. Nothing is lost by that,
both spellings have the same levels, and each side reads back what it wrote.

Empty levels count. Only the empty subject has no levels; a path is never empty.
"""

from __future__ import annotations

from collections.abc import Iterator

from entrepot.core import limits
from entrepot.core.errors import InvalidName

_SWAPPED = str.maketrans("/.", "./")


def swapped(text: str) -> str:
    """Return a name in the other spelling."""
    return text.translate(_SWAPPED)


def to_subject(path: str) -> str:
    """Return the subject of a path."""
    return path.translate(_SWAPPED)


def to_path(subject: str) -> str:
    """Return the path of a subject."""
    return subject.translate(_SWAPPED)


def levels_of(subject: str) -> list[str]:
    return subject.split(".") if subject else []


def check_path(path: str) -> None:
    """Raise InvalidName if nothing can be published on this path."""
    check_size(path)
    if "+" in path or "#" in path:
        raise InvalidName("a name has no wildcards")


def check_size(path: str) -> None:
    """Raise InvalidName if the path of a name or filter is empty, too long or too deep."""
    if not path:
        raise InvalidName("a name has at least one character")
    if "\0" in path:
        raise InvalidName("a name has no null character")
    if len(path) > limits.SUBJECT_BYTES_MAX // 4:
        size = len(path.encode("utf-8", "surrogateescape"))
        if size > limits.SUBJECT_BYTES_MAX:
            raise InvalidName(f"a name of {size} bytes; {limits.SUBJECT_BYTES_MAX} are allowed")
    if path.count("/") >= limits.SUBJECT_LEVELS_MAX:
        raise InvalidName(f"a name has at most {limits.SUBJECT_LEVELS_MAX} levels")


def landing_names(subject: str) -> Iterator[str]:
    """Yield the names of the queue or topic that a subject lands in; the first that exists counts.

    That is its own name in either spelling. Last comes the name with a `.` for each separator,
    which names of topics may have: whoever writes `orders.eu` as a path means the topic.
    """
    yield subject
    if "/" in subject or "." in subject:
        yield swapped(subject)
        yield subject.replace("/", ".")


def is_short(subject: str) -> bool:
    """Return whether every protocol can tell this name. Longer ones are for sessions only."""
    size = limits.NAME_BYTES_MAX
    return len(subject) <= size // 4 or len(subject.encode("utf-8", "surrogateescape")) <= size
