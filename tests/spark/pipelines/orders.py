"""Orders for the tests to read: JSON with a key, some of it poison."""

import json
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Producer

from entrepot.testing import Broker

SCHEMA = "id bigint, customer string, cents bigint, at timestamp"
CUSTOMERS = ("ada", "bob", "cleo")


def order(number: int) -> dict[str, Any]:
    """The same for the same number; one a minute."""
    return {
        "id": number,
        "customer": CUSTOMERS[number % len(CUSTOMERS)],
        "cents": number * 7 % 1000,
        "at": f"2030-01-01T{number // 60 % 24:02}:{number % 60:02}:00Z",
    }


def send(
    server: Broker, topic: str, values: Iterable[dict[str, Any] | bytes], partitions: int = 2
) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 5})
    for number, value in enumerate(values):
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        key = f"key {number}".encode()
        producer.produce(topic, data, key=key, partition=number % partitions)
        producer.poll(0)
    assert producer.flush(30) == 0


def orders(first: int, end: int) -> list[dict[str, Any]]:
    return [order(number) for number in range(first, end)]
