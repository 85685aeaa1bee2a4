"""Transactional producers of three client libraries, and readers of committed records."""

import asyncio
import time
from collections.abc import Coroutine, Sequence
from typing import Any, Protocol

import aiokafka
import confluent_kafka
import confluent_kafka.admin
import kafka

WAIT_S = 30


class Client(Protocol):
    def transact(
        self, transactional_id: str, topic: str, values: Sequence[str], *, commit: bool
    ) -> None:
        """One transaction of a producer of its own; value number n goes to partition n % 2."""

    def read(self, topic: str, *, committed: bool) -> list[str]:
        """What there is in its two partitions now, sorted."""


class Confluent:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def transact(
        self, transactional_id: str, topic: str, values: Sequence[str], *, commit: bool
    ) -> None:
        producer = confluent_producer(self._bootstrap, transactional_id)
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        for number, value in enumerate(values):
            producer.produce(topic, value, partition=number % 2)
        if commit:
            producer.commit_transaction(WAIT_S)
        else:
            assert producer.flush(WAIT_S) == 0
            producer.abort_transaction(WAIT_S)

    def read(self, topic: str, *, committed: bool) -> list[str]:
        return read(self._bootstrap, topic, committed=committed)


class KafkaPython:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def transact(
        self, transactional_id: str, topic: str, values: Sequence[str], *, commit: bool
    ) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap, transactional_id=transactional_id
        )
        try:
            producer.init_transactions()
            producer.begin_transaction()
            for number, value in enumerate(values):
                producer.send(topic, value.encode(), partition=number % 2)
            producer.flush(WAIT_S)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
        finally:
            producer.close(timeout=WAIT_S)

    def read(self, topic: str, *, committed: bool) -> list[str]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            isolation_level="read_committed" if committed else "read_uncommitted",
        )
        try:
            partitions = [kafka.TopicPartition(topic, number) for number in range(2)]
            consumer.assign(partitions)
            consumer.seek_to_beginning(*partitions)
            ends = consumer.end_offsets(partitions)
            values: list[str] = []
            deadline = time.monotonic() + WAIT_S
            while any(consumer.position(each) < ends[each] for each in partitions):
                for found in consumer.poll(timeout_ms=200).values():
                    values += [record.value.decode() for record in found]
                assert time.monotonic() < deadline, values
        finally:
            consumer.close()
        return sorted(values)


class AioKafka:
    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def transact(
        self, transactional_id: str, topic: str, values: Sequence[str], *, commit: bool
    ) -> None:
        async def work() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, transactional_id=transactional_id
            )
            await producer.start()
            try:
                await producer.begin_transaction()
                sent = [
                    await producer.send(topic, value.encode(), partition=number % 2)
                    for number, value in enumerate(values)
                ]
                await asyncio.gather(*sent)
                if commit:
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
            finally:
                await producer.stop()

        _run(work())

    def read(self, topic: str, *, committed: bool) -> list[str]:
        async def work() -> list[str]:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                isolation_level="read_committed" if committed else "read_uncommitted",
            )
            await consumer.start()
            try:
                partitions = [aiokafka.TopicPartition(topic, number) for number in range(2)]
                consumer.assign(partitions)
                await consumer.seek_to_beginning(*partitions)
                ends = await consumer.end_offsets(partitions)
                values: list[str] = []
                while any([await consumer.position(p) < ends[p] for p in partitions]):
                    for found in (await consumer.getmany(timeout_ms=200)).values():
                        values += [record.value.decode() for record in found]
            finally:
                await consumer.stop()
            return sorted(values)

        return _run(work())


CLIENTS: dict[str, type[Client]] = {
    "confluent": Confluent,
    "kafka_python": KafkaPython,
    "aiokafka": AioKafka,
}


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, WAIT_S))


# --- confluent-kafka, for what the tests need more of


def confluent_producer(
    bootstrap: str, transactional_id: str | None = None, **settings: Any
) -> confluent_kafka.Producer:
    identity = {} if transactional_id is None else {"transactional.id": transactional_id}
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return confluent_kafka.Producer({**connected(bootstrap), **identity, **named})


def connected(bootstrap: str) -> dict[str, Any]:
    """Quick to come back to a broker that was killed, and quiet about it."""
    return {
        "bootstrap.servers": bootstrap,
        "reconnect.backoff.ms": 20,
        "reconnect.backoff.max.ms": 100,
        "log_level": 0,
        # Rebootstrapping, librdkafka 2.16 loses the coordinator it was told of, and waits for ever.
        "metadata.recovery.strategy": "none",
    }


def create(bootstrap: str, topic: str, partitions: int = 2) -> None:
    admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": bootstrap})
    new = confluent_kafka.admin.NewTopic(topic, num_partitions=partitions)
    admin.create_topics([new])[topic].result(WAIT_S)


def read(bootstrap: str, topic: str, *, committed: bool = True, partitions: int = 2) -> list[str]:
    """All there is now, sorted."""
    consumer = confluent_kafka.Consumer(
        {
            **connected(bootstrap),
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    try:
        beginning = confluent_kafka.OFFSET_BEGINNING
        places = [confluent_kafka.TopicPartition(topic, n, beginning) for n in range(partitions)]
        consumer.assign(places)
        values: list[str] = []
        left = {place.partition for place in places}
        deadline = time.monotonic() + WAIT_S
        while left:
            for message in consumer.consume(1_000, 0.2):
                if message.error() is None:
                    values.append(message.value().decode())
                elif message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF:
                    left.discard(message.partition())
                else:
                    raise confluent_kafka.KafkaException(message.error())
            assert time.monotonic() < deadline, (left, len(values))
    finally:
        consumer.close()
    return sorted(values)
