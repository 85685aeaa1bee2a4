"""Real conversations of clients with RabbitMQ: read, and written again byte for byte."""

from operator import attrgetter

import pytest

from entrepot.core.message import OPAQUE, Envelope
from entrepot.wire.amqp import properties, scan, table
from entrepot.wire.amqp.deliver import DeliverEncoder, returned
from entrepot.wire.amqp.errors import ReplyCode
from entrepot.wire.amqp.frames import PROTOCOL_HEADER, FrameBuffer, method_frame
from entrepot.wire.amqp.methods import basic, connection, decode
from entrepot.wire.amqp.properties import PropertyView
from entrepot.wire.amqp.table import Int64, Timestamp
from tests.unit.wire.amqp.oracle import FRAME_BYTES_MAX, Captured, captured, feed, flat, read_slowly

CAPTURED = captured()
CLIENTS = ("aiormq", "pika", "py_amqp")


def said(client: str, *, by_client: bool) -> bytes:
    return b"".join(
        each.data for each in CAPTURED if each.client == client and each.is_clients == by_client
    )


def named(client: str, name: str) -> list[Captured]:
    return [each for each in CAPTURED if each.client == client and each.name == name]


def test_there_are_enough() -> None:
    assert {each.client for each in CAPTURED} == set(CLIENTS)
    assert len({each.name for each in CAPTURED}) > 50


@pytest.mark.parametrize("frame", CAPTURED, ids=lambda each: f"{each.client} {each.name}")
def test_every_frame_is_read_and_written_again(frame: Captured) -> None:
    kind, channel = frame.data[0], int.from_bytes(frame.data[1:3], "big")
    if kind == scan.METHOD:
        method = decode(frame.data[7:-1])
        assert frame.name == method.NAME
        assert method_frame(channel, method) == frame.data
    elif kind == scan.HEADER:
        raw = frame.data[19:-1]
        assert properties.check(raw).raw == raw
        # One client writes 64 bits with a large L, and we with a small one.
        again = properties.encode(properties.decode(raw))
        assert again == raw.replace(b"\x03bigL", b"\x03bigl")


@pytest.mark.parametrize("client", CLIENTS)
def test_what_clients_say(client: str) -> None:
    data = said(client, by_client=True)
    for size_max in (1, 50, 1 << 30):
        header, *events = feed(FrameBuffer(), PROTOCOL_HEADER + data, size_max)
        assert header.is_ours
        assert flat(events) == read_slowly(data)


@pytest.mark.parametrize("client", CLIENTS)
def test_what_the_server_says(client: str) -> None:
    data = said(client, by_client=False)
    for size_max in (1, 50, 1 << 30):
        events = feed(FrameBuffer(is_client=True), data, size_max)
        assert flat(events) == read_slowly(data)


@pytest.mark.parametrize("client", CLIENTS)
def test_clients_log_in_as_guest(client: str) -> None:
    (frame,) = named(client, "connection.start-ok")
    method = decode(frame.data[7:-1])
    assert isinstance(method, connection.StartOk)
    assert method.client_properties["connection_name"] == "capture"
    assert method.client_properties["capabilities"]["connection.blocked"] is True
    if client == "py_amqp":
        assert method.mechanism == "AMQPLAIN"
        # A table without a length in front of it.
        assert table.decode(method.response) == {"LOGIN": "guest", "PASSWORD": "guest"}
    else:
        assert (method.mechanism, method.response) == ("PLAIN", b"\0guest\0guest")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_headers_that_were_sent(client: str) -> None:
    raw = named(client, "header")[0].data[19:-1]
    headers = PropertyView(raw).get("headers")
    assert headers["text"] == "grün"
    assert headers["nothing"] is None
    assert headers["yes"] is True
    assert (headers["big"], type(headers["big"])) == (1 << 40, Int64)
    assert (headers["when"], type(headers["when"])) == (1_700_000_000, Timestamp)
    assert headers["list"] == ["a", 1, {"deep": [True]}]
    assert headers["map"] == {"k": "v", "m": {"x": 1}}
    # Bytes are bytes to some, and to others a text that is none.
    assert headers["raw"] == ("\0\udcff" if client == "py_amqp" else b"\0\xff")


@pytest.mark.parametrize("client", CLIENTS)
def test_rabbitmqs_deliveries_are_ours(client: str) -> None:
    """From what was published and the tags, the same bytes that RabbitMQ delivered."""
    events = flat(feed(FrameBuffer(is_client=True), said(client, by_client=False)))
    deliveries = [event for event in events if type(event) is tuple and len(event) == 4]
    encoder = DeliverEncoder(1, "ctag-1", FRAME_BYTES_MAX, attrgetter("head"))
    found = 0
    for channel, payload, raw, body in deliveries:
        method = decode(payload)
        if isinstance(method, basic.Deliver):
            envelope = Envelope(method.exchange, method.routing_key, raw, OPAQUE)
            delivery = (method.delivery_tag, method.redelivered, envelope, body)
            assert b"".join(encoder.encode([delivery])) in said(client, by_client=False)
            found += 1
        elif isinstance(method, basic.Return):
            envelope = Envelope(method.exchange, method.routing_key, raw, OPAQUE)
            code = ReplyCode(method.reply_code)
            data = returned(channel, code, (envelope, body), FRAME_BYTES_MAX)
            assert b"".join(data) in said(client, by_client=False)
    assert found == 3
