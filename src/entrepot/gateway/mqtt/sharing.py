"""Messages as packets: what is alike is worked out once, and encoded once for several clients."""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_

from entrepot.broker.session.ports import Way
from entrepot.broker.subject.name import to_path
from entrepot.core import limits
from entrepot.core.message import Envelope, Message, distinct
from entrepot.core.ports import Buffer
from entrepot.gateway.mqtt.format import MQTT
from entrepot.wire.mqtt.deliver import EncodedRun, Lead, Outgoing, encode_alike, encode_led, lead_of
from entrepot.wire.mqtt.properties import expiry_of, identifier_bytes, with_expiry

_SHARED_BYTES_MAX = 256 * limits.KIB  # Of messages that are kept encoded for other clients.
_BODY_BYTES_MAX = 4 * limits.KIB  # On average. Larger ones are not copied.


def encoding_key(is_5: bool, keeps_retain: bool, identifiers: tuple[int, ...] = ()) -> object:
    """Return by what messages of QoS 0 are known that are encoded for several clients."""
    return is_5, keeps_retain, identifiers


def topic_of(envelope: Envelope) -> bytes:
    """Return the topic that a message was published on."""
    topic = envelope.path
    if topic is None:
        topic = to_path(envelope.subject).encode("utf-8", "surrogateescape")
        envelope.path = topic
    return topic


class SharedEncoding:
    """The last messages that were delivered to some client, encoded for others that get the same.

    Sessions that have subscribed to the same get the same messages one after the other.
    """

    def __init__(self) -> None:
        self._messages: Sequence[Message] = ()
        self._encoded: dict[object, tuple[EncodedRun, int] | None] = {}

    def encoded(
        self, messages: Sequence[Message], is_5: bool, way: Way
    ) -> tuple[EncodedRun, int] | None:
        """Return messages that are to be answered, encoded, and their QoS.

        None means: they do not all have the same QoS, or are large.
        """
        if len(messages) != len(self._messages) or not all(map(is_, messages, self._messages)):
            self._messages = messages
            self._encoded.clear()
        key = is_5, way
        if key in self._encoded:
            return self._encoded[key]
        found = self._encode(messages, is_5, way)
        if self._messages:
            self._encoded[key] = found
        return found

    def _encode(
        self, messages: Sequence[Message], is_5: bool, way: Way
    ) -> tuple[EncodedRun, int] | None:
        size = sum([len(body) for _, body in messages])
        if size > _SHARED_BYTES_MAX:
            self._messages = ()  # Do not keep them in memory.
            if size > _BODY_BYTES_MAX * len(messages):
                return None
        qualities = [min(way.quality, MQTT.quality(envelope)) for envelope in distinct(messages)]
        qos = qualities[0]
        if not qos or qualities.count(qos) != len(qualities):
            return None
        return Encoder(is_5, way, 0).run(messages, qos), qos


class Encoder:
    """Makes packets of messages that come the same way; those alike share what is worked out."""

    __slots__ = ("_elapsed_s", "_envelope", "_is_5", "_properties", "_topic", "_way", "has_expired")

    def __init__(self, is_5: bool, way: Way, elapsed_s: int) -> None:
        self._is_5 = is_5
        self._way = way
        self._elapsed_s = elapsed_s
        self._envelope: Envelope | None = None  # The one before.
        self._topic = b""
        self._properties: bytes | None = None
        self.has_expired = False  # Whether the last message is older than it may become.

    def run(self, messages: Sequence[Message], qos: int) -> EncodedRun:
        """Encode messages. They must have no time to live, or not have waited."""
        first, body = messages[0]
        if first is messages[-1][0] and len(distinct(messages)) == 1:
            bodies = [each for _, each in messages]
            if len({len(each) for each in bodies}) == 1:
                return encode_alike(self.outgoing(first, body, qos), bodies)
        leads: dict[tuple[int, int], Lead] = {}  # By the identity of an envelope, and the size.
        found: list[tuple[Lead, Buffer]] = []
        for envelope, body in messages:
            key = id(envelope), len(body)
            lead = leads.get(key)
            if lead is None:
                lead = leads[key] = lead_of(self.outgoing(envelope, body, qos))
            found.append((lead, body))
        return encode_led(found)

    def outgoing(self, envelope: Envelope, body: Buffer, qos: int) -> Outgoing:
        way = self._way
        if envelope is not self._envelope:
            self._envelope = envelope
            self._topic = topic_of(envelope)
            if self._is_5:
                self._properties = self._raw_properties(envelope)
        is_retained = way.is_retained or (way.keeps_retain and MQTT.is_retained(envelope))
        return Outgoing(qos, is_retained, self._topic, self._properties, body)

    def _raw_properties(self, envelope: Envelope) -> bytes:
        raw = MQTT.raw_properties(envelope)
        self.has_expired = False
        if raw and self._elapsed_s:
            expiry_s = expiry_of(raw)
            if expiry_s is not None:
                self.has_expired = expiry_s <= self._elapsed_s
                raw = with_expiry(raw, max(0, expiry_s - self._elapsed_s))
        if self._way.identifiers:
            raw += identifier_bytes(self._way.identifiers)
        return raw
