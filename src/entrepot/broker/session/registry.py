"""The sessions of a virtual host: opened, taken over, resumed, expired and deleted.

A session that outlives its connection is recorded before its client is answered, with its will;
its subscriptions are recorded when they are made. A session whose connection has ended expires
after its time; so does one whose connection ended with the broker, from the start on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence

from entrepot.broker.deadlines import Deadlines
from entrepot.broker.one_at_a_time import OneAtATime
from entrepot.broker.queue.message import Failure, Publication
from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings
from entrepot.broker.queue.timer import Timer
from entrepot.broker.record_store import RecordStore
from entrepot.broker.served_partition import heard
from entrepot.broker.session.ports import (
    Granted,
    Quality,
    Receiver,
    RetainedWanted,
    Subscription,
    Will,
)
from entrepot.broker.session.records import (
    SessionFacts,
    StoredSession,
    deletions,
    session_deleted,
    session_record,
    subscription_deleted,
    subscription_record,
    will_deleted,
    will_record,
)
from entrepot.broker.session.retained_feed import RetainedFeed
from entrepot.broker.session.session import KEEP, Session
from entrepot.broker.session.shared import Queues, SharedSubscriptions, is_shared
from entrepot.broker.subject.apart import Apart
from entrepot.broker.subject.filter import QUEUE, of_path_filter
from entrepot.broker.subject.listener import Listener
from entrepot.broker.subject.listeners import Listeners
from entrepot.broker.subject.retained import Retained
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.errors import PeerError, SessionRefused, StorageError
from entrepot.core.faults import Faults
from entrepot.core.message import Message
from entrepot.core.ports import Clock, Entropy
from entrepot.core.steps import Steps

log = logging.getLogger("entrepot.session")

SESSION_QUEUE = "$session/"  # How the names of their queues begin. Persisted.
_EXPIRY, _WILL = "expiry", "will"  # Kinds of deadlines.

_KEPT = QueueSettings(
    length_max=limits.SESSION_MESSAGES_MAX,
    length_bytes_max=limits.SESSION_BYTES_MAX,
    retention_ms=limits.SESSION_RETENTION_MS,
)
# Publishes a message of the broker's own on its subject; the second argument: it is retained.
PublishWill = Callable[[Message, bool, Publication], None]


class SessionRegistry:
    """Implements `Home`."""

    def __init__(
        self,
        vhost: str,
        queues: Queues,
        store: RecordStore,
        listeners: Listeners[Listener],
        retained: Retained,
        publish: PublishWill,
        clock: Clock,
        entropy: Entropy,
        turns: Turns,
        faults: Faults,
        apart: Apart | None = None,
    ) -> None:
        """`apart` refuses some subscriptions. None means: it refuses none."""
        self.store = store
        self._vhost = vhost
        self._queues = queues
        self._listeners = listeners
        self._retained = retained
        self._publish = publish
        self._clock = clock
        self._entropy = entropy
        self._turns = turns
        self.faults = faults
        self._apart = apart
        self._sessions: dict[str, Session] = {}  # By client id.
        self.kept_count = 0  # Of these, those that outlive their connection.
        self.shared = SharedSubscriptions(queues, listeners)
        self._opening = OneAtATime()  # By client id.
        self._deadlines = Deadlines[tuple[str, Session]]()
        self._timer = Timer(clock, turns, self._on_time)
        self._deletions: dict[asyncio.Future[None], None] = {}  # Of queues, under way.
        self._is_abandoned = False

    # --- finding

    def __len__(self) -> int:
        return len(self._sessions)

    def __iter__(self) -> Iterator[Session]:
        """Iterate over a copy: sessions may end meanwhile."""
        return iter([*self._sessions.values()])

    def find(self, client_id: str) -> Session | None:
        return self._sessions.get(client_id)

    # --- opening

    async def open(
        self,
        client_id: str,
        user: str,
        receiver: Receiver,
        *,
        clean_start: bool,
        expiry_ms: int | None,
        will: Will | None = None,
        kept_max: int = limits.SESSIONS_MAX,
    ) -> tuple[Session, bool]:
        """Open the session of a client, and return whether it was there before.

        A connection that has the session loses it. `clean_start` ends a session that was there,
        and so does another user: nobody gets what waits for somebody else.
        The session ends `expiry_ms` after its connection; None means never, and 0 that it does
        not outlive its connection. One that does is refused if there are `kept_max` of them.
        Raises SessionRefused, StorageError.
        """
        await self._opening.wait_and_enter(client_id)
        try:
            session = self._sessions.get(client_id)
            if session is not None and session.receiver is not None:
                session.receiver.taken_over()
                self.detach(session, session.receiver, KEEP, with_will=True)
                session = self._sessions.get(client_id)  # It may have ended with its connection.
            if session is not None and (clean_start or session.user != user):
                await self._end(session)
                session = None
            is_present = session is not None
            if session is None:
                if expiry_ms != 0 and self.kept_count >= kept_max:
                    raise SessionRefused(f"{self.kept_count} sessions are kept, and no more")
                session = self._new(client_id, user, is_durable=expiry_ms != 0)
            await self._resume(session, user, receiver, expiry_ms, will)
            return session, is_present
        finally:
            self._opening.leave(client_id)

    def _new(self, client_id: str, user: str, *, is_durable: bool) -> Session:
        if len(self._sessions) >= limits.SESSIONS_MAX:
            raise SessionRefused(f"there are {limits.SESSIONS_MAX} sessions, and no more")
        number = int.from_bytes(self._entropy.token(8), "big")
        session = Session(number, client_id, user, self, is_durable=is_durable)
        self._add(session)
        return session

    def _add(self, session: Session) -> None:
        self._sessions[session.client_id] = session
        self.kept_count += session.is_durable

    def _remove(self, session: Session) -> None:
        if self._sessions.pop(session.client_id, None) is not None:
            self.kept_count -= session.is_durable

    async def _resume(
        self,
        session: Session,
        user: str,
        receiver: Receiver,
        expiry_ms: int | None,
        will: Will | None,
    ) -> None:
        for kind in (_EXPIRY, _WILL):
            self._deadlines.cancel((kind, session))
        if will is not None:
            envelope, body = will.message
            will = will._replace(message=(envelope, bytes(body)))
        had_will, session.will = session.will is not None, will
        session.user, session.receiver = user, receiver
        session.ended_ms, session.expiry_ms = None, _bounded(expiry_ms)
        if session.is_durable:
            self._record(session)
            if will is not None:
                self.store.put(will_record(session.number, will))
            elif had_will:
                self.store.put(will_deleted(session.number))
            try:
                await heard(self.store.when_committed)
                if session.queue is None and _needs_queue(session):  # A crash took it.
                    await self._make_queue(session)
            except BaseException:
                self.detach(session, receiver, KEEP, with_will=False)
                raise

    def _record(self, session: Session) -> None:
        facts = SessionFacts(
            self._vhost, session.client_id, session.user, session.expiry_ms, session.ended_ms
        )
        self.store.put(session_record(session.number, facts))

    # --- the end of a connection, and of a session

    def detach(
        self, session: Session, receiver: Receiver, expiry_ms: int | None, with_will: bool
    ) -> None:
        if session.receiver is not receiver:
            return
        session.stop()
        if self._is_abandoned:
            return
        if expiry_ms != KEEP:
            session.expiry_ms = _bounded(expiry_ms)
        if not with_will and session.will is not None:
            session.will = None
            if session.is_durable:
                self.store.put(will_deleted(session.number))
        if session.expiry_ms == 0 or not session.is_durable:
            self._begin_end(session)
            return
        if session.will is not None and not session.will.delay_ms:
            self.faults.guard("publishing a will", self._publish_will, session)
        session.ended_ms = self._clock.now_ms()
        self._record(session)
        self._set_deadlines(session, session.ended_ms)

    def _set_deadlines(self, session: Session, ended_ms: int) -> None:
        if session.expiry_ms is not None:
            self._deadlines.set((_EXPIRY, session), ended_ms + session.expiry_ms)
        if session.will is not None:
            self._deadlines.set((_WILL, session), ended_ms + session.will.delay_ms)
        self._set_timer()

    def _set_timer(self) -> None:
        if (next_ms := self._deadlines.next_ms) is not None:
            self._timer.set(next_ms)

    def _on_time(self) -> None:
        self._turns.start(self._end_times())

    def _end_times(self) -> Steps[None]:
        """Publish wills and end sessions whose time has come."""
        while (found := self._deadlines.pop_due(self._clock.now_ms())) is not None:
            kind, session = found
            if session.receiver is None and self._sessions.get(session.client_id) is session:
                if kind == _WILL:
                    self.faults.guard("publishing a will", self._publish_will, session)
                else:
                    self._begin_end(session)
            yield
        self._set_timer()

    def _publish_will(self, session: Session) -> None:
        """Publish a session's will now. Its record goes when the will is committed."""
        will, session.will = session.will, None
        if will is None:
            return

        def published(failure: Failure | None) -> None:
            if failure is None and session.is_durable and session.will is None:
                self.store.put(will_deleted(session.number))

        publication = Publication(published)
        try:
            self._publish(will.message, will.is_retained, publication)
        except PeerError as error:
            log.warning("the will of client %r is not published: %s", session.client_id, error)
        publication.arrived()

    def _begin_end(self, session: Session) -> None:
        """End a session in turns; it cannot be found from now on."""
        self.faults.guard("publishing a will", self._publish_will, session)
        self._remove(session)
        for kind in (_EXPIRY, _WILL):
            self._deadlines.cancel((kind, session))
        self._turns.start(self._ending(session))

    async def _end(self, session: Session) -> None:
        """End a session, and wait until that is committed."""
        self._begin_end(session)
        if session.is_durable:
            await heard(self.store.when_committed)

    def _ending(self, session: Session) -> Steps[None]:
        if session.is_durable:
            # First: what else there is of a session that is not recorded goes at the next start.
            self.store.put(session_deleted(session.number))
        queue, session.queue = session.queue, None
        if queue is not None:
            self._drop_queue(session, queue)
        # Without those that its client unsubscribes from in other turns.
        for text in filter(session.subscriptions.__contains__, [*session.subscriptions]):
            self._leave(session, text)
            if session.is_durable:
                self.store.put(subscription_deleted(session.number, text))
            yield
        for record in session.assigned.end():
            if session.is_durable:
                self.store.put(record)
            yield
        if session.is_durable:
            rest = deletions(session.number, (), session.serials, session.offsets_recorded, True)
            for record in rest:
                self.store.put(record)
                yield

    def _drop_queue(self, session: Session, queue: Queue) -> None:
        if session.is_durable:
            self._drop_queue_of_ended(queue)
        else:
            queue.delete()

    async def _delete_queue(self, name: str) -> None:
        """Delete the queue of a session when the end of that is committed: not before."""
        await heard(self.store.when_committed)
        await self._queues.delete_hidden(name)

    def _deleted(self, work: asyncio.Future[None]) -> None:
        del self._deletions[work]
        error = None if work.cancelled() else work.exception()
        if isinstance(error, StorageError):
            log.error("a session's queue may come back at the next start: %s", error)
        elif error is not None:
            self.faults.caught("deleting a session's queue", error)

    async def delete(self, client_id: str) -> bool:
        """Delete a session, and close its connection. Returns whether there was one."""
        await self._opening.wait_and_enter(client_id)
        try:
            session = self._sessions.get(client_id)
            if session is None:
                return False
            receiver = session.receiver
            if receiver is not None:
                session.stop()
                receiver.ended("the session was deleted")
            session.will = None
            await self._end(session)
            return True
        finally:
            self._opening.leave(client_id)

    # --- subscriptions

    async def subscribe(self, session: Session, wanted: Sequence[Subscription]) -> list[Granted]:
        damage = self._retained.damage
        if damage is not None and any(each.retained < RetainedWanted.NEVER for each in wanted):
            raise damage  # What cannot be read is not empty.
        granted: list[Granted] = []
        for each in wanted:
            try:
                granted.append(await self._subscribe(session, each))
            except PeerError as error:
                log.warning("client %r: not subscribed: %s", session.client_id, error)
                granted.append(Granted(None, str(error)))
            if len(granted) % limits.CHANGES_AT_ONCE_MAX == 0:
                await self._turns.next()
        if session.is_durable:
            await heard(self.store.when_committed)
        return granted

    def subscribe_now(
        self, session: Session, wanted: Sequence[Subscription]
    ) -> list[Granted] | None:
        """Subscribe, if nothing has to be awaited for that. Otherwise do nothing, and return None.

        So what is published in the same turn, after the client has asked, is heard already.
        """
        is_simple = (
            not session.is_durable
            and self._sessions.get(session.client_id) is session
            and len(wanted) < limits.CHANGES_AT_ONCE_MAX
            and self._retained.damage is None
            and not any(is_shared(each.filter) for each in wanted)
        )
        return [self._subscribe_now(session, each) for each in wanted] if is_simple else None

    def _subscribe_now(self, session: Session, wanted: Subscription) -> Granted:
        try:
            self._check(session, wanted)
        except PeerError as error:
            log.warning("client %r: not subscribed: %s", session.client_id, error)
            return Granted(None, str(error))
        if wanted.quality and session.queue is None:
            self._use_queue(session, self._queues.in_memory(_queue_name(session.number), _KEPT))
        return self._subscribed(session, wanted)

    def _check(self, session: Session, wanted: Subscription) -> None:
        """Raise PeerError if the session must not subscribe to that."""
        if self._apart is not None:
            self._apart.check_filter(wanted.filter)
        is_new = wanted.filter not in session.subscriptions
        if is_new and len(session.subscriptions) >= limits.SESSION_SUBSCRIPTIONS_MAX:
            raise SessionRefused("the session has too many subscriptions")

    async def _subscribe(self, session: Session, wanted: Subscription) -> Granted:
        self._check(session, wanted)
        text = wanted.filter
        if is_shared(text):
            if text.startswith(QUEUE):
                wanted = wanted._replace(quality=min(wanted.quality, Quality.AT_LEAST_ONCE))
            await self.shared.join(session, wanted)
        elif wanted.quality and session.queue is None:
            await self._make_queue(session)
        if self._sessions.get(session.client_id) is not session:
            if text not in session.subscriptions:  # Otherwise `_ending` comes to it.
                self.shared.leave(session, text)
            if session.queue is not None:
                queue, session.queue = session.queue, None
                self._drop_queue(session, queue)
            raise SessionRefused("the session has ended")
        return self._subscribed(session, wanted)

    def _subscribed(self, session: Session, wanted: Subscription) -> Granted:
        text = wanted.filter
        is_new = text not in session.subscriptions
        session.subscribed(wanted)
        if is_new and text not in session.members:
            self._listeners.add(of_path_filter(text), session)
        if session.is_durable:
            self.store.put(subscription_record(session.number, wanted))
        return Granted(wanted.quality, is_new=is_new)

    async def _make_queue(self, session: Session) -> None:
        """Make the queue in which messages wait for the session."""
        name = _queue_name(session.number)
        if session.is_durable:
            queue = await self._queues.prepare_hidden(name, _KEPT)
        else:
            queue = self._queues.in_memory(name, _KEPT)
        self._use_queue(session, queue)

    def _use_queue(self, session: Session, queue: Queue) -> None:
        if session.queue is None:
            session.queue = queue
            if session.is_attached:
                queue.add_consumer(session)

    async def unsubscribe(self, session: Session, filters: Sequence[str]) -> list[bool]:
        there = [text in session.subscriptions for text in filters]
        for place, text in enumerate(filters):
            if text in session.subscriptions:
                self._leave(session, text)
                if session.is_durable:
                    self.store.put(subscription_deleted(session.number, text))
                await self.shared.delete_if_unused(text)
            if place % limits.CHANGES_AT_ONCE_MAX == 0:
                await self._turns.next()
        if session.is_durable:
            await heard(self.store.when_committed)
        return there

    def _leave(self, session: Session, text: str) -> None:
        if text in session.members:
            session.unsubscribed(text)
            session.assigned.leave(session.members[text].queue)
            self.shared.leave(session, text)
        else:
            session.unsubscribed(text)
            self._listeners.remove(of_path_filter(text), session)

    def send_retained(
        self, session: Session, wanted: Sequence[Subscription], granted: Sequence[Granted]
    ) -> None:
        feeding: list[Subscription] = []
        for each, answer in zip(wanted, granted, strict=True):
            worst = RetainedWanted.IF_NEW if answer.is_new else RetainedWanted.ALWAYS
            is_wanted = each.retained <= worst and not is_shared(each.filter)
            if answer.quality is not None and is_wanted and self._retained.may_match(each.filter):
                feeding.append(each)
        if feeding:
            self._turns.start(self._find_retained(session, feeding))

    def _find_retained(self, session: Session, wanted: Sequence[Subscription]) -> Steps[None]:
        receiver = session.receiver
        for each in wanted:
            found = yield from self._retained.matching(of_path_filter(each.filter))
            if receiver is None or session.receiver is not receiver:
                return
            if found:
                RetainedFeed(session, receiver, each, found, self._clock, self.faults).go_on()
            yield

    # --- start and stop

    def restore(self, stored: Iterable[StoredSession], hidden: Sequence[Queue]) -> None:
        """Add the sessions from the store, with their queues."""
        self.shared.restore(hidden)
        # Queues of sessions that have ended are left in the end.
        lost = {each.name: each for each in hidden if each.name.startswith(SESSION_QUEUE)}
        for each in stored:
            self._restore(each)
            lost.pop(_queue_name(each.number), None)
        if self.store.failure is None:  # Otherwise it is not known whose they are.
            for queue in lost.values():
                self._drop_queue_of_ended(queue)

    def _drop_queue_of_ended(self, queue: Queue) -> None:
        work = asyncio.ensure_future(self._delete_queue(queue.name))
        self._deletions[work] = None
        work.add_done_callback(self._deleted)

    def _restore(self, stored: StoredSession) -> None:
        facts, now_ms = stored.facts, self._clock.now_ms()
        assert facts is not None
        session = Session(
            stored.number, facts.client_id, facts.user, self, is_durable=True, is_restored=True
        )
        session.expiry_ms, session.will = facts.expiry_ms, stored.will
        session.was_connected = facts.ended_ms is None
        session.ended_ms = now_ms if facts.ended_ms is None else facts.ended_ms
        session.serials = stored.serials
        session.queue = self._queues.hidden(_queue_name(stored.number))
        session.restore_released(stored.released)
        self._add(session)
        for text, wanted in stored.subscriptions.items():
            if not is_shared(text):
                session.subscribed(wanted)
                self._listeners.add(of_path_filter(text), session)
            elif self.shared.rejoin(session, wanted):
                session.subscribed(wanted)
            else:
                self.store.put(subscription_deleted(stored.number, text))
        session.restore_assigned(stored.assigned)
        if session.was_connected:
            self._record(session)
        self._set_deadlines(session, session.ended_ms)

    def queue_gone(self, name: str) -> None:
        """Note that a hidden queue is deleted, as one that nobody has used for long."""
        if self.shared.member_count(name):
            for session in self._sessions.values():
                if (member := session.members.get(name)) is not None:
                    session.assigned.leave(member.queue)
        self.shared.gone(name)

    def clear(self) -> Steps[None]:
        """End all sessions: the virtual host is deleted."""
        for session in [*self._sessions.values()]:
            receiver = session.receiver
            session.will = None
            session.stop()
            if receiver is not None:
                receiver.ended("the virtual host is deleted")
            self._remove(session)
            yield from self._ending(session)

    def abandon(self) -> None:
        """Publish and record nothing any more: another node has the sessions."""
        self._is_abandoned = True
        self._timer.stop()
        self._deadlines = Deadlines()
        self.store.abandon()

    async def close(self) -> None:
        self._timer.stop()
        if self._deletions:
            await asyncio.wait([*self._deletions])
        for session in self._sessions.values():
            if session.is_durable and session.receiver is not None:
                session.ended_ms = self._clock.now_ms()
                self._record(session)
            if session.queue is not None and not session.is_durable:
                session.queue.close()


def _queue_name(number: int) -> str:
    return f"{SESSION_QUEUE}{number:016x}"


def _needs_queue(session: Session) -> bool:
    return any(
        each.quality and text not in session.members for text, each in session.subscriptions.items()
    )


def _bounded(expiry_ms: int | None) -> int | None:
    is_bounded = expiry_ms is not None and expiry_ms <= limits.SESSION_EXPIRY_MS_MAX
    return expiry_ms if is_bounded else None
