"""One message from every protocol to every other, with their own clients, shown as a grid.

    python -m tests.end_to_end.matrix

A row is who writes, a column who reads. Names mean the same everywhere: what Kafka writes is in
a topic, which the others hear as a subject or read as a stream; SQS, which knows queues only,
reads a queue that is bound to the subject. What the others write is in a queue, which Kafka's
consumers read as a topic. A cell lists what arrived changed, or `whole`: the body, the content
type, the correlation id, where to reply, the type of the message and a header of the user's own, by
the table of docs/MAPPING.md, which has two exceptions (`as_the_table_says`).
"""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import pika
import proton
import stomp
from confluent_kafka import Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)
from proton.utils import BlockingConnection
from rich.console import Console
from rich.table import Table

from entrepot.testing import Broker, broker
from tests.end_to_end import mqtt_peers, sqs

WAIT_S = 30.0
SETTINGS = {"ports.sqs": 0}


class Message(NamedTuple):
    body: str
    content_type: str | None
    correlation_id: str | None
    reply_to: str | None
    type: str | None
    colour: str | None  # A header of the user's own.


_READABLE = (
    "content-type",
    "correlation-id",
    "reply-to",
    "type",
    "colour",
)  # Names of all but the body.

Read = Callable[[], Message]
Write = Callable[[Broker, str, Message], None]
# Prepares to read what comes to a name: from the topic if the flag is set, else from the queue.
Open = Callable[[Broker, str, bool], AbstractContextManager[Read]]


# --- Kafka


def kafka_write(server: Broker, name: str, message: Message) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(name, message.body, headers=[*zip(_READABLE, message[1:], strict=True)])
    assert producer.flush(WAIT_S) == 0


@contextmanager
def kafka_read(server: Broker, name: str, is_topic: bool) -> Iterator[Read]:
    consumer = Consumer({"bootstrap.servers": server.bootstrap, "group.id": f"group-{name}"})
    consumer.assign([TopicPartition(name, 0, 0)])
    yield lambda: _of_record(consumer.poll(WAIT_S))
    consumer.close()


@contextmanager
def share_group_read(server: Broker, name: str, is_topic: bool) -> Iterator[Read]:
    group = f"share-{name}"
    resource = ConfigResource(ConfigResource.Type.GROUP, group)
    resource.add_incremental_config(
        ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
    )
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.incremental_alter_configs([resource])[resource].result(WAIT_S)
    consumer = ShareConsumer({"bootstrap.servers": server.bootstrap, "group.id": group})
    consumer.subscribe([name])

    def read() -> Message:
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            for record in consumer.poll(0.2):
                assert record.error() is None, record.error()
                consumer.commit_sync(WAIT_S)
                return _of_record(record)
        raise TimeoutError(name)

    yield read
    consumer.close()


def _of_record(record: Any) -> Message:
    assert record is not None, "nothing came"
    assert record.error() is None, record.error()
    headers = {key: value.decode() for key, value in record.headers() if key in _READABLE}
    return Message(record.value().decode(), *map(headers.get, _READABLE))


# --- AMQP 0-9-1


def amqp_write(server: Broker, name: str, message: Message) -> None:
    properties = pika.BasicProperties(
        delivery_mode=2,
        content_type=message.content_type,
        correlation_id=message.correlation_id,
        reply_to=message.reply_to,
        type=message.type,
        headers={"colour": message.colour},
    )
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        channel.basic_publish("", name, message.body.encode(), properties, mandatory=True)


@contextmanager
def amqp_read(server: Broker, name: str, is_topic: bool) -> Iterator[Read]:
    with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=10)
        arguments = {"x-stream-offset": "first"} if is_topic else {}

        def read() -> Message:
            consumed = channel.consume(name, arguments=arguments, inactivity_timeout=WAIT_S)
            method, properties, body = next(consumed)
            assert method is not None, "nothing came"
            channel.basic_ack(method.delivery_tag)
            return Message(
                body.decode(),
                properties.content_type,
                properties.correlation_id,
                properties.reply_to,
                properties.type,
                (properties.headers or {}).get("colour"),
            )

        yield read


# --- AMQP 1.0

_TYPE = proton.symbol("x-basic-type")


def amqp10_write(server: Broker, name: str, message: Message) -> None:
    client = _amqp10(server)
    client.create_sender(name).send(
        proton.Message(
            body=message.body,
            durable=True,
            content_type=message.content_type,
            correlation_id=message.correlation_id,
            reply_to=message.reply_to,
            annotations={_TYPE: message.type},
            properties={"colour": message.colour},
        )
    )
    client.close()


@contextmanager
def amqp10_read(server: Broker, name: str, is_topic: bool) -> Iterator[Read]:
    client = _amqp10(server)
    receiver = client.create_receiver(f"/topics/{name}" if is_topic else name)

    def read() -> Message:
        found = receiver.receive(timeout=WAIT_S)
        receiver.accept()
        body = found.body if isinstance(found.body, str) else bytes(found.body).decode()
        return Message(
            body,
            found.content_type,
            found.correlation_id,
            found.reply_to,
            (found.annotations or {}).get(_TYPE),
            (found.properties or {}).get("colour"),
        )

    yield read
    client.close()


def _amqp10(server: Broker) -> Any:
    host, port = server.endpoints["amqp"]
    url = f"amqp://guest:guest@{host}:{port}"
    return BlockingConnection(url, timeout=WAIT_S, allowed_mechs="PLAIN")


# --- MQTT 5


def mqtt_write(server: Broker, name: str, message: Message) -> None:
    with mqtt_peers.Client(server.mqtt_address) as client:
        assert message.correlation_id is not None
        reason = client.publish(
            name,
            message.body,
            1,
            ContentType=message.content_type,
            CorrelationData=message.correlation_id.encode(),
            ResponseTopic=message.reply_to,
            UserProperty=("colour", message.colour),
        )
        assert reason == 0, reason


@contextmanager
def mqtt_read(server: Broker, name: str, is_topic: bool) -> Iterator[Read]:
    with mqtt_peers.Client(server.mqtt_address) as client:
        client.subscribe(name if is_topic else f"$queue/{name}", qos=1)

        def read() -> Message:
            [body] = client.wait_for(1)
            properties = client.got[0].properties
            correlation = getattr(properties, "CorrelationData", None)
            others = dict(getattr(properties, "UserProperty", ()))
            return Message(
                body.decode(),
                getattr(properties, "ContentType", None),
                correlation and correlation.decode(),
                getattr(properties, "ResponseTopic", None),
                others.get("type"),
                others.get("colour"),
            )

        yield read


# --- STOMP 1.2


class _Inbox(stomp.ConnectionListener):  # type: ignore[misc]
    def __init__(self) -> None:
        self.frames: queue.Queue[Any] = queue.Queue()
        self.receipts: queue.Queue[Any] = queue.Queue()

    def on_message(self, frame: Any) -> None:
        self.frames.put(frame)

    def on_receipt(self, frame: Any) -> None:
        self.receipts.put(frame)


@contextmanager
def _stomp(server: Broker) -> Iterator[tuple[Any, _Inbox]]:
    connection, inbox = stomp.Connection12([server.stomp_address]), _Inbox()
    connection.set_listener("", inbox)
    connection.connect("guest", "guest", wait=True)
    yield connection, inbox
    connection.disconnect()


def stomp_write(server: Broker, name: str, message: Message) -> None:
    headers = dict(zip(_READABLE, message[1:], strict=True))
    with _stomp(server) as (connection, inbox):
        connection.send(f"/queue/{name}", message.body, headers=headers, receipt="sent")
        inbox.receipts.get(timeout=WAIT_S)


@contextmanager
def stomp_read(server: Broker, name: str, is_topic: bool) -> Iterator[Read]:
    with _stomp(server) as (connection, inbox):
        destination = f"/topic/{name}" if is_topic else f"/queue/{name}"
        connection.subscribe(destination, "1", headers={"receipt": "subscribed"})
        inbox.receipts.get(timeout=WAIT_S)

        def read() -> Message:
            frame = inbox.frames.get(timeout=WAIT_S)
            return Message(frame.body, *map(frame.headers.get, _READABLE))

        yield read


# --- SQS


def sqs_write(server: Broker, name: str, message: Message) -> None:
    client = sqs.connect(server)
    url = client.get_queue_url(QueueName=name)["QueueUrl"]
    attributes = {
        key: {"DataType": "String", "StringValue": value}
        for key, value in zip(_READABLE, message[1:], strict=True)
    }
    client.send_message(QueueUrl=url, MessageBody=message.body, MessageAttributes=attributes)


@contextmanager
def sqs_read(server: Broker, name: str, is_topic: bool) -> Iterator[Read]:
    if is_topic:
        subject, name = name, f"{name}-queue"
        with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
            channel = connection.channel()
            channel.queue_declare(name, durable=True)
            channel.queue_bind(name, "amq.topic", subject)
    client = sqs.connect(server)
    url = client.get_queue_url(QueueName=name)["QueueUrl"]

    def read() -> Message:
        answer = client.receive_message(
            QueueUrl=url, WaitTimeSeconds=20, MessageAttributeNames=["All"]
        )
        [found] = answer["Messages"]
        client.delete_message(QueueUrl=url, ReceiptHandle=found["ReceiptHandle"])
        attributes = {
            key: value["StringValue"] for key, value in found["MessageAttributes"].items()
        }
        return Message(found["Body"], *map(attributes.get, _READABLE))

    yield read


# --- the grid

WRITERS: dict[str, Write] = {
    "Kafka": kafka_write,
    "AMQP 0-9-1": amqp_write,
    "AMQP 1.0": amqp10_write,
    "MQTT": mqtt_write,
    "STOMP": stomp_write,
    "SQS": sqs_write,
}
READERS: dict[str, Open] = {
    "Kafka": kafka_read,
    "Kafka share group": share_group_read,
    "AMQP 0-9-1": amqp_read,
    "AMQP 1.0": amqp10_read,
    "MQTT": mqtt_read,
    "STOMP": stomp_read,
    "SQS": sqs_read,
}


def cross(server: Broker, writer: str, reader: str) -> tuple[Message, Message]:
    """Send one message from a writer to a reader. Returns what should come, and what came."""
    name = f"from-{writer}-to-{reader}".lower().replace(" ", "-")
    sent = Message(f"{writer} to {reader}", "text/plain", "question-7", "answers", "order", "blue")
    is_topic = writer == "Kafka"
    if is_topic:
        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_S)
    else:
        with pika.BlockingConnection(pika.URLParameters(server.amqp_url)) as connection:
            connection.channel().queue_declare(name, durable=True)
    with READERS[reader](server, name, is_topic) as read:
        WRITERS[writer](server, name, sent)
        return as_the_table_says(sent, writer, reader), read()


def differences(sent: Message, came: Message) -> list[str]:
    """Return the names of the parts that arrived changed."""
    return [name for name, was, now in zip(Message._fields, sent, came, strict=True) if was != now]


def as_the_table_says(sent: Message, writer: str, reader: str) -> Message:
    """Return what the reader should get."""
    if writer == "MQTT":  # It has no such property.
        sent = sent._replace(type=None)
    if reader == "STOMP":  # A queue's name is told as a destination.
        sent = sent._replace(reply_to=f"/reply-queue/{sent.reply_to}")
    return sent


def main() -> int:
    table = Table("from \\ to", *READERS)
    is_whole = True
    with broker(settings=SETTINGS) as server:
        for writer in WRITERS:
            cells = []
            for reader in READERS:
                changed = differences(*cross(server, writer, reader))
                is_whole = is_whole and not changed
                cells.append(", ".join(changed) or "whole")
            table.add_row(writer, *cells)
    Console().print(table)
    return 0 if is_whole else 1


if __name__ == "__main__":
    sys.exit(main())
