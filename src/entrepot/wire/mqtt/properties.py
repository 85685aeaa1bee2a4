"""The properties of MQTT 5 (section 2.2.2): their types, and which packets may have them.

Properties of most packets are decoded into `Properties`. Those of a PUBLISH stay bytes on their
way through the broker: `check_publish` only looks through them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import Any, NamedTuple

from entrepot.wire.mqtt.limits import USER_PROPERTIES_MAX
from entrepot.wire.mqtt.reader import Reader, sized, variable_bytes
from entrepot.wire.mqtt.reasons import MqttError, Reason, malformed, violated
from entrepot.wire.mqtt.topics import check_name


class PacketType(IntEnum):
    """Section 2.1.2. WILL is none: it stands for the properties of a will in CONNECT."""

    WILL = 0
    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


@dataclass(frozen=True, slots=True)
class Properties:
    """None means: not given."""

    payload_format_indicator: int | None = None
    message_expiry_interval: int | None = None  # Seconds, as all intervals.
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None


NO_PROPERTIES = Properties()


class _Kind(NamedTuple):
    """How values of one type are read and written."""

    read: Callable[[Reader], Any]
    write: Callable[[Any], bytes]


def _flag(reader: Reader) -> int:
    value = reader.byte()
    if value > 1:
        raise violated(f"a property that is 0 or 1, not {value}")
    return value


def _not_zero(size: int) -> Callable[[Reader], int]:
    def read(reader: Reader) -> int:
        value = reader.number(size)
        if not value:
            raise violated("a property that must not be 0")
        return value

    return read


def _alias(reader: Reader) -> int:
    value = reader.number(2)
    if not value:
        raise MqttError(Reason.TOPIC_ALIAS_INVALID, "topic alias 0")
    return value


def _identifier(reader: Reader) -> int:
    value = reader.variable()
    if not value:
        raise violated("subscription identifier 0")
    return value


def _pair(reader: Reader) -> tuple[str, str]:
    return reader.text(), reader.text()


def _topic(reader: Reader) -> str:
    name = reader.text()
    try:
        check_name(name)
    except MqttError as error:
        raise violated(f"response topic: {error}") from None
    return name


def _of_size(size: int) -> Callable[[int], bytes]:
    return lambda value: value.to_bytes(size, "big")


def _number(size: int) -> Callable[[Reader], int]:
    return lambda reader: reader.number(size)


def write_text(text: str) -> bytes:
    return sized(text.encode())


def _write_pair(pair: tuple[str, str]) -> bytes:
    return write_text(pair[0]) + write_text(pair[1])


_FLAG = _Kind(_flag, _of_size(1))
_TWO = _Kind(_number(2), _of_size(2))
_FOUR = _Kind(_number(4), _of_size(4))
_TWO_NOT_ZERO = _Kind(_not_zero(2), _of_size(2))
_FOUR_NOT_ZERO = _Kind(_not_zero(4), _of_size(4))
_ALIAS = _Kind(_alias, _of_size(2))
_IDENTIFIER = _Kind(_identifier, variable_bytes)
_TEXT = _Kind(Reader.text, write_text)
_TOPIC = _Kind(_topic, write_text)
_BINARY = _Kind(Reader.binary, sized)
_PAIR = _Kind(_pair, _write_pair)


class _Property(NamedTuple):
    id: int
    name: str
    kind: _Kind
    packets: frozenset[PacketType]


def _property(id: int, name: str, kind: _Kind, *packets: PacketType) -> _Property:
    return _Property(id, name, kind, frozenset(packets))


_P = PacketType
_ANSWERS = (_P.CONNACK, _P.PUBACK, _P.PUBREC, _P.PUBREL, _P.PUBCOMP, _P.SUBACK, _P.UNSUBACK)
_ALL = (
    _P.WILL,
    _P.CONNECT,
    _P.PUBLISH,
    _P.SUBSCRIBE,
    _P.UNSUBSCRIBE,
    _P.DISCONNECT,
    _P.AUTH,
    *_ANSWERS,
)

# Section 2.2.2.2.
_TABLE = (
    _property(0x01, "payload_format_indicator", _FLAG, _P.PUBLISH, _P.WILL),
    _property(0x02, "message_expiry_interval", _FOUR, _P.PUBLISH, _P.WILL),
    _property(0x03, "content_type", _TEXT, _P.PUBLISH, _P.WILL),
    _property(0x08, "response_topic", _TOPIC, _P.PUBLISH, _P.WILL),
    _property(0x09, "correlation_data", _BINARY, _P.PUBLISH, _P.WILL),
    _property(0x0B, "subscription_identifiers", _IDENTIFIER, _P.PUBLISH, _P.SUBSCRIBE),
    _property(0x11, "session_expiry_interval", _FOUR, _P.CONNECT, _P.CONNACK, _P.DISCONNECT),
    _property(0x12, "assigned_client_identifier", _TEXT, _P.CONNACK),
    _property(0x13, "server_keep_alive", _TWO, _P.CONNACK),
    _property(0x15, "authentication_method", _TEXT, _P.CONNECT, _P.CONNACK, _P.AUTH),
    _property(0x16, "authentication_data", _BINARY, _P.CONNECT, _P.CONNACK, _P.AUTH),
    _property(0x17, "request_problem_information", _FLAG, _P.CONNECT),
    _property(0x18, "will_delay_interval", _FOUR, _P.WILL),
    _property(0x19, "request_response_information", _FLAG, _P.CONNECT),
    _property(0x1A, "response_information", _TEXT, _P.CONNACK),
    _property(0x1C, "server_reference", _TEXT, _P.CONNACK, _P.DISCONNECT),
    _property(0x1F, "reason_string", _TEXT, _P.DISCONNECT, _P.AUTH, *_ANSWERS),
    _property(0x21, "receive_maximum", _TWO_NOT_ZERO, _P.CONNECT, _P.CONNACK),
    _property(0x22, "topic_alias_maximum", _TWO, _P.CONNECT, _P.CONNACK),
    _property(0x23, "topic_alias", _ALIAS, _P.PUBLISH),
    _property(0x24, "maximum_qos", _FLAG, _P.CONNACK),
    _property(0x25, "retain_available", _FLAG, _P.CONNACK),
    _property(0x26, "user_properties", _PAIR, *_ALL),
    _property(0x27, "maximum_packet_size", _FOUR_NOT_ZERO, _P.CONNECT, _P.CONNACK),
    _property(0x28, "wildcard_subscription_available", _FLAG, _P.CONNACK),
    _property(0x29, "subscription_identifier_available", _FLAG, _P.CONNACK),
    _property(0x2A, "shared_subscription_available", _FLAG, _P.CONNACK),
)
_BY_ID = {each.id: each for each in _TABLE}
_BY_NAME = {each.name: each for each in _TABLE}
assert [*_BY_NAME] == [each.name for each in fields(Properties)]

_EXPIRY, _IDENTIFIERS, _TOPIC_ALIAS, _USER = 0x02, 0x0B, 0x23, 0x26


def decode(reader: Reader, packet: PacketType) -> Properties:
    """Read the size of the properties and the properties. Raises MqttError."""
    size = reader.variable()
    if not size:
        return NO_PROPERTIES
    end = reader.at + size
    if end > reader.end:
        raise malformed("properties that are longer than their packet")
    inner = Reader(reader.data, reader.at, end)
    reader.at = end
    return Properties(**_read(inner, packet))


def decode_raw(data: bytes, packet: PacketType = PacketType.PUBLISH) -> Properties:
    """Return properties whose size is known. Raises MqttError."""
    return Properties(**_read(Reader(data), packet)) if data else NO_PROPERTIES


def _read(reader: Reader, packet: PacketType) -> dict[str, Any]:
    found: dict[str, Any] = {}
    pairs: list[tuple[str, str]] = []
    identifiers: list[int] = []
    while not reader.is_done:
        known = _known(reader, packet)
        value = known.kind.read(reader)
        if known.id == _USER:
            pairs.append(value)
            if len(pairs) > USER_PROPERTIES_MAX:
                raise MqttError(Reason.QUOTA_EXCEEDED, "too many user properties")
        elif known.id == _IDENTIFIERS and packet is PacketType.PUBLISH:
            identifiers.append(value)
        elif known.name in found:
            raise violated(f"property {known.name} twice")
        else:
            found[known.name] = (value,) if known.id == _IDENTIFIERS else value
    if pairs:
        found["user_properties"] = tuple(pairs)
    if identifiers:
        found["subscription_identifiers"] = tuple(identifiers)
    return found


def _known(reader: Reader, packet: PacketType) -> _Property:
    number = reader.variable()
    known = _BY_ID.get(number)
    if known is None:
        raise malformed(f"unknown property {number}")
    if packet not in known.packets:
        raise violated(f"property {known.name} in {packet.name}")
    return known


def encode(properties: Properties) -> bytes:
    """Return the size of the properties and the properties."""
    if properties is NO_PROPERTIES:
        return b"\0"
    data = encode_raw(properties)
    return variable_bytes(len(data)) + data


def encode_raw(properties: Properties) -> bytes:
    """Return the properties without their size."""
    found = []
    for known in _TABLE:
        value = getattr(properties, known.name)
        if value is None:
            continue
        lead = bytes((known.id,))
        if known.id in (_USER, _IDENTIFIERS):
            found += [lead + known.kind.write(each) for each in value]
        else:
            found.append(lead + known.kind.write(value))
    return b"".join(found)


class PublishProperties(NamedTuple):
    """What a receiver of a PUBLISH must know at once."""

    kept: bytes  # The properties without the topic alias.
    topic_alias: int | None
    has_identifiers: bool


def check_publish(data: bytes) -> PublishProperties:
    """Look through the properties of a PUBLISH, given without their size. Raises MqttError."""
    reader = Reader(data)
    seen: dict[int, int] = {}
    alias, kept = None, data
    while not reader.is_done:
        at = reader.at
        known = _known(reader, PacketType.PUBLISH)
        value = known.kind.read(reader)
        number = known.id
        seen[number] = seen.get(number, 0) + 1
        if number == _TOPIC_ALIAS:
            alias, kept = value, data[:at] + data[reader.at :]
    for number, count in seen.items():
        if count > 1 and number not in (_USER, _IDENTIFIERS):
            raise violated(f"property {_BY_ID[number].name} twice")
    if seen.get(_USER, 0) > USER_PROPERTIES_MAX:
        raise MqttError(Reason.QUOTA_EXCEEDED, "too many user properties")
    return PublishProperties(kept, alias, _IDENTIFIERS in seen)


def with_expiry(data: bytes, expiry_s: int) -> bytes:
    """Return checked properties of a PUBLISH with another message expiry interval."""
    found = _expiry_place(data)
    if found is None:
        return data
    _, at, end = found
    return data[:at] + expiry_s.to_bytes(4, "big") + data[end:]


def without_expiry(data: bytes) -> bytes:
    """Return checked properties of a PUBLISH without a message expiry interval."""
    found = _expiry_place(data)
    return data if found is None else data[: found[0]] + data[found[2] :]


def expiry_of(data: bytes) -> int | None:
    """Return the message expiry interval in checked properties of a PUBLISH."""
    found = _expiry_place(data)
    return None if found is None else int.from_bytes(data[found[1] : found[2]], "big")


def _expiry_place(data: bytes) -> tuple[int, int, int] | None:
    """Return where the message expiry interval begins, where its value does, and its end."""
    if b"\x02" not in data:
        return None
    reader = Reader(data)
    while not reader.is_done:
        start = reader.at
        known = _known(reader, PacketType.PUBLISH)
        at = reader.at
        known.kind.read(reader)
        if known.id == _EXPIRY:
            return start, at, reader.at
    return None


def identifier_bytes(identifiers: tuple[int, ...]) -> bytes:
    """Return subscription identifiers as properties of a PUBLISH."""
    return b"".join(b"\x0b" + variable_bytes(each) for each in identifiers)


def alias_bytes(alias: int) -> bytes:
    """Return a topic alias as a property of a PUBLISH."""
    return b"\x23" + alias.to_bytes(2, "big")
