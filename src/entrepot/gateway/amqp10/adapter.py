"""The adapter of one AMQP 1.0 client: a pump with AMQP 1.0's codec, limits and error replies.

The handshake serves a client's first frames, then the connection serves the rest. The adapter
stops reading from a client that sends faster than the disk writes, or that does not read what it
is sent, until it has caught up. While messages take too much memory it stops reading from every
client that sends.
"""

from __future__ import annotations

import logging

from entrepot.broker.sessions import ConnectionFacts
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.ports import Buffer, Link, Unfinished
from entrepot.gateway.amqp10.connection import Connection
from entrepot.gateway.amqp10.context import Context
from entrepot.gateway.amqp10.errors import explain
from entrepot.gateway.amqp10.handshake import Handshake, Terms
from entrepot.gateway.amqp10.idle import IdleTimer
from entrepot.gateway.outbox import Outbox
from entrepot.gateway.pump import CountingPump
from entrepot.wire.amqp10 import limits as amqp_limits
from entrepot.wire.amqp10.errors import Amqp10Error, Condition
from entrepot.wire.amqp10.frames import Event, FrameBuffer, frame
from entrepot.wire.amqp10.performatives import Close, Error, Open
from entrepot.wire.amqp10.types import Symbol

log = logging.getLogger("entrepot.amqp10")

# With more unsent bytes than this the client is not read from. Deliveries stop at half of it, so
# only a client that sends requests and does not read the answers gets here.
_BACKLOG_BYTES_MAX = 2 * limits.BACKLOG_BYTES_HIGH
_CAPABILITIES = ("ANONYMOUS-RELAY", "DELAYED_DELIVERY", "queue", "topic")


# Of the release whose addresses these are: RabbitMQ's own clients want to know it.
_RABBITMQ_VERSION = "4.0.0"


class Amqp10Adapter(CountingPump[Event, FrameBuffer]):
    def __init__(self, link: Link, context: Context) -> None:
        broker = context.broker
        self._frames = FrameBuffer()
        self._handshake = Handshake(self, link, context)
        super().__init__(link, self._frames, self._handshake.serve, context.clock, broker.faults)
        self._context = context
        memory = broker.vhosts.memory_use
        assert memory is not None, "a broker without queues"
        self._memory = memory
        self._connected_ms = context.clock.now_ms()
        self.outbox = Outbox(link, self.wake)
        self._connection: Connection | None = None  # None until the handshake is over.
        self._idle: IdleTimer | None = None
        self._is_blocked = False  # It sends, and memory is low: it is not read from.
        self._deadline = self._loop.call_later(
            limits.LOGIN_MS_MAX / 1_000, self.guard, self.give_up, "no login in time"
        )

    # --- Receiver

    def closed(self, reason: str) -> None:
        super().closed(reason)
        self._frames = FrameBuffer()
        self.drop_input(self._frames)
        self._stop()
        self.release()
        log.debug("%s: %s", self.link.peer, reason)

    def _stop(self) -> None:
        self._deadline.cancel()
        if self._idle is not None:
            self._idle.stop()

    def unfinished(self) -> Unfinished:
        """Return how much it holds: of a frame, and of messages in several of them."""
        held = super().unfinished()
        connection = self._connection
        if connection is None or not connection.partial_bytes:
            return held
        size = held.size + connection.partial_bytes
        return Unfinished(size, connection.partial_number, not self.is_paused)

    def refuse(self, reason: str) -> None:
        self.end(Amqp10Error(Condition.LIMIT_EXCEEDED, reason))

    # --- turns

    def output(self) -> list[Buffer]:
        if self._connection is not None:
            self._connection.end_turn()
        return self.outbox.take()

    def pace(self) -> None:
        """Stop reading while the client is too fast, or while it sends and memory is low."""
        connection = self._connection
        backlog = self.outbox.bytes_waiting + self.link.backlog
        is_much = bool(self._events) or backlog > _BACKLOG_BYTES_MAX
        if connection is not None:
            if connection.is_backlogged:
                connection.wake_links()
            self._is_blocked = self._memory.is_high and connection.has_published
            is_much = is_much or self._is_blocked or connection.is_publishing_much
        if is_much is not self.is_paused:
            self.pause(is_much)

    def may_serve(self) -> bool:
        connection = self._connection
        return connection is None or not connection.is_publishing_much

    def _memory_changed(self, is_high: bool) -> None:
        self.guard(self.pace)

    def release(self) -> None:
        """Unregister the connection and end its sessions.

        Called again when a request was still awaited, for what it has created since.
        """
        if self._connection is not None:
            self._context.broker.sessions.remove(self)
            self._memory.unlisten(self)
            self._connection.release()

    # --- called by the handshake

    def expect_header(self) -> None:
        self._frames.expect_header()

    def opened(self, terms: Terms, wanted: Open) -> None:
        """Answer Open, and let the connection serve all events from now on."""
        self._deadline.cancel()
        context = self._context
        self._connection = Connection(self, context, terms)
        self.serve = self._connection.serve
        self._frames.allow(amqp_limits.FRAME_BYTES_MAX)
        answer = Open(
            container_id=f"entrepot-{context.broker.cluster_id}",
            max_frame_size=amqp_limits.FRAME_BYTES_MAX,
            channel_max=amqp_limits.SESSIONS_MAX - 1,
            idle_time_out=amqp_limits.IDLE_MS,
            offered_capabilities=_CAPABILITIES,
            properties={
                Symbol("product"): "entrepot",
                Symbol("version"): _RABBITMQ_VERSION,
                Symbol("entrepot-version"): context.version,
                Symbol("node"): f"entrepot@{context.host}",
            },
        )
        self.outbox.send((frame(0, answer),))
        self._idle = IdleTimer(self, terms.idle_ms)
        self._memory.listen(self, self._memory_changed)
        context.broker.sessions.add(self)
        user, vhost = terms.principal.user, terms.vhost.name
        log.info("%s: user '%s' granted access to vhost '%s'", self.link.peer, user, vhost)

    def log_refusal(self, reason: str) -> None:
        log.warning("%s: %s", self.link.peer, reason)

    # --- closing

    def failed(self, error: PeerError | None) -> None:
        """Close the connection with an error. None means: an error of ours."""
        if error is None:
            self.end(Amqp10Error(Condition.INTERNAL_ERROR, "internal error"))
        else:
            self.end(explain(error))

    def end(self, error: Amqp10Error) -> None:
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self.link.peer, error.text)
        if self._connection is not None:
            close = Close(Error(error.condition.value, error.text))
            self.outbox.send((frame(0, close),))
        elif self._handshake.may_explain:  # Nothing but Open may come first.
            close = Close(Error(error.condition.value, error.text))
            self.outbox.send((frame(0, Open("entrepot")), frame(0, close)))
        self.hang_up(error.text)

    def leave(self) -> None:
        """Answer the client's Close, after its sessions were released."""
        self.release()
        self.outbox.send((frame(0, Close()),))
        self.hang_up("closed by the client")

    def hang_up(self, reason: str) -> None:
        """Write what is queued, then close the link. Nothing is delivered from now on."""
        if self._is_open:
            self._is_open = False
            self._stop()
            self.release()
            self.flush()
            self.link.close(reason)

    def give_up(self, reason: str) -> None:
        """Abort the link without an explanation: the client does not respond."""
        log.warning("%s: closed: %s", self.link.peer, reason)
        self._is_open = False
        self._stop()
        self.release()
        self.link.abort(reason)

    # --- Session

    def facts(self) -> ConnectionFacts:
        assert self._connection is not None
        state = "blocked" if self._is_blocked else "flow" if self.is_paused else "running"
        return self._connection.facts(state, self._connected_ms)

    def close(self, reason: str) -> None:
        self.guard(self.end, Amqp10Error(Condition.CONNECTION_FORCED, reason))
