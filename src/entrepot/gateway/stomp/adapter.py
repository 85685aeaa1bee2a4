"""The adapter of one STOMP client: a pump with STOMP's codec, limits and ERROR frames.

The handshake serves a client's first frame, then the connection serves the rest. The adapter
stops reading from a client that sends faster than the disk writes, or that does not read what it
is sent, until it has caught up. While messages take too much memory it stops reading from every
client that sends.
"""

from __future__ import annotations

import logging

from entrepot.broker.sessions import ConnectionFacts
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.ports import Buffer, Link
from entrepot.gateway.outbox import Outbox
from entrepot.gateway.pump import CountingPump
from entrepot.gateway.stomp.connection import Connection
from entrepot.gateway.stomp.context import Context
from entrepot.gateway.stomp.errors import FrameRefused
from entrepot.gateway.stomp.handshake import Handshake, Terms
from entrepot.gateway.stomp.heart_beat import HeartBeat
from entrepot.wire.stomp.frames import (
    CONNECTED,
    ERROR,
    V1_0,
    VERSIONS,
    Event,
    FrameReader,
    frame_bytes,
)

log = logging.getLogger("entrepot.stomp")

# With more unsent bytes than this the client is not read from. Deliveries stop at half of it, so
# only a client that sends requests and does not read the answers gets here.
_BACKLOG_BYTES_MAX = 2 * limits.BACKLOG_BYTES_HIGH


class StompAdapter(CountingPump[Event, FrameReader]):
    def __init__(self, link: Link, context: Context) -> None:
        broker = context.broker
        inbox = FrameReader()
        handshake = Handshake(self, link, context)
        super().__init__(link, inbox, handshake.serve, context.clock, broker.faults)
        self._context = context
        memory = broker.vhosts.memory_use
        assert memory is not None, "a broker without queues"
        self._memory = memory
        self._connected_ms = context.clock.now_ms()
        self.outbox = Outbox(link, self.wake)
        self._connection: Connection | None = None  # None until the handshake is over.
        self._terms: Terms | None = None
        self._heart_beat: HeartBeat | None = None
        self._is_blocked = False  # It sends, and memory is low: it is not read from.
        self._deadline = self._loop.call_later(
            limits.LOGIN_MS_MAX / 1_000, self.guard, self.give_up, "no login in time"
        )

    # --- Receiver

    def closed(self, reason: str) -> None:
        super().closed(reason)
        self.drop_input(FrameReader())
        self._stop()
        self.release()
        log.debug("%s: %s", self.link.peer, reason)

    def _stop(self) -> None:
        self._deadline.cancel()
        if self._heart_beat is not None:
            self._heart_beat.stop()

    def refuse(self, reason: str) -> None:
        self.end(PeerError(reason))

    # --- turns

    def output(self) -> list[Buffer]:
        if self._connection is not None:
            self._connection.dispatch()
        return self.outbox.take()

    def pace(self) -> None:
        """Stop reading while the client is too fast, or while it sends and memory is low."""
        connection = self._connection
        backlog = self.outbox.bytes_waiting + self.link.backlog
        is_much = bool(self._events) or backlog > _BACKLOG_BYTES_MAX
        if connection is None:
            is_much = is_much or self._awaited is not None  # What comes is kept undecoded.
        else:
            if connection.is_backlogged:
                connection.wake_subscriptions()
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
        """Unregister the connection and end its subscriptions.

        Called again when a request was still awaited, for what it has created since.
        """
        if self._connection is not None:
            self._context.broker.sessions.remove(self)
            self._memory.unlisten(self)
            self._connection.release()

    # --- called by the handshake

    def opened(self, terms: Terms) -> None:
        """Answer CONNECT, and let the connection serve all events from now on."""
        if not self._is_open:
            return  # The login took too long.
        self._deadline.cancel()
        context = self._context
        connection = Connection(self, context, terms.principal, terms.vhost, terms.version)
        self._terms, self._connection = terms, connection
        self.serve = connection.serve
        self._inbox.allow(context.message_bytes_max)
        self.decode(0)
        headers = [
            ("version", terms.version),
            ("heart-beat", f"{terms.send_ms},{terms.receive_ms}"),
            ("session", f"session-{connection.session}"),
            ("server", f"entrepot/{context.version}"),
        ]
        self.outbox.send((frame_bytes(CONNECTED, headers, version=terms.version),))
        if terms.send_ms or terms.receive_ms:
            self._heart_beat = HeartBeat(self, terms.send_ms, terms.receive_ms)
        self._memory.listen(self, self._memory_changed)
        context.broker.sessions.add(self)
        user, vhost = terms.principal.user, terms.vhost.name
        log.info("%s: user '%s' granted access to vhost '%s'", self.link.peer, user, vhost)

    def log_refusal(self, reason: str) -> None:
        log.warning("%s: %s", self.link.peer, reason)

    # --- closing

    def failed(self, error: PeerError | None) -> None:
        """Send an ERROR and close the connection. None means: an error of ours."""
        self.end(PeerError("internal error") if error is None else error)

    def end(self, error: PeerError) -> None:
        if not self._is_open:
            return
        text = str(error)
        log.warning("%s: closed: %s", self.link.peer, text)
        headers = [("message", text), ("content-type", "text/plain")]
        version = self._inbox.version
        if self._connection is None:  # The client does not know of a version yet.
            headers.append(("version", ",".join(VERSIONS)))
            version = V1_0
        if isinstance(error, FrameRefused) and error.receipt is not None:
            headers.append(("receipt-id", error.receipt))
        body = f"{text}\n".encode("utf-8", "replace")
        self.outbox.send((frame_bytes(ERROR, headers, body, version),))
        self._hang_up(text)

    def leave(self) -> None:
        """Close the connection as the client asked, after its subscriptions were released."""
        self.release()
        self._hang_up("closed by the client")

    def _hang_up(self, reason: str) -> None:
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
        assert self._terms is not None
        state = "blocked" if self._is_blocked else "flow" if self.is_paused else "running"
        return self._connection.facts(state, self._connected_ms, self._terms.send_ms)

    def close(self, reason: str) -> None:
        self.guard(self.end, PeerError(reason))
