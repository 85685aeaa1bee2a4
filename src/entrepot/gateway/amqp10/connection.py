"""An open connection: its sessions and transactions, and how its frames are served.

A client's frames are served in order. Most are served at once; one that has to wait, such as an
attach whose queue must be on disk first, delays everything after it on this connection. Sending
never waits, only its disposition does; but what is sent and not committed is limited, and a
client that reaches the limit is not read from.

An error ends what it is about: a link, a session, or the connection.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.queue.queue import Queue
from entrepot.broker.sessions import ConnectionFacts
from entrepot.broker.virtual_host.publisher import Check
from entrepot.core import limits
from entrepot.core.errors import PeerError, StorageError
from entrepot.core.ports import Buffer
from entrepot.core.steps import Steps
from entrepot.gateway.amqp10.context import Context
from entrepot.gateway.amqp10.errors import explain
from entrepot.gateway.amqp10.handshake import Terms
from entrepot.gateway.amqp10.session import Session
from entrepot.gateway.amqp10.transaction import Transactions
from entrepot.wire.amqp10 import limits as amqp_limits
from entrepot.wire.amqp10.errors import Amqp10Error, Condition, Scope
from entrepot.wire.amqp10.frames import Event, Frame, ProtocolHeader, Transfers, frame
from entrepot.wire.amqp10.performatives import Begin, Close, Composite, End, Error

if TYPE_CHECKING:
    from entrepot.gateway.amqp10.adapter import Amqp10Adapter

_DELIVERY_BYTES = 1 * limits.KIB  # Of a message, assumed before the first delivery.


class Connection:
    def __init__(self, adapter: Amqp10Adapter, context: Context, terms: Terms) -> None:
        self._adapter = adapter
        self.guard = adapter.guard
        self.context = context
        self.terms = terms
        self.principal = terms.principal
        self.vhost = terms.vhost
        self.outbox = adapter.outbox
        self.is_open = True
        self.sessions: dict[int, Session] = {}  # By channel.
        self._ending: dict[int, None] = {}  # Channels of sessions that we ended, until End.
        self.transactions = Transactions(self)
        self.partial_bytes = 0  # Of messages whose last transfer has not come yet.
        self.partial_number = 0  # Counts these messages.
        self._link = adapter.link
        self._wake = adapter.wake
        self._queues_with_room: dict[Queue, None] = {}  # To be dispatched at the end of the turn.
        self._answering: dict[Session, None] = {}  # Those with dispositions to send.
        self._delivery_bytes = _DELIVERY_BYTES  # Average size of a message in the last delivery.
        self.is_backlogged = False  # Deliveries wait until the client reads.
        self.has_published = False
        self._bytes_uncommitted = 0  # Sent and not committed.
        self._runs_uncommitted = 0
        self.is_publishing_much = False  # One of these two is above its limit.

    # --- serving events

    def serve(self, event: Event) -> Awaitable[None] | None:
        """Serve an event. Raises Amqp10Error, which closes the connection."""
        if isinstance(event, Amqp10Error):
            raise event
        if isinstance(event, ProtocolHeader):
            raise Amqp10Error(Condition.FRAMING_ERROR, "a protocol header on an open connection")
        session = self.sessions.get(event.channel)
        if session is not None and isinstance(event, Transfers):
            try:
                return session.transfer(event.transfers)
            except Amqp10Error as error:
                self._end(session, error)
                return None
        if isinstance(event, Transfers):
            self._check_ending(event.channel)
            return None
        return self._serve_frame(event, session)

    def _serve_frame(self, event: Frame, session: Session | None) -> Awaitable[None] | None:
        performative = event.performative
        if performative is None:
            return None
        if isinstance(performative, Close):
            self._adapter.leave()
        elif isinstance(performative, Begin):
            self._begin(event.channel, performative)
        elif isinstance(performative, End):
            if session is not None:
                self._drop(session)
                self.send(event.channel, End())
            self._ending.pop(event.channel, None)
        elif session is None:
            self._check_ending(event.channel)
        else:
            try:
                work = session.serve(performative)
            except (PeerError, StorageError) as error:
                self._end(session, explain(error, Scope.SESSION))
                return None
            return None if work is None else self._finish(session, work)
        return None

    async def _finish(self, session: Session, work: Awaitable[None]) -> None:
        try:
            await work
        except (PeerError, StorageError) as error:
            if self.sessions.get(session.channel) is session:
                self._end(session, explain(error, Scope.SESSION))

    def _check_ending(self, channel: int) -> None:
        """Raise Amqp10Error unless a session of that number is being ended."""
        if channel not in self._ending:
            raise Amqp10Error(Condition.NOT_ALLOWED, f"no session on channel {channel}")

    def _begin(self, channel: int, wanted: Begin) -> None:
        if channel in self.sessions or channel in self._ending:
            raise Amqp10Error(Condition.NOT_ALLOWED, f"a second session on channel {channel}")
        if channel >= amqp_limits.SESSIONS_MAX:
            raise Amqp10Error(Condition.LIMIT_EXCEEDED, f"a session on channel {channel}")
        session = self.sessions[channel] = Session(self, channel, wanted)
        self.send(channel, session.answer())

    def _end(self, session: Session, error: Amqp10Error) -> None:
        """End a session, or more, because of an error."""
        if error.scope is Scope.CONNECTION:
            raise error
        self._drop(session)
        self._ending[session.channel] = None
        self.send(session.channel, End(Error(error.condition.value, error.text)))

    def _drop(self, session: Session) -> None:
        del self.sessions[session.channel]
        self._answering.pop(session, None)
        session.stop()
        self.context.broker.turns.start(self._released([session]))

    @property
    def link_count(self) -> int:
        return sum(len(session.links) for session in self.sessions.values())

    def send(self, channel: int, performative: Composite) -> None:
        self.outbox.send((frame(channel, performative),))

    # --- permissions

    def check(self, operation: Operation, kind: ResourceKind, name: str) -> None:
        """Raise Amqp10Error unless the client may do this. It ends the link."""
        if not self.principal.may(operation, kind, name, self.vhost.name):
            raise Amqp10Error(
                Condition.UNAUTHORIZED,
                f"{operation.value} access to {kind.value} '{name}' in vhost '{self.vhost.name}' "
                f"refused for user '{self.principal.user}'",
                Scope.LINK,
            )

    def topic_check(self) -> Check | None:
        """Return the check for topics that a message addresses by name. None means: no check."""
        if self.principal.is_unlimited:
            return None
        return partial(self.check, Operation.WRITE, ResourceKind.QUEUE)

    # --- sending

    def publish_begun(self, size: int) -> None:
        """Count a run of messages as uncommitted."""
        self.has_published = True
        self._bytes_uncommitted += size
        self._runs_uncommitted += 1
        self._look_at_uncommitted()

    def publish_ended(self, size: int) -> None:
        """Stop counting a run that is committed or has failed."""
        self._bytes_uncommitted -= size
        self._runs_uncommitted -= 1
        self._look_at_uncommitted()
        self._wake()

    def _look_at_uncommitted(self) -> None:
        self.is_publishing_much = (
            self._bytes_uncommitted > amqp_limits.UNCOMMITTED_BYTES_MAX
            or self._runs_uncommitted > amqp_limits.UNCOMMITTED_RUNS_MAX
        )

    def has_answers(self, session: Session) -> None:
        """Have the session's dispositions sent at the end of the turn."""
        self._answering[session] = None
        self._wake()

    # --- delivering

    def room(self) -> int:
        """Return how many messages may be delivered before the client has read some."""
        left = limits.BACKLOG_BYTES_HIGH - self.outbox.bytes_waiting - self._link.backlog
        if left < 0:
            self.is_backlogged = True
            return 0
        return left // self._delivery_bytes + 1

    def delivered(self, chunks: list[Buffer], count: int) -> None:
        """Send encoded messages, and remember their average size."""
        self.context.messages.delivered += count
        before = self.outbox.bytes_waiting
        self.outbox.send(chunks)
        self._delivery_bytes = (self.outbox.bytes_waiting - before) // count + 1

    def has_room(self, queue: Queue) -> None:
        """Have the queue dispatched at the end of the turn, because a link has room."""
        self._queues_with_room[queue] = None

    def wake_links(self) -> None:
        """Continue deliveries that waited for the client to read, if it has read enough."""
        if self.is_backlogged and self.outbox.backlog <= limits.BACKLOG_BYTES_HIGH:
            self.is_backlogged = False
            for session in [*self.sessions.values()]:
                session.wake_links()

    def end_turn(self) -> None:
        """Dispatch queues and send dispositions, at the end of a turn."""
        while self._queues_with_room:
            queue, _ = self._queues_with_room.popitem()
            if queue.ready_count:
                queue.dispatch()
        while self._answering:
            session, _ = self._answering.popitem()
            session.send_answers()

    # --- closing

    def release(self) -> None:
        """Stop all deliveries, return unsettled messages, delete exclusive queues."""
        self.is_open = False
        sessions, self.sessions = [*self.sessions.values()], {}
        self._answering.clear()
        self._queues_with_room.clear()
        for session in sessions:
            session.stop()
        self.guard(self.transactions.roll_back_all)
        if sessions:
            self.context.broker.turns.start(self._released(sessions))
        self.guard(self.vhost.connection_gone, self)

    def _released(self, sessions: list[Session]) -> Steps[None]:
        for session in sessions:
            for link in session.receivers():
                self.guard(link.release)
                yield

    def facts(self, state: str, connected_ms: int) -> ConnectionFacts:
        context, terms, peer = self.context, self.terms, self._link.peer
        return ConnectionFacts(
            name=f"{peer} -> {context.host}:{context.port}",
            peer=peer,
            user=self.principal.user,
            vhost=self.vhost.name,
            protocol="AMQP 1.0",
            connected_ms=connected_ms,
            channels=tuple(session.facts() for session in self.sessions.values()),
            state=state,
            is_tls=context.is_tls,
            mechanism=terms.mechanism,
            frame_max=terms.frame_bytes_max,
            channel_max=terms.channel_max,
            heartbeat_s=(terms.idle_ms or 0) // 1_000,
            client_properties={"container_id": terms.container},
            owner=self,
        )
