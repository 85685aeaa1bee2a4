"""MQTT's packets but PUBLISH, in versions 3.1, 3.1.1 and 5: values, and their bytes.

PUBLISH has modules of its own: `scan` reads many at once, and `deliver` writes them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from entrepot.wire.mqtt.limits import FILTERS_MAX
from entrepot.wire.mqtt.packet_reasons import REASONS
from entrepot.wire.mqtt.properties import (
    NO_PROPERTIES,
    PacketType,
    Properties,
    decode,
    encode,
    write_text,
)
from entrepot.wire.mqtt.reader import Reader, sized, variable_bytes
from entrepot.wire.mqtt.reasons import (
    MqttError,
    Reason,
    UnknownVersion,
    malformed,
    reason_of,
    return_code,
    violated,
)
from entrepot.wire.mqtt.topics import check_filter, check_name, shared_filter

V31, V311, V5 = 3, 4, 5  # Protocol levels.
_PROTOCOL_NAMES = {V31: "MQIsdp", V311: "MQTT", V5: "MQTT"}
QOS_MAX = 2
_SUBACK_FAILURE = 0x80  # Before version 5.

_DUP, _QOS_1 = 0x08, 0x02  # Bits of the first byte.
_T = PacketType
# Before version 5.
_SUBACK_OLD = frozenset(
    (Reason.SUCCESS, Reason.GRANTED_QOS_1, Reason.GRANTED_QOS_2, Reason.UNSPECIFIED_ERROR)
)


@dataclass(frozen=True, slots=True)
class Will:
    topic: str
    payload: bytes
    qos: int = 0
    is_retained: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connect:
    TYPE = PacketType.CONNECT

    version: int = V5
    client_id: str = ""
    clean_start: bool = True
    keep_alive_s: int = 0
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connack:
    TYPE = PacketType.CONNACK

    session_present: bool = False
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Ack:
    """A PUBACK, PUBREC, PUBREL or PUBCOMP."""

    type: PacketType
    packet_id: int
    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Subscription:
    """One filter of a SUBSCRIBE, with its options."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    TYPE = PacketType.SUBSCRIBE

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Suback:
    TYPE = PacketType.SUBACK

    packet_id: int
    reasons: tuple[Reason, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    TYPE = PacketType.UNSUBSCRIBE

    packet_id: int
    filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsuback:
    TYPE = PacketType.UNSUBACK

    packet_id: int
    reasons: tuple[Reason, ...] = ()  # Empty before version 5.
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pingreq:
    TYPE = PacketType.PINGREQ


@dataclass(frozen=True, slots=True)
class Pingresp:
    TYPE = PacketType.PINGRESP


@dataclass(frozen=True, slots=True)
class Disconnect:
    TYPE = PacketType.DISCONNECT

    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    TYPE = PacketType.AUTH

    reason: Reason = Reason.SUCCESS
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect
    | Connack
    | Ack
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Pingresp
    | Disconnect
    | Auth
)


def _read_reason(reader: Reader, packet: PacketType) -> Reason:
    code = reader.byte()
    if code not in REASONS[packet]:
        raise malformed(f"reason code 0x{code:02x} in {packet.name}")
    return Reason(code)


# Reading.


def read_ack(type: PacketType, reader: Reader, version: int) -> Ack:
    packet_id = reader.packet_id()
    reason, properties = Reason.SUCCESS, NO_PROPERTIES
    if version == V5 and not reader.is_done:
        reason = _read_reason(reader, type)
        if not reader.is_done:
            properties = decode(reader, type)
    return Ack(type, packet_id, reason, properties)


def read_connect(reader: Reader) -> Connect:
    """Read a CONNECT, which tells its version. Raises MqttError."""
    name = reader.binary()
    version = reader.byte()
    if name not in (b"MQTT", b"MQIsdp"):
        raise violated(f"protocol {name[:20]!r}")
    if _PROTOCOL_NAMES.get(version, "").encode() != name:
        raise UnknownVersion(version)
    flags = reader.byte()
    has_will = bool(flags & 0x04)
    will_qos, will_is_retained = flags >> 3 & 3, bool(flags & 0x20)
    has_password, has_user = bool(flags & 0x40), bool(flags & 0x80)
    if flags & 1 and version != V31:
        raise malformed("the reserved bit of CONNECT")
    is_stray = not has_will and bool(will_qos or will_is_retained)  # Version 3.1 ignores that.
    if will_qos > QOS_MAX or (is_stray and version != V31):
        raise malformed("the flags of the will in CONNECT")
    if has_password and not has_user and version != V5:
        raise malformed("a password without a user")
    keep_alive_s = reader.number(2)
    properties = decode(reader, PacketType.CONNECT) if version == V5 else NO_PROPERTIES
    if properties.authentication_data is not None and properties.authentication_method is None:
        raise violated("authentication data without a method")
    client_id = reader.text()
    will = None
    if has_will:
        will_properties = decode(reader, PacketType.WILL) if version == V5 else NO_PROPERTIES
        topic = reader.text()
        check_name(topic)
        will = Will(topic, reader.binary(), will_qos, will_is_retained, will_properties)
    # Clients of version 3.1 may leave out what they announced.
    is_lax = version == V31
    user = reader.text() if has_user and not (is_lax and reader.is_done) else None
    password = reader.binary() if has_password and not (is_lax and reader.is_done) else None
    clean_start = bool(flags & 0x02)
    return Connect(version, client_id, clean_start, keep_alive_s, user, password, will, properties)


def _read_connack(reader: Reader, version: int) -> Connack:
    flags = reader.byte()
    if flags > 1:
        raise malformed("the flags of CONNACK")
    if version == V5:
        reason = _read_reason(reader, PacketType.CONNACK)
        properties = decode(reader, PacketType.CONNACK)
    else:
        reason, properties = reason_of(reader.byte()), NO_PROPERTIES
    if flags and reason:
        raise violated("a session that is present for a refused client")
    return Connack(bool(flags), reason, properties)


def _read_subscribe(reader: Reader, version: int) -> Subscribe:
    packet_id = reader.packet_id()
    properties = decode(reader, PacketType.SUBSCRIBE) if version == V5 else NO_PROPERTIES
    found = []
    while not reader.is_done:
        filter = reader.text()
        check_filter(filter)
        found.append(_read_options(filter, reader.byte(), version))
        _check_count(found)
    if not found:
        raise violated("SUBSCRIBE without a filter")
    return Subscribe(packet_id, tuple(found), properties)


def _read_options(filter: str, options: int, version: int) -> Subscription:
    qos = options & 3
    if version == V31:
        options = qos
    if qos > QOS_MAX or options & (0xC0 if version == V5 else 0xFC):
        raise malformed(f"subscription options 0x{options:02x}")
    no_local, handling = bool(options & 4), options >> 4 & 3
    if handling > 2:
        raise violated("retain handling 3")
    if no_local and shared_filter(filter) is not None:
        raise violated("no local for a shared subscription")
    return Subscription(filter, qos, no_local, bool(options & 8), handling)


def _check_count(found: list[Subscription] | list[str]) -> None:
    if len(found) > FILTERS_MAX:
        raise MqttError(Reason.QUOTA_EXCEEDED, "too many filters in one packet")


def _read_suback(reader: Reader, version: int) -> Suback:
    packet_id = reader.packet_id()
    if version == V5:
        properties, allowed = decode(reader, PacketType.SUBACK), REASONS[PacketType.SUBACK]
    else:
        properties = NO_PROPERTIES
        allowed = _SUBACK_OLD
    return Suback(packet_id, _read_reasons(reader, allowed), properties)


def _read_reasons(reader: Reader, allowed: frozenset[Reason]) -> tuple[Reason, ...]:
    codes = reader.take(reader.end - reader.at)
    for code in codes:
        if code not in allowed:
            raise malformed(f"reason code 0x{code:02x}")
    if not codes:
        raise malformed("an answer without reason codes")
    return tuple(map(Reason, codes))


def _read_unsubscribe(reader: Reader, version: int) -> Unsubscribe:
    packet_id = reader.packet_id()
    properties = decode(reader, PacketType.UNSUBSCRIBE) if version == V5 else NO_PROPERTIES
    found: list[str] = []
    while not reader.is_done:
        filter = reader.text()
        check_filter(filter)
        found.append(filter)
        _check_count(found)
    if not found:
        raise violated("UNSUBSCRIBE without a filter")
    return Unsubscribe(packet_id, tuple(found), properties)


def _read_unsuback(reader: Reader, version: int) -> Unsuback:
    packet_id = reader.packet_id()
    if version != V5:
        return Unsuback(packet_id)
    properties = decode(reader, PacketType.UNSUBACK)
    return Unsuback(packet_id, _read_reasons(reader, REASONS[PacketType.UNSUBACK]), properties)


_Ended = TypeVar("_Ended", Disconnect, Auth)


def _read_ended(make: Callable[[Reason, Properties], _Ended]) -> Callable[[Reader, int], _Ended]:
    def read(reader: Reader, version: int) -> _Ended:
        packet: PacketType = getattr(make, "TYPE")  # noqa: B009
        reason, properties = Reason.SUCCESS, NO_PROPERTIES
        if version == V5 and not reader.is_done:
            reason = _read_reason(reader, packet)
            if not reader.is_done:
                properties = decode(reader, packet)
        if properties.authentication_data is not None and not properties.authentication_method:
            raise violated("authentication data without a method")
        return make(reason, properties)

    return read


_READERS: dict[PacketType, Callable[[Reader, int], Packet]] = {
    _T.CONNACK: _read_connack,
    _T.SUBSCRIBE: _read_subscribe,
    _T.SUBACK: _read_suback,
    _T.UNSUBSCRIBE: _read_unsubscribe,
    _T.UNSUBACK: _read_unsuback,
    _T.PINGREQ: lambda reader, version: Pingreq(),
    _T.PINGRESP: lambda reader, version: Pingresp(),
    _T.DISCONNECT: _read_ended(Disconnect),
    _T.AUTH: _read_ended(Auth),
}
_WITH_FLAGS = (_T.PUBREL, _T.SUBSCRIBE, _T.UNSUBSCRIBE)
ACKS = (_T.PUBACK, _T.PUBREC, _T.PUBREL, _T.PUBCOMP)


def check_flags(type: PacketType, first: int, version: int) -> None:
    """Raise MqttError if the reserved bits of the first byte are wrong (section 2.1.3)."""
    flags = first & 0x0F
    if version == V31 and type in _WITH_FLAGS:
        flags &= ~_DUP  # It was allowed to say that a packet is sent again.
    if flags != (_QOS_1 if type in _WITH_FLAGS else 0):
        raise malformed(f"the flags of {type.name}")


def read(type: PacketType, reader: Reader, version: int) -> Packet:
    """Read the rest of a packet of any type but PUBLISH. Raises MqttError."""
    packet: Packet
    if type is PacketType.CONNECT:
        packet = read_connect(reader)
    elif type in ACKS:
        packet = read_ack(type, reader, version)
    elif type is PacketType.AUTH and version != V5:
        raise violated("AUTH before version 5")
    else:
        packet = _READERS[type](reader, version)
    reader.finish()
    return packet


# Writing.


def write(packet: Packet, version: int) -> bytes:
    """Return the bytes of a packet."""
    type = packet.type if isinstance(packet, Ack) else packet.TYPE
    body = _body(packet, version)
    first = type << 4 | (_QOS_1 if type in _WITH_FLAGS else 0)
    return bytes((first,)) + variable_bytes(len(body)) + body


def _body(packet: Packet, version: int) -> bytes:
    is_5 = version == V5
    match packet:
        case Connect():
            return _connect_body(packet)
        case Connack():
            if is_5:
                lead = bytes((packet.session_present, packet.reason))
                return lead + encode(packet.properties)
            code = return_code(packet.reason)
            assert code is not None, packet
            return bytes((packet.session_present and version != V31, code))
        case Ack():
            return packet.packet_id.to_bytes(2, "big") + _short(packet, is_5)
        case Subscribe():
            filters = (write_text(each.filter) + _options(each) for each in packet.subscriptions)
            return _lead(packet, is_5) + b"".join(filters)
        case Suback():
            codes = packet.reasons if is_5 else [min(r, _SUBACK_FAILURE) for r in packet.reasons]
            return _lead(packet, is_5) + bytes(codes)
        case Unsubscribe():
            return _lead(packet, is_5) + b"".join(map(write_text, packet.filters))
        case Unsuback():
            return _lead(packet, is_5) + (bytes(packet.reasons) if is_5 else b"")
        case Disconnect() | Auth():
            return _short(packet, is_5)
        case _:
            return b""


def _lead(packet: Subscribe | Suback | Unsubscribe | Unsuback, is_5: bool) -> bytes:
    properties = encode(packet.properties) if is_5 else b""
    return packet.packet_id.to_bytes(2, "big") + properties


def _short(packet: Ack | Disconnect | Auth, is_5: bool) -> bytes:
    """Return reason and properties, without what may be left out."""
    if not is_5 or (not packet.reason and packet.properties == NO_PROPERTIES):
        return b""
    if packet.properties == NO_PROPERTIES:
        return bytes((packet.reason,))
    return bytes((packet.reason,)) + encode(packet.properties)


def _options(each: Subscription) -> bytes:
    flags = each.no_local << 2 | each.retain_as_published << 3 | each.retain_handling << 4
    return bytes((each.qos | flags,))


def _connect_body(packet: Connect) -> bytes:
    will, version = packet.will, packet.version
    flags = packet.clean_start << 1
    flags |= (packet.user is not None) << 7 | (packet.password is not None) << 6
    if will is not None:
        flags |= 0x04 | will.qos << 3 | will.is_retained << 5
    parts = [
        write_text(_PROTOCOL_NAMES[version]),
        bytes((version, flags)),
        packet.keep_alive_s.to_bytes(2, "big"),
    ]
    if version == V5:
        parts.append(encode(packet.properties))
    parts.append(write_text(packet.client_id))
    if will is not None:
        if version == V5:
            parts.append(encode(will.properties))
        parts += [write_text(will.topic), sized(will.payload)]
    if packet.user is not None:
        parts.append(write_text(packet.user))
    if packet.password is not None:
        parts.append(sized(packet.password))
    return b"".join(parts)
