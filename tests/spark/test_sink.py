"""The sink in a real Spark: tables and streams into topics, once each."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from entrepot.client.client import TopicPartition
from entrepot.client.transaction_writer import TransactionWriter
from entrepot.client.transactions import Transactions
from entrepot.core.clock import SystemClock
from entrepot.core.record import Record
from entrepot.spark.connecting import Connected
from entrepot.spark.options import Address
from entrepot.testing import Broker
from tests.spark.producing import create, produce, texts

SLOW_S = 60


def options(server: Broker, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": server.bootstrap} | more


def write(frame: Any, server: Broker, mode: str = "append", **more: str) -> None:
    frame.write.format("entrepot").options(**options(server, **more)).mode(mode).save()


def rows(spark: Any, server: Broker, topic: str) -> list[Any]:
    said = options(server, subscribe=topic, includeHeaders="true")
    frame = spark.read.format("entrepot").options(**said).load()
    return frame.selectExpr("cast(value as string) v", "*").orderBy("partition", "offset").collect()


def values(spark: Any, server: Broker, topic: str) -> list[str]:
    return sorted(row.v for row in rows(spark, server, topic))


def copy(spark: Any, server: Broker, source: str, target: str, place: Path) -> str:
    """Everything there is, from one topic to the other. Return the query's id."""
    said = options(server, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger="20")
    frame = spark.readStream.format("entrepot").options(**said).load()
    writer = frame.select("key", "value").writeStream.format("entrepot")
    writer = writer.options(**options(server, topic=target, checkpointLocation=str(place)))
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(SLOW_S)
    return str(query.id)


def test_a_table_of_every_column(spark: Any, server: Broker, new_topic: Callable[[], str]) -> None:
    one, two = create(server, new_topic(), 3), create(server, new_topic())
    frame = spark.sql(
        f"""select * from values
        ('{one}', 'a', binary('k'), 2, array(named_struct('key', 'h', 'value', binary('1')))),
        ('{two}', 'b', null, null, null),
        ('{one}', null, binary('k'), 2, array())
        as t(topic, value, key, partition, headers)"""
    )
    write(frame.coalesce(1), server)  # Two tasks would write in any order.
    first, second = rows(spark, server, one)
    assert (first.v, first.key, first.partition) == ("a", b"k", 2)
    assert [tuple(pair) for pair in first.headers] == [("h", b"1")]
    assert (second.v, second.key, second.headers) == (None, b"k", [])
    assert values(spark, server, two) == ["b"]


def test_many_rows_over_several_tasks(
    spark: Any, server: Broker, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic(), 3)
    frame = spark.range(0, 30_000, numPartitions=4).selectExpr("cast(id as string) value")
    write(frame, server, topic=topic, **{"kafka.compression.type": "zstd"})
    found = rows(spark, server, topic)
    assert sorted(int(row.v) for row in found) == list(range(30_000))
    assert len({row.partition for row in found}) == 3


@pytest.mark.parametrize(
    ("select", "more", "words"),
    [
        ("1 as value", {"topic": "t"}, "column value is int, and must be string or binary"),
        ("'a' as valeu", {"topic": "t"}, "column value is missing"),
        ("'a' as value", {}, "neither a column topic nor an option topic"),
        ("'a' as value, 1L as partition", {"topic": "t"}, "column partition is bigint"),
        ("'a' as value, 'x' as headers", {"topic": "t"}, "column headers is string"),
        ("'a' as value, 'x' as extra", {"topic": "t"}, "column extra means nothing here"),
        ("'a' as value", {"topic": "t", "subscribe": "t"}, "there is no option subscribe"),
    ],
)
def test_a_mismatch_names_the_column(
    spark: Any, server: Broker, select: str, more: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception, match=words):
        write(spark.sql(f"select {select}"), server, **more)


def test_a_topic_is_not_overwritten(spark: Any, server: Broker) -> None:
    with pytest.raises(Exception, match="a topic is appended to"):
        write(spark.sql("select 'a' as value"), server, mode="overwrite", topic="t")


def test_of_a_job_that_fails_nothing_is_seen(
    spark: Any, server: Broker, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic())
    frame = spark.range(0, 20, numPartitions=2).selectExpr(
        "case when id = 19 then raise_error('poison') else cast(id as string) end as value"
    )
    with pytest.raises(Exception, match="poison"):
        write(frame, server, topic=topic)
    assert values(spark, server, topic) == []


def test_a_stream_writes_once(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Also the batch that Spark repeats, having lost that it was done."""
    source, target = create(server, new_topic(), 2), create(server, new_topic(), 2)
    produce(server, source, texts(50))
    copy(spark, server, source, target, tmp_path / "c")
    assert values(spark, server, target) == sorted(texts(50))
    for repeated in (1, 2):
        commits = sorted((tmp_path / "c" / "commits").glob("[0-9]*"), key=lambda p: int(p.name))
        for path in (commits[-1], commits[-1].with_name(f".{commits[-1].name}.crc")):
            path.unlink(missing_ok=True)
        copy(spark, server, source, target, tmp_path / "c")
        assert values(spark, server, target) == sorted(texts(50)), repeated
    produce(server, source, texts(10, 50), partition=1)
    copy(spark, server, source, target, tmp_path / "c")
    assert values(spark, server, target) == sorted(texts(60))


def test_the_next_run_ends_what_a_killed_one_left_open(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Of a task that the next run does not have; readers of committed records go on then."""
    source, target = create(server, new_topic(), 1), create(server, new_topic(), 1)
    produce(server, source, texts(5))
    query = copy(spark, server, source, target, tmp_path / "c")
    part = TopicPartition(target, 0)
    with Connected(Address(server.bootstrap)) as connected:
        left = connected.run(
            lambda client: Transactions(client).take(f"spark-{query}-77-0", two_phase=True)
        )
        connected.run(
            lambda client: TransactionWriter(client, SystemClock(), left).write(
                {part: [Record(None, b"of the killed run")]}
            )
        )
        produce(server, source, texts(5, 5))
        assert copy(spark, server, source, target, tmp_path / "c") == query
        assert connected.run(lambda client: Transactions(client).list_open(f"spark-{query}")) == []
    assert values(spark, server, target) == sorted(texts(10))
