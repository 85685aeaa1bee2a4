"""The adapter of one MQTT client: a pump with MQTT's codec, limits and error replies.

The handshake serves a client's first packets, then the connection serves the rest. The adapter
stops reading from a client that publishes faster than the disk writes, or that does not read the
answers to what it sends, until it has caught up; and from every client that publishes while
messages take too much memory.
"""

from __future__ import annotations

import logging
from asyncio import TimerHandle
from typing import TYPE_CHECKING

from entrepot.broker.sessions import ConnectionFacts
from entrepot.core import limits
from entrepot.core.errors import PeerError
from entrepot.core.ports import Buffer, Link
from entrepot.gateway.mqtt.connection import VERSIONS, Connection
from entrepot.gateway.mqtt.context import Context, Terms
from entrepot.gateway.mqtt.delivery import Delivery
from entrepot.gateway.mqtt.handshake import Handshake
from entrepot.gateway.mqtt.keep_alive import KeepAlive
from entrepot.gateway.mqtt.outbox import Outbox
from entrepot.gateway.pump import CountingPump
from entrepot.wire.mqtt import limits as mqtt_limits
from entrepot.wire.mqtt.packet_reasons import REASONS
from entrepot.wire.mqtt.packets import V5, Disconnect, write
from entrepot.wire.mqtt.properties import NO_PROPERTIES, PacketType, Properties
from entrepot.wire.mqtt.reasons import MqttError, Reason
from entrepot.wire.mqtt.scan import Event, PacketBuffer, Scanner

if TYPE_CHECKING:
    from entrepot.broker.session.session import Session

log = logging.getLogger("entrepot.mqtt")

# With more unsent bytes than this the client is not read from. Deliveries stop at half of it, so
# only a client that sends requests and does not read the answers gets here.
_BACKLOG_BYTES_MAX = 2 * limits.BACKLOG_BYTES_HIGH


class MqttAdapter(CountingPump[Event, PacketBuffer]):
    # With more than 30 attributes, Python takes a KiB more for each connection.

    def __init__(self, link: Link, context: Context) -> None:
        broker = context.broker
        scanner = Scanner(message_bytes_max=context.message_bytes_max, envelopes=context.envelopes)
        inbox = PacketBuffer(scanner, context.scratch)
        handshake = Handshake(self, link, context)
        self._handshake: Handshake | None = handshake  # None when it is over.
        super().__init__(link, inbox, handshake.serve, context.clock, broker.faults)
        self._context = context
        self._connected_ms = context.clock.now_ms()
        self.outbox = Outbox(link, self.wake)
        self._connection: Connection | None = None  # None until the handshake is over.
        self._session: Session | None = None  # None before, and after it was given back.
        self._expiry_ms: int | None = 0  # Of the session, from the end of the connection.
        self._with_will = True  # Whether the will is published when the connection ends.
        self._keep_alive: KeepAlive | None = None
        self._deadline: TimerHandle | None = self._loop.call_later(
            limits.LOGIN_MS_MAX / 1_000, self.guard, self.give_up, "no login in time"
        )

    # --- Receiver

    def closed(self, reason: str) -> None:
        super().closed(reason)
        self.drop_input(PacketBuffer(Scanner(), self._context.scratch))
        self._end_deadline()
        self.release()
        if self._awaited is None:
            self._let_go()
        log.debug("%s: %s", self.link.peer, reason)

    def _let_go(self) -> None:
        """Drop what refers back to this, so that all of it is freed now and not by a collection of
        garbage: those of what has become old are rare."""
        self._connection = self._handshake = self._keep_alive = None

    def refuse(self, reason: str) -> None:
        self.end(MqttError(Reason.QUOTA_EXCEEDED, reason))

    # --- turns

    def output(self) -> list[Buffer]:
        if self._connection is not None:
            self._connection.delivery.end_turn()
        return self.outbox.take()

    def pace(self) -> None:
        """Stop reading while the client is too fast, or while it publishes and memory is low."""
        connection = self._connection
        is_much = bool(self._events) or self.link.backlog > _BACKLOG_BYTES_MAX  # All is written.
        if connection is not None and not is_much:
            uncommitted = connection.publishing.uncommitted
            is_much = uncommitted.is_much or (uncommitted.is_any and connection.memory.is_high)
        if is_much is not self.is_paused:
            self.pause(is_much)

    def _memory_changed(self, is_high: bool) -> None:
        self.guard(self.pace)

    def release(self) -> None:
        """Unregister the connection, and give the session back.

        Called again when a request was still awaited, for what it has created since.
        """
        self.outbox.close()
        if self._keep_alive is not None:
            self._keep_alive.stop()
        if self._connection is not None:
            self._connection.publishing.stop()
            self._context.broker.sessions.remove(self)
            self._context.memory.unlisten(self)
        session, self._session = self._session, None
        if session is not None:
            assert self._connection is not None
            receiver = self._connection.delivery
            session.detach(receiver, expiry_ms=self._expiry_ms, with_will=self._with_will)

    # --- called by the handshake

    def opened(self, terms: Terms, session: Session, delivery: Delivery) -> bool:
        """Let the connection serve all events from now on; return whether it is still open."""
        self._end_deadline()
        self._session = session
        self._expiry_ms = terms.session_expiry_ms
        self._connection = Connection(self, self._context, terms, session, delivery)
        if not self._is_open:
            return False  # The session is given back when this turn is over.
        self.serve = self._connection.serve
        self._handshake = None
        self._inbox.accept(topic_aliases_max=mqtt_limits.TOPIC_ALIASES_IN_MAX)
        if terms.keep_alive_s:
            self._keep_alive = KeepAlive(self, terms.keep_alive_s)
        self._context.memory.listen(self, self._memory_changed)
        self._context.broker.sessions.add(self)
        log.info(
            "%s: client '%s' of user '%s', %s",
            self.link.peer,
            terms.client_id,
            terms.principal.user,
            VERSIONS[terms.version],
        )
        return self._is_open

    def _end_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def log_refusal(self, reason: str) -> None:
        log.warning("%s: %s", self.link.peer, reason)

    # --- closing

    def failed(self, error: PeerError | None) -> None:
        """Close the connection, with a reason code where the version has one."""
        if error is None:
            self.end(MqttError(Reason.UNSPECIFIED_ERROR, "internal error"))
        elif isinstance(error, MqttError):
            self.end(error)
        else:
            self.end(MqttError(Reason.IMPLEMENTATION_SPECIFIC_ERROR, str(error)))

    def end(self, error: MqttError) -> None:
        """Close the connection, and send the reason where the version has one."""
        if not self._is_open:
            return
        log.warning("%s: closed: %s", self.link.peer, error.text)
        connection = self._connection
        if connection is None:
            if self._handshake is not None:
                self._handshake.refuse(error)
        elif connection.terms.version == V5:
            self.outbox.send(_disconnect(error, connection.terms.packet_bytes_max))
        self.hang_up(error.text)

    def leave(self, expiry_ms: int | None, *, with_will: bool) -> None:
        """Close the connection because the client has said that it leaves."""
        self._expiry_ms = expiry_ms
        self._with_will = with_will
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
        state = "flow" if self.is_paused else "running"
        return self._connection.facts(state, self._connected_ms)

    def close(self, reason: str) -> None:
        self.guard(self.end, MqttError(Reason.SERVER_SHUTTING_DOWN, reason))


def _disconnect(error: MqttError, bytes_max: int | None) -> bytes:
    reason = error.reason
    if reason not in REASONS[PacketType.DISCONNECT]:
        reason = Reason.UNSPECIFIED_ERROR
    data = write(Disconnect(reason, Properties(reason_string=error.text[:1_000])), V5)
    if bytes_max is not None and len(data) > bytes_max:
        data = write(Disconnect(reason, NO_PROPERTIES), V5)
    return data
