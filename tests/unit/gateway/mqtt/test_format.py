"""MQTT's properties, read, changed, stored, and translated from other formats."""

import pytest
from hypothesis import given

from entrepot.core.message import Envelope
from entrepot.core.neutral import NEUTRAL, Formats, Head, record_section
from entrepot.core.properties import Death, Properties
from entrepot.core.record import Record
from entrepot.gateway.mqtt.format import CORRELATION_DATA, MQTT, with_identity
from entrepot.wire.mqtt import properties as wire
from entrepot.wire.mqtt.properties import PacketType
from tests.unit.wire.mqtt.oracle import properties_of

GIVEN = wire.Properties(
    payload_format_indicator=1,
    message_expiry_interval=60,
    content_type="text/plain",
    response_topic="answers/7",
    correlation_data=b"request 7",
    user_properties=(("k", "v"), ("k", "w"), ("other", "ä")),
)
RAW = wire.encode_raw(GIVEN)


def head(qos: int = 1, *, retain: bool = False, raw: bytes = RAW) -> bytes:
    return bytes((qos << 1 | retain,)) + raw


def test_handling() -> None:
    assert MQTT.handling(head(0, raw=b"")).is_persistent is False
    for qos in (1, 2):
        handling = MQTT.handling(head(qos, retain=True))
        assert handling.is_persistent
        assert handling.ttl_ms == 60_000
        assert handling.deduplication_id is None


def test_shared_properties() -> None:
    found = MQTT.properties(head())
    assert found == Properties(
        content_type="text/plain",
        correlation_id="request 7",
        reply_to="answers/7",
        ttl_ms=60_000,
        is_persistent=True,
        headers={"k": "v", "other": "ä"},
    )
    binary = wire.encode_raw(wire.Properties(correlation_data=b"\xff\x00"))
    assert MQTT.properties(head(raw=binary)).headers == {CORRELATION_DATA: b"\xff\x00"}


def test_headers_of_a_record() -> None:
    assert [*MQTT.readable(head())] == [
        ("content-type", b"text/plain"),
        ("correlation-id", b"request 7"),
        ("reply-to", b"answers/7"),
        ("expiration", b"60000"),
        ("k", b"v"),
        ("k", b"w"),
        ("other", "ä".encode()),
    ]


@given(properties_of(PacketType.PUBLISH))
def test_a_stored_message_is_the_one_that_was_published(properties: wire.Properties) -> None:
    raw = wire.check_publish(wire.encode_raw(properties)).kept
    envelope = Envelope("amq.topic", "a.b/c" * 100, head(2, retain=True, raw=raw), MQTT)
    packed = MQTT.pack(envelope)
    again = MQTT.unpack(packed)
    assert again == envelope
    record = Record(None, b"x", (("mqtt", packed), ("more", b"")), 0)
    assert Formats((MQTT,)).envelope(record) == envelope
    assert record_section(envelope)
    for size in range(len(packed)):
        cut = MQTT.unpack(packed[:size])
        assert cut is None or cut.head != envelope.head


@pytest.mark.parametrize("packed", [b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\x06", b"\0\0\0\0\x0a\xff"])
def test_other_bytes_are_no_message(packed: bytes) -> None:
    assert MQTT.unpack(packed) is None


def test_notes_of_the_broker_are_not_for_clients() -> None:
    plain = head()
    deaths = (Death("work", "expired", 2, 7, "x", ("a",), 60_000),)
    noted = MQTT.with_deaths(plain, deaths, "x", keeps_copies=False)
    assert MQTT.deaths(noted) == deaths
    assert MQTT.handling(noted).ttl_ms is None
    envelope = Envelope("", "a", noted, MQTT)
    assert MQTT.quality(envelope) == 1
    assert MQTT.raw_properties(envelope) == wire.without_expiry(RAW)
    named = with_identity(plain, b"identity")
    assert MQTT.handling(named).deduplication_id == b"identity"
    assert MQTT.handling(named).ttl_ms == 60_000
    assert MQTT.raw_properties(Envelope("", "a", named, MQTT)) == RAW
    waiting = MQTT.delayed_at(named, "later")
    assert MQTT.after_delay(waiting) == ("later", named)
    assert MQTT.unpack(MQTT.pack(Envelope("", "a", waiting, MQTT))) is not None


def test_a_message_of_another_protocol() -> None:
    shared = Properties(
        content_type="a/b",
        correlation_id="7",
        reply_to="answers",
        message_id="m",
        priority=3,
        ttl_ms=1_500,
        headers={"k": "v", "n": 7, "none": None, "raw": b"\xff", "bad\0": "x"},
    )
    envelope = Envelope("", "a", NEUTRAL.write(Head(shared)), NEUTRAL)
    found = wire.decode_raw(MQTT.raw_properties(envelope))
    assert found == wire.Properties(
        content_type="a/b",
        correlation_data=b"7",
        response_topic="answers",
        message_expiry_interval=2,
        user_properties=(
            ("message-id", "m"),
            ("priority", "3"),
            ("k", "v"),
            ("n", "7"),
            ("raw", "\ufffd"),
        ),
    )
    assert MQTT.quality(envelope) == 1
    assert not MQTT.is_retained(envelope)


def test_what_mqtt_cannot_tell_is_left_out() -> None:
    shared = Properties(
        reply_to="a/#", content_type="x" * 70_000, headers={str(n): "x" * 100 for n in range(5_000)}
    )
    envelope = Envelope("", "a", NEUTRAL.write(Head(shared)), NEUTRAL)
    raw = MQTT.raw_properties(envelope)
    wire.check_publish(raw)
    found = wire.decode_raw(raw)
    assert found.response_topic is None
    assert found.content_type is None
    assert 100 < len(found.user_properties) <= 1_000
