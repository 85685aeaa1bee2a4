"""The vectors of MQTT, values for every packet, and a codec that is fed in pieces."""

import itertools
import re
from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import strategies as st

from entrepot.wire.mqtt import packets
from entrepot.wire.mqtt.packet_reasons import REASONS
from entrepot.wire.mqtt.packets import V5, V31, V311, Ack, Connack, Connect, Will, write
from entrepot.wire.mqtt.properties import PacketType, Properties
from entrepot.wire.mqtt.reasons import MqttError, Reason
from entrepot.wire.mqtt.scan import Event, PacketBuffer, Publishes, Scanner

VECTORS = Path(__file__).parents[3] / "vectors" / "mqtt.txt"


class Vector(NamedTuple):
    name: str
    version: int
    is_clients: bool
    is_first: bool
    data: bytes
    expected: str  # As text; a refused one's begins with `!`.

    def codec(self) -> PacketBuffer:
        """Return a codec that expects this packet."""
        return opened(self.version, is_client=not self.is_clients, is_open=not self.is_first)


def opened(version: int, *, is_client: bool = False, is_open: bool = True) -> PacketBuffer:
    codec = PacketBuffer(Scanner(is_client=is_client, version=version))
    if is_open:
        first = Connack() if is_client else Connect(version, "x")
        feed(codec, write(first, version))
        codec.accept(topic_aliases_max=10)
    return codec


def vectors() -> list[Vector]:
    found = []
    pattern = r"^\[(\d) (<+|>+) (.*)\]\n((?:[0-9a-f ]+\n)+)([=!] .*)$"
    for version, side, name, data, expected in re.findall(pattern, VECTORS.read_text(), re.M):
        packet = bytes.fromhex(data)
        found.append(Vector(name, int(version), ">" in side, len(side) == 2, packet, expected))
    return found


def feed(codec: PacketBuffer, data: bytes, cuts: Iterable[int] = ()) -> list[Event]:
    """Pass the bytes to the codec in pieces; return all events."""
    events: list[Event] = []
    places = sorted({0, len(data), *(cut for cut in cuts if cut <= len(data))})
    for start, stop in itertools.pairwise(places):
        rest = memoryview(data)[start:stop]
        while rest:
            area = codec.writable()
            size = min(len(area), len(rest))
            area[:size] = rest[:size]
            events += codec.received(size)
            rest = rest[size:]
    return events


def flat(events: Iterable[Event]) -> list[str]:
    """Return one text for each packet: runs depend on where reads end."""
    found = []
    for event in events:
        if isinstance(event, Publishes):
            ids: list[Any] = [*event.ids] or [None] * len(event.messages)
            for (envelope, body), packet_id in zip(event.messages, ids, strict=True):
                values = envelope.subject, envelope.head, bytes(body), packet_id
                run = event.qos, event.is_retained
                found.append(f"Publishes({', '.join(map(repr, (*run, *values)))})")
        elif isinstance(event, MqttError):
            found.append(f"! {event.reason.name}")
        elif type(event).__name__ == "Acks":
            found += [repr(event._replace(ids=[each])) for each in event.ids]  # type: ignore[union-attr]
        else:
            found.append(short(event))
    return found


def short(value: object) -> str:
    """Return the value as text, without properties that are not given."""
    if isinstance(value, Properties):
        given = (
            f"{each.name}={getattr(value, each.name)!r}"
            for each in fields(value)
            if getattr(value, each.name) != each.default
        )
        return f"Properties({', '.join(given)})"
    if isinstance(value, Connect | Will | packets.Disconnect | packets.Auth) or hasattr(
        value, "properties"
    ):
        inner = (f"{each.name}={short(getattr(value, each.name))}" for each in fields(value))  # type: ignore[arg-type]
        return f"{type(value).__name__}({', '.join(inner)})"
    return repr(value)


# Values of every packet.

texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
names = texts.map(lambda text: re.sub("[+#]", "", text)).filter(bool)
binaries = st.binary(max_size=20)
ids = st.integers(1, 65_535)
versions = st.sampled_from((V31, V311, V5))
_VALUES: dict[str, st.SearchStrategy[Any]] = {
    "payload_format_indicator": st.integers(0, 1),
    "message_expiry_interval": st.integers(0, 2**32 - 1),
    "content_type": texts,
    "response_topic": names,
    "correlation_data": binaries,
    "session_expiry_interval": st.integers(0, 2**32 - 1),
    "assigned_client_identifier": texts,
    "server_keep_alive": st.integers(0, 65_535),
    "authentication_method": texts.filter(bool),
    "authentication_data": binaries,
    "request_problem_information": st.integers(0, 1),
    "will_delay_interval": st.integers(0, 2**32 - 1),
    "request_response_information": st.integers(0, 1),
    "response_information": texts,
    "server_reference": texts,
    "reason_string": texts,
    "receive_maximum": st.integers(1, 65_535),
    "topic_alias_maximum": st.integers(0, 65_535),
    "topic_alias": st.integers(1, 65_535),
    "maximum_qos": st.integers(0, 1),
    "retain_available": st.integers(0, 1),
    "user_properties": st.lists(st.tuples(texts, texts), min_size=1, max_size=3).map(tuple),
    "maximum_packet_size": st.integers(1, 2**32 - 1),
    "wildcard_subscription_available": st.integers(0, 1),
    "subscription_identifier_available": st.integers(0, 1),
    "shared_subscription_available": st.integers(0, 1),
}
# Section 2.2.2.2 once more, by packet.
ALLOWED = {
    PacketType.WILL: "payload_format_indicator message_expiry_interval content_type response_topic "
    "correlation_data will_delay_interval",
    PacketType.PUBLISH: "payload_format_indicator message_expiry_interval content_type "
    "response_topic correlation_data topic_alias subscription_identifiers",
    PacketType.CONNECT: "session_expiry_interval authentication_method authentication_data "
    "request_problem_information request_response_information receive_maximum "
    "topic_alias_maximum maximum_packet_size",
    PacketType.CONNACK: "session_expiry_interval assigned_client_identifier server_keep_alive "
    "authentication_method authentication_data response_information server_reference "
    "reason_string receive_maximum topic_alias_maximum maximum_qos retain_available "
    "maximum_packet_size wildcard_subscription_available subscription_identifier_available "
    "shared_subscription_available",
    PacketType.PUBACK: "reason_string",
    PacketType.PUBREC: "reason_string",
    PacketType.PUBREL: "reason_string",
    PacketType.PUBCOMP: "reason_string",
    PacketType.SUBSCRIBE: "subscription_identifiers",
    PacketType.SUBACK: "reason_string",
    PacketType.UNSUBSCRIBE: "",
    PacketType.UNSUBACK: "reason_string",
    PacketType.DISCONNECT: "session_expiry_interval server_reference reason_string",
    PacketType.AUTH: "authentication_method authentication_data reason_string",
}


@st.composite
def properties_of(draw: st.DrawFn, packet: PacketType) -> Properties:
    allowed = [*ALLOWED[packet].split(), "user_properties"]
    chosen = draw(st.sets(st.sampled_from(allowed)))
    if "authentication_data" in chosen:
        chosen.add("authentication_method")
    values: dict[str, Any] = {}
    for name in sorted(chosen):
        if name == "subscription_identifiers":
            many = 3 if packet is PacketType.PUBLISH else 1
            numbers = st.lists(st.integers(1, 268_435_455), min_size=1, max_size=many)
            values[name] = tuple(draw(numbers))
        else:
            values[name] = draw(_VALUES[name])
    return Properties(**values)


filters = st.lists(st.sampled_from(("a", "", "+", "$SYS", "ä")), min_size=1, max_size=5).map(
    "/".join
).filter(bool) | st.just("$share/g/a/#")


def _reasons(packet: PacketType) -> st.SearchStrategy[Reason]:
    return st.sampled_from(sorted(REASONS[packet]))


@st.composite
def packet_of(draw: st.DrawFn, type: PacketType, version: int) -> packets.Packet:
    is_5 = version == V5
    given = draw(properties_of(type)) if is_5 and type in ALLOWED else Properties()
    match type:
        case PacketType.CONNECT:
            will = None
            if draw(st.booleans()):
                will_properties = draw(properties_of(PacketType.WILL)) if is_5 else Properties()
                qos, is_retained = draw(st.integers(0, 2)), draw(st.booleans())
                will = Will(draw(names), draw(binaries), qos, is_retained, will_properties)
            user = draw(st.none() | texts)
            password = draw(st.none() | binaries) if user is not None or is_5 else None
            clean, alive = draw(st.booleans()), draw(st.integers(0, 65_535))
            return Connect(version, draw(texts), clean, alive, user, password, will, given)
        case PacketType.CONNACK:
            reasons = (Reason.SUCCESS, Reason.NOT_AUTHORIZED, Reason.SERVER_UNAVAILABLE)
            reason = draw(_reasons(type) if is_5 else st.sampled_from(reasons))
            is_present = draw(st.booleans()) and not reason and version != V31
            return Connack(is_present, reason, given)
        case PacketType.SUBSCRIBE:
            found = []
            for filter in draw(st.lists(filters, min_size=1, max_size=3)):
                is_local = draw(st.booleans()) and is_5 and not filter.startswith("$share")
                as_published = draw(st.booleans()) and is_5
                handling = draw(st.integers(0, 2)) if is_5 else 0
                qos = draw(st.integers(0, 2))
                found.append(packets.Subscription(filter, qos, is_local, as_published, handling))
            return packets.Subscribe(draw(ids), tuple(found), given)
        case PacketType.SUBACK:
            old = (Reason.SUCCESS, Reason.GRANTED_QOS_2, Reason.UNSPECIFIED_ERROR)
            some = st.lists(_reasons(type) if is_5 else st.sampled_from(old), min_size=1)
            return packets.Suback(draw(ids), tuple(draw(some)), given)
        case PacketType.UNSUBSCRIBE:
            chosen = draw(st.lists(filters, min_size=1, max_size=3))
            return packets.Unsubscribe(draw(ids), tuple(chosen), given)
        case PacketType.UNSUBACK:
            reasons_5 = tuple(draw(st.lists(_reasons(type), min_size=1, max_size=3)))
            return packets.Unsuback(draw(ids), reasons_5 if is_5 else (), given)
        case PacketType.PINGREQ:
            return packets.Pingreq()
        case PacketType.PINGRESP:
            return packets.Pingresp()
        case PacketType.DISCONNECT:
            return packets.Disconnect(draw(_reasons(type)) if is_5 else Reason.SUCCESS, given)
        case PacketType.AUTH:
            return packets.Auth(draw(_reasons(type)), given)
        case _:
            return Ack(type, draw(ids), draw(_reasons(type)) if is_5 else Reason.SUCCESS, given)
