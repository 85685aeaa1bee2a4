"""The kinds of deadlines of groups."""

from enum import IntEnum, auto


class Watch(IntEnum):
    """What must have happened by a deadline."""

    SESSION = auto()  # A member must have sent a heartbeat.
    JOIN = auto()  # All members must have joined (classic).
    SYNC = auto()  # All members must have sent a sync (classic).
    REVOCATION = auto()  # A member must have given up partitions (modern).
    RETENTION = auto()  # Old offsets of all groups are deleted (periodic).


Watched = tuple[str, Watch, str]  # (group id, kind, member id or "").
