"""One connection to another broker: a client's handshake, then both sides alike.

What our session delivers goes there, and what comes is published here, by the same classes that
serve clients; only topics get the names of the other side. The other side knows us by a session
that it keeps, so it has to forget nothing while the connection is lost.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from entrepot.broker.session import ports
from entrepot.core import limits
from entrepot.core.errors import PeerError, SessionRefused, StorageError
from entrepot.core.message import Envelope
from entrepot.core.ports import Buffer, Link
from entrepot.gateway.mqtt.context import Terms
from entrepot.gateway.mqtt.delivery import Delivery
from entrepot.gateway.mqtt.outbox import Outbox
from entrepot.gateway.mqtt.publishing import Publishing
from entrepot.gateway.pump import Pump
from entrepot.wire.mqtt import limits as mqtt_limits
from entrepot.wire.mqtt.deliver import Outgoing
from entrepot.wire.mqtt.packets import (
    V5,
    Connack,
    Connect,
    Disconnect,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    write,
)
from entrepot.wire.mqtt.properties import NO_PROPERTIES, PacketType, Properties
from entrepot.wire.mqtt.reasons import FAILURE, MqttError, Reason
from entrepot.wire.mqtt.scan import Acks, Event, PacketBuffer, Publishes, Scanner

if TYPE_CHECKING:
    from entrepot.broker.session.session import Session
    from entrepot.gateway.mqtt.bridge.bridge import Bridge

log = logging.getLogger("entrepot.bridge")

_BACKLOG_BYTES_MAX = 2 * limits.BACKLOG_BYTES_HIGH
_NEVER_S = 0xFFFF_FFFF
_PING = write(Pingreq(), V5)
_SUBSCRIBE_ID = 65_535  # Our session gives its messages other identifiers.
_BRIDGE_BIT = 0x80  # Of the protocol level, before version 5: do not send back what we sent.
_NOWHERE = "$bridge.nowhere"  # The subject of what must not cross: nobody may publish there.


class BridgeDelivery(Delivery):
    """Messages of our session, with the names that they have on the other side."""

    __slots__ = ("_topics",)

    def __init__(self, connection: BridgeConnection, bridge: Bridge, terms: Terms) -> None:
        super().__init__(connection, bridge.context, terms)
        self._topics = bridge.topics
        self._is_plain = False  # No other client gets the same bytes.

    def _fitting(self, envelope: Envelope, outgoing: Outgoing | None) -> Outgoing | None:
        if outgoing is None:
            return None
        topic = self._topics.to_remote(outgoing.topic.decode("utf-8", "surrogateescape"))
        if topic is None:
            return None
        name = topic.encode("utf-8", "surrogateescape")
        return super()._fitting(envelope, outgoing._replace(topic=name))


class BridgeConnection(Pump[Event]):
    def __init__(self, link: Link, bridge: Bridge, *, with_bit: bool) -> None:
        """`with_bit` says whether to tell that this is a bridge, as Mosquitto does before
        version 5."""
        context = bridge.context
        scanner = Scanner(
            is_client=True,
            version=bridge.version,
            message_bytes_max=context.message_bytes_max,
        )
        self._inbox = PacketBuffer(scanner)
        self._inbox.accept(topic_aliases_max=0)
        broker = context.broker
        super().__init__(link, self._inbox, self._serve, context.clock, broker.faults)
        self._bridge = bridge
        self._context = context
        self.outbox = Outbox(link, self.wake)
        self.over: asyncio.Future[str] = self._loop.create_future()  # Why it is over.
        self.was_opened = False  # The other side let us in.
        self._session: Session | None = None
        self._delivery: BridgeDelivery | None = None
        self._publishing: Publishing | None = None
        # Until CONNACK came, for how long that may take; then for the next PINGREQ.
        self._heart = self._loop.call_later(
            limits.BRIDGE_CONNECT_MS_MAX / 1_000, self.guard, self._give_up
        )
        self._reads_before = -1  # At the last beat.
        self.outbox.send(_connect(bridge, with_bit=with_bit))

    # --- Receiver, and turns

    def closed(self, reason: str) -> None:
        super().closed(reason)
        self._end(reason)

    def output(self) -> list[Buffer]:
        if self._delivery is not None:
            self._delivery.end_turn()
        return self.outbox.take()

    def pace(self) -> None:
        is_much = bool(self._events) or self.outbox.backlog > _BACKLOG_BYTES_MAX
        publishing = self._publishing
        if publishing is not None:
            uncommitted = publishing.uncommitted
            is_blocked = uncommitted.is_any and self._context.memory.is_high
            is_much = is_much or is_blocked or uncommitted.is_much
        if is_much is not self.is_paused:
            self.pause(is_much)

    def release(self) -> None:
        """Give the session back. Called again when the handshake was still awaited."""
        session, self._session = self._session, None
        if session is not None and self._delivery is not None:
            session.detach(self._delivery, expiry_ms=None, with_will=False)

    # --- what comes

    def _serve(self, event: Event) -> Awaitable[None] | None:
        if isinstance(event, MqttError):
            raise event
        if isinstance(event, Disconnect):
            raise MqttError(event.reason, f"disconnected by the other side: {event.reason.name}")
        if isinstance(event, Connack):
            if event.reason:  # Now, for the other side closes the connection with it.
                text = f"refused by the other side: {event.reason.name}"
                raise MqttError(event.reason, text)
            return self._open(event)
        publishing, delivery = self._publishing, self._delivery
        if publishing is None or delivery is None:
            raise MqttError(Reason.PROTOCOL_ERROR, "a packet before CONNACK")
        if isinstance(event, Publishes):
            self._name(event)
            if publishing.repeats:
                return publishing.publish_after_repeats(event)
            publishing.publish(event)
        elif isinstance(event, Acks):
            if event.type is PacketType.PUBREL:
                publishing.release(event.ids)
            else:
                delivery.answered(event)
        elif isinstance(event, Suback):
            self._subscribed(event)
        elif not isinstance(event, Pingresp):
            raise MqttError(Reason.PROTOCOL_ERROR, f"{type(event).__name__} from a broker")
        return None

    def _name(self, run: Publishes) -> None:
        """Give messages that came the names that they have here."""
        make_envelope = self._context.make_envelope
        found = []
        for envelope, body in run.messages:
            topic = self._bridge.topics.to_local(envelope.subject)
            if topic is None or topic.startswith("$"):  # As after a change of the settings.
                named = make_envelope(_NOWHERE, envelope.head)
            else:
                named = make_envelope(topic, envelope.head)
                self._bridge.received += 1
            found.append((named, body))
        run.messages[:] = found
        run.ends(0)  # The packets as they came have other names.

    def _subscribed(self, answer: Suback) -> None:
        wanted = [each for each in self._bridge.topics.routes if each.is_in]
        for route, reason in zip(wanted, answer.reasons, strict=False):
            if reason >= FAILURE:
                text = f"the other side refused {route.remote_filter!r}: {reason.name}"
                log.error("bridge %s: %s", self._bridge.name, text)
                self._bridge.problem = text

    # --- the handshake

    async def _open(self, answer: Connack) -> None:
        if self._session is not None:
            raise MqttError(Reason.PROTOCOL_ERROR, "a second CONNACK")
        bridge = self._bridge
        terms = _terms(bridge, answer.properties)
        delivery = self._delivery = BridgeDelivery(self, bridge, terms)
        try:
            session = self._session = await bridge.open_session(delivery)
        except (SessionRefused, StorageError) as error:
            raise MqttError(Reason.SERVER_UNAVAILABLE, str(error)) from None
        if not self._is_open:
            return  # The session is given back when this is over.
        delivery.session = session
        if not answer.session_present:
            session.begin_anew()
        self._publishing = Publishing(self, self._context, terms, session)
        self._subscribe()
        self._beat()
        session.attach(delivery)
        if not answer.session_present:
            wanted = bridge.wanted()
            session.send_retained(wanted, [ports.Granted(each.quality) for each in wanted])
        self.was_opened = True
        bridge.opened(self)

    def _subscribe(self) -> None:
        is_5 = self._bridge.version == V5
        wanted = [
            Subscription(each.remote_filter, each.qos, is_5, is_5, 1 if is_5 else 0)
            for each in self._bridge.topics.routes
            if each.is_in
        ]
        if wanted:
            self.outbox.send(write(Subscribe(_SUBSCRIBE_ID, tuple(wanted)), self._bridge.version))

    def _beat(self) -> None:
        """Say that we are there, and end a connection on which nothing comes back."""
        interval_s = self._bridge.keep_alive_s / 2
        self._heart.cancel()
        if self.reads == self._reads_before and not self.is_paused:
            self._give_up()
            return
        self._reads_before = self.reads
        self.outbox.send(_PING)
        self._heart = self._loop.call_later(interval_s, self.guard, self._beat)

    # --- the end

    def _give_up(self) -> None:
        self.end(MqttError(Reason.KEEP_ALIVE_TIMEOUT, "the other side is silent"))

    def failed(self, error: PeerError | None) -> None:
        text = "internal error" if error is None else str(error)
        self.end(MqttError(Reason.UNSPECIFIED_ERROR, text))

    def end(self, error: MqttError) -> None:
        """Close the connection; the bridge makes another."""
        if self._is_open:
            self._is_open = False
            self._end(error.text)
            self.link.close(error.text)

    def leave(self) -> None:
        """Say that we leave, and close."""
        if self._is_open:
            self.outbox.send(write(Disconnect(), self._bridge.version))
            self.flush()
            self.end(MqttError(Reason.SERVER_SHUTTING_DOWN, "the broker stops"))

    def _end(self, reason: str) -> None:
        self._heart.cancel()
        self.outbox.close()
        self.release()
        if not self.over.done():
            self.over.set_result(reason)


def _terms(bridge: Bridge, told: Properties) -> Terms:
    """Return what the other side accepts."""
    in_flight_max = min(told.receive_maximum or 65_535, mqtt_limits.IN_FLIGHT_MAX)
    return Terms(
        bridge.version,
        bridge.session_id,
        bridge.principal,
        "",
        bridge.keep_alive_s,
        in_flight_max,
        told.maximum_packet_size,
        0,
        None,
    )


def _connect(bridge: Bridge, *, with_bit: bool) -> bytes:
    properties = NO_PROPERTIES
    if bridge.version == V5:
        properties = Properties(
            session_expiry_interval=_NEVER_S,
            receive_maximum=mqtt_limits.RECEIVE_MAXIMUM,
            maximum_packet_size=bridge.context.message_bytes_max
            + mqtt_limits.PUBLISH_EXTRA_BYTES_MAX,
        )
    packet = Connect(
        bridge.version,
        bridge.client_id,
        clean_start=False,
        keep_alive_s=bridge.keep_alive_s,
        user=bridge.user,
        password=None if bridge.password is None else bridge.password.encode(),
        properties=properties,
    )
    data = bytearray(write(packet, bridge.version))
    if with_bit:
        at = data.index(b"MQTT") + 4
        data[at] |= _BRIDGE_BIT
    return bytes(data)
