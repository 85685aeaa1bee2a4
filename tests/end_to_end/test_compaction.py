"""A compacted topic under load: what readers see while segments are written anew."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from entrepot.testing import Broker, broker

TOPIC = "state"
KEYS = 50
UPDATES = 30_000
DELETED = ("key 7", "key 8")
WAIT_S = 60
SETTINGS = {
    "cleanup.policy": "compact",
    "segment.bytes": "50000",
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": "0",
}
Row = tuple[str, str | None]  # Key and value.


@contextmanager
def reading(server: Broker) -> Iterator[Consumer]:
    """From the beginning; the end of the partition comes as a message."""
    consumer = Consumer(
        {
            "bootstrap.servers": server.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
    try:
        yield consumer
    finally:
        consumer.close()


def row_of(message: Message) -> Row:
    value = message.value()
    return (message.key() or b"").decode(), None if value is None else value.decode()


def read_all(server: Broker) -> dict[int, Row]:
    found: dict[int, Row] = {}
    with reading(server) as consumer:
        while (message := consumer.poll(WAIT_S)) is not None:
            error = message.error()
            if error is None:
                found[message.offset() or 0] = row_of(message)
            elif error.code() == KafkaError._PARTITION_EOF:
                return found
    raise AssertionError(f"no end within {WAIT_S} s of offset {max(found, default=0)}")


class Writer:
    """Updates keys in turn, and knows at which offset each came to stand."""

    def __init__(self, server: Broker) -> None:
        self._producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 1})
        self.stored: dict[int, Row] = {}

    def write(self, key: str, value: str | None) -> None:
        self._producer.produce(TOPIC, value, key, callback=self._told)
        self._producer.poll(0)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        self.stored[message.offset() or 0] = row_of(message)

    def flush(self) -> None:
        assert self._producer.flush(WAIT_S) == 0

    def last(self) -> dict[str, str | None]:
        return {key: value for _, (key, value) in sorted(self.stored.items())}


class Watcher(threading.Thread):
    """Reads everything as it comes, while it is written anew below."""

    def __init__(self, server: Broker) -> None:
        super().__init__()
        self._server = server
        self.is_over = threading.Event()
        self.seen: list[tuple[int, Row]] = []

    def run(self) -> None:
        with reading(self._server) as consumer:
            while not self.is_over.is_set():
                message = consumer.poll(0.1)
                if message is None:
                    continue
                if (error := message.error()) is None:
                    self.seen.append((message.offset() or 0, row_of(message)))
                else:
                    assert not error.fatal(), error

    def finish(self, offset_last: int) -> None:
        """It goes on across the kill, and comes to the end."""
        deadline = time.monotonic() + WAIT_S
        while self.seen[-1][0] < offset_last and time.monotonic() < deadline:
            time.sleep(0.05)
        self.is_over.set()
        self.join()


def make_topic(server: Broker) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topic = NewTopic(TOPIC, 1, 1, config=SETTINGS)
    admin.create_topics([topic])[TOPIC].result(WAIT_S)


def compacted(server: Broker, writer: Writer) -> dict[int, Row]:
    """Write on until the tombstones are gone: deletions need a second pass, and a pass needs
    sealed segments."""
    deadline = time.monotonic() + WAIT_S
    while time.monotonic() < deadline:
        for number in range(500):
            writer.write("filler", f"{number} {'x' * 100}")
        writer.flush()
        found = read_all(server)
        if not any(key in DELETED for key, _ in found.values()):
            return found
        time.sleep(0.5)
    raise AssertionError(f"{len(found)} records are left")


@pytest.mark.slow
def test_compaction_under_load() -> None:
    """The last value of each key stays, deletions go, and offsets are never given anew."""
    with broker() as server:
        make_topic(server)
        watcher, writer = Watcher(server), Writer(server)
        watcher.start()
        for number in range(UPDATES):
            writer.write(f"key {number % KEYS}", f"{number} {'x' * 100}")
        for key in DELETED:
            writer.write(key, None)
        writer.flush()
        found = compacted(server, writer)
        server.kill()
        server.start()
        again = read_all(server)
        watcher.finish(max(writer.stored))

    assert len(found) < UPDATES / 4
    lasting = {key: value for key, value in writer.last().items() if value is not None}
    for rows in (found, again):
        assert rows.items() <= writer.stored.items(), "an offset means another record"
        assert dict(rows[offset] for offset in sorted(rows)) == lasting
    offsets = [offset for offset, _ in watcher.seen]
    assert offsets == sorted(set(offsets)), "a reader went back"
    assert dict(watcher.seen).items() <= writer.stored.items()
    assert lasting.items() <= {key: value for _, (key, value) in watcher.seen}.items()
