"""The adapter of one AMQP client: a pump with AMQP's codec, limits and error replies.

The handshake serves a client's first events, then the connection serves the rest. The adapter
stops reading from a client that publishes faster than the disk writes, or that does not read
what it is sent, until it has caught up. While messages take too much memory it stops reading
from every client that publishes, and sends it `connection.blocked`.
"""

from __future__ import annotations

import logging

from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.sessions import ConnectionFacts
from entrepot.broker.virtual_host.virtual_host import VirtualHost
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.ports import Buffer, Link
from entrepot.gateway.amqp.connection import Connection
from entrepot.gateway.amqp.context import Context, Wanted
from entrepot.gateway.amqp.format import AMQP
from entrepot.gateway.amqp.handshake import Handshake, Terms
from entrepot.gateway.amqp.heartbeat import HeartbeatTimer
from entrepot.gateway.amqp.outbox import AmqpOutbox
from entrepot.gateway.pump import CountingPump
from entrepot.wire.amqp.errors import AmqpError, ReplyCode
from entrepot.wire.amqp.frames import FrameBuffer, ProtocolHeader
from entrepot.wire.amqp.methods.connection import Blocked, Close, CloseOk, Unblocked
from entrepot.wire.amqp.scan import Event, Heartbeat

log = logging.getLogger("entrepot.amqp")

# With more unsent bytes than this the client is not read from. Deliveries stop at half of it, so
# only a client that sends requests and does not read the answers gets here.
_BACKLOG_BYTES_MAX = 2 * limits.BACKLOG_BYTES_HIGH


class AmqpAdapter(CountingPump[ProtocolHeader | Event, FrameBuffer]):
    def __init__(self, link: Link, context: Context) -> None:
        broker = context.broker
        inbox = FrameBuffer(message_bytes_max=context.message_bytes_max, format=AMQP)
        self._handshake = Handshake(self, link, context)
        super().__init__(link, inbox, self._handshake.serve, context.clock, broker.faults)
        self._context = context
        self._memory: MemoryUse  # From when it is opened.
        self._connected_ms = context.clock.now_ms()
        self.outbox = AmqpOutbox(link, self.wake)
        self._connection: Connection | None = None  # None until the handshake is over.
        self._heartbeat: HeartbeatTimer | None = None
        self._is_blocked = False  # It publishes, and memory is low: it is not read from.
        self._deadline = self._loop.call_later(
            limits.LOGIN_MS_MAX / 1_000, self.guard, self.give_up, "no login in time"
        )

    # --- Receiver

    def closed(self, reason: str) -> None:
        super().closed(reason)
        self.drop_input(FrameBuffer())
        self._deadline.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.release()
        log.debug("%s: %s", self.link.peer, reason)

    def refuse(self, reason: str) -> None:
        self.end(AmqpError(ReplyCode.RESOURCE_ERROR, reason))

    # --- turns

    def output(self) -> list[Buffer]:
        if self._connection is not None:
            self._connection.end_turn()
        return self.outbox.take() if self.outbox.bytes_waiting else []

    def pace(self) -> None:
        """Stop reading while the client is too fast, or while it publishes and memory is low."""
        connection = self._connection
        backlog = self.outbox.bytes_waiting + self.link.backlog
        is_much = bool(self._events) or backlog > _BACKLOG_BYTES_MAX
        if connection is not None:
            if connection.is_backlogged:
                connection.wake_consumers()
            is_blocked = self._memory.is_high and connection.has_published
            if is_blocked is not self._is_blocked:
                self._is_blocked = is_blocked
                self._send_blocked(connection)
            is_much = is_much or is_blocked or connection.is_publishing_much
        if is_much is not self.is_paused:
            self.pause(is_much)

    def _memory_changed(self, is_high: bool) -> None:
        self.guard(self.pace)

    def _send_blocked(self, connection: Connection) -> None:
        if connection.can("connection.blocked"):
            method = Blocked("low on memory") if self._is_blocked else Unblocked()
            self.outbox.method(0, method)

    def release(self) -> None:
        """Unregister the connection and end its channels.

        Called again when a request was still awaited, for what it has created since.
        """
        if self._connection is not None:
            self._context.broker.sessions.remove(self)
            self._memory.unlisten(self)
            self._connection.release()

    # --- called by the handshake

    def tuned(self, frame_bytes_max: int, heartbeat_s: int) -> None:
        """Apply the frame size and the heartbeat interval that were agreed on."""
        self._inbox.tune(frame_bytes_max)
        if heartbeat_s:
            self._heartbeat = HeartbeatTimer(self, heartbeat_s)

    def opened(self, terms: Terms, vhost: VirtualHost) -> None:
        """Let the connection serve all events from now on."""
        self._deadline.cancel()
        broker = self._context.broker
        memory = broker.vhosts.memory_use
        assert memory is not None, "a broker without queues"
        self._memory = memory
        self._connection = Connection(self, self._context, terms, vhost)
        self.serve = self._connection.serve
        self._memory.listen(self, self._memory_changed)
        broker.sessions.add(self)
        log.info("%s: user '%s' granted access to vhost '%s'", terms.peer, terms.user, vhost.name)

    def forward(self, wanted: Wanted) -> None:
        """Leave the client to the node that has the queues; it is logged in."""
        if any(not isinstance(each, Heartbeat) for each in self._events):
            raise AmqpError(ReplyCode.COMMAND_INVALID, "sent before the connection is open")
        self._deadline.cancel()
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self.flush()
        self._is_open = False
        assert self._context.forward is not None
        self._context.forward(self.link, wanted)

    def log_refusal(self, reason: str) -> None:
        log.warning("%s: %s", self.link.peer, reason)

    # --- closing

    def failed(self, error: PeerError | None) -> None:
        """Close the channel or the connection, whichever the error closes."""
        if error is None:
            self.end(AmqpError(ReplyCode.INTERNAL_ERROR, "internal error"))
        elif not isinstance(error, AmqpError):
            raise error
        elif self._connection is None or error.closes_connection:
            self.end(error)
        else:
            log.warning("%s: channel %d closed: %s", self.link.peer, error.channel, error.text)
            self._inbox.close_channel(error.channel)
            self._connection.close_channel(error)

    def end(self, error: AmqpError) -> None:
        """Close the connection, and send the reason if the client has logged in."""
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self.link.peer, error.text)
        if self._connection is not None or self._handshake.may_explain:
            self.outbox.method(0, Close(error.code, error.text, *error.method_id))
        self.hang_up(error.text)

    def leave(self) -> None:
        """Answer the client's `connection.close`, after its channels were released.

        Only messages that take more than a turn to requeue are requeued later.
        """
        self.release()
        self.outbox.method(0, CloseOk())
        self.hang_up("closed by the client")

    def hang_up(self, reason: str) -> None:
        """Write what is queued, then close the link. Nothing is delivered from now on."""
        if self._is_open:
            self._is_open = False
            self.release()
            self.flush()
            self.link.close(reason)

    def give_up(self, reason: str) -> None:
        """Abort the link without an explanation: the client does not respond."""
        log.warning("%s: closed: %s", self.link.peer, reason)
        self._is_open = False
        self.release()
        self.link.abort(reason)

    # --- Session

    def facts(self) -> ConnectionFacts:
        assert self._connection is not None
        state = "blocked" if self._is_blocked else "flow" if self.is_paused else "running"
        return self._connection.facts(state, self._connected_ms)

    def close(self, reason: str) -> None:
        self.guard(self.end, AmqpError(ReplyCode.CONNECTION_FORCED, reason))
