"""MQTT's wire under hypothesis: round trips, every split, and bytes nobody meant."""

from itertools import chain
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.errors import PeerError
from entrepot.wire.mqtt.deliver import Outgoing, head
from entrepot.wire.mqtt.packets import V5, Connect, Packet, write
from entrepot.wire.mqtt.properties import (
    PacketType,
    Properties,
    check_publish,
    decode_raw,
    encode_raw,
    with_expiry,
)
from entrepot.wire.mqtt.scan import Acks, PacketBuffer, Publishes, Scanner
from tests.unit.wire.mqtt.oracle import (
    ALLOWED,
    feed,
    flat,
    names,
    opened,
    packet_of,
    properties_of,
    vectors,
    versions,
)

_SERVERS = (PacketType.CONNACK, PacketType.SUBACK, PacketType.UNSUBACK, PacketType.PINGRESP)
_TYPES = [each for each in PacketType if each not in (PacketType.WILL, PacketType.PUBLISH)]
VECTORS = vectors()
# A conversation of everything that is legal for a client of version 5.
STREAM = write(Connect(V5, "x"), V5) + 2 * b"".join(
    each.data
    for each in VECTORS
    if each.version == V5
    and each.is_clients
    and not each.is_first
    and each.expected[0] == "="
    and b"\x23\0" not in each.data  # An alias.
    and each.data[0] != 0xE0
)


@given(st.data(), st.sampled_from(_TYPES), versions)
def test_every_packet_survives_the_round_trip(data: st.DataObject, type: Any, version: int) -> None:
    if type is PacketType.AUTH:
        version = V5
    packet: Packet = data.draw(packet_of(type, version))
    is_client = type in _SERVERS
    is_first = type in (PacketType.CONNECT, PacketType.CONNACK)
    codec = opened(version, is_client=is_client, is_open=not is_first)
    raw = write(packet, version)
    (event,) = feed(codec, raw)
    if isinstance(event, Acks):
        assert event.type is type
        assert event.ids == [packet.packet_id]  # type: ignore[union-attr]
        assert event.has_failed == (packet.reason >= 0x80)  # type: ignore[union-attr]
    else:
        assert event == packet
        assert write(event, version) == raw  # type: ignore[arg-type]


@given(st.data(), st.sampled_from([*ALLOWED]))
def test_properties_survive_the_round_trip(data: st.DataObject, packet: Any) -> None:
    properties: Properties = data.draw(properties_of(packet))
    assert decode_raw(encode_raw(properties), packet) == properties


@given(properties_of(PacketType.PUBLISH), st.integers(0, 2**32 - 1))
def test_properties_of_a_publish_are_kept_as_they_are(given: Properties, expiry: int) -> None:
    raw = encode_raw(given)
    kept, alias, has_identifiers = check_publish(raw)
    assert alias == given.topic_alias
    assert has_identifiers == bool(given.subscription_identifiers)
    again = decode_raw(kept)
    assert again.topic_alias is None
    assert (again.user_properties, again.content_type) == (
        given.user_properties,
        given.content_type,
    )
    changed = decode_raw(with_expiry(kept, expiry)).message_expiry_interval
    assert changed == (None if given.message_expiry_interval is None else expiry)


@given(st.data(), versions, names, st.binary(max_size=700), st.integers(0, 2), st.booleans())
def test_publishes_survive_the_round_trip(
    data: st.DataObject, version: int, topic: str, body: bytes, qos: int, is_retained: bool
) -> None:
    raw = None
    if version == V5:
        given = data.draw(properties_of(PacketType.PUBLISH))
        raw = check_publish(encode_raw(given)).kept
    packet = head(Outgoing(qos, is_retained, topic.encode(), raw, body), 77) + body
    (run,) = feed(opened(version, is_client=True), packet)
    assert isinstance(run, Publishes)
    ((envelope, found),) = run.messages
    assert (run.qos, run.is_retained, run.ids) == (qos, is_retained, [77] if qos else [])
    assert (envelope.subject, bytes(found)) == (topic, body)
    assert envelope.head == bytes((qos << 1 | is_retained,)) + (raw or b"")


@given(st.lists(st.integers(0, len(STREAM)), max_size=30))
def test_any_split_of_a_conversation_is_read_alike(cuts: list[int]) -> None:
    whole = flat(feed(PacketBuffer(Scanner()), STREAM))
    assert len(whole) > 10
    assert not any(each.startswith("!") for each in whole)
    assert flat(feed(PacketBuffer(Scanner()), STREAM, cuts)) == whole


@given(st.integers(0, 2**32), st.integers(1, 8))
def test_damaged_bytes_are_an_error_or_packets(seed: int, changes: int) -> None:
    random = Random(seed)
    data = bytearray(STREAM)
    for _ in range(changes):
        place = random.randrange(len(data))
        match random.randrange(3):
            case 0:
                data[place] = random.randrange(256)
            case 1:
                del data[place]
            case _:
                data.insert(place, random.randrange(256))
    codec = PacketBuffer(Scanner())
    cuts = [random.randrange(len(data)) for _ in range(3)]
    for event in feed(codec, bytes(data), cuts):
        flat([event])
        if isinstance(event, Publishes):
            for envelope, _ in event.messages:
                decode_raw(envelope.head[1:])


@given(st.lists(st.sampled_from(VECTORS), min_size=1), st.binary(max_size=40))
def test_any_bytes_are_an_error_or_packets(some: Any, noise: bytes) -> None:
    data = b"".join(chain.from_iterable((each.data, noise) for each in some))
    for is_client in (False, True):
        events = feed(PacketBuffer(Scanner(is_client=is_client)), data)
        errors = [each for each in events if isinstance(each, PeerError)]
        assert errors in ([], events[-1:])
