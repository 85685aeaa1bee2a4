"""Four thousand partitions in one process: written, stopped, started, read, with few files open."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i16, i32, i32Timedelta

from entrepot.core import limits
from entrepot.testing import Broker, broker
from entrepot.wire.kafka.fetch import FetchPartition, FetchRequest, FetchTopic
from tests.end_to_end.bare import BareClient, batch_of, produce_all_frame, records_in

TOPICS, PARTITIONS = 1_000, 4
NAMES = [f"topic-{number:04}" for number in range(TOPICS)]
TOPICS_PER_REQUEST = 250
OTHER_FILES_MAX = 50  # Sockets, locks, the journal, what the interpreter has.


@contextmanager
def timed(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    print(f"{what}: {time.monotonic() - started:.2f} s")


def open_files(server: Broker) -> int:
    return len(list(Path(f"/proc/{server.pid}/fd").iterdir()))


def create_all(client: BareClient) -> None:
    for first in range(0, TOPICS, TOPICS_PER_REQUEST):
        topics = tuple(
            CreatableTopic(
                name=TopicName(name),
                num_partitions=i32(PARTITIONS),
                replication_factor=i16(-1),
                assignments=(),
                configs=(),
            )
            for name in NAMES[first : first + TOPICS_PER_REQUEST]
        )
        timeout = i32Timedelta.parse(timedelta(seconds=30))
        answer = client.ask(CreateTopicsRequest(topics=topics, timeout=timeout))
        assert {topic.error_code for topic in answer.topics} == {ErrorCode.none}


def value(name: str, index: int, life: int) -> bytes:
    return f"{name} {index} {life}".encode()


def produce_all(client: BareClient, life: int) -> None:
    """A request per topic, all ahead of their answers."""
    for name in NAMES:
        batches = [batch_of(value(name, index, life)) for index in range(PARTITIONS)]
        client.send(produce_all_frame(name, batches))
    for _ in NAMES:
        results = client.produced_all()
        assert [(each.error_code, each.offset_first) for each in results] == [(0, life)] * 4


def read_all(client: BareClient) -> dict[tuple[str | None, int], list[bytes | None]]:
    found = {}
    for first in range(0, TOPICS, TOPICS_PER_REQUEST):
        partitions = [FetchPartition(n, -1, 0, -1, -1, 10_000) for n in range(PARTITIONS)]
        names = NAMES[first : first + TOPICS_PER_REQUEST]
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            max_bytes=limits.FETCH_BYTES_MAX,
            topics=[FetchTopic(name, None, partitions) for name in names],
        )
        for topic in client.fetch(request).topics:
            for each in topic.partitions:
                values = [record.value for record in records_in(each.records)]
                found[topic.name, each.partition_index] = values
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="open files are read from /proc")
def test_a_thousand_topics_with_four_partitions() -> None:
    def expected(lives: int) -> dict[tuple[str | None, int], list[bytes | None]]:
        return {
            (name, index): [value(name, index, life) for life in range(lives)]
            for name in NAMES
            for index in range(PARTITIONS)
        }

    with broker() as server:
        with BareClient(server) as client:
            with timed("create"):
                create_all(client)
            with timed("produce to all"):
                produce_all(client, 0)
            assert read_all(client) == expected(1)
            assert open_files(server) <= limits.FILES_OPEN_MAX + OTHER_FILES_MAX
        with timed("clean stop"):
            server.stop()
        with timed("start"):
            server.start()
        with BareClient(server) as client:
            assert open_files(server) <= OTHER_FILES_MAX, "none of them is read at a clean start"
            with timed("read all"):
                assert read_all(client) == expected(1)
            produce_all(client, 1)
        server.kill()
        with timed("start after a kill"):
            server.start()
        with BareClient(server) as client:
            assert read_all(client) == expected(2)
            assert open_files(server) <= limits.FILES_OPEN_MAX + OTHER_FILES_MAX
