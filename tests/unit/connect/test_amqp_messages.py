"""What a record is as a message, and a message as a record."""

from decimal import Decimal

import pytest

from entrepot.client.amqp_consumer import Delivery
from entrepot.client.client import TopicPartition
from entrepot.client.reader import Message
from entrepot.connect.amqp_messages import to_amqp, to_record
from entrepot.connect.formats import Misfit
from entrepot.core.record import Record
from entrepot.wire.amqp.properties import BasicProperties, decode, encode
from entrepot.wire.amqp.table import Timestamp

PART = TopicPartition("orders", 3)
TEXT = "text/plain"


def properties(*headers: tuple[str, bytes | None], key: bytes | None = None) -> BasicProperties:
    record = Record(key, b"v", headers, timestamp_ms=1_700_000_000_123, offset=17)
    return decode(to_amqp(Message(PART, record, False), "x", "k", TEXT).properties)


def routed(routing_key: str, key: bytes | None = b"k1") -> str:
    record = Record(key, b"v", offset=0)
    return to_amqp(Message(PART, record, False), "x", routing_key, TEXT).routing_key


def test_a_message_is_persistent_and_has_the_place_of_its_record() -> None:
    assert properties() == BasicProperties(
        content_type="text/plain",
        delivery_mode=2,
        message_id="orders-3-17",
        timestamp=1_700_000_000,
    )
    tombstone = to_amqp(Message(PART, Record(b"k", None, offset=1), False), "x", "k", TEXT)
    assert tombstone.body == b""
    assert decode(tombstone.properties).timestamp is None


def test_headers_become_properties_where_they_can() -> None:
    found = properties(
        ("content-type", b"application/json"),
        ("priority", b"7"),
        ("expiration", b"60000"),
        ("timestamp", b"12"),
        ("type", b"OrderPaid"),
        ("correlation-id", b"c"),
        ("reply-to", b"answers"),
    )
    assert found == BasicProperties(
        content_type="application/json",
        priority=7,
        expiration="60000",
        timestamp=12,
        type="OrderPaid",
        correlation_id="c",
        reply_to="answers",
        delivery_mode=2,
        message_id="orders-3-17",
    )


def test_what_a_property_cannot_have_stays_a_header() -> None:
    """Else a broker would refuse the message, and with it the channel."""
    headers: tuple[tuple[str, bytes | None], ...] = (
        ("priority", b"256"),
        ("expiration", b"soon"),
        ("timestamp", b"-1"),
        ("type", b"\xff"),
        ("app-id", b"x" * 256),
        ("content-encoding", None),
        ("message-id", b"m"),
        ("user-id", b"somebody"),
        ("reply-to", b"amq.rabbitmq.reply-to"),
    )
    found = properties(*headers)
    assert found.headers == {
        "priority": "256",
        "expiration": "soon",
        "timestamp": "-1",
        "type": b"\xff",
        "app-id": "x" * 256,
        "content-encoding": None,
        "message-id": "m",
        "user-id": "somebody",
        "reply-to": "amq.rabbitmq.reply-to",
    }
    assert found.message_id == "orders-3-17"
    assert found.user_id is None


def test_headers_and_the_key_are_headers() -> None:
    found = properties(
        ("a", b"1"),
        ("a", b"2"),
        ("raw", b"\xff"),
        ("CC", b"elsewhere"),
        ("BCC", b"elsewhere"),
        ("amqp", b"\0"),
        ("n" * 256, b"too long"),
        key=b"\xfe",
    )
    assert found.headers == {"a": "1", "raw": b"\xff", "kafka-key": b"\xfe"}
    assert properties(key=b"ana").headers == {"kafka-key": "ana"}


def test_routing_keys() -> None:
    assert routed("fixed") == "fixed"
    assert routed("{topic}") == "orders"
    assert routed("eu.{topic}.{key}") == "eu.orders.k1"
    assert routed("{key}", b"{topic}") == "{topic}"  # It is not looked at again.
    assert routed("{other}", None) == "{other}"


@pytest.mark.parametrize(
    ("key", "reason"),
    [(None, "no key"), (b"\xff", "not UTF-8"), (b"x" * 256, "more than 255 bytes")],
)
def test_a_record_that_cannot_be_routed(key: bytes | None, reason: str) -> None:
    with pytest.raises(Misfit, match=reason):
        routed("{key}", key)


def test_a_long_name_keeps_the_end_of_the_id() -> None:
    part = TopicPartition("t" * 249, 2**31 - 1)
    made = to_amqp(Message(part, Record(None, b"", offset=2**62), False), "", "q", TEXT)
    found = decode(made.properties).message_id or ""
    assert len(found) == 255
    assert found.endswith(f"t-{2**31 - 1}-{2**62}")


# --- in


def delivery(found: BasicProperties, body: bytes = b"v") -> Delivery:
    return Delivery(1, False, "ex", "eu.paid", decode(encode(found)), body)


def test_properties_and_headers_of_a_message_are_headers() -> None:
    found = BasicProperties(
        content_type="a/b",
        priority=0,
        message_id="m",
        timestamp=12,
        delivery_mode=2,
        headers={"text": "ü", "raw": b"\xff", "yes": True, "n": -3, "none": None},
    )
    record = to_record(delivery(found), "routing-key")
    assert (record.key, record.value, record.timestamp_ms) == (b"eu.paid", b"v", -1)
    assert dict(record.headers) == {
        "exchange": b"ex",
        "routing-key": b"eu.paid",
        "content-type": b"a/b",
        "priority": b"0",
        "message-id": b"m",
        "timestamp": b"12",
        "text": "ü".encode(),
        "raw": b"\xff",
        "yes": b"true",
        "n": b"-3",
        "none": None,
    }


def test_tables_are_json() -> None:
    death = {"count": 1, "time": Timestamp(12), "queue": "q", "rate": Decimal("1.5")}
    found = BasicProperties(
        headers={"x-death": [death], "t": {"raw": b"\xff", "none": None, "f": 0.5}}
    )
    headers = dict(to_record(delivery(found), "").headers)
    assert headers["x-death"] == b'[{"count":1,"time":12,"queue":"q","rate":1.5}]'
    assert headers["t"] == b'{"raw":"/w==","none":null,"f":0.5}'


def test_texts_that_are_none() -> None:
    broken = b"\xff".decode("utf-8", "surrogateescape")
    found = BasicProperties(message_id=broken, headers={broken: broken, "t": [broken]})
    record = to_record(delivery(found), "message-id")
    assert record.key == b"\xff"
    assert dict(record.headers)["�"] == b"\xff"
    assert dict(record.headers)["t"] == '["�"]'.encode()


@pytest.mark.parametrize(
    ("key", "expected"), [("", None), ("message-id", b"m"), ("tenant", b"7"), ("other", None)]
)
def test_the_key_is_the_header_one_names(key: str, expected: bytes | None) -> None:
    found = BasicProperties(message_id="m", headers={"tenant": 7})
    assert to_record(delivery(found), key).key == expected
