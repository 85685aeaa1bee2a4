"""What one client does wrong, by any protocol, ends neither the broker nor anybody else's work."""

import http.client
import json
from base64 import b64encode
from collections.abc import Iterator
from struct import pack
from typing import Any
from urllib.parse import quote

import pika
import pytest

from entrepot.testing import Broker, broker
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.methods import basic, queue
from entrepot.wire.amqp.scan import FRAME_END, HEADER

WAIT_S = 30
LONG = "n" * 256  # A byte more than a short string of AMQP holds.


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        pid = started.pid
        yield started
        assert started.pid == pid
        assert "Traceback" not in started.log_path.read_text()


def call(server: Broker, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    """The status and what the answer says."""
    connection = http.client.HTTPConnection(*server.endpoints["http"], timeout=WAIT_S)
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    headers = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}
    connection.request(method, f"/api/{path}", data if body is not None else None, headers)
    answer = connection.getresponse()
    said = answer.read()
    connection.close()
    return answer.status, json.loads(said) if said else None


def assert_well(server: Broker) -> None:
    assert call(server, "GET", "whoami")[0] == 200


def nested(depth: int) -> Any:
    value: Any = "at last"
    for _ in range(depth):
        value = {"within": value}
    return value


# --- AMQP


def test_a_servers_method_with_a_message_is_refused(server: Broker) -> None:
    """Behind a declaration, so that it is served when nobody is reading."""
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    channel = connection.channel()
    header = pack(">HHQH", 60, 0, 0, 0)
    frames = [
        method_frame(1, queue.Declare(0, "behind", False, True, False, False, False, {})),
        method_frame(1, basic.Return(312, "NO_ROUTE", "", "key")),
        pack(">BHI", HEADER, 1, len(header)) + header + bytes((FRAME_END,)),
    ]
    connection._impl._transport._sock.sendall(b"".join(frames))  # type: ignore[attr-defined]
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as refused:
        connection.process_data_events(time_limit=WAIT_S)
    assert refused.value.reply_code == 503
    assert not channel.is_open
    assert_well(server)


def test_a_dead_letter_key_is_as_long_as_a_key_may_be(server: Broker) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    for name in ("x-dead-letter-routing-key", "x-dead-letter-exchange"):
        arguments = {"x-message-ttl": 1, "x-dead-letter-exchange": "amq.fanout", name: LONG}
        with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
            connection.channel().queue_declare("letters", durable=True, arguments=arguments)
        assert refused.value.reply_code == 406
    connection.close()
    assert_well(server)


# --- HTTP


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("PUT", f"queues/%2F/{LONG}", {}),
        ("PUT", f"queues/%2F/{quote('é' * 128)}", {}),
        ("PUT", f"exchanges/%2F/{LONG}", {"type": "direct"}),
        ("PUT", f"vhosts/{LONG}", {}),
        ("PUT", f"vhosts/{quote('é' * 128)}", {}),
        ("PUT", f"users/{LONG}", {"password": "secret", "tags": ""}),
        ("POST", "bindings/%2F/e/amq.topic/q/there", {"routing_key": LONG}),
        ("PUT", "queues/%2F/q", {"arguments": {LONG: 1}}),
        ("PUT", "queues/%2F/q", {"arguments": nested(200)}),
        ("PUT", "queues/%2F/q", {"arguments": {"x-dead-letter-exchange": LONG}}),
        ("PUT", "exchanges/%2F/e", {"type": "direct", "arguments": {"alternate-exchange": LONG}}),
        ("PUT", "exchanges/%2F/e", {"type": "direct", "arguments": nested(200)}),
        ("POST", "bindings/%2F/e/amq.headers/q/there", {"arguments": nested(200)}),
        ("POST", "bindings/%2F/e/amq.headers/q/there", {"arguments": {LONG: 1}}),
        ("PUT", "queues/%2F/q", b'{"arguments": {"x": "\xff\xfe"}}'),
    ],
)
def test_what_no_frame_has_room_for_is_refused(
    server: Broker, method: str, path: str, body: Any
) -> None:
    call(server, "PUT", "queues/%2F/there", {"durable": True})
    status, said = call(server, method, path, body)
    assert status in (400, 403), said
    assert_well(server)


@pytest.mark.parametrize(
    ("key", "properties"),
    [
        (LONG, {}),
        ("é" * 128, {}),
        ("there", {"headers": nested(200)}),
        ("there", {"headers": {LONG: 1}}),
        ("there", {"type": LONG}),
        ("there", {"headers": {"large": "x" * 200_000}}),
    ],
)
def test_a_message_that_no_frame_has_room_for_is_refused(
    server: Broker, key: str, properties: dict[str, Any]
) -> None:
    call(server, "PUT", "queues/%2F/there", {"durable": True})
    call(server, "POST", "bindings/%2F/e/amq.fanout/q/there", {})
    for exchange in ("amq.default", "amq.fanout"):
        message = {"routing_key": key, "properties": properties}
        body = {"payload": "text", "payload_encoding": "string", **message}
        status, said = call(server, "POST", f"exchanges/%2F/{exchange}/publish", body)
        assert status == 400, said
    assert_well(server)
