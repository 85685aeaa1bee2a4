"""A client's side of MQTT, without I/O: what to send, and what has come.

`ClientSession` is what outlives a connection: messages that are not acknowledged, in both
directions. `ClientProtocol` is one connection on it. Bytes go in through `writable` and `received`,
which returns events; what is to be sent is taken from it with `take_output`.

Messages of QoS 1 and 2 that come are acknowledged by whoever got them (`acknowledge`), when they
are safe there. One of QoS 2 that comes a second time is not an event again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from entrepot.core.limits import MESSAGE_BYTES_MAX
from entrepot.core.ports import Buffer
from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.limits import PACKET_ID_END
from entrepot.wire.mqtt.packets import (
    V5,
    Ack,
    Auth,
    Connack,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Pingresp,
    Suback,
    Subscribe,
    Subscription,
    Unsuback,
    Unsubscribe,
    write,
)
from entrepot.wire.mqtt.properties import (
    NO_PROPERTIES,
    PacketType,
    Properties,
    decode_raw,
    encode_raw,
)
from entrepot.wire.mqtt.reasons import FAILURE, MqttError, Reason, violated
from entrepot.wire.mqtt.scan import Acks, Event, PacketBuffer, Publishes, Scanner

_RECEIVE_MAXIMUM = 65_535  # Of a server that does not say.


@dataclass(frozen=True, slots=True)
class Arrived:
    """A message that came."""

    topic: str
    payload: Buffer
    qos: int
    is_retained: bool
    is_repeated: bool
    properties: bytes  # Of version 5, as they are in the packet; see `decoded`.
    packet_id: int  # 0 for QoS 0.

    def decoded(self) -> Properties:
        return decode_raw(self.properties)


@dataclass(frozen=True, slots=True)
class Published:
    """A message of QoS 1 or 2 is the server's, or was refused."""

    packet_id: int
    reason: Reason

    @property
    def is_refused(self) -> bool:
        return self.reason >= FAILURE


# What `received` returns. An error is the last event of a connection, as is Disconnect.
ClientEvent = (
    Arrived | Published | Connack | Suback | Unsuback | Pingresp | Auth | Disconnect | MqttError
)


@dataclass(slots=True)
class ClientSession:
    """What both sides remember between two connections."""

    # Sent and not acknowledged, in the order in which they were sent. None: the server has this
    # message of QoS 2, and PUBREL is on its way.
    sent: dict[int, Outgoing | None] = field(default_factory=dict)
    # Messages of QoS 2 that came and are not released, by packet identifier: they are not passed
    # on again. None: it is acknowledged.
    came: dict[int, Arrived | None] = field(default_factory=dict)
    last_id: int = 0

    def clear(self) -> None:
        self.sent.clear()
        self.came.clear()


class ClientProtocol:
    """One connection. It begins with CONNECT in the output."""

    def __init__(
        self,
        connect: Connect,
        session: ClientSession | None = None,
        *,
        message_bytes_max: int = MESSAGE_BYTES_MAX,
    ) -> None:
        self.version = connect.version
        self.session = ClientSession() if session is None else session
        self.connack: Connack | None = None  # Once it came.
        self.is_over = False  # DISCONNECT was sent or came, or there was an error.
        scanner = Scanner(
            is_client=True, version=connect.version, message_bytes_max=message_bytes_max
        )
        self._inbox = PacketBuffer(scanner)
        # Packets of full size may follow CONNACK in one read.
        self._inbox.accept(topic_aliases_max=connect.properties.topic_alias_maximum or 0)
        self._to_acknowledge: dict[int, Arrived] = {}  # Of QoS 1, by packet identifier.
        self._asked: dict[int, None] = {}  # SUBSCRIBE and UNSUBSCRIBE without an answer.
        self._output: list[Buffer] = [write(connect, self.version)]

    # --- output

    def take_output(self) -> list[Buffer]:
        """Return what is to be sent, and forget it."""
        output, self._output = self._output, []
        return output

    @property
    def room(self) -> int:
        """Return how many messages of QoS 1 and 2 may be sent before one is acknowledged."""
        if self.connack is None:
            return 0
        most = self.connack.properties.receive_maximum or _RECEIVE_MAXIMUM
        return max(0, most - len(self.session.sent))

    def publish(
        self,
        topic: str,
        payload: Buffer,
        qos: int = 0,
        *,
        retain: bool = False,
        properties: Properties | bytes = NO_PROPERTIES,
    ) -> int:
        """Send a message; return its packet identifier, 0 for QoS 0.

        Of QoS 1 and 2 there must be `room`. Properties are not sent before version 5.
        """
        raw = None
        if self.version == V5:
            raw = properties if isinstance(properties, bytes) else encode_raw(properties)
        message = Outgoing(qos, retain, topic.encode(), raw, payload)
        packet_id = 0
        if qos:
            assert self.room, "more messages than the server accepts at once"
            packet_id = self._next_id()
            self.session.sent[packet_id] = message
        self._output += [head(message, packet_id), payload]
        return packet_id

    def subscribe(
        self, subscriptions: Sequence[Subscription], properties: Properties = NO_PROPERTIES
    ) -> int:
        """Send SUBSCRIBE; return the packet identifier that SUBACK will have."""
        packet_id = self._next_id()
        self._asked[packet_id] = None
        self._write(Subscribe(packet_id, tuple(subscriptions), properties))
        return packet_id

    def unsubscribe(self, filters: Sequence[str]) -> int:
        """Send UNSUBSCRIBE; return the packet identifier that UNSUBACK will have."""
        packet_id = self._next_id()
        self._asked[packet_id] = None
        self._write(Unsubscribe(packet_id, tuple(filters)))
        return packet_id

    def acknowledge(self, message: Arrived, reason: Reason = Reason.SUCCESS) -> None:
        """Tell the server that a message is safe here. Nothing is sent for QoS 0.

        One of QoS 1 must have come on this connection, otherwise it will come again; one of QoS 2
        may have come on an earlier one of the session.
        """
        packet_id, came = message.packet_id, self.session.came
        if message.qos == 1 and self._to_acknowledge.get(packet_id) is message:
            del self._to_acknowledge[packet_id]
            self._write(Ack(PacketType.PUBACK, packet_id, reason))
        elif message.qos == 2 and came.get(packet_id) is message:
            if reason < FAILURE:
                came[packet_id] = None
            else:
                del came[packet_id]
            self._write(Ack(PacketType.PUBREC, packet_id, reason))

    def ping(self) -> None:
        self._write(Pingreq())

    def authenticate(self, packet: Auth) -> None:
        self._write(packet)

    def disconnect(
        self, reason: Reason = Reason.SUCCESS, properties: Properties = NO_PROPERTIES
    ) -> None:
        """Send DISCONNECT, the last packet."""
        self._write(Disconnect(reason, properties))
        self.is_over = True

    def _write(self, packet: Packet) -> None:
        self._output.append(write(packet, self.version))

    def _next_id(self) -> int:
        """Return a packet identifier that is free. Raises MqttError if none is."""
        session = self.session
        for _ in range(PACKET_ID_END):
            session.last_id = session.last_id % (PACKET_ID_END - 1) + 1
            if session.last_id not in session.sent and session.last_id not in self._asked:
                return session.last_id
        raise MqttError(Reason.RECEIVE_MAXIMUM_EXCEEDED, "no free packet identifier")

    # --- input

    def writable(self) -> memoryview:
        """Return where the next bytes go. Never empty."""
        return self._inbox.writable()

    def received(self, size: int) -> list[ClientEvent]:
        """Return the events of all packets that are now complete."""
        found: list[ClientEvent] = []
        try:
            for event in self._inbox.received(size):
                self._take(event, found)
        except MqttError as error:
            found.append(error)
        if found and isinstance(found[-1], MqttError | Disconnect):
            self.is_over = True
        return found

    def _take(self, event: Event, found: list[ClientEvent]) -> None:
        match event:
            case Publishes():
                self._take_messages(event, found)
            case Acks():
                for packet_id in event.ids:
                    self._take_ack(event.type, packet_id, event.reason, found)
            case Connack():
                self._take_connack(event)
                found.append(event)
            case Suback() | Unsuback():
                if event.packet_id not in self._asked:
                    raise violated(f"{event.TYPE.name} that nobody asked for")
                del self._asked[event.packet_id]
                found.append(event)
            case Pingresp() | Auth() | Disconnect() | MqttError():
                found.append(event)
            case _:
                raise violated(f"{event.TYPE.name} from a server")

    def _take_connack(self, packet: Connack) -> None:
        """Send again what was not acknowledged, in the order in which it was sent first."""
        self.connack = packet
        if packet.reason:
            self.is_over = True
            return
        session = self.session
        if not packet.session_present:
            # The server has forgotten: what it had received it may have passed on, and what was
            # on its way is new to it.
            session.came.clear()
            session.sent = {number: each for number, each in session.sent.items() if each}
        for packet_id, message in session.sent.items():
            if message is None:
                self._write(Ack(PacketType.PUBREL, packet_id))
            else:
                is_again = packet.session_present
                self._output += [head(message, packet_id, is_again=is_again), message.body]

    def _take_messages(self, run: Publishes, found: list[ClientEvent]) -> None:
        qos, came = run.qos, self.session.came
        for number, (envelope, payload) in enumerate(run.messages):
            packet_id = run.ids[number] if qos else 0
            if qos == 2 and packet_id in came:
                if came[packet_id] is None:
                    self._write(Ack(PacketType.PUBREC, packet_id))
                continue
            message = Arrived(
                envelope.subject,
                payload,
                qos,
                run.is_retained,
                run.is_repeated,
                envelope.head[1:],
                packet_id,
            )
            if qos == 1:
                self._to_acknowledge[packet_id] = message
            elif qos == 2:
                came[packet_id] = message
            found.append(message)

    def _take_ack(
        self, type: PacketType, packet_id: int, reason: Reason, found: list[ClientEvent]
    ) -> None:
        sent = self.session.sent
        if type is PacketType.PUBREL:
            is_known = packet_id in self.session.came
            self.session.came.pop(packet_id, None)
            answer = Reason.SUCCESS if is_known else Reason.PACKET_IDENTIFIER_NOT_FOUND
            self._write(Ack(PacketType.PUBCOMP, packet_id, answer))
        elif type is PacketType.PUBREC and reason < FAILURE:
            if packet_id in sent:
                sent[packet_id] = None
            self._write(Ack(PacketType.PUBREL, packet_id))
        elif packet_id in sent:
            del sent[packet_id]
            found.append(Published(packet_id, reason))
