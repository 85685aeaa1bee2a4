"""Real clients under way while things go wrong: each a thread that notes what it was promised."""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from random import Random

import pika
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.cluster.history import At, Final, Found, History, Record

PLAIN, TRANSACTIONAL, QUEUE = "plain", "transactional", "queue"
PARTITIONS = 4
END_S_MAX = 120.0
_BUFFERED_S = 0.5
_PAUSE_S = 0.01  # Between two records: faults are looked for here, not speed.
_COMMON = {
    "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 500, "retry.backoff.ms": 50,
    "socket.timeout.ms": 5_000, "topic.metadata.refresh.interval.ms": 2_000,
    "socket.connection.setup.timeout.ms": 3_000, "log_level": 0,
}  # fmt: skip


class Client(threading.Thread):
    """A thread that works until it is asked to end; what it did not expect ends the run."""

    def __init__(self, bootstrap: str, history: History, name: str) -> None:
        super().__init__(daemon=True, name=name)
        self.bootstrap = bootstrap
        self.history = history
        self.ending = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except BaseException as error:
            self.failure = error

    def work(self) -> None:
        raise NotImplementedError

    def settings(self, **more: object) -> dict[str, object]:
        return {"bootstrap.servers": self.bootstrap, **_COMMON, **more}


class Writer(Client):
    """An idempotent producer: what is acknowledged is there once, and in order."""

    def work(self) -> None:
        for life in count():
            if self.ending.is_set():
                return
            with contextlib.suppress(KafkaException):  # A fatal one: begin again as another.
                self._write(f"{self.name}.{life}")

    def _write(self, name: str) -> None:
        producer = Producer(
            self.settings(**{
                "enable.idempotence": True, "acks": "all", "linger.ms": 5,
                # A record that the client itself has given up may be sent again in a new epoch.
                "delivery.timeout.ms": 0,
            })
        )  # fmt: skip
        for number in count():
            if self.ending.is_set():
                break
            record = Record(name, number)
            self.history.note_sent(record)
            self._produce(producer, record, number % PARTITIONS)
            producer.poll(0)
            self.ending.wait(_PAUSE_S)
        producer.flush(END_S_MAX)

    def _produce(self, producer: Producer, record: Record, partition: int) -> None:
        def delivered(error: KafkaError | None, message: Message) -> None:
            if error is None:
                offset = message.offset()
                at = At(PLAIN, partition, -1 if offset is None else offset)
                self.history.note_acknowledged(record, at)

        while not self.ending.is_set():
            try:
                producer.produce(
                    PLAIN, record.encoded(), partition=partition, on_delivery=delivered
                )
                return
            except BufferError:
                producer.poll(0.1)


class Transactor(Client):
    """A producer in transactions over several partitions: all of one is there, or nothing."""

    def work(self) -> None:
        chance = Random(self.name)
        for life in count():
            if self.ending.is_set():
                return
            with contextlib.suppress(KafkaException):  # Fenced, for one: what it did is unknown.
                self._transact(f"{self.name}.{life}", chance)

    def _transact(self, name: str, chance: Random) -> None:
        producer = Producer(
            self.settings(**{"transactional.id": self.name, "transaction.timeout.ms": 20_000})
        )
        producer.init_transactions(END_S_MAX)
        numbers = count()
        while not self.ending.is_set():
            records = [Record(name, next(numbers)) for _ in range(chance.randrange(2, 6))]
            producer.begin_transaction()
            try:
                for record in records:
                    self.history.note_sent(record)
                    partition = record.number % PARTITIONS
                    producer.produce(TRANSACTIONAL, record.encoded(), partition=partition)
                if chance.random() < 0.2:
                    self._until_done(producer.abort_transaction)
                    self.history.note_aborted(records)
                else:
                    self._until_done(producer.commit_transaction)
                    self.history.note_committed(records)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                self._until_done(producer.abort_transaction)
                self.history.note_aborted(records)
            self.ending.wait(2 * _PAUSE_S)

    def _until_done(self, work: Callable[[float], object]) -> None:
        """Repeat a step that may be repeated, as the client says."""
        while True:
            try:
                work(10.0)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise


class Reader(Client):
    """Reads everything as it comes; what it has seen must be there in the end."""

    def work(self) -> None:
        consumer = Consumer(
            self.settings(**{
                "group.id": self.name, "enable.auto.commit": False,
                "auto.offset.reset": "error", "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
            })
        )  # fmt: skip
        topics = PLAIN, TRANSACTIONAL
        consumer.assign(
            [
                TopicPartition(topic, number, OFFSET_BEGINNING)
                for topic in topics
                for number in range(PARTITIONS)
            ]
        )
        while not self.ending.is_set():
            for message in consumer.consume(500, 0.2):
                self._note(message)
        consumer.close()

    def _note(self, message: Message) -> None:
        error, at = message.error(), At(*_place(message))
        if error is None:
            self.history.note_seen(at, Record.decoded(message.value() or b""))
        elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
            found = Found("dirty", f"{at}: a reader was beyond the end: {error.str()}")
            self.history.contradictions.append(found)


class Publisher(Client):
    """An AMQP client with confirms, on one node; what is confirmed is there at least once."""

    def __init__(self, url: Callable[[], str], history: History, name: str) -> None:
        super().__init__("", history, name)
        self._url = url
        self.confirmed: dict[bytes, None] = {}

    def work(self) -> None:
        numbers = count()
        while not self.ending.is_set():
            with contextlib.suppress(pika.exceptions.AMQPError, OSError, KeyError):
                self._publish(numbers)
            self.ending.wait(0.2)

    def _publish(self, numbers: Iterator[int]) -> None:
        with pika.BlockingConnection(_parameters(self._url())) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.confirm_delivery()
            while not self.ending.wait(_PAUSE_S):
                body = f"{self.name}:{next(numbers)}".encode()
                persistent = pika.BasicProperties(delivery_mode=2)
                channel.basic_publish("", QUEUE, body, persistent, mandatory=True)
                self.confirmed[body] = None


class Settler(Client):
    """An AMQP consumer on one node, in transactions; what it has settled never comes again."""

    def __init__(
        self, url: Callable[[], str], history: History, name: str, of_all: Settled
    ) -> None:
        super().__init__("", history, name)
        self._url = url
        self._of_all = of_all

    def work(self) -> None:
        while not self.ending.is_set():
            with contextlib.suppress(pika.exceptions.AMQPError, OSError, KeyError):
                self._settle()
            self.ending.wait(0.2)

    def _settle(self) -> None:
        with pika.BlockingConnection(_parameters(self._url())) as connection:
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True)
            channel.basic_qos(prefetch_count=20)
            channel.tx_select()
            batch: list[bytes] = []
            for method, _, body in channel.consume(QUEUE, inactivity_timeout=0.5):
                if method is not None and body is not None:
                    self._of_all.note_seen(body, self.name)
                    channel.basic_ack(method.delivery_tag)
                    batch.append(body)
                if batch and (method is None or len(batch) == 10):
                    self._of_all.note_asked(batch)
                    channel.tx_commit()
                    self._of_all.note_settled(batch)
                    batch = []
                if self.ending.is_set():
                    break
            channel.cancel()


class Settled:
    """What all consumers have seen and settled."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.asked: dict[bytes, None] = {}  # To be settled; whether it was may be unknown.
        self.settled: dict[bytes, float] = {}  # When that was known.
        self.seen_count = 0
        self.contradictions: list[Found] = []

    def note_seen(self, body: bytes, who: str) -> None:
        with self._lock:
            self.seen_count += 1
            # It may have been in the client's buffer when another got it and settled it.
            if time.monotonic() - self.settled.get(body, math.inf) > _BUFFERED_S:
                self.contradictions.append(Found("dirty", f"{body!r}, settled, came to {who}"))

    def note_asked(self, bodies: Iterable[bytes]) -> None:
        with self._lock:
            self.asked.update(dict.fromkeys(bodies))

    def note_settled(self, bodies: Iterable[bytes]) -> None:
        with self._lock:
            self.settled.update(dict.fromkeys(bodies, time.monotonic()))


def drain(url: str, queue: str = QUEUE) -> dict[bytes, int]:
    """Return what is in the queue, and how often."""
    found: dict[bytes, int] = {}
    with pika.BlockingConnection(_parameters(url)) as connection:
        channel = connection.channel()
        channel.basic_qos(prefetch_count=1_000)
        for method, _, body in channel.consume(queue, inactivity_timeout=2.0):
            if method is None or body is None:
                break
            found[body] = found.get(body, 0) + 1
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
    return found


def _parameters(url: str) -> pika.URLParameters:
    return pika.URLParameters(url + "?socket_timeout=5&blocked_connection_timeout=5&heartbeat=10")


def read_all(bootstrap: str) -> Final:
    """Return all of the log, as whoever reads what is committed sees it."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap, **_COMMON, "group.id": "final",
            "enable.auto.commit": False, "auto.offset.reset": "earliest",
            "isolation.level": "read_committed", "enable.partition.eof": True,
        }
    )  # fmt: skip
    parts = [(topic, n) for topic in (PLAIN, TRANSACTIONAL) for n in range(PARTITIONS)]
    final: dict[tuple[str, int], list[tuple[int, Record]]] = {part: [] for part in parts}
    unread = dict.fromkeys(parts)
    consumer.assign([TopicPartition(*part, OFFSET_BEGINNING) for part in parts])
    deadline = time.monotonic() + END_S_MAX
    while unread:
        assert time.monotonic() < deadline, f"the end does not come of {[*unread]}"
        for message in consumer.consume(1_000, 0.5):
            topic, partition, offset = _place(message)
            error = message.error()
            if error is None:
                record = Record.decoded(message.value() or b"")
                final[topic, partition].append((offset, record))
            elif error.code() == KafkaError._PARTITION_EOF:
                unread.pop((topic, partition), None)
    consumer.close()
    return final


def _place(message: Message) -> tuple[str, int, int]:
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    return topic or "", -1 if partition is None else partition, -1 if offset is None else offset
