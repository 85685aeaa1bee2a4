"""Delivers retained messages to a session that has just subscribed, some in each turn.

Those that are answered go through the session's queue, as long as few wait there, and the next
ones when these are committed; others go to the receiver while it has room. When there is none,
the feed waits until the session is woken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from entrepot.broker.queue.message import Publication, Run
from entrepot.broker.session.ports import Broadcast, Receiver, Subscription
from entrepot.broker.session.session import RETAINED, Session
from entrepot.broker.session.ways import way_of
from entrepot.broker.subject.retained import RetainedMessage
from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.core.message import Envelope
from entrepot.core.ports import Clock


class RetainedFeed:
    def __init__(
        self,
        session: Session,
        receiver: Receiver,
        wanted: Subscription,
        found: Sequence[RetainedMessage],
        clock: Clock,
        faults: Faults,
    ) -> None:
        self._session = session
        self._receiver = receiver
        self._wanted = wanted
        self._found = found
        self._next = 0
        self._clock = clock
        self._faults = faults
        self._is_coming = False  # Whether it goes on in the next turn.
        self._way = way_of([wanted])._replace(is_retained=True, keeps_retain=True)
        session.feeds[self] = None

    def go_on(self) -> None:
        """Deliver some in the next turn of the loop."""
        if not self._is_coming:
            self._is_coming = True
            asyncio.get_running_loop().call_soon(
                self._faults.guard, "delivering retained messages", self._deliver_some
            )

    def _deliver_some(self) -> None:
        self._is_coming = False
        session = self._session
        is_over = session.receiver is not self._receiver or self._next >= len(self._found)
        if is_over or self._wanted.filter not in session.subscriptions:
            session.feeds.pop(self, None)
            return
        if not self._has_room():
            return  # The session will be woken.
        now_ms, end = self._clock.now_ms(), self._next + limits.RETAINED_AT_ONCE_MAX
        publication = Publication(lambda failure: self.go_on())
        for kept in self._found[self._next : end]:
            if not kept.is_over(now_ms):
                self._deliver(kept, publication)
        self._next = end
        publication.arrived()

    def _has_room(self) -> bool:
        queue = self._session.queue
        if self._wanted.quality and queue is not None:
            return queue.ready_count < limits.QUEUE_TURN_MESSAGES_MAX
        return self._receiver.room() > 0

    def _deliver(self, kept: RetainedMessage, publication: Publication) -> None:
        envelope, body = kept.message
        queue = self._session.queue
        if self._wanted.quality and queue is not None and envelope.handling.is_persistent:
            marked = Envelope(RETAINED, envelope.subject, envelope.head, envelope.format)
            queue.publish(Run(kept.time_ms, [(marked, body)]), publication)
        elif self._session.is_attached:
            run = Run(kept.time_ms, [kept.message])
            self._receiver.receive(Broadcast(run), self._way)
