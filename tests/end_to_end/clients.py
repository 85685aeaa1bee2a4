"""Four Kafka clients that people use, behind one small interface, and nothing but them.

Each creates topics, writes messages with a codec, and reads one partition from its
beginning, from an offset, or from a time. There are no consumer groups here: a reader
assigns itself the partition.
"""

import asyncio
import json
import shutil
import subprocess
from collections.abc import Coroutine, Sequence
from typing import Any, NamedTuple, Protocol

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin

WAIT_S = 30
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Message(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int


class Client(Protocol):
    def create(self, topic: str) -> None:
        """With one partition."""

    def write(self, topic: str, codec: str, messages: Sequence[Message]) -> None:
        """Acknowledged when this returns."""

    def read(
        self, topic: str, count: int, *, offset: int | None = None, time_ms: int | None = None
    ) -> list[Message]:
        """From the beginning unless something else is said."""


class Confluent:
    """confluent-kafka: the current librdkafka."""

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap}

    def create(self, topic: str) -> None:
        admin = confluent_kafka.admin.AdminClient(self._settings)
        new = confluent_kafka.admin.NewTopic(topic, num_partitions=1, replication_factor=1)
        admin.create_topics([new])[topic].result(WAIT_S)

    def write(self, topic: str, codec: str, messages: Sequence[Message]) -> None:
        settings = {"compression.type": codec, "linger.ms": 20, "acks": "all"}
        producer = confluent_kafka.Producer({**self._settings, **settings})
        failures = []
        for key, value, headers, timestamp_ms in messages:
            producer.produce(
                topic,
                value,
                key,
                headers=list(headers),
                timestamp=timestamp_ms,
                on_delivery=lambda error, _: error and failures.append(error),
            )
        assert producer.flush(WAIT_S) == 0
        assert failures == []

    def read(
        self, topic: str, count: int, *, offset: int | None = None, time_ms: int | None = None
    ) -> list[Message]:
        # It wants a group's name; without commits it does nothing with it.
        settings = {"group.id": "unused", "enable.auto.commit": False}
        consumer = confluent_kafka.Consumer({**self._settings, **settings})
        try:
            start = confluent_kafka.OFFSET_BEGINNING if offset is None else offset
            if time_ms is not None:
                asked = [confluent_kafka.TopicPartition(topic, 0, time_ms)]
                start = consumer.offsets_for_times(asked, WAIT_S)[0].offset
            consumer.assign([confluent_kafka.TopicPartition(topic, 0, start)])
            found = consumer.consume(count, WAIT_S)
        finally:
            consumer.close()
        assert [message.error() for message in found if message.error()] == []
        return [
            Message(m.key(), m.value(), tuple(m.headers() or ()), m.timestamp()[1]) for m in found
        ]


class KafkaPython:
    """kafka-python: Python all the way."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create(self, topic: str) -> None:
        admin = kafka.KafkaAdminClient(bootstrap_servers=self._bootstrap)
        try:
            admin.create_topics([kafka.admin.NewTopic(topic, 1, 1)])
        finally:
            admin.close()

    def write(self, topic: str, codec: str, messages: Sequence[Message]) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=self._bootstrap,
            compression_type=None if codec == "none" else codec,
            linger_ms=20,
            acks="all",
        )
        try:
            sent = [
                producer.send(
                    topic,
                    key=key,
                    value=value,
                    headers=list(headers),
                    timestamp_ms=timestamp_ms,
                    partition=0,
                )
                for key, value, headers, timestamp_ms in messages
            ]
            producer.flush(WAIT_S)
            for future in sent:
                future.get(WAIT_S)
        finally:
            producer.close()

    def read(
        self, topic: str, count: int, *, offset: int | None = None, time_ms: int | None = None
    ) -> list[Message]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=self._bootstrap, consumer_timeout_ms=1_000 * WAIT_S
        )
        try:
            partition = kafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            if time_ms is not None:
                offset = consumer.offsets_for_times({partition: time_ms})[partition].offset
            if offset is None:
                consumer.seek_to_beginning(partition)
            else:
                consumer.seek(partition, offset)
            found = [record for _, record in zip(range(count), consumer, strict=False)]
        finally:
            consumer.close()
        return [Message(r.key, r.value, tuple(r.headers), r.timestamp) for r in found]


class AioKafka:
    """aiokafka: asyncio."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create(self, topic: str) -> None:
        async def work() -> None:
            admin = aiokafka.admin.AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
            await admin.start()
            try:
                await admin.create_topics([aiokafka.admin.NewTopic(topic, 1, 1)])
            finally:
                await admin.close()

        _run(work())

    def write(self, topic: str, codec: str, messages: Sequence[Message]) -> None:
        async def work() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                compression_type=None if codec == "none" else codec,
                linger_ms=20,
                acks="all",
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        key=key,
                        value=value,
                        headers=list(headers),
                        timestamp_ms=timestamp_ms,
                        partition=0,
                    )
                    for key, value, headers, timestamp_ms in messages
                ]
                await producer.flush()
                await asyncio.gather(*sent)
            finally:
                await producer.stop()

        _run(work())

    def read(
        self, topic: str, count: int, *, offset: int | None = None, time_ms: int | None = None
    ) -> list[Message]:
        async def work() -> list[Message]:
            consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
            await consumer.start()
            try:
                partition = aiokafka.TopicPartition(topic, 0)
                consumer.assign([partition])
                start = offset
                if time_ms is not None:
                    found = await consumer.offsets_for_times({partition: time_ms})
                    start = found[partition].offset
                if start is None:
                    await consumer.seek_to_beginning(partition)
                else:
                    consumer.seek(partition, start)
                records = [await consumer.getone() for _ in range(count)]
            finally:
                await consumer.stop()
            return [Message(r.key, r.value, tuple(r.headers), r.timestamp) for r in records]

        return _run(work())


class Kcat:
    """kcat: the command line, on an older librdkafka.

    It cannot create a topic (the broker does, when it writes) nor set a timestamp.
    """

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    @staticmethod
    def is_installed() -> bool:
        return shutil.which("kcat") is not None

    def create(self, topic: str) -> None:
        pass

    def write(self, topic: str, codec: str, messages: Sequence[Message]) -> None:
        (headers,) = {message.headers for message in messages}  # They are the whole input's.
        arguments = ["-P", "-p", "0", "-t", topic, "-K", "\t", "-z", codec, "-X", "linger.ms=20"]
        for name, value in headers:
            assert value is not None
            arguments += ["-H", f"{name}={value.decode()}"]
        lines = [b"%b\t%b\n" % (message.key, message.value) for message in messages]
        self._run(arguments, b"".join(lines))

    def read(
        self, topic: str, count: int, *, offset: int | None = None, time_ms: int | None = None
    ) -> list[Message]:
        start = "beginning" if offset is None else str(offset)
        if time_ms is not None:
            start = f"s@{time_ms}"
        arguments = ["-C", "-J", "-p", "0", "-t", topic, "-o", start, "-c", str(count)]
        lines = self._run(arguments).splitlines()
        return [_from_json(json.loads(line)) for line in lines]

    def _run(self, arguments: Sequence[str], text: bytes = b"") -> bytes:
        command = ["kcat", "-b", self._bootstrap, "-q", *arguments]
        ran = subprocess.run(command, input=text, capture_output=True, timeout=WAIT_S, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def _from_json(line: dict[str, Any]) -> Message:
    names_and_values = line.get("headers", [])
    headers = zip(names_and_values[::2], names_and_values[1::2], strict=True)
    return Message(
        _bytes(line["key"]),
        _bytes(line["payload"]),
        tuple((name, _bytes(value)) for name, value in headers),
        line["ts"],
    )


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    async def bounded() -> Any:
        async with asyncio.timeout(WAIT_S):
            return await work

    return asyncio.run(bounded())


CLIENTS: dict[str, type[Confluent | KafkaPython | AioKafka | Kcat]] = {
    "confluent": Confluent,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "kcat": Kcat,
}
