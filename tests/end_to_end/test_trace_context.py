"""Trace context (W3C: `traceparent`, `tracestate`) crosses protocols untouched.

What a publisher's tracing puts into headers, the consumer's finds there, whatever both speak.
"""

from collections.abc import Callable, Iterator

import pika
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from entrepot.testing import Broker, broker
from tests.end_to_end.mqtt_peers import Client

WAIT_S = 30
CONTEXT = {
    "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    "tracestate": "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker() as started:
        yield started


def from_kafka(server: Broker, topic: str) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(topic, b"x", headers=list(CONTEXT.items()))
    assert producer.flush(WAIT_S) == 0


def from_amqp(server: Broker, topic: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        properties = pika.BasicProperties(headers=CONTEXT, delivery_mode=2)
        channel.basic_publish("", topic, b"x", properties, mandatory=True)


def from_mqtt(server: Broker, topic: str) -> None:
    with Client(server.mqtt_address) as client:
        assert client.publish(topic, b"x", 1, UserProperty=list(CONTEXT.items())) == 0


def in_kafka(server: Broker, topic: str) -> dict[str, object]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": "g"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    record = consumer.poll(WAIT_S)
    consumer.close()
    return {name: value.decode("utf-8", "replace") for name, value in record.headers()}


def in_amqp(server: Broker, topic: str) -> dict[str, object]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        arguments = {"x-stream-offset": "first"}
        method, properties, _ = next(
            channel.consume(topic, arguments=arguments, inactivity_timeout=WAIT_S)
        )
        channel.basic_ack(method.delivery_tag)
        found: dict[str, object] = properties.headers
        return found


@pytest.mark.parametrize("write", [from_kafka, from_amqp, from_mqtt])
def test_it_is_read_in_every_protocol_as_it_was_written(
    server: Broker, write: Callable[[Broker, str], None]
) -> None:
    topic = f"traced-{write.__name__}"
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(WAIT_S)
    with Client(server.mqtt_address) as listener:
        listener.subscribe(topic, qos=1)
        write(server, topic)
        listener.wait_for(1)
        properties: list[tuple[str, str]] = listener.got[0].properties.UserProperty
    for found in (in_kafka(server, topic), in_amqp(server, topic), dict(properties)):
        assert {name: found.get(name) for name in CONTEXT} == CONTEXT
    assert [name for name, _ in properties].count("traceparent") == 1
