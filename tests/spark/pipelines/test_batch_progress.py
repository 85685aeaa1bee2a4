"""What is said of a batch while it runs."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from pyspark.sql import DataFrame

from entrepot.spark.pipelines import Runner, Topic, pipeline
from entrepot.spark.pipelines.batch_progress import BatchProgress, in_words
from entrepot.testing import Broker
from tests.spark.producing import create, produce, texts

HEARD_S_MAX = 60.0


def test_in_words() -> None:
    assert in_words(0, 100, 3.2) == "0 of 100 offsets after 3 s"
    words = "25,000 of 100,000 offsets (25%), 2,500 rows/s, about 30 s left"
    assert in_words(25_000, 100_000, 10.0) == words
    assert in_words(300, 100, 10.0).startswith("100 of 100 offsets (100%)")


def test_the_records_that_tasks_read_are_counted(
    spark: Any, server: Broker, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic(), 2)
    for partition in range(2):
        produce(server, topic, texts(50), partition=partition)
    said = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    with BatchProgress(spark, "p", 100, lambda text: None) as progress:
        spark.read.format("entrepot").options(**said).load().groupBy("partition").count().collect()
        deadline = time.monotonic() + HEARD_S_MAX
        while progress.rows_read() < 100:  # Spark hears of it a little later.
            assert time.monotonic() < deadline, progress.rows_read()
            time.sleep(0.1)
        assert progress.rows_read() == 100


def test_a_batch_says_how_many_offsets_it_was(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic(), 2)
    for partition in range(2):
        produce(server, topic, texts(50), partition=partition)

    @pipeline(reads=Topic(topic))
    def copies(records: DataFrame) -> DataFrame:
        return records.select("offset")

    told: list[str] = []
    Runner(spark, [copies], tmp_path, server.bootstrap, tell=told.append).batch()
    assert told[-1].startswith("pipeline copies: 100 offsets in ")
