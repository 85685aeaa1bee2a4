"""Subscriptions that several sessions share: each message goes to one of them.

All who subscribe to the same filter in the same group consume one queue, which hears what is
published and keeps it while nobody of the group is there. It is deleted when the last of them
unsubscribes, or when nobody has used it for long. In the same way a session may consume an
ordinary queue.
"""

from __future__ import annotations

from entrepot.broker.queue.message import Run, Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.session.ports import Broadcast, Subscription, Way
from entrepot.broker.session.session import Session
from entrepot.broker.subject.filter import Filter
from entrepot.broker.subject.listener import Published


class SharedQueue:
    """The queue of a group and a filter, as a listener."""

    def __init__(self, queue: Queue, filter: Filter) -> None:
        self.queue = queue
        self.filter = filter
        self.member_count = 0  # Sessions that subscribe to it, connected or not.

    def hear(self, run: Run, broadcast: Broadcast, published: Published) -> None:
        published.send(self.queue, run, published.publication)


class QueueMember:
    """A session as one of the consumers of a queue."""

    tag = "session"
    auto_ack = False
    is_exclusive = False
    priority = 0

    def __init__(self, session: Session, queue: Queue, wanted: Subscription) -> None:
        self.queue = queue
        self._session = session
        self._is_there = False
        identifiers = (wanted.identifier,) if wanted.identifier else ()
        self._way = Way(wanted.quality, identifiers, wanted.keeps_retain)

    def attach(self) -> None:
        if not self._is_there and not self.queue.is_gone:
            self._is_there = True
            self.queue.add_consumer(self)

    def detach(self) -> None:
        """Consume no more. What was delivered and not settled is for others."""
        if self._is_there:
            self._is_there = False
            self.queue.remove_consumer(self)
            self.queue.release(self)

    def wake(self) -> None:
        self.queue.dispatch()

    def settle(self, lane: int, offset: int) -> None:
        self.queue.settle(self, lane, range(offset, offset + 1))

    # --- as a consumer

    def room(self) -> int:
        return self._session.shared_room()

    def deliver(self, lane: int, taken: Taken) -> None:
        self._session.deliver_shared(self, self._way, lane, taken)

    def cancelled(self) -> None:
        self._is_there = False

    def activated(self, is_active: bool) -> None:
        """Do nothing: whoever is not active gets nothing."""
