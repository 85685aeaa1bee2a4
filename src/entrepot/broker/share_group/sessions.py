"""Share sessions: which partitions a consumer fetches, and who owns its locks.

As in fetch sessions, a consumer lists its partitions once and then only what changed. Each
request has the epoch after that of the last one, which tells a repeated request from a new
one. A session owns the locks of its consumer, and ends with its connection: then its records
are ready for others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from entrepot.core import limits
from entrepot.core.steps import Steps

OPENS = 0  # A request's epoch when it opens a session,
CLOSES = -1  # or closes it.

_EPOCHS = 2**31
TopicIdPartition = tuple[UUID, int]  # (topic id, partition number).


@dataclass(slots=True, eq=False)
class ShareSession:
    group: str
    member_id: str
    connection: object  # The connection that used it last.
    epoch: int = 1  # The epoch of the next request.
    # In the order in which they are served; one that was served moves to the end.
    places: OrderedDict[TopicIdPartition, None] = field(default_factory=OrderedDict)
    # Partitions in which it may have locks.
    locked: dict[TopicIdPartition, None] = field(default_factory=dict)

    def advance(self) -> None:
        """Move to the next epoch; after 2**31 - 1 comes 1."""
        self.epoch = self.epoch % (_EPOCHS - 1) + 1


class ShareSessions:
    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._place_count = 0  # Partitions in all sessions together.

    def find(self, group: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group, member_id))

    def open(self, group: str, member_id: str, connection: object) -> ShareSession | None:
        """Open a session; None when there are too many.

        If the member has one, it begins again and keeps its locks.
        """
        session = self._sessions.get((group, member_id))
        if session is not None:
            self._place_count -= len(session.places)
            session.places.clear()
            session.epoch = 1
        elif len(self._sessions) >= limits.SHARE_SESSIONS_MAX:
            return None
        else:
            session = ShareSession(group, member_id, connection)
            self._sessions[group, member_id] = session
        session.connection = connection
        return session

    def update(
        self,
        session: ShareSession,
        added: Iterable[TopicIdPartition],
        forgotten: Iterable[TopicIdPartition],
    ) -> Steps[bool]:
        """Add and remove partitions. Return False when there are too many, or the session has
        ended."""
        for place in added:
            if place not in session.places:
                is_there = self.find(session.group, session.member_id) is session
                if not is_there or self._place_count >= limits.SHARE_SESSION_PARTITIONS_MAX:
                    return False
                session.places[place] = None
                self._place_count += 1
            yield
        for place in forgotten:
            is_there = self.find(session.group, session.member_id) is session
            if is_there and place in session.places:
                del session.places[place]
                self._place_count -= 1
            yield
        return True

    def close(self, session: ShareSession) -> None:
        if self._sessions.pop((session.group, session.member_id), None) is not None:
            self._place_count -= len(session.places)
