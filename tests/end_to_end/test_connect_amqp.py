"""Topics to exchanges and queues to topics: an entrepot's, and RabbitMQ's where one says so.

ENTREPOT_RABBITMQ=amqp://guest:guest@host:port/%2F names one; compat/connect/run.sh starts it.
"""

import os
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import confluent_kafka
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

from entrepot.client.amqp_consumer import AmqpConsumer
from entrepot.client.errors import Unreachable
from entrepot.connect import ConnectError
from entrepot.testing import Broker, broker
from tests import certificates
from tests.end_to_end.connecting import Process, describe, received, run_once, send
from tests.end_to_end.test_connect import command, topic_has, until, values

RABBITMQ = os.environ.get("ENTREPOT_RABBITMQ", "")


class There:
    """The broker that is spoken AMQP with. What a test declares is gone afterwards."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel: BlockingChannel = self.connection.channel()
        self.channel.confirm_delivery()
        self._queues: list[str] = []

    def queue(self, name: str, **arguments: Any) -> str:
        self.channel.queue_declare(name, durable=True, arguments=arguments)
        self._queues.append(name)
        return name

    def publish(self, queue: str, body: bytes, **properties: Any) -> None:
        made = pika.BasicProperties(delivery_mode=2, **properties)
        self.channel.basic_publish("", queue, body, made, mandatory=True)

    def taken(self, queue: str) -> list[tuple[Any, pika.BasicProperties, bytes]]:
        """All that is in it."""
        found = []
        while (got := self.channel.basic_get(queue, auto_ack=True))[0] is not None:
            found.append(got)
        return found

    def count(self, queue: str) -> int:
        declared = self.channel.queue_declare(queue, passive=True)
        return int(declared.method.message_count)

    def close(self) -> None:
        for name in self._queues:
            self.channel.queue_delete(name)
        self.connection.close()


@pytest.fixture(params=["entrepot", "rabbitmq"] if RABBITMQ else ["entrepot"])
def there(request: pytest.FixtureRequest, server: Broker) -> Iterator[There]:
    opened = There(server.amqp_url if request.param == "entrepot" else RABBITMQ)
    yield opened
    opened.close()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of a topic of this test's own."""
    return "".join(letter if letter.isalnum() else "-" for letter in request.node.name)


# --- out


def test_records_become_messages(server: Broker, there: There, name: str, tmp_path: Path) -> None:
    queue = there.queue(f"{name}.queue")
    there.channel.exchange_declare(f"{name}.exchange", "topic")
    there.channel.queue_bind(queue, f"{name}.exchange", f"{name}.*.paid")
    options = {
        "url": there.url,
        "exchange": f"{name}.exchange",
        "routing_key": "{topic}.{key}.paid",
    }
    path = describe(tmp_path, name, "amqp-sink", topic=name, options=options)
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    headers = [("type", b"OrderPaid"), ("raw", b"\xff"), ("text", b"x")]
    producer.produce(name, b"v", b"ana", headers=headers, timestamp=1_700_000_000_999)
    producer.produce(name, None, b"bob")
    assert producer.flush(30) == 0
    run_once(server.bootstrap, path)
    run_once(server.bootstrap, path)
    there.channel.exchange_delete(f"{name}.exchange")
    (first, properties, body), (_, second, nothing) = there.taken(queue)
    assert first.routing_key == f"{name}.ana.paid"
    assert (body, nothing) == (b"v", b"")
    assert properties.headers == {"raw": b"\xff", "text": "x", "kafka-key": "ana"}
    assert (properties.type, properties.delivery_mode) == ("OrderPaid", 2)
    assert properties.content_type == "application/octet-stream"
    assert (properties.message_id, properties.timestamp) == (f"{name}-0-0", 1_700_000_000)
    assert second.message_id == f"{name}-0-1"


def test_what_no_queue_takes_is_a_dead_letter(
    server: Broker, there: There, name: str, tmp_path: Path
) -> None:
    there.queue(f"{name}.a")
    path = describe(
        tmp_path,
        name,
        "amqp-sink",
        topic=name,
        errors={"dead_letters": f"{name}.dead"},
        options={"url": there.url, "routing_key": "{topic}.{key}"},
    )
    send(server.bootstrap, name, ("a", "1"), ("b", "2"), "3", ("a", "4"))
    run_once(server.bootstrap, path)
    assert [body for _, _, body in there.taken(f"{name}.a")] == [b"1", b"4"]
    dead = received(server.bootstrap, f"{name}.dead")
    reasons = {each.value(): dict(each.headers())["entrepot-error"].decode() for each in dead}
    assert reasons == {
        b"2": f"exchange '', routing key '{name}.b': NO_ROUTE",
        b"3": "no key for the routing key",
    }


def test_a_queue_that_is_full_is_waited_for(
    server: Broker, there: There, name: str, tmp_path: Path
) -> None:
    """It refuses what does not fit. Some come in before others, but each comes once."""
    queue = there.queue(f"{name}.queue", **{"x-max-length": 3, "x-overflow": "reject-publish"})
    options = {"url": there.url, "routing_key": queue}
    path = describe(tmp_path, name, "amqp-sink", topic=name, options=options)
    send(server.bootstrap, name, *map(str, range(12)))
    runner = threading.Thread(target=run_once, args=(server.bootstrap, path))
    runner.start()
    found: list[bytes] = []
    deadline = time.monotonic() + 30
    while runner.is_alive() and time.monotonic() < deadline:
        there.connection.sleep(0.05)
        found += [body for _, _, body in there.taken(queue)]
    runner.join()
    found += [body for _, _, body in there.taken(queue)]
    assert sorted(map(int, found)) == list(range(12))


# --- in


@pytest.mark.slow
def test_messages_become_records(server: Broker, there: There, name: str, tmp_path: Path) -> None:
    queue = there.queue(f"{name}.queue")
    there.publish(queue, b"one", message_id="m1", content_type="a/b", headers={"n": 1})
    there.publish(queue, b"two", headers={"list": [1, {"a": True}], "none": None})
    for number in range(2_000):
        there.channel.basic_publish("", queue, b"%d" % number)
    options = {"url": there.url, "queue": queue}
    path = describe(tmp_path, name, "amqp-source", topic=name, options=options)
    run_once(server.bootstrap, path)
    run_once(server.bootstrap, path)
    first, second, *rest = received(server.bootstrap, name)
    assert [each.value() for each in (first, second)] == [b"one", b"two"]
    assert [int(each.value()) for each in rest] == list(range(2_000))
    assert first.key() == queue.encode()
    assert dict(first.headers()) == {
        "exchange": b"",
        "routing-key": queue.encode(),
        "message-id": b"m1",
        "content-type": b"a/b",
        "n": b"1",
    }
    assert dict(second.headers())["list"] == b'[1,{"a":true}]'
    assert dict(second.headers())["none"] is None
    assert there.count(queue) == 0


def test_there_and_back(server: Broker, there: There, name: str, tmp_path: Path) -> None:
    queue = there.queue(f"{name}.queue")
    options = {"url": there.url, "routing_key": queue}
    out = describe(tmp_path, f"{name}.out", "amqp-sink", topic=name, options=options)
    options = {"url": there.url, "queue": queue, "key": "kafka-key"}
    back = describe(tmp_path, f"{name}.in", "amqp-source", topic=f"{name}.again", options=options)
    send(server.bootstrap, name, ("ana", "1"), "2", ("bob", "x" * 300_000))
    run_once(server.bootstrap, out)
    run_once(server.bootstrap, back)
    found = [(each.key(), each.value()) for each in received(server.bootstrap, f"{name}.again")]
    assert found == [(b"ana", b"1"), (None, b"2"), (b"bob", b"x" * 300_000)]


@pytest.mark.parametrize("is_named", [True, False], ids=["with ids", "without ids"])
def test_a_crash_between_commit_and_acknowledgement(
    server: Broker,
    there: There,
    name: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    is_named: bool,
) -> None:
    """Messages with an id are in the topic once, others twice."""
    queue = there.queue(f"{name}.queue")
    for number in range(10):
        there.publish(queue, b"%d" % number, message_id=f"m{number}" if is_named else None)
    path = describe(
        tmp_path,
        name,
        "amqp-source",
        topic=name,
        batch={"records": 4},
        options={"url": there.url, "queue": queue},
    )
    settle, settled = AmqpConsumer.settle, []

    async def die_the_second_time(self: AmqpConsumer, tag: int) -> None:
        settled.append(tag)
        if len(settled) == 2:
            self._link.abort("killed")
            raise MemoryError
        await settle(self, tag)

    with monkeypatch.context() as patched:
        patched.setattr(AmqpConsumer, "settle", die_the_second_time)
        with pytest.raises(MemoryError):
            run_once(server.bootstrap, path)
    committed = len(values(server, name))
    assert committed == settled[-1] > settled[0]
    until(lambda: there.count(queue) == 10 - settled[0])
    run_once(server.bootstrap, path)
    found = [int(value) for value in values(server, name)]
    again = [] if is_named else list(range(settled[0], committed))
    assert sorted(found) == sorted([*range(10), *again])
    assert there.count(queue) == 0


def test_a_lost_connection_is_no_reason_to_end(
    server: Broker, there: There, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = there.queue(f"{name}.queue")
    for number in range(10):
        there.publish(queue, b"%d" % number, message_id=str(number))
    options = {"url": there.url, "queue": queue}
    path = describe(
        tmp_path, name, "amqp-source", topic=name, batch={"records": 3}, options=options
    )
    settle, lost = AmqpConsumer.settle, []

    async def lose_the_connection(self: AmqpConsumer, tag: int) -> None:
        if len(lost) < 2:
            lost.append(tag)
            self._link.abort("unplugged")
            raise Unreachable("connection lost: unplugged")
        await settle(self, tag)

    monkeypatch.setattr(AmqpConsumer, "settle", lose_the_connection)
    run_once(server.bootstrap, path)
    assert len(lost) == 2
    assert [int(value) for value in values(server, name)] == list(range(10))
    assert there.count(queue) == 0


def test_a_queue_is_consumed_by_one_unless_it_is_shared(
    server: Broker, there: There, name: str, tmp_path: Path
) -> None:
    queue = there.queue(f"{name}.queue")
    there.publish(queue, b"mine")
    options: dict[str, Any] = {"url": there.url, "queue": queue}
    errors = {"patience_s": 0}
    path = describe(tmp_path, name, "amqp-source", topic=name, errors=errors, options=options)
    there.channel.basic_qos(prefetch_count=1)
    there.channel.basic_consume(queue, lambda *_: None)
    until(lambda: there.count(queue) == 0)
    with pytest.raises(ConnectError, match="in exclusive use"):
        run_once(server.bootstrap, path)
    there.publish(queue, b"yours")
    options["exclusive"] = False
    path = describe(tmp_path, name, "amqp-source", topic=name, errors=errors, options=options)
    run_once(server.bootstrap, path)
    assert values(server, name) == [b"yours"]


# --- what is wrong is one line


@pytest.mark.parametrize(
    ("connector", "options", "said"),
    [
        ("amqp-source", {"queue": "none.such"}, "NOT_FOUND - no queue 'none.such' in vhost '/'"),
        ("amqp-sink", {"exchange": "none.such"}, "NOT_FOUND - no exchange 'none.such'"),
        ("amqp-sink", {"password": "secret"}, "ACCESS_REFUSED"),
    ],
)
def test_mistakes_are_one_line(
    server: Broker, there: There, tmp_path: Path, connector: str, options: Any, said: str
) -> None:
    options = {"url": there.url, **options}
    path = describe(tmp_path, "wrong", connector, topic="wrong", options=options)
    ran = command(server, path, "--log-format", "json")
    assert ran.returncode == 1
    *_, last = ran.stderr.splitlines()
    assert last.startswith("Error: amqp://localhost:")
    assert said in last
    assert "secret" not in ran.stderr
    assert "Traceback" not in ran.stderr


def test_nobody_is_there(server: Broker, tmp_path: Path) -> None:
    options = {"url": "amqp://ana:secret@127.0.0.1:1/shop", "queue": "q"}
    path = describe(
        tmp_path, "alone", "amqp-source", topic="t", errors={"patience_s": 0}, options=options
    )
    with pytest.raises(ConnectError, match=r"^no broker answers at 127\.0\.0\.1:1: [^\n]+$"):
        run_once(server.bootstrap, path)


# --- under TLS, as a user


def test_a_certificate_is_checked(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = certificates.make(tmp_path_factory.mktemp("own"), "own", subject="/CN=node")
    settings = {"ports.amqp_tls": 0, "tls.certificate": own.certificate, "tls.key": own.key}
    with broker(durability="os", settings=settings) as server:
        host, port = server.endpoints["amqp_tls"]
        monkeypatch.setenv("AMQP_URL", f"amqps://guest:guest@{host}:{port}")
        there = There(server.amqp_url)
        there.publish(there.queue("work"), b"sealed")
        there.connection.close()
        options: dict[str, Any] = {"url": {"env": "AMQP_URL"}, "queue": "work"}
        errors = {"patience_s": 0}
        path = describe(tmp_path, "tls", "amqp-source", topic="t", errors=errors, options=options)
        with pytest.raises(ConnectError, match="certificate verify failed"):
            run_once(server.bootstrap, path)
        options["ssl_ca"] = own.certificate
        path = describe(tmp_path, "tls", "amqp-source", topic="t", errors=errors, options=options)
        run_once(server.bootstrap, path)
        assert values(server, "t") == [b"sealed"]


# --- a process that is killed


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_source_that_is_killed_again_and_again(
    server: Broker, there: There, name: str, tmp_path: Path
) -> None:
    """Between two brokers, where there is a RabbitMQ. Nothing is lost, nothing twice."""
    queue = there.queue(f"{name}.queue")
    count = 3_000
    for number in range(count):
        there.publish(queue, b"%d" % number, message_id=f"m{number}")
    path = describe(
        tmp_path,
        name,
        "amqp-source",
        topic=name,
        batch={"records": 2},  # So that it is busy when it is killed.
        options={"url": there.url, "queue": queue, "prefetch": 10},
    )
    process = Process(path, server.bootstrap)
    process.start()
    try:
        for arrived in (1, 500, 1_000, 1_500):
            until(partial(topic_has, server, name, arrived))
            process.kill()
            process.start()
        until(partial(topic_has, server, name, count))
    finally:
        process.stop()
    assert [int(value) for value in values(server, name)] == list(range(count))
    assert there.count(queue) == 0
