"""AMQP's properties for the broker, as records, and translated from other formats."""

from decimal import Decimal

import pytest

from entrepot.core.body import decode_headers
from entrepot.core.errors import InvalidRoutingHeader
from entrepot.core.message import Envelope, Handling
from entrepot.core.neutral import KEY_HEADER, NEUTRAL, Formats, Head, record_section
from entrepot.core.properties import Death
from entrepot.core.properties import Properties as Shared
from entrepot.core.record import Record
from entrepot.gateway.amqp.format import AMQP, DELAYED_AT
from entrepot.wire.amqp.errors import AmqpError
from entrepot.wire.amqp.properties import NONE, BasicProperties, decode, encode
from entrepot.wire.amqp.table import Int8, Int64, Timestamp, type_name

ALL = BasicProperties(
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


FORMATS = Formats((AMQP,))


@pytest.mark.parametrize(
    ("properties", "handling"),
    [
        (BasicProperties(), Handling(False, 0, None)),
        (BasicProperties(delivery_mode=1, priority=5), Handling(False, 5, None)),
        (BasicProperties(delivery_mode=2, expiration="0"), Handling(True, 0, 0)),
        (BasicProperties(expiration="+60000"), Handling(False, 0, 60_000)),
        (ALL, Handling(True, 9, 60_000)),
    ],
)
def test_handling(properties: BasicProperties, handling: Handling) -> None:
    assert AMQP.handling(encode(properties)) == handling


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
def test_expirations_that_are_none(expiration: str, wrong: str) -> None:
    found = AMQP.inspect(encode(BasicProperties(expiration=expiration)))
    assert found.refusal == f"invalid expiration '{expiration}': {wrong}"
    assert found.handling.ttl_ms is None


@pytest.mark.parametrize("raw", [b"", b"\0", b"\x80\0", b"\0\x01", b"\x20\0\0\0\0\x03\x01aZ"])
def test_malformed(raw: bytes) -> None:
    with pytest.raises(AmqpError, match="SYNTAX_ERROR"):
        AMQP.inspect(raw)
    assert AMQP.handling(raw) == Handling()


def test_headers_that_tell_the_broker_something() -> None:
    head = encode(BasicProperties(headers={"CC": ["a", 5], "BCC": ["b"], "x-delay": 7}))
    found = AMQP.handling(head)
    assert (found.copies, found.blind_copies, found.delay_ms) == (("a",), ("b",), 7)
    assert AMQP.handling(encode(BasicProperties(headers={"x-confirm": "consumed"}))) == Handling(
        confirms_when_consumed=True
    )
    assert decode(AMQP.without_blind_copies(head)).headers == {"CC": ["a", 5], "x-delay": 7}


def test_copies_are_a_list() -> None:
    head = encode(BasicProperties(headers={"CC": "a"}))
    with pytest.raises(InvalidRoutingHeader) as error:
        AMQP.inspect(head)
    assert str(error.value) == 'invalid message: {unacceptable_type_in_header,"CC",longstr}'
    assert AMQP.handling(head) == Handling(), "it may stand in a record that others wrote"


def test_what_protocols_share() -> None:
    assert AMQP.properties(NONE) == Shared()
    assert AMQP.properties(encode(ALL)) == Shared(
        "text/plain",
        "gzip",
        "correlation",
        "answers",
        "message",
        "kind",
        "guest",
        "app",
        1_700_000_000,
        9,
        60_000,
        True,
        ALL.headers or {},
        {"cluster_id": "cluster"},
    )


def test_a_delay() -> None:
    head = AMQP.delayed_at(
        encode(BasicProperties(message_id="m", headers={"x-delay": "9"})), "late"
    )
    assert decode(head).headers == {"x-delay": "9", DELAYED_AT: "late"}
    exchange, after = AMQP.after_delay(head)
    assert (exchange, decode(after)) == (
        "late",
        BasicProperties(message_id="m", headers={"x-delay": -9}),
    )


def test_deaths_are_told_as_rabbitmq_does() -> None:
    old = Death("a", "rejected", 1, 1_000, "x", ("k",), 70)
    new = Death("b", "expired", 1, 2_000, "dlx", ("k", "l"))
    head = encode(BasicProperties(expiration="5", headers={"h": Int8(1), "CC": ["l"]}))
    first = AMQP.with_deaths(head, [old], "x", keeps_copies=True)
    second = AMQP.with_deaths(first, [new, old], "dlx", keeps_copies=False)
    assert list(AMQP.deaths(second)) == [new, old]
    found = decode(second)
    assert found.expiration is None
    headers = dict(found.headers or {})
    assert (type_name(headers.pop("h")), "CC" in headers) == ("byte", False)
    newest, oldest = headers.pop("x-death")
    assert [type(newest["count"]), type(newest["time"])] == [Int64, Timestamp]
    assert (oldest["original-expiration"], oldest["routing-keys"]) == ("70", ["k"])
    assert headers == {
        "x-first-death-queue": "a",
        "x-first-death-reason": "rejected",
        "x-first-death-exchange": "x",
        "x-last-death-queue": "b",
        "x-last-death-reason": "expired",
        "x-last-death-exchange": "dlx",
    }


# Records.


def recorded(envelope: Envelope) -> Record:
    return Record(None, b"", decode_headers(record_section(envelope)))


def translated(record: Record) -> tuple[str, bytes]:
    """The routing key and the properties of a record as AMQP's consumers see them."""
    envelope = FORMATS.envelope(record)
    assert envelope.exchange == ""
    return envelope.subject, AMQP.head_of(envelope)


def test_there_and_back() -> None:
    envelope = Envelope("ex", "key", encode(ALL), AMQP)
    record = recorded(envelope)
    headers = record.headers
    assert FORMATS.envelope(record) == envelope
    assert headers[0] == ("amqp", b"\x02ex\x03key" + encode(ALL))
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


def test_names_that_are_not_unicode() -> None:
    raw = encode(
        BasicProperties(headers={"\udcff": "\udcfe", "d": Decimal("1.5"), "t": {"a": [1]}})
    )
    envelope = Envelope("\udcff", "k\udcfe", raw, AMQP)
    record = recorded(envelope)
    assert record.headers[1] == ("\N{REPLACEMENT CHARACTER}", b"\xfe")
    assert FORMATS.envelope(record) == envelope


def test_a_record_of_others() -> None:
    headers = (("content-type", b"text/html"), ("priority", b"300"), ("x", b"\xff"), ("y", None))
    key, raw = translated(Record(b"customer", b"", headers, 1_700_000_000_123))
    assert key == "customer"
    assert decode(raw) == BasicProperties(
        content_type="text/html",
        headers={"priority": "300", "x": b"\xff", "y": None},
        timestamp=1_700_000_000,
    )


@pytest.mark.parametrize("key", [b"\xff", b"x" * 256])
def test_a_key_that_is_no_routing_key(key: bytes) -> None:
    routing_key, raw = translated(Record(key, b""))
    assert routing_key == ""
    assert decode(raw).headers == {KEY_HEADER: key}


@pytest.mark.parametrize(
    "forged", [None, b"", b"\x05ab", b"\0\x05ab", b"\0\0", b"\0\0\xff\xff", b"\0\0\x20\0\xff"]
)
@pytest.mark.parametrize("name", ["amqp", "message"])
def test_a_header_that_we_did_not_write(name: str, forged: bytes | None) -> None:
    record = Record(b"key", b"", ((name, forged), ("a" * 300, b"too long a name")))
    key, raw = translated(record)
    assert key == "key"
    assert [*(decode(raw).headers or {})] == [name]


def test_a_name_twice() -> None:
    _, raw = translated(Record(None, b"", (("type", b"one"), ("type", b"two"))))
    assert decode(raw) == BasicProperties(type="one", headers={"type": "two"})


def test_more_headers_than_fit_into_a_frame() -> None:
    headers = tuple((f"h{number}", bytes(1_000)) for number in range(1_000))
    _, raw = translated(Record(b"\xff" * 100_000, b"", headers))
    assert 60_000 < len(raw) < 130_000
    AMQP.inspect(raw)


def test_a_message_of_another_format() -> None:
    deep: object = 1
    for _ in range(100):
        deep = [deep]
    properties = Shared(
        message_id="m",
        reply_to="x" * 300,
        ttl_ms=70,
        is_persistent=True,
        headers={"number": 2**40, "table": {"a": True, "x" * 300: 1}, "deep": deep},
        others={"cluster_id": "c", "unknown": "u"},
    )
    death = Death("q", "expired", 2, 5_000, "x", ("k",))
    envelope = Envelope("x", "k", NEUTRAL.write(Head(properties, deaths=(death,))), NEUTRAL)
    own = AMQP.own(envelope)
    assert (own.exchange, own.subject, own.format) == ("x", "k", AMQP)
    assert AMQP.own(own) is own
    AMQP.inspect(own.head)
    found = decode(own.head)
    assert (found.message_id, found.reply_to, found.expiration) == ("m", None, "70")
    assert (found.delivery_mode, found.cluster_id) == (2, "c")
    headers = found.headers or {}
    assert (type(headers["number"]), headers["table"]) == (Int64, {"a": True})
    assert list(AMQP.deaths(own.head)) == [death]
