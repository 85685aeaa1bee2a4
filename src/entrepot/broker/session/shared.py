"""Subscriptions that several sessions share: each message goes to one of them.

All who subscribe to the same filter in the same group consume one queue, which hears what is
published and keeps it while nobody of the group is there. It is deleted when the last of them
unsubscribes, or when nobody has used it for long. In the same way a session may consume an
ordinary queue.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Protocol

from entrepot.broker.one_at_a_time import OneAtATime
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.session.ports import Broadcast, Subscription, Way
from entrepot.broker.session.session import Session
from entrepot.broker.subject.filter import QUEUE, SHARED, Filter, of_path_filter, shared_filter
from entrepot.broker.subject.listener import Listener
from entrepot.broker.subject.listeners import Listeners
from entrepot.core import limits
from entrepot.core.errors import PeerError, SessionRefused

log = logging.getLogger("entrepot.session")

_SETTINGS = QueueSettings(
    keeps_all=True,
    expires_ms=limits.SHARED_QUEUE_UNUSED_MS,
    length_max=limits.SESSION_MESSAGES_MAX,
    length_bytes_max=limits.SESSION_BYTES_MAX,
    retention_ms=limits.SESSION_RETENTION_MS,
)


def is_shared(filter: str) -> bool:
    """Return whether a session consumes a queue that is not its own by this filter."""
    return filter.startswith((SHARED, QUEUE))


class Queues(Protocol):
    """What sessions need of the queues of their virtual host."""

    def find(self, name: str) -> Queue:
        """Return an ordinary queue. Raises a PeerError."""

    def hidden(self, name: str) -> Queue | None:
        """Return a queue that only the broker knows, if it exists."""

    def in_memory(self, name: str, settings: QueueSettings) -> Queue:
        """Make a queue that nobody else knows, in memory."""

    async def prepare_hidden(self, name: str, settings: QueueSettings) -> Queue:
        """Return a queue that only the broker knows; make it if need be. Raises StorageError."""

    async def delete_hidden(self, name: str) -> None:
        """Delete such a queue, if it exists."""


class SharedQueue:
    """The queue of a group and a filter, as a listener."""

    def __init__(self, queue: Queue, filter: Filter) -> None:
        self.queue = queue
        self.filter = filter
        self.member_count = 0  # Sessions that subscribe to it, connected or not.

    def hear(self, broadcast: Broadcast) -> None:
        broadcast.store(self.queue, broadcast.run, broadcast.publication)


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
        if self._is_there or self.queue.is_gone:
            return
        try:
            self.queue.add_consumer(self)
        except PeerError as error:  # Another consumer has it for itself.
            log.warning("client %r consumes nothing: %s", self._session.client_id, error)
        else:
            self._is_there = True

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
        """Do nothing: the queue delivers nothing to a consumer that is not active."""


class SharedSubscriptions:
    """The shared subscriptions of a virtual host."""

    def __init__(self, queues: Queues, listeners: Listeners[Listener]) -> None:
        self._queues = queues
        self._listeners = listeners
        self._shared: dict[str, SharedQueue] = {}  # By their whole filter.
        self._changing = OneAtATime()  # By the same.

    async def join(self, session: Session, wanted: Subscription) -> None:
        """Make the session one of the consumers of a shared queue, or of an ordinary one.

        Raises a PeerError, StorageError.
        """
        text = wanted.filter
        if text.startswith(QUEUE):
            queue = self._queues.find(text.removeprefix(QUEUE))
            self.leave(session, text)
            self._add_member(session, queue, wanted)
            return
        await self._changing.wait_and_enter(text)
        try:
            shared = self._shared.get(text)
            if shared is None:
                if len(self._shared) >= limits.SHARED_QUEUES_MAX:
                    most = limits.SHARED_QUEUES_MAX
                    raise SessionRefused(f"there are {most} shared subscriptions, and no more")
                shared = self._add(await self._queues.prepare_hidden(text, _SETTINGS))
            self.leave(session, text)
            self._add_member(session, shared.queue, wanted)
        finally:
            self._changing.leave(text)

    def _add_member(self, session: Session, queue: Queue, wanted: Subscription) -> None:
        member = session.members[wanted.filter] = QueueMember(session, queue, wanted)
        shared = self._shared.get(wanted.filter)
        if shared is not None:
            shared.member_count += 1
        if session.is_attached:
            member.attach()

    def _add(self, queue: Queue) -> SharedQueue:
        filter = of_path_filter(shared_filter(queue.name).filter)
        shared = self._shared[queue.name] = SharedQueue(queue, filter)
        self._listeners.add(filter, shared)
        return shared

    def leave(self, session: Session, text: str) -> None:
        """Undo `join`. The queue stays."""
        member = session.members.pop(text, None)
        if member is not None:
            member.detach()
            shared = self._shared.get(text)
            if shared is not None:
                shared.member_count -= 1

    async def delete_if_unused(self, text: str) -> None:
        """Delete the queue of a group and a filter if no session subscribes to it."""
        if not text.startswith(SHARED):
            return
        await self._changing.wait_and_enter(text)
        try:
            shared = self._shared.get(text)
            if shared is not None and not shared.member_count:
                self.gone(text)
                await self._queues.delete_hidden(text)
        finally:
            self._changing.leave(text)

    def member_count(self, name: str) -> int:
        """Return how many sessions subscribe to a shared queue, connected or not."""
        shared = self._shared.get(name)
        return shared.member_count if shared is not None else 0

    def gone(self, name: str) -> None:
        """Forget a shared queue that is deleted, as one that nobody has used for long."""
        shared = self._shared.pop(name, None)
        if shared is not None:
            self._listeners.remove(shared.filter, shared)

    # --- at a start

    def restore(self, hidden: Iterable[Queue]) -> None:
        for queue in hidden:
            if queue.name.startswith(SHARED):
                self._add(queue)

    def rejoin(self, session: Session, wanted: Subscription) -> bool:
        """Make a restored session a consumer again. Returns False if the queue is deleted."""
        text = wanted.filter
        try:
            name = text.removeprefix(QUEUE)
            queue = self._shared[text].queue if name == text else self._queues.find(name)
        except (KeyError, PeerError):
            return False
        self._add_member(session, queue, wanted)
        return True
