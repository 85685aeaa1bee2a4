"""The load of a real client: confluent-kafka, which is librdkafka under Python.

Throughput uses the client's own batching with messages built beforehand and handed over a
thousand at a time; even so 100-byte records cost the client about as much as they cost a
broker, and the table says when the client was the limit. Latency is end to end, from just
before `produce` to the application's hands, at a fixed rate and with no linger: sending
never waits for the broker, so a stall shows in every message sent during it.
"""

import random
import string
import struct
import threading
import time
from typing import Any

from confluent_kafka import (
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from bench.brokers import Broker
from bench.meter import Meter, Sample
from bench.wire import TIMEOUT_S, Refused

CHUNK = 1_000  # Messages per call, in and out.
CONSUME_TIMES = 5
CHUNK_TRANSFORMED = 100  # Messages per transaction.
_STAMP = struct.Struct(">Q")


def payloads(size: int, count: int = CHUNK) -> list[bytes]:
    """Different texts of one size, which lz4 makes about a third smaller."""
    chance = random.Random(size)
    letters = string.ascii_lowercase.encode()[:16]
    return [bytes(chance.choices(letters, k=size)) for _ in range(count)]


def produce(
    broker: Broker, topic: str, size: int, acks: str, codec: str, partitions: int, count: int
) -> Sample:
    """`count` messages, chunk by chunk to the partitions in turn, until all are acknowledged."""
    producer = _producer(broker, {"acks": acks, "compression.type": codec})
    failures: list[KafkaError] = []

    def failed(error: KafkaError | None, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for partition in range(partitions):  # Connections and leaders are known before the clock runs.
        producer.produce(topic, b"", partition=partition, on_delivery=failed)
    producer.flush(TIMEOUT_S)
    messages = [{"value": value} for value in payloads(size)]
    meter = Meter(broker.pid)
    for i in range(count // CHUNK):
        producer.produce_batch(topic, messages, partition=i % partitions, on_delivery=failed)
        producer.poll(0)
    remaining = producer.flush(TIMEOUT_S)
    sample = meter.sample(count, count * size)
    if failures or remaining:
        raise Refused(f"{len(failures)} messages failed, {remaining} unanswered: {failures[:1]}")
    return sample


def consume(broker: Broker, topic: str, partitions: int, size: int, count: int) -> Sample:
    """Everything `produce` wrote, from the beginning; the median of some times, as it is
    soon read. The clock starts with the first message."""
    times = [_consume(broker, topic, partitions, size, count) for _ in range(CONSUME_TIMES)]
    return sorted(times)[CONSUME_TIMES // 2]


def _consume(broker: Broker, topic: str, partitions: int, size: int, count: int) -> Sample:
    consumer = _consumer(broker)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    try:
        expected = count + partitions  # The producer's first messages.
        first = seen = _take(consumer, 1)
        meter = Meter(broker.pid)
        while seen < expected:
            seen += _take(consumer, min(CHUNK, expected - seen))
        return meter.sample(seen - first, (seen - first) * size)
    finally:
        consumer.close()


def latency(broker: Broker, topic: str, size: int, rate: int, seconds: float) -> list[float]:
    """End-to-end milliseconds of each message after the first second, one partition, acks=all."""
    producer = _producer(broker, {"acks": "all", "linger.ms": 0})
    consumer = _consumer(broker)
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = int(rate * (seconds + 1))
    filler = payloads(size, 1)[0][_STAMP.size :]
    sender = threading.Thread(target=_send_paced, args=(producer, topic, filler, count, rate))
    times: list[float] = []
    sender.start()
    try:
        while len(times) < count:
            message = consumer.poll(TIMEOUT_S)
            now = time.monotonic_ns()
            if message is None or message.error():
                raise Refused(f"latency: {message.error() if message else 'nothing came'}")
            times.append((now - _STAMP.unpack_from(_value(message))[0]) / 1e6)
    finally:
        sender.join()
        producer.flush(TIMEOUT_S)
        consumer.close()
    return times[rate:]


def transform(broker: Broker, source: str, target: str, size: int, count: int) -> Sample:
    """Consume, transform, produce: each CHUNK_TRANSFORMED records and their offsets at once.

    The clock starts after the first transaction, when the group has settled.
    """
    name = f"{source}-transform"
    names = {"group.id": name, "isolation.level": "read_committed"}
    start = {"auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({"bootstrap.servers": broker.address, **names, **start})
    producer = _producer(broker, {"transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    consumer.subscribe([source])
    try:
        _transform_some(consumer, producer, target)
        meter = Meter(broker.pid)
        for _ in range(count // CHUNK_TRANSFORMED):
            _transform_some(consumer, producer, target)
        return meter.sample(count, count * size)
    except KafkaException as error:
        raise Refused(str(error)) from None
    finally:
        consumer.close()


def _transform_some(consumer: Consumer, producer: Producer, target: str) -> None:
    messages = consumer.consume(CHUNK_TRANSFORMED, TIMEOUT_S)
    if len(messages) != CHUNK_TRANSFORMED:
        raise Refused(f"the consumer got {len(messages)} messages")
    producer.begin_transaction()
    for message in messages:
        if message.error():
            raise Refused(str(message.error()))
        producer.produce(target, _value(message)[::-1])
    position = consumer.position(consumer.assignment())
    producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), TIMEOUT_S)
    producer.commit_transaction(TIMEOUT_S)


def count_committed(broker: Broker, topic: str, count: int) -> None:
    """Whether who reads only what is committed finds so many messages in partition 0."""
    consumer = _consumer(broker)  # It reads what is committed unless told otherwise.
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        seen = 0
        while seen < count:
            seen += _take(consumer, min(CHUNK, count - seen))
        if consumer.consume(1, 0.1):
            raise Refused(f"more than {count} messages came out")
    finally:
        consumer.close()


def produce_everywhere(broker: Broker, topics: list[str], partitions: int) -> float:
    """Seconds until one message to each partition of each topic is acknowledged by a new client."""
    producer = _producer(broker, {"acks": "all"})
    delivered: list[str | None] = []

    def answered(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise Refused(str(error))
        delivered.append(message.topic())

    start = time.perf_counter()
    for topic in topics:
        for partition in range(partitions):
            producer.produce(topic, b"hello", partition=partition, on_delivery=answered)
        producer.poll(0)
    remaining = producer.flush(TIMEOUT_S)
    elapsed = time.perf_counter() - start
    if remaining or len(delivered) != len(topics) * partitions:
        raise Refused(f"{remaining} of {len(topics) * partitions} messages unanswered")
    return elapsed


def _producer(broker: Broker, settings: dict[str, Any]) -> Producer:
    queue = {"queue.buffering.max.messages": 10_000_000, "queue.buffering.max.kbytes": 1 << 20}
    return Producer({"bootstrap.servers": broker.address, **queue, **settings})


def _consumer(broker: Broker) -> Consumer:
    # The group is a name only: partitions are assigned by hand and nothing is committed.
    # With its usual queue the client stops fetching for a second whenever it is ahead.
    queue = {"queued.min.messages": 10_000_000, "queued.max.messages.kbytes": 1 << 20}
    names = {"bootstrap.servers": broker.address, "group.id": "bench"}
    return Consumer({**names, **queue, "enable.auto.commit": False})


def _take(consumer: Consumer, count: int) -> int:
    messages = consumer.consume(count, TIMEOUT_S)
    if not messages:
        raise Refused("the consumer got nothing")
    for message in messages:
        if message.error():
            raise Refused(str(message.error()))
    return len(messages)


def _send_paced(producer: Producer, topic: str, filler: bytes, count: int, rate: int) -> None:
    start = time.monotonic()
    for i in range(count):
        wait = start + i / rate - time.monotonic()
        if wait > 0:
            time.sleep(wait)
        producer.produce(topic, _STAMP.pack(time.monotonic_ns()) + filler, partition=0)
        producer.poll(0)


def _value(message: Message) -> bytes:
    value = message.value()
    assert isinstance(value, bytes)
    return value
