"""Both ends of the demo, which know nothing of Spark: Kafka's clients send, RabbitMQ's listens."""

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pika
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from pika.exceptions import AMQPConnectionError

from examples.demo.simulation import Sent

WAIT_S = 30.0
POLL_S = 0.5
TOGETHER_MAX = 100  # Records that are told at once.
QUIET = {"log_level": 0}  # Who ends the demo ends the broker, too, and knows it.


def create_topics(bootstrap: str, names: list[str]) -> None:
    """Of one partition each. The records' times are those of a story: none is too old."""
    admin = AdminClient({"bootstrap.servers": bootstrap} | QUIET)
    made = admin.create_topics([NewTopic(name, 1, config={"retention.ms": "-1"}) for name in names])
    for result in made.values():
        result.result(WAIT_S)


class Sender(threading.Thread):
    """Sends the story's records when their time comes; `speed` seconds of it in one of ours."""

    def __init__(self, bootstrap: str, records: list[Sent], speed: float) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20} | QUIET)
        self._records = records
        self._speed = speed
        self.sent = 0

    def run(self) -> None:
        start = time.monotonic()
        for record in self._records:
            time.sleep(max(0.0, start + record.second / self._speed - time.monotonic()))
            self._producer.produce(record.topic, record.value, key=record.key)
            self._producer.poll(0)
            self.sent += 1
        self._producer.flush(WAIT_S)


def consumer_of(bootstrap: str, topic: str) -> Consumer:
    """Of the committed records of a topic of one partition, from the first."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    return consumer


def everything(bootstrap: str, topic: str) -> list[Any]:
    """The values of all that is there now. The end of the partition comes as an error."""
    consumer = consumer_of(bootstrap, topic)
    found = []
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        found.append(message.value())
    consumer.close()
    return found


def declare_queue(amqp_url: str, name: str) -> None:
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    connection.channel().queue_declare(name, durable=True)
    connection.close()


class Listener(threading.Thread):
    """Tells what comes in a queue, as it comes, and acknowledges it."""

    def __init__(self, amqp_url: str, queue: str, tell: Callable[[list[Any]], None]) -> None:
        super().__init__(daemon=True)
        self._parameters = pika.URLParameters(amqp_url)
        self._queue = queue
        self._tell = tell
        self._is_over = threading.Event()
        self.heard = 0

    def run(self) -> None:
        with suppress(AMQPConnectionError):  # The demo has ended, and with it the broker.
            self._listen()

    def _listen(self) -> None:
        connection = pika.BlockingConnection(self._parameters)
        channel = connection.channel()
        channel.basic_qos(prefetch_count=TOGETHER_MAX)
        found: list[Any] = []
        for method, _, body in channel.consume(self._queue, inactivity_timeout=POLL_S):
            if method is not None:
                found.append(json.loads(body))
                channel.basic_ack(method.delivery_tag)
            if found and (method is None or len(found) >= TOGETHER_MAX):
                self._tell(found)
                self.heard += len(found)
                found = []
            if self._is_over.is_set():
                break
        connection.close()

    def finish(self, count: int) -> None:
        """When it has heard so many, or takes too long."""
        deadline = time.monotonic() + WAIT_S
        while self.heard < count and time.monotonic() < deadline:
            time.sleep(POLL_S)
        self._is_over.set()
        self.join(WAIT_S)
