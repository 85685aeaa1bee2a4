"""Management over HTTP, by RabbitMQ's clients' libraries, and what it does to clients."""

import json
import time
from base64 import b64encode
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any

import pika
import pytest
from pika.exceptions import AMQPConnectionError, ConnectionClosedByBroker
from pyrabbit2.api import Client
from rabbitmq_admin import AdminAPI

from entrepot.testing import Broker, broker

WAIT_S = 30
GUEST = {"Authorization": "Basic " + b64encode(b"guest:guest").decode()}


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"ports.http": 0}) as started:
        yield started


def ask(server: Broker, method: str, path: str, body: object = None) -> tuple[int, Any]:
    connection = HTTPConnection(server.http_address, timeout=WAIT_S)
    data = None if body is None else json.dumps(body)
    connection.request(method, f"/api/{path}", data, GUEST)
    response = connection.getresponse()
    said = response.read()
    connection.close()
    return response.status, json.loads(said) if said else None


def connected(server: Broker) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.URLParameters(server.amqp_url))


def test_pyrabbit(server: Broker) -> None:
    client = Client(server.http_address, "guest", "guest")
    assert client.is_alive()
    assert client.get_vhost_names() == ["/"]
    client.create_queue("/", "pyrabbit", durable=True)
    client.create_exchange("/", "pyrabbit.x", "direct")
    client.create_binding("/", "pyrabbit.x", "pyrabbit", "key")
    assert client.publish("/", "pyrabbit.x", "key", "hello")
    assert client.get_queue_depth("/", "pyrabbit") == 1
    (message,) = client.get_messages("/", "pyrabbit", 1, True)
    assert (message["payload"], message["exchange"]) == ("hello", "pyrabbit.x")
    assert [b["routing_key"] for b in client.get_queue_bindings("/", "pyrabbit")][-1] == "key"
    client.delete_binding("/", "pyrabbit.x", "pyrabbit", "key")
    client.purge_queue("/", "pyrabbit")
    assert client.get_queue_depth("/", "pyrabbit") == 0
    client.delete_queue("/", "pyrabbit")
    client.delete_exchange("/", "pyrabbit.x")
    assert "pyrabbit" not in [row["name"] for row in client.get_queues() or []]


def test_rabbitmq_admin(server: Broker) -> None:
    api = AdminAPI(url=f"http://{server.http_address}", auth=("guest", "guest"))
    assert api.overview()["product_name"] == "entrepot"
    assert api.whoami()["tags"] == ["administrator"]
    api.create_vhost("admin")
    assert api.is_vhost_alive("admin") == {"status": "ok"}
    api.create_user("bob", "secret")
    api.create_user_permission("bob", "admin")
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    expected = [{"user": "bob", "vhost": "admin", **everything}]
    assert api.list_user_permissions("bob") == expected
    api.delete_user("bob")
    api.delete_vhost("admin")
    assert [row["name"] for row in api.list_vhosts()] == ["/"]


def test_who_consumes_and_does_not_acknowledge_is_seen_r18(server: Broker) -> None:
    connection = connected(server)
    channel = connection.channel()
    channel.queue_declare("held", durable=True)
    own = channel.queue_declare("", exclusive=True).method.queue
    channel.basic_qos(prefetch_count=5)
    got: list[bytes] = []
    channel.basic_consume("held", lambda *delivered: got.append(delivered[-1]))
    for count in (1, 3, 5):
        for _ in range(count - len(got)):
            channel.basic_publish("", "held", b"x")
        while len(got) < count:
            connection.process_data_events(0.05)
        _, row = ask(server, "GET", "queues/%2F/held")
        assert (row["messages_unacknowledged"], row["consumers"]) == (len(got), 1)
        (listed,) = ask(server, "GET", "channels")[1]
        assert listed["messages_unacknowledged"] == len(got)
    assert (listed["prefetch_count"], listed["user"], listed["vhost"]) == (5, "guest", "/")
    (consumer,) = ask(server, "GET", "consumers")[1]
    assert (consumer["queue"]["name"], consumer["ack_required"]) == ("held", True)
    (row,) = ask(server, "GET", "connections")[1]
    owner = ask(server, "GET", f"queues/%2F/{own}")[1]["owner_pid_details"]
    assert owner["name"] == row["name"]
    assert (row["user"], row["protocol"], row["channels"]) == ("guest", "AMQP 0-9-1", 1)
    assert row["client_properties"]["product"] == "Pika Python Client Library"
    connection.close()
    deadline = time.monotonic() + WAIT_S
    while ask(server, "GET", "connections")[1]:
        assert time.monotonic() < deadline
    assert ask(server, "GET", "queues/%2F/held")[1]["messages_unacknowledged"] == 0


def test_a_connection_is_closed_from_outside(server: Broker) -> None:
    connection = connected(server)
    (row,) = ask(server, "GET", "connections")[1]
    name = row["name"].replace(" ", "%20").replace(">", "%3E")
    assert ask(server, "DELETE", f"connections/{name}")[0] == 204
    with pytest.raises(ConnectionClosedByBroker) as closed:
        wait_on(connection)
    assert closed.value.reply_code == 320
    assert "Closed via management plugin" in closed.value.reply_text


def wait_on(connection: pika.BlockingConnection) -> None:
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        connection.process_data_events(0.05)


def test_stopped_started_and_reset_s11(server: Broker) -> None:
    connection = connected(server)
    connection.channel().queue_declare("resetting", durable=True)
    assert ask(server, "PUT", "application", {"running": False})[0] == 204
    with pytest.raises(ConnectionClosedByBroker) as closed:
        wait_on(connection)
    assert closed.value.reply_code == 320
    with pytest.raises(AMQPConnectionError):
        wait_on(connected(server))
    assert ask(server, "DELETE", "application/contents")[0] == 204
    assert ask(server, "PUT", "application", {"running": True})[0] == 204
    connection = connected(server)
    assert ask(server, "GET", "queues")[1] == []
    connection.close()


def test_what_is_drained_is_rewound_to_a_time_and_drained_again(server: Broker) -> None:
    connection = connected(server)
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("again", durable=True)
    persistent = pika.BasicProperties(delivery_mode=2)
    for number in range(10):
        channel.basic_publish("", "again", b"early %d" % number, persistent)
    time.sleep(0.05)
    between_ms = time.time_ns() // 1_000_000
    time.sleep(0.05)
    late = [b"late %d" % number for number in range(200)]
    for body in late:
        channel.basic_publish("", "again", body, persistent)
    assert len(drained(channel)) == 210
    assert ask(server, "POST", "queues/%2F/again/rewind", {"time": between_ms})[0] == 204
    assert drained(channel) == late
    assert drained(channel) == []
    connection.close()


def drained(channel: Any) -> list[bytes]:
    found = []
    while True:
        method, _, body = channel.basic_get("again")
        if method is None:
            return found
        channel.basic_ack(method.delivery_tag)
        found.append(body)


def test_moved_and_peeked(server: Broker) -> None:
    for name in ("from", "to"):
        assert ask(server, "PUT", f"queues/%2F/{name}", {})[0] == 201
    connection = connected(server)
    channel = connection.channel()
    for number in range(1_200):
        channel.basic_publish("", "from", b"%d" % number, pika.BasicProperties(headers={"n": 1}))
    connection.close()
    deadline = time.monotonic() + WAIT_S
    while ask(server, "GET", "queues/%2F/from")[1]["messages"] < 1_200:
        assert time.monotonic() < deadline
    assert ask(server, "POST", "queues/%2F/from/move", {"to": "to"}) == (200, {"moved": 1_200})
    asked = {"count": 2_000, "ackmode": "peek", "encoding": "auto"}
    _, rows = ask(server, "POST", "queues/%2F/to/get", asked)
    assert [row["payload"] for row in rows] == [str(number) for number in range(1_200)]
    assert rows[0]["properties"]["headers"] == {"n": 1}
    assert ask(server, "GET", "queues/%2F/from")[1]["messages"] == 0


def test_what_is_declared_survives_a_kill(server: Broker) -> None:
    assert ask(server, "PUT", "vhosts/kept")[0] == 201
    assert ask(server, "PUT", "queues/kept/q", {"durable": True})[0] == 201
    assert ask(server, "PUT", "exchanges/kept/x", {"type": "topic"})[0] == 201
    assert ask(server, "POST", "bindings/kept/e/x/q/q", {"routing_key": "#"})[0] == 201
    server.kill()
    server.start()
    message = {"properties": {}, "routing_key": "a", "payload": "p", "payload_encoding": "string"}
    assert ask(server, "POST", "exchanges/kept/x/publish", message) == (200, {"routed": True})
    assert ask(server, "DELETE", "vhosts/kept")[0] == 204
