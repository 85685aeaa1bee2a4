"""PUBLISH to a client, and its answers: the receiver of the client's session.

What is delivered at most once is encoded once for all clients that get it in the same form, and
dropped for a client that does not read. Everything else waits in the session until the client
has answered enough of what it got before, and has read it.

Messages that a client cannot get (its packets are limited, or it has no right to read them) are
passed over, as if it had acknowledged them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.session.ports import Broadcast, Parcel, Way
from entrepot.core import limits
from entrepot.core.message import Envelope, Message
from entrepot.core.ports import Buffer
from entrepot.gateway.mqtt.answers import short
from entrepot.gateway.mqtt.format import MQTT
from entrepot.gateway.mqtt.sharing import Encoder, SharedEncoding, topic_of
from entrepot.wire.mqtt import limits as mqtt_limits
from entrepot.wire.mqtt.deliver import Outgoing, encode_numbered, encode_one, encode_plain, head
from entrepot.wire.mqtt.packets import Ack, write
from entrepot.wire.mqtt.properties import (
    PacketType,
    alias_bytes,
)
from entrepot.wire.mqtt.reasons import MqttError, Reason
from entrepot.wire.mqtt.scan import Acks

if TYPE_CHECKING:
    from entrepot.broker.session.session import Session
    from entrepot.gateway.mqtt.context import Context, MqttPeer, Terms

_PUBREL = PacketType.PUBREL << 4 | 0x02
_SMALL_BYTES = 4 * limits.KIB  # Up to this size a body is copied behind its head.

# What is awaited for a number.
_PUBACK, _PUBREC, _COMMIT, _PUBCOMP = 1, 2, 3, 4


class Delivery:
    """Implements `Receiver`."""

    __slots__ = (
        "_adapter",
        "_aliases",
        "_aliases_max",
        "_clock",
        "_counted",
        "_finished",
        "_has_answered",
        "_in_flight",
        "_is_5",
        "_is_backlogged",
        "_is_limited",
        "_is_plain",
        "_message_bytes",
        "_outbox",
        "_shared",
        "_terms",
        "dropped",
        "session",
    )

    def __init__(self, adapter: MqttPeer, context: Context, terms: Terms) -> None:
        self._adapter = adapter
        self._outbox = adapter.outbox
        self._clock = context.clock
        self._counted = context.messages
        self._shared: SharedEncoding = context.shared
        self._terms = terms
        self._is_5 = terms.is_5
        self._is_limited = not terms.principal.is_unlimited
        self._aliases: dict[str, int] = {}  # Of topics that the client knows by a number.
        self._aliases_max = min(terms.topic_aliases_max, mqtt_limits.TOPIC_ALIASES_OUT_MAX)
        # Whether it gets messages in the same form as others.
        self._is_plain = (
            terms.packet_bytes_max is None and not self._is_limited and not self._aliases_max
        )
        self._in_flight: dict[int, int] = {}  # What is awaited, by number.
        self._message_bytes = 1 * limits.KIB  # Average size in the last delivery.
        self._finished: list[int] = []  # Numbers that the client will not answer.
        self._has_answered = False  # Since the last turn: the session may have more.
        self._is_backlogged = False  # The session was told that there is no room.
        self.dropped = 0  # Messages, because the client does not read.
        self.session: Session | None = None

    # --- Receiver

    def room(self) -> int:
        outbox = self._outbox
        left = limits.BACKLOG_BYTES_HIGH - outbox.bytes_waiting - outbox.link.backlog
        if left <= 0:
            self._is_backlogged = True
            return 0
        count = self._terms.in_flight_max - len(self._in_flight)
        return min(count, left // self._message_bytes + 1)

    def receive(self, broadcast: Broadcast, way: Way) -> None:
        messages = broadcast.run.messages
        outbox = self._outbox
        if outbox.bytes_waiting + outbox.link.backlog > limits.BACKLOG_BYTES_HIGH:
            self.dropped += len(messages)
            return
        self._counted.delivered += len(messages)
        if not self._is_plain or way.is_retained:
            self._receive_each(broadcast, way)
            return
        encoded = broadcast.encoded
        key = self._is_5, way.keeps_retain, way.identifiers  # See `encoding_key`.
        data = encoded.get(key)
        if data is None:
            if len(messages) > 1:
                data = Encoder(self._is_5, way, 0).run(messages, 0).data
            else:
                data = self._encoded_alone(messages[0], way)
            encoded[key] = data
        outbox.send(data)

    def _encoded_alone(self, message: Message, way: Way) -> bytes:
        envelope, body = message
        if not self._is_5 and not way.keeps_retain:
            return encode_plain(envelope.path or topic_of(envelope), body)
        return encode_one(Encoder(self._is_5, way, 0).outgoing(envelope, body, 0))

    def _receive_each(self, broadcast: Broadcast, way: Way) -> None:
        time_ms, messages = broadcast.run
        encoder = Encoder(self._is_5, way, self._elapsed_s(time_ms))
        for envelope, body in messages:
            outgoing = self._fitting(envelope, encoder.outgoing(envelope, body, 0))
            if outgoing is not None:
                self._outbox.send_all((head(outgoing), body))

    def deliver(self, parcel: Parcel) -> None:
        run, numbers, way, is_repeated = parcel
        time_ms, messages = run
        elapsed_s = self._elapsed_s(time_ms) if self._is_5 else 0  # Others are not told.
        if self._is_plain and not is_repeated and not elapsed_s:
            if len(numbers) == 1 and self._deliver_alone(messages[0], numbers[0], way):
                return
            shared = self._shared.encoded(messages, self._is_5, way)
            if shared is not None:
                encoded, qos = shared
                awaited = _PUBACK if qos == 1 else _PUBREC
                self._in_flight.update(dict.fromkeys(numbers, awaited))
                self._sent(len(numbers), [encoded.with_ids(numbers)])
                return
        encoder = Encoder(self._is_5, way, elapsed_s)
        in_flight = self._in_flight
        chunks: list[Buffer] = []
        finished: list[int] = []
        for (envelope, body), number in zip(messages, numbers, strict=True):
            qos = min(way.quality, MQTT.quality(envelope))
            outgoing: Outgoing | None = encoder.outgoing(envelope, body, qos)
            if not self._is_plain or encoder.has_expired:
                outgoing = None if encoder.has_expired else self._fitting(envelope, outgoing)
            if outgoing is None or not qos:
                finished.append(number)
            if outgoing is None:
                continue
            if qos:
                in_flight[number] = _PUBACK if qos == 1 else _PUBREC
            lead = head(outgoing, number, is_again=is_repeated and qos > 0)
            if len(body) <= _SMALL_BYTES:
                chunks.append(lead + body)
            else:
                chunks += (lead, body)
        if chunks:
            self._sent(len(numbers), chunks)
        if finished:
            self._finished += finished
            self._adapter.wake()

    def _deliver_alone(self, message: Message, number: int, way: Way) -> bool:
        """Deliver one message, if it is the simplest case; return whether it is."""
        envelope, body = message
        qos = min(way.quality, MQTT.quality(envelope))
        if self._is_5 or way.is_retained or way.keeps_retain or not qos:
            return False
        if len(body) > _SMALL_BYTES:
            return False
        self._in_flight[number] = _PUBACK if qos == 1 else _PUBREC
        data = encode_numbered(qos, envelope.path or topic_of(envelope), number, body)
        self._counted.delivered += 1
        self._message_bytes = len(data)
        self._outbox.send(data)
        return True

    def _sent(self, count: int, chunks: Sequence[Buffer]) -> None:
        """Send encoded messages, and remember their average size."""
        self._counted.delivered += count
        before = self._outbox.bytes_waiting
        self._outbox.send_all(chunks)
        self._message_bytes = (self._outbox.bytes_waiting - before) // count + 1

    def release(self, numbers: Sequence[int]) -> None:
        for number in numbers:
            self._in_flight[number] = _PUBCOMP
        self._outbox.send(short(_PUBREL, numbers))

    def taken_over(self) -> None:
        text = "another client has connected with this client identifier"
        self._adapter.guard(self._adapter.end, MqttError(Reason.SESSION_TAKEN_OVER, text))

    def ended(self, reason: str) -> None:
        self._adapter.guard(self._adapter.end, MqttError(Reason.ADMINISTRATIVE_ACTION, reason))

    # --- answers of the client

    def answered(self, acks: Acks) -> None:
        """Handle PUBACK, PUBREC and PUBCOMP packets."""
        session, in_flight = self.session, self._in_flight
        assert session is not None
        self._has_answered = True
        if acks.type is PacketType.PUBREC and not acks.has_failed:
            self._received(acks.ids)
            return
        awaited = _AWAITED[acks.type]
        numbers = [number for number in acks.ids if in_flight.get(number) == awaited]
        for number in numbers:
            in_flight.pop(number, None)
        if not numbers:
            return
        if awaited == _PUBCOMP:
            session.completed(numbers)
        else:  # A client that has refused a message does not get it again (section 4.3).
            session.acknowledge(numbers)

    def _received(self, numbers: Sequence[int]) -> None:
        in_flight = self._in_flight
        received = []
        for number in numbers:
            awaited = in_flight.get(number)
            if awaited == _PUBREC:
                in_flight[number] = _COMMIT
                received.append(number)
            elif awaited == _PUBCOMP:
                self._outbox.send(short(_PUBREL, (number,)))
            elif awaited is None:
                unknown = Ack(PacketType.PUBREL, number, Reason.PACKET_IDENTIFIER_NOT_FOUND)
                self._outbox.send(write(unknown, self._terms.version))
        if received and self.session is not None:
            self.session.received(received)

    def end_turn(self) -> None:
        """Ask the session for more, if the client has answered or read something."""
        if self._is_backlogged and self._outbox.backlog <= limits.BACKLOG_BYTES_HIGH // 2:
            self._is_backlogged = False
            self._has_answered = True
        session = self.session
        if session is None:
            return
        if self._finished:
            finished, self._finished = self._finished, []
            session.acknowledge(finished)
        if self._has_answered:
            self._has_answered = False
            session.wake()

    # --- what a client gets

    def _elapsed_s(self, time_ms: int) -> int:
        """Return how long messages have waited."""
        return max(0, self._clock.now_ms() - time_ms) // 1_000

    def _fitting(self, envelope: Envelope, outgoing: Outgoing | None) -> Outgoing | None:
        """Return the message as this client gets it; None if it cannot."""
        if outgoing is None:
            return None
        principal = self._terms.principal
        if self._is_limited and not principal.may(
            Operation.READ, ResourceKind.TOPIC, envelope.subject
        ):
            return None
        bytes_max = self._terms.packet_bytes_max
        if bytes_max is not None:
            spare = len(alias_bytes(1)) if self._aliases_max else 0
            if len(head(outgoing)) + spare + len(outgoing.body) > bytes_max:
                return None
        return self._aliased(envelope.subject, outgoing) if self._aliases_max else outgoing

    def _aliased(self, subject: str, outgoing: Outgoing) -> Outgoing:
        """Return the message with a topic alias, in place of the topic if the client knows it."""
        alias = self._aliases.get(subject)
        topic = b""
        if alias is None:
            if len(self._aliases) >= self._aliases_max:
                return outgoing
            alias = self._aliases[subject] = len(self._aliases) + 1
            topic = outgoing.topic
        properties = alias_bytes(alias) + (outgoing.properties or b"")
        return outgoing._replace(topic=topic, properties=properties)


_AWAITED = {
    PacketType.PUBACK: _PUBACK,
    PacketType.PUBREC: _PUBREC,
    PacketType.PUBCOMP: _PUBCOMP,
}
