"""The format of MQTT's properties: how they are read, changed and stored.

A head is one byte with QoS and RETAIN, as in a PUBLISH packet, and the properties of version 5 as
its publisher wrote them. Where the broker has to note something about the message, a bit of the
first byte is set, and the note is between both: its size in four bytes, and MessagePack. The
record of a message has a header `mqtt` with exchange, subject and head.

A client of version 5 gets the properties that another one of version 5 wrote. Messages of other
formats are translated: see docs/MAPPING.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from entrepot.core.message import PERSISTENT, PLAIN, Envelope, Handling
from entrepot.core.neutral import header_bytes
from entrepot.core.properties import TEXTS, Death, Properties
from entrepot.gateway.mqtt.note import NO_NOTE, Note, decode, encode
from entrepot.wire.mqtt import properties as wire
from entrepot.wire.mqtt.limits import TEXT_BYTES_MAX, USER_PROPERTIES_MAX
from entrepot.wire.mqtt.reasons import MqttError
from entrepot.wire.mqtt.topics import check_name

RETAIN, QOS, NOTED = 0x01, 0x06, 0x08  # Bits of the first byte. Persisted.
_NOTE_SIZE_BYTES = 4
_NAME_SIZE_BYTES = 2
# What correlation data that is not a text is called in other protocols.
CORRELATION_DATA = "mqtt-correlation-data"
_FOREIGN_QOS = 1  # Of messages that other protocols published.

_PLAIN = PLAIN, PERSISTENT, PERSISTENT
# Shared properties that MQTT has a property for.
_OWN = ("content_type", "correlation_id", "reply_to")
_PROPERTIES_BYTES_MAX = 64 * 1_024  # Of a message from another protocol.


def _split(head: bytes) -> tuple[int, Note, bytes]:
    """Return QoS and RETAIN, the broker's note, and the properties."""
    flags = head[0]
    if not flags & NOTED:
        return flags, NO_NOTE, head[1:]
    note_at = 1 + _NOTE_SIZE_BYTES
    end = note_at + int.from_bytes(head[1:note_at], "big")
    return flags & ~NOTED, decode(head[note_at:end]), head[end:]


def _join(flags: int, note: Note, properties: bytes) -> bytes:
    if note == NO_NOTE:
        return bytes((flags,)) + properties
    noted = encode(note)
    size = len(noted).to_bytes(_NOTE_SIZE_BYTES, "big")
    return b"".join((bytes((flags | NOTED,)), size, noted, properties))


def with_identity(head: bytes, identity: bytes) -> bytes:
    """Return the head of a message that is recognised when it is published again."""
    flags, note, properties = _split(head)
    return _join(flags, replace(note, identity=identity), properties)


class MqttFormat:
    """Implements `Format` for MQTT."""

    name = "mqtt"

    def handling(self, head: bytes) -> Handling:
        flags, note, raw = _split(head)
        plain = _PLAIN[flags >> 1]
        if not raw and note.identity is None:
            return plain
        ttl_ms = None
        if raw:
            expiry_s = wire.expiry_of(raw)
            ttl_ms = None if expiry_s is None else expiry_s * 1_000
        return plain._replace(ttl_ms=ttl_ms, deduplication_id=note.identity)

    def properties(self, head: bytes) -> Properties:
        flags, _, raw = _split(head)
        found = wire.decode_raw(raw)
        headers: dict[str, object] = {}
        for name, value in found.user_properties:
            headers.setdefault(name, value)
        correlation_id, data = None, found.correlation_data
        if data is not None:
            try:
                correlation_id = data.decode()
            except UnicodeDecodeError:
                headers.setdefault(CORRELATION_DATA, data)
        expiry_s = found.message_expiry_interval
        return Properties(
            content_type=found.content_type,
            correlation_id=correlation_id,
            reply_to=found.response_topic,
            ttl_ms=None if expiry_s is None else expiry_s * 1_000,
            is_persistent=flags >= 1 << 1,
            headers=headers,
        )

    def readable(self, head: bytes) -> Iterator[tuple[str, bytes | None]]:
        found = wire.decode_raw(_split(head)[2])
        if found.content_type is not None:
            yield TEXTS["content_type"], found.content_type.encode()
        if found.correlation_data is not None:
            yield TEXTS["correlation_id"], found.correlation_data
        if found.response_topic is not None:
            yield TEXTS["reply_to"], found.response_topic.encode()
        if found.message_expiry_interval is not None:
            yield "expiration", b"%d" % (found.message_expiry_interval * 1_000)
        for name, value in found.user_properties:
            yield name, value.encode()

    # --- what the broker adds

    def without_blind_copies(self, head: bytes) -> bytes:
        return head

    def delayed_at(self, head: bytes, exchange: str) -> bytes:
        flags, note, properties = _split(head)
        return _join(flags, replace(note, delayed_at=exchange), properties)

    def after_delay(self, head: bytes) -> tuple[str, bytes]:
        flags, note, properties = _split(head)
        return note.delayed_at, _join(flags, replace(note, delayed_at=""), properties)

    def deaths(self, head: bytes) -> Sequence[Death]:
        return _split(head)[1].deaths

    def with_deaths(
        self, head: bytes, deaths: Sequence[Death], exchange: str, *, keeps_copies: bool
    ) -> bytes:
        flags, note, raw = _split(head)
        return _join(flags, replace(note, deaths=tuple(deaths)), wire.without_expiry(raw))

    # --- records

    def pack(self, envelope: Envelope) -> bytes:
        names = (each.encode("utf-8", "surrogateescape") for each in _names(envelope))
        return b"".join((*map(_sized, names), envelope.head))

    def unpack(self, packed: bytes) -> Envelope | None:
        names = []
        at = 0
        for _ in range(2):
            start = at + _NAME_SIZE_BYTES
            at = start + int.from_bytes(packed[at:start], "big")
            names.append(packed[start:at].decode("utf-8", "surrogateescape"))
        head = packed[at:]
        if at >= len(packed) or not _is_head(head):
            return None
        return Envelope(names[0], names[1], head, self)

    # --- for the receiver of a message of any format

    def quality(self, envelope: Envelope) -> int:
        """Return the QoS that a message was published with."""
        if envelope.format is self:
            return (envelope.head[0] & QOS) >> 1
        return _FOREIGN_QOS

    def is_retained(self, envelope: Envelope) -> bool:
        """Return whether the message was published to be retained."""
        return envelope.format is self and bool(envelope.head[0] & RETAIN)

    def raw_properties(self, envelope: Envelope) -> bytes:
        """Return the properties as a client of version 5 gets them, without their size."""
        if envelope.format is self:
            head = envelope.head
            return _split(head)[2] if head[0] & NOTED else head[1:]
        return _translated(envelope.properties)


MQTT = MqttFormat()


def _names(envelope: Envelope) -> tuple[str, str]:
    return envelope.exchange, envelope.subject


def _sized(data: bytes) -> bytes:
    return len(data).to_bytes(_NAME_SIZE_BYTES, "big") + data


def _is_head(head: bytes) -> bool:
    if head[0] & ~NOTED > QOS or head[0] & QOS == QOS:
        return False
    try:
        _, _, raw = _split(head)
        wire.check_publish(raw)
    except (MqttError, msgspec.DecodeError, ValueError, RecursionError):
        return False
    return True


# Translating.


def _translated(properties: Properties) -> bytes:
    """Return the shared properties as those of MQTT; what it has none for as user properties."""
    values: dict[str, Any] = {}
    if properties.content_type is not None and _fits(properties.content_type):
        values["content_type"] = properties.content_type
    if properties.correlation_id is not None:
        values["correlation_data"] = properties.correlation_id.encode("utf-8", "surrogateescape")
    if properties.reply_to is not None and _is_topic(properties.reply_to):
        values["response_topic"] = properties.reply_to
    if properties.ttl_ms is not None:
        values["message_expiry_interval"] = min(-(-properties.ttl_ms // 1_000), 2**32 - 1)
    pairs = [
        (header, getattr(properties, name))
        for name, header in TEXTS.items()
        if name not in _OWN and getattr(properties, name) is not None
    ]
    pairs += [
        (name, str(value))
        for name in ("priority", "timestamp")
        if (value := getattr(properties, name)) is not None
    ]
    data = properties.headers.get(CORRELATION_DATA)
    if isinstance(data, bytes) and "correlation_data" not in values:
        values["correlation_data"] = data[:TEXT_BYTES_MAX]
    pairs += _texts(properties.headers)
    return wire.encode_raw(wire.Properties(**values, user_properties=tuple(_fitting(pairs))))


def _texts(headers: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    for name, value in headers.items():
        if value is not None and name != CORRELATION_DATA:
            yield name, header_bytes(value).decode("utf-8", "replace")


def _fitting(pairs: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Return the user properties that MQTT can tell; the first ones, if there are too many."""
    size = 0
    for count, (name, value) in enumerate(pairs):
        size += len(name) + len(value)
        if count >= USER_PROPERTIES_MAX or size > _PROPERTIES_BYTES_MAX:
            return
        if _fits(name) and _fits(value):
            yield name, value


def _fits(text: str) -> bool:
    """Return whether this can be a text of MQTT."""
    try:
        return len(text.encode()) <= TEXT_BYTES_MAX and "\0" not in text
    except UnicodeEncodeError:
        return False


def _is_topic(text: str) -> bool:
    try:
        check_name(text)
    except MqttError:
        return False
    return _fits(text)
