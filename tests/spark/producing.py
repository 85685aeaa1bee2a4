"""Records for the tests to read, by the client that most people use."""

from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from entrepot.testing import Broker


def create(server: Broker, topic: str, partitions: int = 1, **settings: str) -> str:
    """Records stay, however old they say they are."""
    settings = {"retention_ms": "-1"} | settings
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    named = {name.replace("_", "."): value for name, value in settings.items()}
    admin.create_topics([NewTopic(topic, partitions, config=named)])[topic].result()
    return topic


def produce(
    server: Broker, topic: str, values: Iterable[str], *, partition: int = 0, **settings: Any
) -> None:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5} | named)
    for value in values:
        producer.produce(topic, value.encode(), partition=partition)
        producer.poll(0)
    assert producer.flush(30) == 0


@contextmanager
def transaction(server: Broker, name: str, *, commit: bool) -> Any:
    """A producer in a transaction, which then ends as told."""
    producer = Producer({"bootstrap.servers": server.bootstrap, "transactional.id": name})
    producer.init_transactions(30)
    producer.begin_transaction()
    yield producer
    if commit:
        producer.commit_transaction(30)
    else:
        producer.flush(30)
        producer.abort_transaction(30)


def texts(count: int, first: int = 0) -> list[str]:
    return [f"value {number}" for number in range(first, first + count)]
