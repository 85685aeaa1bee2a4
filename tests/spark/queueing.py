"""Queues for the tests, filled by the client that most people use."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pika

from entrepot.testing import Broker

SETTINGS = {"ports.http": 0}  # A broker that leases messages needs its management port.


@contextmanager
def channel(server: Broker) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(server.amqp_url))
    try:
        made = connection.channel()
        made.confirm_delivery()
        yield made
    finally:
        connection.close()


def declare(server: Broker, queue: str, **arguments: Any) -> str:
    named = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
    with channel(server) as made:
        made.queue_declare(queue, durable=True, arguments=named)
    return queue


def declare_deduplicating(server: Broker, exchange: str, queue: str) -> str:
    """An exchange that takes a message once, by its header, and gives it to the queue."""
    with channel(server) as made:
        arguments = {"x-cache-size": 10_000}
        kind = "x-message-deduplication"
        made.exchange_declare(exchange, kind, durable=True, arguments=arguments)
        made.queue_bind(queue, exchange)
    return exchange


def publish(server: Broker, queue: str, values: Iterable[str]) -> None:
    """Each is confirmed: on disk."""
    lasting = pika.BasicProperties(delivery_mode=2)
    with channel(server) as made:
        for value in values:
            made.basic_publish("", queue, value.encode(), lasting)


def drain(server: Broker, queue: str) -> list[str]:
    """All that is ready, settled."""
    found = []
    with channel(server) as made:
        while True:
            method, _, body = made.basic_get(queue, auto_ack=True)
            if method is None:
                return found
            found.append(body.decode())


def options(server: Broker, queue: str, **more: str) -> dict[str, str]:
    address = {"kafka.bootstrap.servers": server.bootstrap, "entrepot.http": server.http_address}
    return address | {"queue": queue} | more
