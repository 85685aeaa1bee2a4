"""Filters: patterns of names, as levels and wildcards.

Two notations are known. A *path filter* has `/` between levels, `+` for one level, and at its
end `#` for any number of levels, also none. A *pattern* has `.` between levels, `*` for one, and
`#` for any number wherever it stands. Both become the same: a tuple of levels in the spelling of
subjects, with `Wildcard` where one stands. So a level that is a lone `*` in a path is a level
like any other, and so is `+` in a pattern.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, TypeAlias

from entrepot.broker.subject.name import check_size, levels_of, to_subject
from entrepot.core.errors import InvalidName

SHARED = "$share/"
QUEUE = "$queue/"


class Wildcard(Enum):
    ONE = "one"  # Exactly one level.
    MANY = "many"  # Any number of levels, also none.


Level: TypeAlias = str | Wildcard
Filter: TypeAlias = tuple[Level, ...]

_IN_PATHS: dict[str, Level] = {"+": Wildcard.ONE, "#": Wildcard.MANY}
_IN_PATTERNS: dict[str, Level] = {"*": Wildcard.ONE, "#": Wildcard.MANY}


class SharedFilter(NamedTuple):
    """A filter whose messages are divided among the subscribers of a group."""

    group: str
    filter: str


def of_pattern(pattern: str) -> Filter:
    """Return the filter of a pattern. Every text is one."""
    return tuple([_IN_PATTERNS.get(level, level) for level in levels_of(pattern)])


def of_path_filter(text: str) -> Filter:
    """Return the filter of a path filter, which must be valid."""
    return tuple([_IN_PATHS.get(level) or to_subject(level) for level in text.split("/")])


def to_pattern(text: str) -> str:
    """Return the pattern that matches what a path filter does. Raises InvalidName.

    There is none for a level that is a lone `*`, which is a wildcard in patterns.
    """
    check_path_filter(text)
    filter = of_path_filter(text)
    if "*" in filter:
        raise InvalidName("a level * cannot be bound: it would match every level")
    written = {value: key for key, value in _IN_PATTERNS.items()}
    return ".".join([written.get(level, str(level)) for level in filter])


def check_path_filter(text: str) -> None:
    """Raise InvalidName if this is no path filter. One of a group or a queue is checked, too."""
    check_size(text)
    if text.startswith(SHARED):
        text = shared_filter(text).filter
    elif text.startswith(QUEUE):
        if len(text) == len(QUEUE):
            raise InvalidName("the name of the queue is missing")
        return  # A queue may have any name.
    *others, last = text.split("/")
    if any("#" in level for level in others) or ("#" in last and last != "#"):
        raise InvalidName("# stands alone in the last level of a filter")
    if any("+" in level and level != "+" for level in (*others, last)):
        raise InvalidName("+ stands alone in a level of a filter")


def shared_filter(text: str) -> SharedFilter:
    """Return the group and the filter of `$share/group/filter`. Raises InvalidName."""
    group, _, text = text.removeprefix(SHARED).partition("/")
    if not group or "+" in group or "#" in group or not text:
        raise InvalidName("a shared subscription is $share/<group>/<filter>")
    return SharedFilter(group, text)
