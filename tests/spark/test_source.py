"""The source in a real Spark: tables, streams, filters, restarts, and what goes wrong."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from entrepot.spark.progress import sources_behind
from entrepot.testing import Broker, broker
from tests.spark.producing import create, produce, texts, transaction

SLOW_S = 60


def options(server: Broker, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": server.bootstrap} | more


def table(spark: Any, server: Broker, **more: str) -> Any:
    return spark.read.format("entrepot").options(**options(server, **more)).load()


class Taken:
    """What a stream brought, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def __call__(self, frame: Any, number: int) -> None:
        self.batches.append([row.value.decode() for row in frame.select("value").collect()])

    @property
    def values(self) -> list[str]:
        return sorted(value for batch in self.batches for value in batch)


def start(spark: Any, server: Broker, place: Path, taken: Taken, *, now: bool = True, **more: str):
    frame = spark.readStream.format("entrepot").options(**options(server, **more)).load()
    writer = frame.writeStream.foreachBatch(taken).option("checkpointLocation", str(place))
    return (writer.trigger(availableNow=True) if now else writer).start()


def run(spark: Any, server: Broker, place: Path, **more: str) -> Taken:
    taken = Taken()
    query = start(spark, server, place, taken, **more)
    assert query.awaitTermination(SLOW_S)
    return taken


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SLOW_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_table(spark: Any, server: Broker, new_topic: Callable[[], str]) -> None:
    """Found by Spark itself, with the columns of its Kafka source."""
    topic = create(server, new_topic(), 3)
    for partition in range(3):
        produce(server, topic, texts(1_000, 1_000 * partition), partition=partition)
    frame = table(spark, server, subscribe=topic, minPartitions="7")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]
    assert frame.rdd.getNumPartitions() >= 7
    found = frame.selectExpr("cast(value as string) v", "partition", "offset", "topic").collect()
    assert sorted(found) == sorted(
        (f"value {1_000 * partition + offset}", partition, offset, topic)
        for partition in range(3)
        for offset in range(1_000)
    )


def test_headers_and_times(spark: Any, server: Broker, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic())
    with transaction(server, topic, commit=True) as producer:
        producer.produce(topic, b"v", b"k", timestamp=1_500, headers=[("a", b"1"), ("a", None)])
    (row,) = (
        table(spark, server, subscribe=topic, includeHeaders="true")
        .selectExpr("*", "unix_millis(timestamp) t")
        .collect()
    )
    assert (row.key, row.value, row.t, row.timestampType) == (b"k", b"v", 1_500, 0)
    assert [(pair.key, pair.value) for pair in row.headers] == [("a", b"1"), ("a", None)]


def test_fewer_columns(spark: Any, server: Broker, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic())
    produce(server, topic, texts(3))
    reader = spark.read.format("entrepot").options(**options(server, subscribe=topic))
    found = reader.schema("offset bigint, value binary").load().collect()
    assert [(row.offset, row.value.decode()) for row in found] == list(enumerate(texts(3)))
    with pytest.raises(Exception, match="column value is binary, not string; cast it"):
        reader.schema("value string").load().collect()
    with pytest.raises(Exception, match="no column vlaue: there are key, value, topic"):
        reader.schema("vlaue binary").load().collect()


def test_filters_are_pushed_when_spark_allows_it(
    spark: Any, server: Broker, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic(), 2)
    for partition in range(2):
        produce(server, topic, texts(100), partition=partition)
    frame = table(spark, server, subscribe=topic)
    conditions = {
        "partition = 1 and offset >= 10 and offset < 30": 20,
        "offset > 10 and offset <= 30 and partition in (0, 7)": 20,
        f"topic = '{topic}' and offset = 5": 2,
        "topic = 'other'": 0,
        "partition <> 0 and offset < 10": 10,
        "timestamp > '2020-01-01' and offset < 10": 20,
        "timestamp >= '2090-01-01'": 0,
        "timestamp < '2090-01-01' and value is not null": 200,
        "timestamp between '2020-01-01' and '2090-01-01' and key is null": 200,
        "value = binary('value 5')": 2,
        "value in (binary('value 5'), binary('value 6')) and partition = 0": 2,
        "value > binary('value 97')": 4,
        "key = binary('ana')": 0,
        "cast(value as string) = 'value 5'": 2,
    }
    left_to_spark = ("partition <> 0 and offset < 10", "cast(value as string) = 'value 5'")
    expected = {condition: frame.where(condition).count() for condition in conditions}
    assert expected == conditions
    setting = "spark.sql.python.filterPushdown.enabled"
    spark.conf.set(setting, "true")
    try:
        frame = table(spark, server, subscribe=topic)
        assert {each: frame.where(each).count() for each in conditions} == conditions
        narrow = frame.where("partition = 1 and offset >= 90")
        assert narrow.rdd.getNumPartitions() == 1
        for condition in conditions:
            plan = frame.where(condition)._jdf.queryExecution().executedPlan().toString()
            assert (" Filter " in plan) == (condition in left_to_spark), condition
    finally:
        spark.conf.unset(setting)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"subscribe": "no-such-topic"}, "topic no-such-topic does not exist"),
        ({"subscribe": "t", "startingOfsets": "earliest"}, "is it startingOffsets that is meant"),
        ({"subscribe": "t", "kafka.bootstrap.servers": "127.0.0.1:1"}, "no broker answers at"),
    ],
)
def test_a_mistake_is_named(spark: Any, server: Broker, more: dict[str, str], words: str) -> None:
    with pytest.raises(Exception, match=words):
        table(spark, server, **more).collect()


def test_a_mistake_is_found_at_load(spark: Any, server: Broker) -> None:
    """Before anything is started."""
    wrong = options(server, subscribe="t", startingOffsets="newest")
    for read in (spark.read, spark.readStream):
        with pytest.raises(Exception, match="OptionError: startingOffsets: 'newest' is neither"):
            read.format("entrepot").options(**wrong).load()
    for read in (spark.read, spark.readStream):
        with pytest.raises(Exception, match="OptionError: one of subscribe, "):
            read.format("entrepot").options(**options(server)).load()
        said = "OptionError: kafka.auto.offset.reset is an option of Spark's Kafka source, not"
        refused = options(server, subscribe="t") | {"kafka.auto.offset.reset": "latest"}
        with pytest.raises(Exception, match=said):
            read.format("entrepot").options(**refused).load()


def test_how_far_a_stream_is_behind(
    spark: Any, server: Broker, tmp_path: Path, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic(), 2)
    produce(server, topic, texts(8))
    produce(server, topic, texts(2), partition=1)
    more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "5"}
    query = start(spark, server, tmp_path / "c", Taken(), subscribe=topic, **more)
    assert query.awaitTermination(SLOW_S)
    (first,), *_ = (sources_behind(each) for each in query.recentProgress)
    assert first == {
        "topics": [topic],
        "minOffsetsBehindLatest": 1,
        "maxOffsetsBehindLatest": 4,
        "avgOffsetsBehindLatest": 2.5,
    }


@pytest.mark.slow
def test_a_stream_goes_on_where_it_was(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic(), 2)
    said = {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    produce(server, topic, texts(100))
    first = run(spark, server, tmp_path / "c", **said)
    assert first.values == sorted(texts(100))
    assert max(map(len, first.batches)) <= 42
    assert len(first.batches) >= 3
    assert run(spark, server, tmp_path / "c", **said).values == []
    produce(server, topic, texts(30, 100), partition=1)
    assert run(spark, server, tmp_path / "c", **said).values == sorted(texts(30, 100))


def test_a_stream_lives_through_a_new_start_of_the_broker(
    spark: Any, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    with broker() as server:
        topic = create(server, new_topic())
        taken = Taken()
        said = {"subscribe": topic, "startingOffsets": "earliest"}
        query = start(spark, server, tmp_path / "c", taken, now=False, **said)
        try:
            produce(server, topic, texts(10))
            wait_for(lambda: len(taken.values) == 10)
            server.kill()
            later = threading.Thread(target=lambda: (time.sleep(1), server.start()))
            later.start()
            later.join()
            produce(server, topic, texts(10, 10))
            wait_for(lambda: len(taken.values) >= 20)
            assert taken.values == sorted(texts(20))
            assert query.exception() is None
            assert query.lastProgress["sources"][0]["latestOffset"]
        finally:
            query.stop()


def test_lost_data_stops_a_stream_unless_told_otherwise(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = create(server, new_topic())
    said = {"subscribe": topic, "startingOffsets": "earliest"}
    produce(server, topic, texts(10))
    assert run(spark, server, tmp_path / "c", **said).values == sorted(texts(10))
    produce(server, topic, texts(10, 10))
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    part = TopicPartition(topic, 0, 15)
    admin.delete_records([part])[part].result()
    words = rf"partition 0 of topic {topic}: offsets 10 to 14 are gone[\s\S]*failOnDataLoss=false"
    with pytest.raises(Exception, match=words):
        run(spark, server, tmp_path / "c", **said)
    found = run(spark, server, tmp_path / "c", **said, failOnDataLoss="false")
    assert found.values == sorted(texts(5, 15))


def test_registered_by_hand(spark: Any, server: Broker, new_topic: Callable[[], str]) -> None:
    from entrepot.spark import register

    topic = create(server, new_topic())
    produce(server, topic, texts(3))
    register(spark)
    assert table(spark, server, subscribe=topic).count() == 3


def test_segment_files_with_and_without_a_broker(
    spark: Any, entrepot_broker: Broker, tmp_path: Path
) -> None:
    create(entrepot_broker, "t", 2)
    produce(entrepot_broker, "t", texts(10))
    with transaction(entrepot_broker, "one", commit=False) as producer:
        producer.produce("t", b"taken back", partition=1)
    files = {"dataDirectory": str(entrepot_broker.data_dir), "subscribe": "t"}
    with_broker = table(spark, entrepot_broker, **files)
    assert sorted(row.value.decode() for row in with_broker.collect()) == texts(10)
    entrepot_broker.stop()
    alone = spark.read.format("entrepot").options(**files).load()
    assert sorted(row.value.decode() for row in alone.collect()) == texts(10)
    taken = Taken()
    stream = spark.readStream.format("entrepot").options(**files, startingOffsets="earliest").load()
    writer = stream.writeStream.foreachBatch(taken).option("checkpointLocation", str(tmp_path))
    assert writer.trigger(availableNow=True).start().awaitTermination(SLOW_S)
    assert taken.values == texts(10)
    with pytest.raises(Exception, match="topic nothing does not exist"):
        spark.read.format("entrepot").options(**files | {"subscribe": "nothing"}).load().collect()
    with pytest.raises(Exception, match="there is no directory /nowhere"):
        spark.read.format("entrepot").options(
            **files | {"dataDirectory": "/nowhere"}
        ).load().collect()
