"""What the broker learns of properties, and what becomes of them as a record's headers."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from entrepot.broker.queue.message import Facts
from entrepot.core import limits
from entrepot.core.envelope import Envelope
from entrepot.core.record import Record
from entrepot.gateway.amqp.property_reader import AmqpPropertyReader
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.properties import NONE, Properties, PropertyView, decode, encode
from entrepot.wire.amqp.table import Int8, Int64, Timestamp, type_name

ALL = Properties(
    "text/plain",
    "gzip",
    {"colour": "blue", "count": 7, "ratio": 0.5, "on": True, "raw": b"\xff", "none": None},
    2,
    9,
    "correlation",
    "answers",
    "60000",
    "message",
    1_700_000_000,
    "kind",
    "guest",
    "app",
    "cluster",
)


@pytest.fixture
def reader() -> AmqpPropertyReader:
    return AmqpPropertyReader()


@pytest.mark.parametrize(
    ("properties", "facts"),
    [
        (Properties(), Facts(False, 0, None)),
        (Properties(delivery_mode=1, priority=5), Facts(False, 5, None)),
        (Properties(delivery_mode=2, expiration="0"), Facts(True, 0, 0)),
        (Properties(expiration="+60000"), Facts(False, 0, 60_000)),
        (ALL, Facts(True, 9, 60_000)),
    ],
)
def test_facts(reader: AmqpPropertyReader, properties: Properties, facts: Facts) -> None:
    assert reader.facts(encode(properties)) == facts


@pytest.mark.parametrize(
    ("expiration", "wrong"),
    [
        ("", "no_integer"),
        ("soon", "no_integer"),
        ("5s", '{leftover_string,"s"}'),
        ("1.5", '{leftover_string,".5"}'),
        ("-1", "{value_negative,-1}"),
        ("315360000001", "{value_too_large,315360000001}"),
        ("9" * 255, f"{{value_too_large,{'9' * 255}}}"),
    ],
)
def test_expirations_that_are_none(reader: AmqpPropertyReader, expiration: str, wrong: str) -> None:
    found = reader.inspect(encode(Properties(expiration=expiration)))
    assert found.refusal == f"invalid expiration '{expiration}': {wrong}"
    assert found.facts.ttl_ms is None


@pytest.mark.parametrize("raw", [b"", b"\0", b"\x80\0", b"\0\x01", b"\x20\0\0\0\0\x03\x01aZ"])
def test_malformed(reader: AmqpPropertyReader, raw: bytes) -> None:
    with pytest.raises(AmqpError, match="SYNTAX_ERROR"):
        reader.inspect(raw)


def test_memory_is_bounded(reader: AmqpPropertyReader, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "AMQP_PROPERTIES_CACHED_MAX", 10)
    for number in range(100):
        reader.facts(encode(Properties(message_id=str(number))))
    assert len(reader._known) <= 10


def test_headers_and_names(reader: AmqpPropertyReader) -> None:
    assert reader.headers(NONE) == {}
    assert reader.headers(encode(ALL)) == ALL.headers
    assert reader.named(NONE) == {}
    assert reader.named(encode(ALL)) == {
        "correlation_id": "correlation",
        "message_id": "message",
        "timestamp": 1_700_000_000,
    }


def test_other_headers(reader: AmqpPropertyReader) -> None:
    raw = encode(ALL)
    changed = decode(reader.with_headers(raw, {"a": Int8(1)}, expires=False))
    assert changed.headers == {"a": 1}
    assert type_name(PropertyView(reader.with_headers(raw, {"a": Int8(1)})).header("a")) == "byte"
    assert changed.expiration is None
    assert changed.message_id == "message"
    assert decode(reader.with_headers(raw, {})).expiration == "60000"


def test_deaths_have_the_types_of_rabbitmq(reader: AmqpPropertyReader) -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)
    deaths = [{"count": 1, "time": when, "queue": "q", "routing-keys": ("a",)}]
    raw = reader.with_headers(NONE, {"x-death": deaths, "other": 5})
    headers: Any = reader.headers(raw)
    (death,) = headers["x-death"]
    assert death == {"count": 1, "time": when.timestamp(), "queue": "q", "routing-keys": ["a"]}
    assert [type(death["count"]), type(death["time"])] == [Int64, Timestamp]
    assert type_name(headers["other"]) == "signedint"
    again: Any = reader.headers(reader.with_headers(raw, headers))
    assert type(again["x-death"][0]["time"]) is Timestamp


# Records.


def test_there_and_back(reader: AmqpPropertyReader) -> None:
    raw = encode(ALL)
    headers = reader.to_record(Envelope("ex", "key", raw))
    assert reader.from_record(Record(None, b"", headers)) == ("ex", "key", raw)
    assert dict(headers[1:]) == {
        "content-type": b"text/plain",
        "content-encoding": b"gzip",
        "correlation-id": b"correlation",
        "reply-to": b"answers",
        "message-id": b"message",
        "expiration": b"60000",
        "priority": b"9",
        "type": b"kind",
        "user-id": b"guest",
        "app-id": b"app",
        "timestamp": b"1700000000",
        "colour": b"blue",
        "count": b"7",
        "ratio": b"0.5",
        "on": b"true",
        "raw": b"\xff",
        "none": None,
    }


def test_names_that_are_not_unicode(reader: AmqpPropertyReader) -> None:
    raw = encode(Properties(headers={"\udcff": "\udcfe", "d": Decimal("1.5"), "t": {"a": [1]}}))
    headers = reader.to_record(Envelope("\udcff", "k\udcfe", raw))
    assert headers[1] == ("\N{REPLACEMENT CHARACTER}", b"\xfe")
    assert reader.from_record(Record(None, b"", headers)) == ("\udcff", "k\udcfe", raw)


def test_a_record_of_others(reader: AmqpPropertyReader) -> None:
    headers = (("content-type", b"text/html"), ("priority", b"300"), ("x", b"\xff"), ("y", None))
    exchange, key, raw = reader.from_record(Record(b"customer", b"", headers, 1_700_000_000_123))
    assert (exchange, key) == ("", "customer")
    assert decode(raw) == Properties(
        content_type="text/html",
        headers={"priority": "300", "x": b"\xff", "y": None},
        timestamp=1_700_000_000,
    )


@pytest.mark.parametrize("key", [b"\xff", b"x" * 256])
def test_a_key_that_is_no_routing_key(reader: AmqpPropertyReader, key: bytes) -> None:
    exchange, routing_key, raw = reader.from_record(Record(key, b""))
    assert (exchange, routing_key) == ("", "")
    assert decode(raw).headers == {"kafka-key": key}


@pytest.mark.parametrize(
    "forged", [None, b"", b"\x05ab", b"\0\x05ab", b"\0\0", b"\0\0\xff\xff", b"\0\0\x20\0\xff"]
)
def test_a_header_that_we_did_not_write(reader: AmqpPropertyReader, forged: bytes | None) -> None:
    record = Record(b"key", b"", (("amqp", forged), ("a" * 300, b"too long a name")))
    exchange, key, raw = reader.from_record(record)
    assert (exchange, key) == ("", "key")
    reader.inspect(raw)


def test_a_name_twice(reader: AmqpPropertyReader) -> None:
    headers = (("type", b"one"), ("type", b"two"))
    _, _, raw = reader.from_record(Record(None, b"", headers))
    assert decode(raw) == Properties(type="one", headers={"type": "two"})
