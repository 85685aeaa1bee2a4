"""Keeps fetch sessions (KIP-227): a consumer sends its partitions once, then only changes.

The session stores each partition's fetch offset and the last answer for it, and an answer leaves
out partitions without news. Sessions are in memory only, and their number and the number of
their partitions are limited: a client whose session is gone gets an error and opens a new one,
and a client without a session sends all partitions every time.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from uuid import UUID

from entrepot.core import limits
from entrepot.core.ports import Clock, Entropy

PARTITIONS_MAX = 2 * limits.PARTITIONS_MAX  # How many partitions all sessions may have together.

_EPOCHS = 2**31
Key = tuple[str | UUID, int]  # The topic's name, or its id from version 13 on, and the partition.


@dataclass(slots=True)
class Wanted:
    """What a consumer wants of one partition."""

    key: Key
    offset: int
    bytes_max: int
    leader_epoch: int
    # What the session's last answer said. The next one tells of the partition if it is different.
    high_watermark: int = -1
    offset_start: int = -1
    last_stable_offset: int = -1


@dataclass(slots=True)
class FetchSession:
    id: int
    epoch: int  # The epoch that the client's next request must have.
    used_s: float
    by_name: bool  # Whether its keys have names of topics, or ids: that depends on the version.
    # In the order in which they are served. One that was served moves to the end.
    partitions: OrderedDict[Key, Wanted] = field(default_factory=OrderedDict)
    changes: int = 0  # How often a partition came or went.

    def update(self, wanted: list[Wanted], forgotten: list[Key]) -> None:
        for each in wanted:
            known = self.partitions.get(each.key)
            if known is None:
                self.partitions[each.key] = each
                self.changes += 1
            else:
                known.offset, known.bytes_max = each.offset, each.bytes_max
                known.leader_epoch = each.leader_epoch
        for key in forgotten:
            self.partitions.pop(key, None)
            self.changes += 1
        self.go_on()

    def go_on(self) -> None:
        """Expect the next epoch."""
        self.epoch = self.epoch % (_EPOCHS - 1) + 1

    def served(self, key: Key) -> None:
        """Let the other partitions come first next time. This one may have left the session."""
        if len(self.partitions) > 1 and key in self.partitions:
            self.partitions.move_to_end(key)


class FetchSessions:
    def __init__(self, clock: Clock, entropy: Entropy) -> None:
        self._clock = clock
        self._entropy = entropy
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()  # Least recently used first.
        self._partition_count = 0  # How many partitions all sessions have.

    def open(self, wanted: list[Wanted], *, by_name: bool) -> FetchSession | None:
        """Return a new session. None means: there are too many, and all of them are young."""
        now = self._clock.monotonic()
        while not self._has_room(len(wanted)):
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now - oldest.used_s < limits.FETCH_SESSION_IDLE_MS_MIN / 1_000:
                return None
            self.close(oldest.id)
        session = FetchSession(self._new_id(), 0, now, by_name)
        self._sessions[session.id] = session
        self.update(session, wanted, [])
        return session

    def find(self, identity: int) -> FetchSession | None:
        session = self._sessions.get(identity)
        if session is not None:
            session.used_s = self._clock.monotonic()
            self._sessions.move_to_end(identity)
        return session

    def update(self, session: FetchSession, wanted: list[Wanted], forgotten: list[Key]) -> bool:
        """Change the partitions of a session. False means: there are too many, and it is closed."""
        before = len(session.partitions)
        session.update(wanted, forgotten)
        self._partition_count += len(session.partitions) - before
        if self._partition_count <= PARTITIONS_MAX:
            return True
        self.close(session.id)
        return False

    def close(self, identity: int) -> None:
        session = self._sessions.pop(identity, None)
        if session is not None:
            self._partition_count -= len(session.partitions)

    def _has_room(self, partitions: int) -> bool:
        return (
            len(self._sessions) < limits.FETCH_SESSIONS_MAX
            and self._partition_count + partitions <= PARTITIONS_MAX
        )

    def _new_id(self) -> int:
        while True:
            identity = 1 + self._entropy.below(_EPOCHS - 1)
            if identity not in self._sessions:
                return identity
