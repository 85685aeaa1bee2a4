"""Records for the tests to read, by the client that most people use."""

import time
from collections.abc import Iterable
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from entrepot.log.read_only import ArchivedPartition, open_archive
from entrepot.testing import Broker

SLOW_S = 30.0


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


def archived(address: str, topic: str = "t", partition: int = 0) -> ArchivedPartition | None:
    archive = open_archive(address)
    ids = archive.ids(topic)
    return archive.partition(topic, ids[0], partition) if ids else None


def wait_for_copies(
    server: Broker,
    address: str,
    topic: str = "t",
    stable: int | None = None,
    *,
    partition: int = 0,
) -> int:
    """Wait until everything but the last segment is copied; return where the archive ends.

    Segments with a transaction that is open are not copied: these end after the offset `stable`.
    """
    directory = server.data_dir / f"partitions/{topic}-{partition}"
    bases = [int(path.stem) for path in directory.glob("*.log")]
    base = max(each for each in bases if stable is None or each <= stable)
    deadline = time.monotonic() + SLOW_S
    while (found := archived(address, topic, partition)) is None or found.offset_end < base:
        assert time.monotonic() < deadline, "nothing was copied"
        time.sleep(0.05)
    return found.offset_end
