"""Kafka, by confluent-kafka."""

from __future__ import annotations

from collections import deque
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    AcknowledgeType,
    Consumer,
    Producer,
    ShareConsumer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from entrepot.prove.clients import POLL_S, RESULTS, SOURCE, WAIT_S, Delivery, Lost, Plain, Setting
from entrepot.prove.semantics import Semantics

GROUP = "prove"


def prepare(setting: Setting) -> None:
    admin = AdminClient(_common(setting))
    for made in admin.create_topics([NewTopic(SOURCE, 1), NewTopic(RESULTS, 1)]).values():
        made.result(WAIT_S)
    if setting.semantics is Semantics.NUMBERED:
        value = ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET
        )
        group = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=[value])
        admin.incremental_alter_configs([group])[group].result(WAIT_S)


def sender(setting: Setting) -> KafkaSender:
    return KafkaSender(setting)


def receiver(setting: Setting) -> KafkaReceiver | KafkaShare:
    if setting.semantics is Semantics.NUMBERED:
        return KafkaShare(setting)
    return KafkaReceiver(setting)


def results(setting: Setting) -> list[int]:
    """Return what is committed."""
    consumer = Consumer(
        {
            **_common(setting),
            "group.id": "auditor",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(RESULTS, 0, OFFSET_BEGINNING)])
    found = []
    while (message := consumer.poll(WAIT_S)) is not None and message.error() is None:
        found.append(_number(message))
    consumer.close()
    return found


def _common(setting: Setting) -> dict[str, Any]:
    # What it says about brokers that are away is no news here.
    return {
        "bootstrap.servers": setting.address("kafka"),
        "log_level": 0,
        "reconnect.backoff.max.ms": 500,
    }


def _number(message: Any) -> int:
    return int(message.value())


class KafkaSender(Plain):
    def __init__(self, setting: Setting) -> None:
        self._setting = setting
        self._is_sure = setting.semantics is not Semantics.AT_MOST_ONCE
        self._is_transacted = setting.semantics is Semantics.TRANSACTION
        how: dict[str, Any] = {"acks": "all"} if self._is_sure else {"acks": "0", "retries": 0}
        if self._is_transacted:
            how["transactional.id"] = "prove-producer"
        self._producer = Producer({**_common(setting), **how})
        if self._is_transacted:
            self._producer.init_transactions(WAIT_S)

    def send(self, number: int) -> None:
        if self._is_transacted:
            self._producer.begin_transaction()
        errors: list[Any] = []
        self._producer.produce(
            SOURCE, str(number), partition=0, on_delivery=lambda error, _: errors.append(error)
        )
        self._producer.flush(WAIT_S if self._is_sure else 1.0)
        if self._is_sure and errors != [None]:
            raise Lost(str(errors))

    def commit(self) -> None:
        if self._is_transacted:
            self._producer.commit_transaction(WAIT_S)

    def last(self) -> int | None:
        """Return the last in the log: who has died asks there, and not its own memory."""
        if self._setting.semantics not in (Semantics.EXACTLY_ONCE, Semantics.NUMBERED):
            return None
        reader = Consumer({**_common(self._setting), "group.id": "where"})
        part = TopicPartition(SOURCE, 0)
        _, end = reader.get_watermark_offsets(part, WAIT_S)
        found = -1
        if end:
            reader.assign([TopicPartition(SOURCE, 0, end - 1)])
            message = reader.poll(WAIT_S)
            if message is None or message.error() is not None:
                raise Lost("the last record did not come")
            found = _number(message)
        reader.close()
        return found

    def close(self) -> None:
        self._producer.purge()


class KafkaReceiver(Plain):
    def __init__(self, setting: Setting) -> None:
        self._consumer = Consumer(
            {
                **_common(setting),
                "group.id": GROUP,
                "group.instance.id": "consumer",  # A successor takes its place at once.
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
            }
        )
        self._consumer.subscribe([SOURCE])
        self._producer: Producer | None = None
        self._errors: list[Any] = []
        if setting.semantics is Semantics.TRANSACTION:
            self._producer = Producer(
                {
                    **_common(setting),
                    "transactional.id": "prove",
                    "error_cb": self._errors.append,
                }
            )
            self._producer.init_transactions(WAIT_S)

    def receive(self) -> Delivery | None:
        message = self._consumer.poll(POLL_S)
        if message is None or message.error() is not None:
            return None
        return Delivery(_number(message), message, message.offset())

    def acknowledge(self, delivery: Delivery) -> None:
        self._consumer.commit(delivery.token, asynchronous=False)

    def move(self, delivery: Delivery) -> None:
        assert self._producer is not None
        self._producer.begin_transaction()
        self._producer.produce(RESULTS, str(delivery.number), partition=0)
        self._producer.send_offsets_to_transaction(
            [TopicPartition(SOURCE, 0, delivery.place + 1)],
            self._consumer.consumer_group_metadata(),
            WAIT_S,
        )

    def commit(self) -> None:
        """Commit, unless the broker was away: librdkafka 2.16 may hang in what comes after that,
        so a client that begins anew has to take over."""
        assert self._producer is not None
        self._producer.poll(0)
        if self._errors:
            raise Lost(str(self._errors[0]))
        self._producer.commit_transaction(WAIT_S)

    def close(self) -> None:
        if self._producer is not None:
            self._producer.purge()
        self._consumer.close()


class KafkaShare(Plain):
    """A member of a share group: messages come again one by one, not from a position on."""

    def __init__(self, setting: Setting) -> None:
        self._consumer = ShareConsumer(
            {
                **_common(setting),
                "group.id": GROUP,
                "share.acknowledgement.mode": "explicit",
            }
        )
        self._consumer.subscribe([SOURCE])
        self._came: deque[Delivery] = deque()

    def receive(self) -> Delivery | None:
        if not self._came:
            self._came.extend(
                Delivery(_number(message), message, message.offset())
                for message in self._consumer.poll(POLL_S)
                if message.error() is None
            )
        return self._came.popleft() if self._came else None

    def acknowledge(self, delivery: Delivery) -> None:
        self._settle(delivery, AcknowledgeType.ACCEPT)

    def give_back(self, delivery: Delivery) -> None:
        self._settle(delivery, AcknowledgeType.RELEASE)

    def _settle(self, delivery: Delivery, how: AcknowledgeType) -> None:
        self._consumer.acknowledge(delivery.token, how)
        for error in self._consumer.commit_sync(WAIT_S).values():
            if error is not None:
                raise Lost(str(error))

    def close(self) -> None:
        self._consumer.close()
