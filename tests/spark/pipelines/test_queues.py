"""Pipelines that read and write queues."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("pika", reason="pip install pika for this test")

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from entrepot.spark.pipelines import PipelineError, Queue, QueueAddress, Runner, pipeline
from entrepot.testing import Broker, broker
from tests.spark.queueing import SETTINGS, declare, drain, publish


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    with broker(settings=SETTINGS) as started:
        yield started


def test_from_a_queue_to_a_queue(
    spark: Any, server: Broker, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    work, done = declare(server, new_topic("work")), declare(server, new_topic("done"))

    @pipeline(reads=Queue(work), writes=Queue(done))
    def loud(messages: DataFrame) -> DataFrame:
        return messages.select(F.upper(F.col("value").cast("string")).alias("text"))

    amqp = ":".join(map(str, server.endpoints["amqp"]))
    runner = Runner(
        spark,
        [loud],
        tmp_path,
        server.bootstrap,
        trigger_s=0.1,
        rows_max=3,
        queues=QueueAddress(server.http_address, amqp),
    )
    publish(server, work, ["a", "b", "c", "d", "e"])
    with runner.start() as running:
        running.drain()
    assert sorted(drain(server, done)) == [f'{{"text":"{text}"}}' for text in "ABCDE"]
    # Of the last batch Spark says only when the next one begins that it is done.
    assert len(drain(server, work)) <= 3


def test_what_is_read_once_cannot_be_replayed(tmp_path: Path) -> None:
    @pipeline(reads=Queue("work"))
    def done(messages: DataFrame) -> DataFrame:
        return messages

    @pipeline(reads=Queue("work"), writes=Queue("done"))
    def passed_on(messages: DataFrame) -> DataFrame:
        return messages

    runner = Runner(None, [done, passed_on], tmp_path, "127.0.0.1:1")  # type: ignore[arg-type]
    with pytest.raises(PipelineError, match="pipeline done reads queue work and cannot be replay"):
        runner.replay("done")
    with pytest.raises(PipelineError, match="pipeline passed_on reads queue work and cannot be"):
        runner.batch("passed_on")
    with pytest.raises(PipelineError, match="a queue is only added to"):
        pipeline(reads=Queue("work"), writes=Queue("done"), mode="complete")(lambda work: work)
