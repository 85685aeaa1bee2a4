"""A real server and pika: what a program that was written for RabbitMQ relies on."""

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import (
    AMQPConnectionError,
    ChannelClosedByBroker,
    ConnectionClosedByBroker,
    NackError,
    ProbableAccessDeniedError,
    ProbableAuthenticationError,
    UnroutableError,
)

from entrepot.testing import Broker, broker

PERSISTENT = pika.BasicProperties(delivery_mode=2)
WAIT_S = 30


@contextmanager
def connected(server: Broker, **options: object) -> Iterator[pika.BlockingConnection]:
    parameters = pika.URLParameters(server.amqp_url)
    for name, value in options.items():
        setattr(parameters, name, value)
    connection = pika.BlockingConnection(parameters)
    try:
        yield connection
    finally:
        if connection.is_open:
            connection.close()


@pytest.fixture
def channel(server: Broker) -> Iterator[BlockingChannel]:
    with connected(server) as connection:
        yield connection.channel()


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    return f"pika-{request.node.name}"


def drain(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """Take so many messages, and what comes soon after them."""
    bodies, deadline = [], time.monotonic() + WAIT_S
    for method, _, body in channel.consume(queue, inactivity_timeout=0.3):
        if method is not None:
            channel.basic_ack(method.delivery_tag)
            bodies.append(body)
        elif len(bodies) >= count or time.monotonic() > deadline:
            break
    channel.cancel()
    return bodies


@pytest.mark.slow
def test_what_is_confirmed_survives_kill_9(name: str, every_durability: None) -> None:
    with broker() as server:
        with connected(server) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(name, durable=True)
            channel.exchange_declare("logs", "topic", durable=True)
            channel.queue_bind(name, "logs", "a.#")
            for number in range(100):
                body = b"%d" % number
                channel.basic_publish("logs", f"a.{number}", body, PERSISTENT, mandatory=True)
            for _ in range(10):
                method, _, _ = channel.basic_get(name)
                channel.basic_ack(method.delivery_tag)
        server.kill()
        server.start()
        with connected(server) as connection:
            channel = connection.channel()
            found = [int(body) for body in drain(channel, name, 90)]
            assert found[-90:] == list(range(10, 100))
            channel.basic_publish("logs", "a.b", b"still bound", PERSISTENT)
            assert drain(channel, name, 1) == [b"still bound"]


def hand_back(server: Broker, queue: str) -> tuple[bool, object]:
    """Take the one message there is and say that it failed; what the delivery said of earlier
    ones. Returns when the answer is permanent."""
    with connected(server) as connection:
        channel = connection.channel()
        channel.tx_select()
        method, properties, _ = channel.basic_get(queue)
        channel.basic_nack(method.delivery_tag, requeue=True)
        channel.tx_commit()
        return method.redelivered, (properties.headers or {}).get("x-delivery-count")


@pytest.mark.slow
def test_a_restart_does_not_forget_what_failed(name: str) -> None:
    """However often the broker dies in between: at the limit the message is a dead letter."""
    with broker() as server:
        with connected(server) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(f"{name}-dead", durable=True)
            arguments = {
                "x-queue-type": "quorum",
                "x-delivery-limit": 3,
                "x-dead-letter-exchange": "",
                "x-dead-letter-routing-key": f"{name}-dead",
            }
            channel.queue_declare(name, durable=True, arguments=arguments)
            channel.basic_publish("", name, b"poison", PERSISTENT)
        told = []
        for end in (server.stop, server.kill, server.kill):
            told.append(hand_back(server, name))
            end()
            server.start()
        told.append(hand_back(server, name))
        assert told == [(False, None), (True, 1), (True, 2), (True, 3)]
        with connected(server) as connection:
            channel = connection.channel()
            assert drain(channel, f"{name}-dead", 1) == [b"poison"]
            assert drain(channel, name, 0) == []


def test_a_clean_stop_counts_what_consumers_had(name: str) -> None:
    """Its connections end before it does, and what they had comes back."""
    with broker() as server:
        with connected(server) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            channel.queue_declare(name, durable=True, arguments={"x-queue-type": "quorum"})
            channel.basic_publish("", name, b"held", PERSISTENT)
            channel.basic_get(name)
            server.restart()
            with pytest.raises(ConnectionClosedByBroker, match="shutdown"):
                connection.process_data_events(10)
        assert hand_back(server, name) == (True, 1)


@pytest.mark.slow
def test_what_is_sent_again_after_a_kill_comes_once(name: str, every_durability: None) -> None:
    """Proves D-03: the publisher does not know what arrived, and sends all of it again."""
    ids = [f"{name}-{number}" for number in range(300)]

    def publish(channel: BlockingChannel) -> None:
        for each in ids:
            headers = {"x-deduplication-header": each}
            properties = pika.BasicProperties(delivery_mode=2, headers=headers)
            channel.basic_publish("once", "", each.encode(), properties)

    with broker() as server:
        with connected(server) as connection:
            channel = connection.channel()
            arguments = {"x-cache-size": 1_000}
            channel.exchange_declare(
                "once", "x-message-deduplication", durable=True, arguments=arguments
            )
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "once")
        taken: list[bytes] = []
        for _ in range(3):
            with connected(server) as connection, connected(server) as second:
                publish(connection.channel())  # Nobody confirms it.
                taken += take_some(second.channel(), name, 7)
                server.kill()
                with pytest.raises(AMQPConnectionError):
                    connection.process_data_events(10)
                with pytest.raises(AMQPConnectionError):
                    second.process_data_events(10)
            server.start()
        with connected(server) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            publish(channel)
            taken += drain(channel, name, len(ids) - len(taken))
        assert sorted(taken) == sorted(each.encode() for each in ids)


def take_some(channel: BlockingChannel, queue: str, count: int) -> list[bytes]:
    """Returns when the acknowledgements are permanent."""
    channel.tx_select()
    bodies: list[bytes] = []
    deadline = time.monotonic() + 10
    while len(bodies) < count and time.monotonic() < deadline:
        method, _, body = channel.basic_get(queue)
        if method is not None:
            channel.basic_ack(method.delivery_tag)
            bodies.append(body)
    channel.tx_commit()
    return bodies


def test_prefetch_and_death(server: Broker, name: str) -> None:
    """What a consumer had when it died goes to the next one, and is marked."""
    with connected(server) as first:
        channel = first.channel()
        channel.queue_declare(name)
        for number in range(10):
            channel.basic_publish("", name, b"%d" % number)
        channel.basic_qos(prefetch_count=3)
        got: list[bytes] = []
        channel.basic_consume(name, lambda _c, _m, _p, body: got.append(body))
        deadline = time.monotonic() + WAIT_S
        while len(got) < 3 and time.monotonic() < deadline:
            first.process_data_events(0.1)
        first.process_data_events(0.2)
        assert got == [b"0", b"1", b"2"]
        first._impl._transport._sock.shutdown(socket.SHUT_RDWR)
        with pytest.raises(AMQPConnectionError):
            first.process_data_events(1)
        with connected(server) as second:
            other = second.channel()
            while other.queue_declare(name, passive=True).method.message_count < 10:
                assert time.monotonic() < deadline
            method, _, body = other.basic_get(name)
            assert (body, method.redelivered, method.message_count) == (b"0", True, 9)


def test_properties_are_kept(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    sent = pika.BasicProperties(
        content_type="application/json",
        content_encoding="utf-8",
        headers={"text": "é", "number": 7, "nested": {"list": [1, "two", None, True]}},
        delivery_mode=2,
        priority=3,
        correlation_id="correlation",
        reply_to="somewhere",
        expiration="60000",
        message_id="id",
        timestamp=1_700_000_000,
        type="kind",
        user_id="guest",
        app_id="app",
        cluster_id="cluster",
    )
    channel.basic_publish("", name, bytes(300_000), sent)
    _, properties, body = channel.basic_get(name, auto_ack=True)
    assert (properties, len(body)) == (sent, 300_000)


def test_a_delivery_says_nothing_of_its_producer(
    server: Broker, channel: BlockingChannel, name: str
) -> None:
    """Proves A-12: unless the producer puts it there, and then it must be true."""
    channel.queue_declare(name)
    with connected(server) as elsewhere:
        publisher = elsewhere.channel()
        publisher.basic_publish("", name, b"anonymous")
        publisher.basic_publish("", name, b"signed", pika.BasicProperties(user_id="guest"))
    (method, properties, _), (_, signed, _) = islice(channel.consume(name), 2)
    channel.cancel()
    assert vars(properties) == vars(pika.BasicProperties())
    assert signed.user_id == "guest"
    said = {key for key, value in vars(method).items() if value not in (None, "", False)}
    assert said == {"consumer_tag", "delivery_tag", "routing_key"}


def test_once_for_each_subscriber_and_once_for_all_workers(
    server: Broker, channel: BlockingChannel, name: str
) -> None:
    """Proves C-12: the publisher sends everything twice, as after a lost confirm."""
    exchange, numbers = f"{name}-once", [b"%d" % number for number in range(50)]
    arguments = {"x-cache-size": 1_000}
    channel.exchange_declare(exchange, "x-message-deduplication", arguments=arguments)
    queues = [f"{name}-{kind}" for kind in ("first", "second", "workers")]
    for queue in queues:
        channel.queue_declare(queue)
        channel.queue_bind(queue, exchange)
    channel.confirm_delivery()
    for number in numbers * 2:
        headers = {"x-deduplication-header": number.decode()}
        channel.basic_publish(exchange, "", number, pika.BasicProperties(headers=headers))
    first, second, workers = queues
    assert drain(channel, first, 50) == drain(channel, second, 50) == numbers
    with connected(server) as elsewhere:
        other = elsewhere.channel()
        shares = [[take_one(each, workers) for _ in range(25)] for each in (channel, other)]
        assert take_one(channel, workers) is None
    assert sorted(body for share in shares for body in share if body) == sorted(numbers)


def take_one(channel: BlockingChannel, queue: str) -> bytes | None:
    _, _, body = channel.basic_get(queue, auto_ack=True)
    found: bytes | None = body
    return found


def test_a_select_connection(server: Broker, name: str) -> None:
    """Proves SYS-6: pika's connection that calls back, with a loop of its own."""
    bodies: list[bytes] = []

    def on_open(connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=on_channel)

    def on_channel(channel: pika.channel.Channel) -> None:
        channel.queue_declare(name, durable=True, callback=lambda _: publish(channel))

    def publish(channel: pika.channel.Channel) -> None:
        channel.confirm_delivery(lambda _: channel.basic_consume(name, on_message))
        channel.basic_publish("", name, b"called back", PERSISTENT)

    def on_message(
        channel: pika.channel.Channel, method: pika.spec.Basic.Deliver, _: object, body: bytes
    ) -> None:
        channel.basic_ack(method.delivery_tag)
        bodies.append(body)
        channel.connection.close()

    connection = pika.SelectConnection(
        pika.URLParameters(server.amqp_url),
        on_open_callback=on_open,
        on_close_callback=lambda connection, _: connection.ioloop.stop(),
    )
    connection.ioloop.call_later(30, connection.ioloop.stop)
    connection.ioloop.start()
    assert bodies == [b"called back"]


def test_sizes(channel: BlockingChannel, name: str) -> None:
    """Empty, around a frame's bound, and many frames."""
    channel.queue_declare(name, durable=True)
    channel.confirm_delivery()
    bodies = [bytes([size % 256]) * size for size in (0, 1, 131_063, 131_064, 131_065, 5_000_000)]
    for body in bodies:
        channel.basic_publish("", name, body, PERSISTENT)
    assert drain(channel, name, len(bodies)) == bodies


def test_returned(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(UnroutableError) as caught:
        channel.basic_publish("", "nobody-has-this-name", b"x", mandatory=True)
    assert caught.value.messages[0].body == b"x"


def test_refused(channel: BlockingChannel, name: str) -> None:
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    channel.queue_declare(name, arguments=arguments)
    channel.confirm_delivery()
    channel.basic_publish("", name, b"1")
    with pytest.raises(NackError):
        channel.basic_publish("", name, b"2")


def test_dead_letters(channel: BlockingChannel, name: str) -> None:
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{name}-dead"}
    channel.queue_declare(f"{name}-dead")
    for queue, ttl in ((name, {}), (f"{name}-short", {"x-message-ttl": 200})):
        channel.queue_declare(queue, arguments=arguments | ttl)
    channel.basic_publish("", name, b"rejected")
    method, _, _ = channel.basic_get(name)
    channel.basic_nack(method.delivery_tag, requeue=False)
    channel.basic_publish("", f"{name}-short", b"expired")
    found = []
    dead = channel.consume(f"{name}-dead", inactivity_timeout=WAIT_S)
    for _, properties, body in islice(dead, 2):
        death = properties.headers["x-death"][0]
        found.append((body, death["reason"], death["queue"], death["count"]))
    assert found[0] == (b"rejected", "rejected", name, 1)
    assert found[1:] == [(b"expired", "expired", f"{name}-short", 1)]


def test_priorities(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True, arguments={"x-max-priority": 5})
    channel.confirm_delivery()
    for priority in (0, 5, 3, 5, 1):
        properties = pika.BasicProperties(priority=priority, delivery_mode=2)
        channel.basic_publish("", name, b"%d" % priority, properties)
    assert drain(channel, name, 5) == [b"5", b"5", b"3", b"1", b"0"]


def test_a_transaction(channel: BlockingChannel, name: str) -> None:
    channel.queue_declare(name, durable=True)
    channel.tx_select()
    channel.basic_publish("", name, b"no", PERSISTENT)
    channel.tx_rollback()
    channel.basic_publish("", name, b"yes", PERSISTENT)
    assert channel.queue_declare(name, passive=True).method.message_count == 0
    channel.tx_commit()
    assert channel.queue_declare(name, passive=True).method.message_count == 1


def test_a_question_and_its_answer(server: Broker, name: str) -> None:
    def answer() -> None:
        with connected(server) as connection:
            channel = connection.channel()
            for method, properties, body in channel.consume(name, auto_ack=True):
                channel.basic_publish("", properties.reply_to, body[::-1], properties)
                assert method.delivery_tag == 1
                break

    with connected(server) as connection:
        channel = connection.channel()
        channel.queue_declare(name)
        thread = threading.Thread(target=answer)
        thread.start()
        answers: list[tuple[str, bytes]] = []
        channel.basic_consume(
            "amq.rabbitmq.reply-to",
            lambda _c, _m, properties, body: answers.append((properties.correlation_id, body)),
            auto_ack=True,
        )
        asking = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="17")
        channel.basic_publish("", name, b"drawer", asking)
        deadline = time.monotonic() + 10
        while not answers and time.monotonic() < deadline:
            connection.process_data_events(0.1)
        thread.join()
    assert answers == [("17", b"reward")]


def test_the_queue_is_gone(channel: BlockingChannel, server: Broker, name: str) -> None:
    channel.queue_declare(name)
    cancelled: list[object] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume(name, lambda *_: None)
    with connected(server) as other:
        other.channel().queue_delete(name)
    deadline = time.monotonic() + 10
    while not cancelled and time.monotonic() < deadline:
        channel.connection.process_data_events(0.1)
    assert len(cancelled) == 1


def test_a_closed_channel_leaves_the_others(server: Broker, name: str) -> None:
    with connected(server) as connection:
        first, second = connection.channel(), connection.channel()
        with pytest.raises(ChannelClosedByBroker) as caught:
            first.queue_declare(name, passive=True)
        assert caught.value.reply_code == 404
        second.queue_declare(name, exclusive=True)
        third = connection.channel()
        assert third.channel_number == 1, "its number can be had again"
        third.queue_delete(name)


@pytest.mark.slow
def test_heartbeats(server: Broker) -> None:
    with connected(server, heartbeat=1) as connection:
        channel = connection.channel()
        for _ in range(8):
            connection.process_data_events(0.5)
        channel.queue_declare("", exclusive=True)
        time.sleep(4)  # pika cannot beat meanwhile.
        with pytest.raises(AMQPConnectionError):
            channel.queue_declare("", exclusive=True)


def test_wrong_passwords(server: Broker) -> None:
    credentials = pika.PlainCredentials("guest", "wrong")
    with (
        pytest.raises(ProbableAuthenticationError, match="ACCESS_REFUSED"),
        connected(server, credentials=credentials),
    ):
        pass


def test_a_virtual_host_that_is_not_there(server: Broker) -> None:
    with (
        pytest.raises((ProbableAccessDeniedError, AMQPConnectionError), match="nosuch"),
        connected(server, virtual_host="nosuch"),
    ):
        pass


def test_a_stream_is_a_topic(server: Broker, name: str) -> None:
    with connected(server) as connection:
        channel = connection.channel()
        channel.queue_declare(name, durable=True, arguments={"x-queue-type": "stream"})
        channel.confirm_delivery()
        for number in range(20):
            channel.basic_publish("", name, b"%d" % number)
        channel.basic_qos(prefetch_count=5)
        for _ in range(2):
            found = []
            arguments = {"x-stream-offset": 10}
            for method, properties, body in channel.consume(name, arguments=arguments):
                found.append((properties.headers["x-stream-offset"], body))
                channel.basic_ack(method.delivery_tag)
                if len(found) == 10:
                    break
            channel.cancel()
            assert found == [(at, b"%d" % at) for at in range(10, 20)]


def test_many_channels(server: Broker, name: str) -> None:
    with connected(server) as connection:
        channels = [connection.channel() for _ in range(200)]
        channels[0].queue_declare(name)
        for number, channel in enumerate(channels):
            channel.basic_publish("", name, b"%d" % number)
        assert len(drain(channels[-1], name, 200)) == 200
