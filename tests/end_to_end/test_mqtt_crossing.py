"""One message, several protocols: MQTT, AMQP and Kafka on the same names."""

from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pika
import pytest

from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client

WAIT_S = 30


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


@pytest.fixture
def channel(server: Broker) -> Iterator[Any]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        yield connection.channel()


def produce(server: Broker, topic: str, *values: bytes, **more: Any) -> None:
    producer = confluent_kafka.Producer({"bootstrap.servers": server.bootstrap})
    for value in values:
        producer.produce(topic, value, **more)
    assert producer.flush(WAIT_S) == 0


def consume(server: Broker, topic: str, count: int) -> list[confluent_kafka.Message]:
    settings = {
        "bootstrap.servers": server.bootstrap,
        "group.id": f"g-{topic}",
        "auto.offset.reset": "earliest",
    }
    consumer = confluent_kafka.Consumer(settings)
    consumer.subscribe([topic])
    found: list[confluent_kafka.Message] = []
    while len(found) < count:
        message = consumer.poll(WAIT_S)
        assert message is not None, "nothing came"
        assert message.error() is None, message.error()
        found.append(message)
    consumer.close()
    return found


def test_an_mqtt_publish_is_in_the_topic_of_its_name(server: Broker) -> None:
    produce(server, "plant.heat", b"first")
    with Client(server.mqtt_address, "device") as client:
        assert client.publish("plant/heat", b"21", 1, UserProperty=("unit", "C")) == 0
        client.publish("plant/heat", b"22", 0)
        client.publish("plant/heat", b"23", 1)
    found = consume(server, "plant.heat", 4)
    assert [message.value() for message in found] == [b"first", b"21", b"22", b"23"]
    assert ("unit", b"C") in found[1].headers()


def test_a_kafka_produce_reaches_an_mqtt_subscriber(server: Broker) -> None:
    produce(server, "plant.cold", b"before")
    with Client(server.mqtt_address, "listener") as client:
        client.subscribe("plant/+", qos=1)
        produce(server, "plant.cold", b"now", b"then", headers=[("unit", b"C")], key="k")
        assert client.wait_for(2) == [b"now", b"then"]
        assert {each.topic for each in client.got} == {"plant/cold"}
        assert ("unit", "C") in client.got[0].properties.UserProperty


def test_an_amqp_binding_gets_what_mqtt_publishes(server: Broker, channel: Any) -> None:
    channel.queue_declare("crossing", durable=True)
    channel.queue_bind("crossing", "amq.topic", "rooms.*.heat")
    with Client(server.mqtt_address, "rooms") as client:
        answer = client.publish(
            "rooms/7/heat",
            b"21",
            1,
            ContentType="text/plain",
            CorrelationData=b"7",
            ResponseTopic="answers",
            MessageExpiryInterval=60,
            UserProperty=("unit", "C"),
        )
        assert answer == 0
        assert client.publish("rooms/7/cold", b"x", 1) == 0x10
    method, properties, body = channel.basic_get("crossing", auto_ack=True)
    assert body == b"21"
    assert (method.exchange, method.routing_key) == ("amq.topic", "rooms.7.heat")
    assert properties.content_type == "text/plain"
    assert properties.correlation_id == "7"
    assert properties.reply_to == "answers"
    assert properties.expiration == "60000"
    assert properties.delivery_mode == 2
    assert properties.headers == {"unit": "C"}


def test_an_amqp_publish_reaches_an_mqtt_subscriber(server: Broker, channel: Any) -> None:
    with Client(server.mqtt_address, "amqp-listener") as client:
        client.subscribe("halls/#", qos=1)
        channel.confirm_delivery()
        properties = pika.BasicProperties(
            content_type="text/plain", delivery_mode=2, headers={"n": 7}, message_id="m"
        )
        channel.basic_publish("amq.topic", "halls.1.heat", b"21", properties)
        channel.basic_publish("amq.topic", "halls.2", b"22")
        assert client.wait_for(2) == [b"21", b"22"]
        assert [each.topic for each in client.got] == ["halls/1/heat", "halls/2"]
        found = client.got[0].properties
        assert found.ContentType == "text/plain"
        assert found.UserProperty == [("message-id", "m"), ("n", "7")]


def test_a_queue_is_consumed_over_mqtt(server: Broker, channel: Any) -> None:
    channel.queue_declare("jobs", durable=True)
    for number in range(3):
        channel.basic_publish("", "jobs", b"%d" % number, pika.BasicProperties(delivery_mode=2))
    with Client(server.mqtt_address, "worker") as client:
        assert client.subscribe("$queue/jobs", qos=1) == [1]
        assert client.wait_for(3) == [b"0", b"1", b"2"]
    assert channel.queue_declare("jobs", passive=True).method.message_count == 0
