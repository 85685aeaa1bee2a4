"""AMQP 0-9-1, by pika."""

from __future__ import annotations

from typing import Any

import pika

from entrepot.prove.clients import POLL_S, RESULTS, SOURCE, Delivery, Plain, Setting
from entrepot.prove.semantics import Semantics

ONCE = "prove.once"  # The exchange that drops what it has seen.
_TRANSIENT, _PERSISTENT = 1, 2
_PREFETCH = 5


def prepare(setting: Setting) -> None:
    connection, channel = _connect(setting)
    for queue in (SOURCE, RESULTS):
        channel.queue_declare(queue, durable=True)
    channel.exchange_declare(
        ONCE, "x-message-deduplication", durable=True, arguments={"x-cache-size": 1_000}
    )
    channel.queue_bind(SOURCE, ONCE)
    connection.close()


def sender(setting: Setting) -> AmqpSender:
    return AmqpSender(setting)


def receiver(setting: Setting) -> AmqpReceiver:
    return AmqpReceiver(setting)


def results(setting: Setting) -> list[int]:
    """Take what is in the queue of results."""
    connection, channel = _connect(setting)
    found = []
    while (body := channel.basic_get(RESULTS, auto_ack=True)[2]) is not None:
        found.append(int(body))
    connection.close()
    return found


def _connect(setting: Setting) -> tuple[Any, Any]:
    host, port = setting.endpoints["amqp"]
    connection = pika.BlockingConnection(pika.ConnectionParameters(host, port))
    return connection, connection.channel()


class AmqpSender(Plain):
    def __init__(self, setting: Setting) -> None:
        self._connection, self._channel = _connect(setting)
        self._is_sure = setting.semantics is not Semantics.AT_MOST_ONCE
        self._is_once = setting.semantics is Semantics.EXACTLY_ONCE
        self._is_transacted = setting.semantics is Semantics.TRANSACTION
        if self._is_transacted:
            self._channel.tx_select()
        elif self._is_sure:
            self._channel.confirm_delivery()

    def send(self, number: int) -> None:
        """Send it; with an id, so that what is sent twice comes once, where that is wanted."""
        properties = pika.BasicProperties(
            delivery_mode=_PERSISTENT if self._is_sure else _TRANSIENT,
            headers={"x-deduplication-header": str(number)} if self._is_once else None,
        )
        exchange, key = (ONCE, "") if self._is_once else ("", SOURCE)
        self._channel.basic_publish(exchange, key, str(number).encode(), properties)

    def commit(self) -> None:
        if self._is_transacted:
            self._channel.tx_commit()

    def close(self) -> None:
        self._connection.close()


class AmqpReceiver(Plain):
    def __init__(self, setting: Setting) -> None:
        self._connection, self._channel = _connect(setting)
        self._acknowledges = setting.semantics is not Semantics.AT_MOST_ONCE
        self._channel.basic_qos(prefetch_count=_PREFETCH)
        if setting.semantics is Semantics.TRANSACTION:
            self._channel.tx_select()
        self._messages = self._channel.consume(
            SOURCE, auto_ack=not self._acknowledges, inactivity_timeout=POLL_S
        )

    def receive(self) -> Delivery | None:
        method, _, body = next(self._messages)
        return None if method is None else Delivery(int(body), method.delivery_tag)

    def acknowledge(self, delivery: Delivery) -> None:
        if self._acknowledges:
            self._channel.basic_ack(delivery.token)
            self._connection.process_data_events(0)

    def move(self, delivery: Delivery) -> None:
        properties = pika.BasicProperties(delivery_mode=_PERSISTENT)
        self._channel.basic_publish("", RESULTS, str(delivery.number).encode(), properties)
        self._channel.basic_ack(delivery.token)

    def commit(self) -> None:
        self._channel.tx_commit()

    def close(self) -> None:
        self._connection.close()
