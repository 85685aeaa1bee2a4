"""Consumers in groups, for tests: of confluent-kafka, polled in turns, and of kafka-python."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import kafka
from confluent_kafka import Consumer, Producer, TopicPartition

from entrepot import testing

WAIT_S = 30.0
SESSION_MS = 1_500
SETTINGS = {
    "groups.min_session_timeout_ms": 500,
    "groups.consumer_heartbeat_interval_ms": 200,
    "groups.consumer_session_timeout_ms": SESSION_MS,
}
CLASSIC: dict[str, Any] = {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 300}
MODERN: dict[str, Any] = {"group.protocol": "consumer"}


class Members:
    """Consumers of confluent-kafka, polled in turns."""

    def __init__(self, broker: testing.Broker, topic: str, **settings: Any) -> None:
        self.seen: dict[str, list[tuple[int, int]]] = {}  # By member: partition, offset.
        self._common = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": f"group-of-{topic}",
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 1_000,
            "fetch.wait.max.ms": 50,  # A consumer that closes waits for its last fetch.
        } | {name.replace("_", "."): value for name, value in settings.items()}
        self._topic = topic
        self._living: dict[str, Consumer] = {}

    def add(self, name: str, **settings: Any) -> Consumer:
        extra = {key.replace("_", "."): value for key, value in settings.items()}
        consumer = Consumer({**self._common, "client.id": name, **extra})
        consumer.subscribe([self._topic])
        self._living[name] = consumer
        self.seen.setdefault(name, [])
        return consumer

    def poll_until(self, condition: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline, (self.assigned(), self.seen)
            for name, consumer in list(self._living.items()):
                message = consumer.poll(0.05)
                if message is not None and message.error() is None:
                    self.seen[name].append((message.partition(), message.offset()))

    def assigned(self) -> dict[str, list[int]]:
        return {
            name: sorted(each.partition for each in consumer.assignment())
            for name, consumer in self._living.items()
        }

    def sizes(self) -> list[int]:
        return sorted(len(partitions) for partitions in self.assigned().values())

    def everything(self) -> list[tuple[int, int]]:
        return sorted(row for rows in self.seen.values() for row in rows)

    def remove(self, name: str) -> None:
        self._living.pop(name).close()

    def close(self) -> None:
        for name in list(self._living):
            self.remove(name)


@contextlib.contextmanager
def members(broker: testing.Broker, topic: str, **settings: Any) -> Iterator[Members]:
    group = Members(broker, topic, **settings)
    try:
        yield group
    finally:
        group.close()


def produce(broker: testing.Broker, topic: str, count: int, first: int = 0) -> None:
    """So many records to each of the three partitions."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, first + count):
        for partition in range(3):
            producer.produce(topic, f"{partition}:{number}", partition=partition)
    assert producer.flush(WAIT_S) == 0


def rows(count: int, first: int = 0) -> list[tuple[int, int]]:
    return [(partition, number) for partition in range(3) for number in range(first, count)]


def committed(consumer: Consumer, topic: str) -> list[int]:
    asked = [TopicPartition(topic, partition) for partition in range(3)]
    return [each.offset for each in consumer.committed(asked, timeout=WAIT_S)]


class Pump(threading.Thread):
    """A consumer of kafka-python in a thread of its own: while it waits for a rebalance, the
    others must go on."""

    def __init__(self, broker: testing.Broker, topic: str, seen: list[tuple[int, int]]) -> None:
        super().__init__()
        self.consumer = kafka.KafkaConsumer(
            topic,
            bootstrap_servers=broker.bootstrap,
            group_id=f"group-of-{topic}",
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=300,
            auto_commit_interval_ms=200,
            metadata_max_age_ms=1_000,
        )
        self._seen = seen
        self._over = threading.Event()
        self.start()

    def run(self) -> None:
        while not self._over.is_set():
            for batch in self.consumer.poll(timeout_ms=500).values():
                self._seen.extend((message.partition, message.offset) for message in batch)
        self.consumer.close()

    def stop(self) -> None:
        self._over.set()
        self.join(WAIT_S)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)
