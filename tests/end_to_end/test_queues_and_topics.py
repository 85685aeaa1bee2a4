"""One name, one thing: Kafka's clients read queues, and RabbitMQ's write to topics."""

import time
from collections.abc import Iterator

import pika
import pytest
from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from entrepot.testing import Broker

WAIT_S = 30
PERSISTENT = pika.BasicProperties(delivery_mode=2, content_type="text/plain", headers={"n": 1})


@pytest.fixture
def channel(server: Broker) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    opened = connection.channel()
    opened.confirm_delivery()
    yield opened
    connection.close()


@pytest.fixture
def admin(server: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


def read(server: Broker, topic: str, count: int, partition: int = 0) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "browse"})
    consumer.assign([TopicPartition(topic, partition, 0)])
    found: list[bytes] = []
    deadline = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < deadline:
        message = consumer.poll(0.2)
        if message is not None and message.error() is None:
            found.append(message.value() or b"")
    consumer.close()
    return found


def test_kafkas_clients_read_a_queue(
    server: Broker, channel: BlockingChannel, admin: AdminClient
) -> None:
    """Before and after its messages are consumed: reading by offset takes nothing away."""
    channel.queue_declare("browsed", durable=True, arguments={"x-max-priority": 1})
    for number in range(3):
        channel.basic_publish("", "browsed", b"%d" % number, PERSISTENT)
    assert read(server, "browsed", 3) == [b"0", b"1", b"2"]
    assert [channel.basic_get("browsed", auto_ack=True)[2] for _ in range(3)] == [
        b"0",
        b"1",
        b"2",
    ]
    assert read(server, "browsed", 3) == [b"0", b"1", b"2"]
    found = admin.list_topics("browsed", timeout=WAIT_S).topics["browsed"]
    assert (found.error, sorted(found.partitions)) == (None, [0, 1])
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "browse"})
    assert consumer.get_watermark_offsets(TopicPartition("browsed", 0)) == (0, 3)
    by_time = consumer.offsets_for_times([TopicPartition("browsed", 0, 0)], timeout=WAIT_S)
    assert by_time[0].offset == 0
    consumer.close()
    (config,) = admin.describe_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, "browsed")]
    ).values()
    assert config.result(WAIT_S)["retention.ms"].value == str(24 * 3_600_000)


def test_but_they_do_not_change_it(
    server: Broker, channel: BlockingChannel, admin: AdminClient
) -> None:
    channel.queue_declare("kept", durable=True)
    channel.basic_publish("", "kept", b"a", PERSISTENT)
    refused: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce("kept", b"b", on_delivery=lambda error, _: refused.append(error))
    producer.flush(WAIT_S)
    entry = ConfigEntry("retention.ms", "1", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "kept", incremental_configs=[entry])
    for futures in (
        admin.delete_topics(["kept"]),
        admin.create_partitions([NewPartitions("kept", 3)]),
        admin.delete_records([TopicPartition("kept", 0, 1)]),
        admin.incremental_alter_configs([resource]),
    ):
        with pytest.raises(KafkaException) as raised:
            next(iter(futures.values())).result(WAIT_S)
        refused.append(raised.value.args[0])
    assert [error and error.code() for error in refused] == [KafkaError.TOPIC_EXCEPTION] * 5
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic("kept", 1)])["kept"].result(WAIT_S)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    assert channel.basic_get("kept", auto_ack=True)[2] == b"a"


def test_a_deleted_queue_is_no_topic_any_more(
    server: Broker, channel: BlockingChannel, admin: AdminClient
) -> None:
    channel.queue_declare("brief", durable=True)
    channel.queue_delete("brief")
    assert "brief" not in admin.list_topics(timeout=WAIT_S).topics
    admin.create_topics([NewTopic("brief", 1)])["brief"].result(WAIT_S)


def test_transient_queues_are_not_seen_but_have_the_name(
    channel: BlockingChannel, admin: AdminClient
) -> None:
    channel.queue_declare("passing")
    assert "passing" not in admin.list_topics(timeout=WAIT_S).topics
    with pytest.raises(KafkaException) as raised:
        admin.create_topics([NewTopic("passing", 1)])["passing"].result(WAIT_S)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS


def test_rabbitmqs_clients_write_to_a_topic(
    server: Broker, channel: BlockingChannel, admin: AdminClient
) -> None:
    admin.create_topics([NewTopic("written", 2)])["written"].result(WAIT_S)
    channel.queue_bind("written", "amq.direct", "k")
    channel.basic_publish("amq.direct", "k", b"bound", PERSISTENT)
    channel.basic_publish("", "written", b"named", PERSISTENT)
    found = read(server, "written", 1, 0) + read(server, "written", 1, 1)
    assert sorted(found) == [b"bound", b"named"]
    admin.delete_topics(["written"])["written"].result(WAIT_S)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.direct", "k", b"nowhere", PERSISTENT, mandatory=True)


def test_a_topic_is_not_declared_as_another_queue(
    channel: BlockingChannel, admin: AdminClient
) -> None:
    admin.create_topics([NewTopic("stream", 1)])["stream"].result(WAIT_S)
    channel.queue_declare("stream", durable=True, arguments={"x-queue-type": "stream"})
    with pytest.raises(ChannelClosedByBroker, match="inequivalent arg 'x-queue-type'"):
        channel.queue_declare("stream", durable=True)


def test_who_reads_a_stream_hears_that_it_is_gone(
    channel: BlockingChannel, admin: AdminClient
) -> None:
    channel.queue_declare("leaving", durable=True, arguments={"x-queue-type": "stream"})
    channel.basic_publish("", "leaving", b"a", PERSISTENT)
    channel.basic_qos(prefetch_count=10)
    first = {"x-stream-offset": "first"}
    found: list[bytes | None] = []
    for method, _, body in channel.consume("leaving", inactivity_timeout=WAIT_S, arguments=first):
        found.append(body)
        channel.basic_ack(method.delivery_tag)
        admin.delete_topics(["leaving"])["leaving"].result(WAIT_S)
    assert found == [b"a"]
