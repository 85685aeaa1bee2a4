"""Share sessions: what a consumer fetches, said once; and whose the locks are.

As in fetch sessions, a consumer says what it wants once and then only what changed. Each
request has the epoch that follows its last one's: so a request that is repeated is told
from a new one. A session is the owner of the locks of its consumer, and ends with its
connection: what it had is then ready for others.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from uuid import UUID

from entrepot.core import limits
from entrepot.core.steps import Steps

OPENS = 0  # What a request says as its epoch when it begins a session
CLOSES = -1  # or ends it.

_EPOCHS = 2**31
Place = tuple[UUID, int]  # A topic and a partition.


@dataclass(slots=True, eq=False)
class ShareSession:
    group: str
    member_id: str
    connection: object  # The one it was last used on.
    epoch: int = 1  # What its next request must carry.
    # In the order they are served; one that was served moves to the end.
    places: OrderedDict[Place, None] = field(default_factory=OrderedDict)
    locked: dict[Place, None] = field(default_factory=dict)  # Where it may have locks.

    def advance(self) -> None:
        self.epoch = self.epoch % (_EPOCHS - 1) + 1


class ShareSessions:
    def __init__(self) -> None:
        self._sessions: dict[tuple[str, str], ShareSession] = {}
        self._place_count = 0  # Of all sessions.

    def find(self, group: str, member_id: str) -> ShareSession | None:
        return self._sessions.get((group, member_id))

    def open(self, group: str, member_id: str, connection: object) -> ShareSession | None:
        """A session that begins; one that there was begins anew, and keeps its locks. None
        when there are too many."""
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
        self, session: ShareSession, added: Iterable[Place], forgotten: Iterable[Place]
    ) -> Steps[bool]:
        """False when there is no room for what is added, or the session has ended meanwhile."""
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
