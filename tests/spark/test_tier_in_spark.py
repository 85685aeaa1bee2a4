"""Spark reads a topic whose first part exists only in its tier: as a table, and as a stream."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from entrepot.testing import Broker
from tests.spark.producing import create, produce, texts, transaction
from tests.spark.test_source import SLOW_S, Taken
from tests.spark.test_tier import delete_below, wait_for_copies


def test_a_topic_whose_beginning_is_in_its_tier(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    (tmp_path / "archive").mkdir()
    address = (tmp_path / "archive").as_uri()
    topic = create(server, new_topic(), **{"entrepot.tier": address, "segment_bytes": "4000"})
    produce(server, topic, texts(1_000), batch_num_messages=50, compression_type="zstd")
    with transaction(server, f"{topic}-aborted", commit=False) as producer:
        for _ in range(100):
            producer.produce(topic, b"aborted", partition=0)
    produce(server, topic, texts(1_000, 1_000), batch_num_messages=50)
    end = wait_for_copies(server, address, topic)
    assert end > 1_101
    plain = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    said = plain | {"tier": address, "startingOffsets": "earliest", "includeHeaders": "true"}

    def table(**more: str) -> list[Any]:
        frame = spark.read.format("entrepot").options(**said | more).load()
        return sorted(frame.collect(), key=lambda row: row["offset"])

    before = spark.read.format("entrepot").options(**plain | {"includeHeaders": "true"}).load()
    expected = sorted(before.collect(), key=lambda row: row["offset"])
    delete_below(server, end, topic)
    assert table() == expected
    assert table(minPartitions="5") == expected
    assert table(dataDirectory=str(server.data_dir)) == expected
    frame = spark.read.format("entrepot").options(**said).load()
    assert frame.where("offset >= 500 and offset < 700").count() == 200

    taken = Taken()
    stream = spark.readStream.format("entrepot").options(**said, maxOffsetsPerTrigger="600").load()
    writer = stream.writeStream.foreachBatch(taken).option(
        "checkpointLocation", str(tmp_path / "checkpoint")
    )
    assert writer.trigger(availableNow=True).start().awaitTermination(SLOW_S)
    assert taken.values == sorted(texts(2_000))
    assert len(taken.batches) >= 3
