"""Queues read and written by Spark itself."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("pika", reason="pip install pika for this test")

from entrepot.testing import Broker, broker
from tests.spark.producing import create, produce, texts
from tests.spark.queueing import (
    SETTINGS,
    declare,
    declare_deduplicating,
    drain,
    options,
    publish,
)


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings=SETTINGS) as started:
        yield started


def run(rows: Any, server: Broker, topic: str, checkpoint: Path) -> None:
    """All there is now, into a topic."""
    said = {"kafka.bootstrap.servers": server.bootstrap, "topic": topic}
    writer = rows.writeStream.format("entrepot").options(**said)
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()


def values(spark: Any, server: Broker, topic: str) -> list[str]:
    said = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    rows = spark.read.format("entrepot").options(**said).load()
    return sorted(row.value.decode() for row in rows.select("value").collect())


def test_from_a_queue_to_a_topic(
    spark: Any, server: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    queue, topic = declare(server, new_topic("q")), create(server, new_topic())
    said = options(server, queue, maxMessagesPerTrigger="7", minPartitions="2")
    rows = spark.readStream.format("entrepot").options(**said).load().select("value")
    for first in (0, 20):
        publish(server, queue, texts(20, first))
        run(rows, server, topic, tmp_path)
        assert values(spark, server, topic) == sorted(texts(first + 20))
    assert drain(server, queue) == []


def test_a_message_that_cannot_be_processed_is_a_dead_letter(
    spark: Any, server: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    dead, topic = declare(server, new_topic("dead")), create(server, new_topic())
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": dead}
    queue = declare(server, new_topic("q"), queue_type="quorum", delivery_limit=1, **letters)
    publish(server, queue, ["1", "poison", "3", "4"])
    rows = spark.readStream.format("entrepot").options(**options(server, queue)).load()
    numbers = rows.selectExpr("cast(cast(cast(value as string) as int) as string) as value")
    failures = 0
    while True:
        try:
            run(numbers, server, topic, tmp_path)
            break
        except Exception:
            failures += 1
            assert failures < 6
    assert values(spark, server, topic) == ["1", "3", "4"]
    assert (drain(server, dead), drain(server, queue)) == (["poison"], [])
    assert failures == 4  # Twice as planned, and twice alone.


def test_a_stream_and_a_table_into_a_queue(
    spark: Any, server: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    queue, topic = declare(server, new_topic("q")), create(server, new_topic())
    produce(server, topic, texts(20))
    host, port = server.endpoints["amqp"]
    target = {"entrepot.amqp": f"{host}:{port}", "queue": queue}
    said = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    rows = spark.readStream.format("entrepot").options(**said, startingOffsets="earliest").load()
    writer = rows.select("value").writeStream.format("entrepot").options(**target)
    writer = writer.option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    writer.start().awaitTermination()
    assert drain(server, queue) == texts(20)
    table = spark.range(3).selectExpr("cast(id as string) as value")
    table.write.format("entrepot").options(**target).mode("append").save()
    assert sorted(drain(server, queue)) == ["0", "1", "2"]


def test_a_query_that_is_repeated_writes_to_a_queue_once(
    spark: Any, server: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    """By the id that a message has, at an exchange that knows it."""
    queue, topic = declare(server, new_topic("q")), create(server, new_topic(), 2)
    exchange = declare_deduplicating(server, new_topic("x"), queue)
    for partition in range(2):
        produce(server, topic, texts(20, 20 * partition), partition=partition)
    host, port = server.endpoints["amqp"]
    said = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    rows = spark.readStream.format("entrepot").options(**said, startingOffsets="earliest").load()
    name = "concat_ws('/', topic, partition, offset)"
    pair = f"struct('x-deduplication-header' as key, cast({name} as binary) as value)"
    writer = rows.selectExpr("value", f"array({pair}) as headers").writeStream.format("entrepot")
    writer = writer.options(**{"entrepot.amqp": f"{host}:{port}", "exchange": exchange})
    for attempt in ("first", "second"):  # Nothing is known of the first.
        place = str(tmp_path / attempt)
        again = writer.option("checkpointLocation", place).trigger(availableNow=True)
        again.start().awaitTermination()
    assert sorted(drain(server, queue)) == sorted(texts(40))
