"""Messages above the default of 16 MiB, where that is allowed, by every way there is."""

from collections.abc import Iterator

import confluent_kafka
import pika
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from pika.adapters.blocking_connection import BlockingChannel

from entrepot.testing import Broker, broker
from tests.end_to_end.bystander import Growth

MIB = 1 << 20
SIZE = 24 * MIB
WAIT_S = 60

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings={"queues.max_message_bytes": 2 * SIZE}) as started:
        yield started


@pytest.fixture
def channel(server: Broker) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


BODY = bytes(range(256)) * (SIZE // 256)


@pytest.mark.parametrize(
    ("name", "durable", "arguments"),
    [
        ("durable", True, {}),
        ("transient", False, {}),
        ("priority", True, {"x-max-priority": 3}),
    ],
)
def test_through_a_queue(
    server: Broker, channel: BlockingChannel, name: str, durable: bool, arguments: dict[str, int]
) -> None:
    channel.queue_declare(name, durable=durable, arguments=arguments)
    channel.basic_publish("", name, BODY, pika.BasicProperties(delivery_mode=2, priority=1))
    method, _, body = channel.basic_get(name)
    assert body == BODY
    channel.basic_nack(method.delivery_tag)
    for method, _, body in channel.consume(name, inactivity_timeout=WAIT_S):
        assert (method.redelivered, body == BODY) == (True, True)
        channel.basic_ack(method.delivery_tag)
        break
    channel.cancel()


def test_as_a_dead_letter_and_from_the_disk(server: Broker) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "grave"}
        channel.queue_declare("grave", durable=True)
        channel.queue_declare("work", durable=True, arguments=letters)
        channel.basic_publish("", "work", BODY, pika.BasicProperties(delivery_mode=2))
        method, _, _ = channel.basic_get("work")
        channel.basic_reject(method.delivery_tag, requeue=False)
        while not channel.queue_declare("grave", passive=True).method.message_count:
            connection.sleep(0.05)
    server.restart()
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        _, properties, body = connection.channel().basic_get("grave", auto_ack=True)
        assert body == BODY
        assert properties.headers["x-first-death-queue"] == "work"


def test_it_is_held_once(server: Broker, channel: BlockingChannel) -> None:
    channel.queue_declare("once", durable=True)
    growth = Growth(server)
    channel.basic_publish("", "once", BODY, pika.BasicProperties(delivery_mode=2))
    assert growth.peak() < 2 * SIZE // MIB
    channel.queue_delete("once")


def test_more_is_refused(channel: BlockingChannel) -> None:
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="larger than max size"):
        channel.basic_publish("", "q", bytes(2 * SIZE + 1))


def test_as_a_record(server: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    new = NewTopic("large", 1, config={"max.message.bytes": str(2 * SIZE)})
    admin.create_topics([new])["large"].result(WAIT_S)
    settings = {"bootstrap.servers": server.bootstrap, "message.max.bytes": 2 * SIZE}
    producer = confluent_kafka.Producer(settings)
    failures: list[object] = []
    producer.produce("large", BODY, on_delivery=lambda error, _: error and failures.append(error))
    assert (producer.flush(WAIT_S), failures) == (0, [])
    reading = {"group.id": "g", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": server.bootstrap, **reading})
    consumer.subscribe(["large"])
    message = consumer.poll(WAIT_S)
    assert message is not None
    assert message.error() is None
    assert message.value() == BODY
    consumer.close()
