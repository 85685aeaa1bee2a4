"""What the stream tells Spark of its offsets, from a real broker, without Spark's Java."""

import logging
import pickle
import threading
import time
from collections.abc import Callable, Iterator

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from entrepot.client.errors import Unreachable
from entrepot.core.clock import SystemClock
from entrepot.spark.decoding import DataLost
from entrepot.spark.offsets import MissingTopic
from entrepot.spark.options import OptionError
from entrepot.spark.source import EntrepotSource, StreamReader, TableReader, columns
from entrepot.testing import Broker, broker
from tests.spark.producing import create, produce, texts, transaction

ALL = ReadAllAvailable()

Make = Callable[..., StreamReader]


@pytest.fixture
def stream(server: Broker) -> Iterator[Make]:
    made = []

    def make(**options: str) -> StreamReader:
        given = {"kafka.bootstrap.servers": server.bootstrap} | options
        reader = EntrepotSource(given).streamReader(columns(False))
        made.append(reader)
        return reader

    yield make
    for reader in made:
        reader.stop()


def ranges(reader: StreamReader | TableReader, *between) -> list[tuple]:
    return [tuple(part.value[:4]) for part in reader.partitions(*between)]


def rows(reader: StreamReader, start: dict, end: dict) -> list[str]:
    found = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [value.decode() for batch in found for value in batch.column("value").to_pylist()]


def table(server: Broker, **options: str) -> TableReader:
    given = {"kafka.bootstrap.servers": server.bootstrap} | options
    return EntrepotSource(given).reader(columns(False))


def delete_topic(server: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics([topic])[topic].result()


def test_begin_and_end(server: Broker, stream: Make, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic(), 2)
    produce(server, topic, texts(10))
    early = stream(subscribe=topic, startingOffsets="earliest")
    assert early.initialOffset() == {topic: {"0": 0, "1": 0}}
    assert stream(subscribe=topic).initialOffset() == {topic: {"0": 10, "1": 0}}
    end = early.latestOffset(early.initialOffset(), ALL)
    assert end == early.reportLatestOffset() == {topic: {"0": 10, "1": 0}}
    assert early.latestOffset(end, ALL) == end
    assert rows(early, early.initialOffset(), end) == texts(10)
    assert early.partitions(end, end) == []
    early.commit(end)


def test_a_reader_travels(server: Broker, stream: Make, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic())
    produce(server, topic, texts(3))
    reader = pickle.loads(pickle.dumps(stream(subscribe=topic)))
    assert rows(reader, {topic: {"0": 1}}, {topic: {"0": 3}}) == texts(2, 1)


def test_limits(server: Broker, stream: Make, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic(), 2)
    produce(server, topic, texts(300))
    produce(server, topic, texts(100), partition=1)
    reader = stream(subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger="40")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(40)
    start = reader.initialOffset()
    assert reader.latestOffset(start, limit) == {topic: {"0": 30, "1": 10}}
    assert reader.latestOffset(start, ALL) == {topic: {"0": 300, "1": 100}}
    assert stream(subscribe=topic).getDefaultReadLimit() == ALL
    split = stream(subscribe=topic, minPartitions="4", maxRecordsPerPartition="90")
    pieces = ranges(split, start, {topic: {"0": 300, "1": 100}})
    assert [until - first for _, _, first, until in pieces] == [75, 75, 75, 75, 50, 50]


def test_new_partitions_and_topics(
    server: Broker, stream: Make, new_topic: Callable[..., str]
) -> None:
    topic = create(server, new_topic("pattern"))
    reader = stream(subscribePattern=f"{topic}.*", startingOffsets="latest")
    produce(server, topic, texts(3))
    start = reader.initialOffset()
    assert start == {topic: {"0": 3}}
    other = create(server, f"{topic}-b")
    produce(server, other, ["new topic"])
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    produce(server, topic, ["new partition"], partition=1)
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 3, "1": 1}, other: {"0": 1}}
    assert rows(reader, start, end) == ["new partition", "new topic"]
    assert reader.latestOffset(start, ReadMaxRows(1))[topic]["1"] == 1


def test_available_now_ends(server: Broker, stream: Make, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic())
    produce(server, topic, texts(5))
    reader = stream(subscribe=topic, startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    produce(server, topic, texts(5))
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
    end = reader.latestOffset({topic: {"0": 0}}, ALL)
    assert end == {topic: {"0": 5}}
    assert reader.latestOffset(end, ALL) == end
    start = stream(subscribe=topic).initialOffset()  # Found out after the target was.
    assert start == {topic: {"0": 10, "1": 0}}
    assert reader.latestOffset(start, ALL) == start


def test_an_open_transaction_holds_back(
    server: Broker, stream: Make, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic())
    produce(server, topic, texts(2))
    committed = stream(subscribe=topic, startingOffsets="earliest")
    everything = stream(
        **{"subscribe": topic, "kafka.isolation.level": "read_uncommitted"},
    )
    start = committed.initialOffset()
    with transaction(server, topic, commit=True) as producer:
        producer.produce(topic, b"x", partition=0)
        producer.flush(30)
        assert committed.latestOffset(start, ALL) == {topic: {"0": 2}}
        end = everything.latestOffset(start, ALL)
        assert rows(everything, start, end) == [*texts(2), "x"]
    end = committed.latestOffset(start, ALL)
    assert end == {topic: {"0": 4}}  # With the marker.
    assert rows(committed, start, end) == [*texts(2), "x"]


def test_a_topic_that_goes_away(
    server: Broker,
    stream: Make,
    new_topic: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = create(server, new_topic())
    strict = stream(subscribe=topic)
    lenient = stream(subscribe=topic, failOnDataLoss="false")
    start = {topic: {"0": 7}}
    produce(server, topic, texts(2))
    with pytest.raises(DataLost, match=f"topic {topic}: its log ends at 2, before 7"):
        strict.latestOffset(start, ALL)
    end = lenient.latestOffset(start, ALL)  # Made anew: read from its beginning.
    assert rows(lenient, start, end) == texts(2)
    assert lenient.latestOffset(end, ReadMaxRows(1)) == end
    delete_topic(server, topic)
    with pytest.raises(MissingTopic, match=f"topic {topic} does not exist"):
        strict.latestOffset(start, ALL)
    with caplog.at_level(logging.WARNING, "entrepot.spark"):
        assert lenient.latestOffset(start, ALL) == {}
    assert "the partition is gone" in caplog.text


@pytest.mark.slow
def test_the_broker_may_be_started_again(new_topic: Callable[[], str]) -> None:
    with broker() as server:
        topic = create(server, new_topic())
        produce(server, topic, texts(5))
        given = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
        reader = EntrepotSource(given).streamReader(columns(False))
        start = {topic: {"0": 0}}
        assert reader.latestOffset(start, ALL) == {topic: {"0": 5}}
        server.kill()
        later = threading.Thread(target=lambda: (time.sleep(1), server.start()))
        later.start()
        assert reader.latestOffset(start, ALL) == {topic: {"0": 5}}
        later.join()
        reader.stop()


# --- where a table begins and ends


def test_places(server: Broker, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic(), 2)
    produce(server, topic, texts(10))
    produce(server, topic, texts(20), partition=1)
    both = f'{{"{topic}": {{"0": 4, "1": %s}}}}'
    found = table(server, subscribe=topic, startingOffsets=both % -2, endingOffsets=both % -1)
    assert ranges(found) == [(topic, 1, 0, 20)]
    found = table(server, subscribe=topic, startingOffsets=both % 5)
    assert ranges(found) == [(topic, 0, 4, 10), (topic, 1, 5, 20)]
    found = table(server, assign=f'{{"{topic}": [1]}}')
    assert ranges(found) == [(topic, 1, 0, 20)]
    with pytest.raises(OptionError, match="startingOffsets says nothing of partition 1"):
        table(server, subscribe=topic, startingOffsets=f'{{"{topic}": {{"0": 4}}}}').partitions()
    with pytest.raises(OptionError, match="startingOffsets names partition 1"):
        table(server, assign=f'{{"{topic}": [0]}}', startingOffsets=both % 5).partitions()
    words = r"startingOffsets says 99, but its offsets are 0 to 20"
    with pytest.raises(DataLost, match=words):
        table(server, subscribe=topic, startingOffsets=both % 99).partitions()
    lenient = table(server, subscribe=topic, startingOffsets=both % 99, failOnDataLoss="false")
    assert ranges(lenient) == [(topic, 0, 4, 10)]


def test_times(server: Broker, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic())
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for second in range(1, 6):
        producer.produce(topic, b"v", partition=0, timestamp=second * 1_000)
        producer.flush(30)
    at = {"subscribe": topic, "startingTimestamp": "2500"}
    assert ranges(table(server, **at)) == [(topic, 0, 2, 5)]
    assert ranges(table(server, **at, endingTimestamp="4000")) == [(topic, 0, 2, 3)]
    assert ranges(table(server, **at, endingTimestamp="9000")) == [(topic, 0, 2, 5)]
    each = f'{{"{topic}": {{"0": 4000}}}}'
    found = table(server, subscribe=topic, startingOffsetsByTimestamp=each)
    assert ranges(found) == [(topic, 0, 3, 5)]
    late = {"subscribe": topic, "startingTimestamp": "9000"}
    with pytest.raises(OptionError, match=r"no record as young as 9000; .*Strategy=latest"):
        table(server, **late).partitions()
    found = table(server, **late, startingOffsetsByTimestampStrategy="latest")
    assert ranges(found) == [("", 0, 0, 0)]


def test_missing_things(server: Broker, stream: Make, new_topic: Callable[[], str]) -> None:
    with pytest.raises(MissingTopic, match="topic no-such does not exist"):
        table(server, subscribe="no-such").partitions()
    topic = create(server, new_topic())
    with pytest.raises(MissingTopic, match=f"assign: partition 3 of topic {topic} does not"):
        table(server, assign=f'{{"{topic}": [3]}}').partitions()
    assert stream(subscribePattern="no-such.*").initialOffset() == {}
    nowhere = EntrepotSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"})
    with pytest.raises(Unreachable, match=r"no broker answers at 127.0.0.1:1"):
        nowhere.reader(columns(False)).partitions()


def test_a_batch_waits_for_enough_offsets_but_not_for_ever(
    server: Broker, stream: Make, new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1_000.0
    monkeypatch.setattr(SystemClock, "monotonic", lambda self: now)
    topic = create(server, new_topic(), 1)
    reader = stream(subscribe=topic, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    start = reader.initialOffset()
    produce(server, topic, texts(3))
    first = reader.latestOffset(start, ALL)
    assert first == {topic: {"0": 3}}, "the first batch waits for nothing"
    produce(server, topic, texts(9))
    assert reader.latestOffset(first, ALL) == first
    produce(server, topic, texts(1))
    second = reader.latestOffset(first, ALL)
    assert second == {topic: {"0": 13}}
    produce(server, topic, texts(1))
    now += 59
    assert reader.latestOffset(second, ALL) == second
    now += 1
    assert reader.latestOffset(second, ALL) == {topic: {"0": 14}}


def test_an_available_now_query_does_not_wait(
    server: Broker, stream: Make, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic(), 1)
    reader = stream(subscribe=topic, minOffsetsPerTrigger="10")
    first = reader.latestOffset(reader.initialOffset(), ALL)
    produce(server, topic, texts(3))
    assert reader.latestOffset(first, ALL) == first
    reader.prepareForTriggerAvailableNow()
    assert reader.latestOffset(first, ALL) == {topic: {"0": 3}}


def test_options_without_effect_are_said_once(caplog: pytest.LogCaptureFixture) -> None:
    """Spark makes one source for each `load`, and asks it for readers later, perhaps often."""
    more = {"kafka.group.id": "g", "kafka.max.poll.records": "10"}
    source = EntrepotSource({"kafka.bootstrap.servers": "h:1", "subscribe": "t"} | more)
    assert source.schema() == columns(False)
    for _ in range(2):
        source.reader(columns(False))
        source.streamReader(columns(False))
    assert [record.getMessage().split(" has ")[0] for record in caplog.records] == [
        "option kafka.group.id",
        "option kafka.max.poll.records",
    ]
