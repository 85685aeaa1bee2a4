"""What the deadlines of groups are about."""

from enum import IntEnum, auto


class Watch(IntEnum):
    """What a deadline is about."""

    SESSION = auto()  # A member must be heard of.
    JOIN = auto()  # All members must have joined (classic).
    SYNC = auto()  # All members must have asked for their part (classic).
    REVOCATION = auto()  # A member must have let go of partitions (modern).
    RETENTION = auto()  # Old offsets are looked for, in all groups.


Watched = tuple[str, Watch, str]  # The group, what, and the member or "".
