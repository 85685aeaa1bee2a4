"""What goes wrong with pipelines in a real Spark: poison goes aside, all else is named."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from pyspark.sql import DataFrame

from entrepot.spark.pipelines import (
    Delta,
    Pipeline,
    PipelineError,
    Runner,
    Table,
    Topic,
    pipeline,
)
from entrepot.spark.pipelines.inputs import reason
from entrepot.spark.pipelines.progress import Progress
from entrepot.testing import Broker
from tests.spark.pipelines.orders import SCHEMA, order, orders, send
from tests.spark.producing import create, produce

POISON = {
    b"nonsense": "not JSON: Expecting value",
    b'{"id": 1': "not JSON: ",
    b'{"id": "abc", "cents": 1}': 'id is not bigint: "abc"',
    b'{"id": 1, "at": "tomorrow"}': 'at is not timestamp: "tomorrow"',
    b"[1, 2]": "JSON, but not an object",
    b"": "not JSON",
    b"[" * 5_000: "not JSON: nested too deep",
}


def records(spark: Any, server: Broker, topic: str) -> list[Any]:
    said = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    frame = spark.read.format("entrepot").options(**said, includeHeaders="true").load()
    return list(frame.orderBy("partition", "offset").collect())


def ids(runner: Runner, name: str) -> list[int]:
    return sorted(row.id for row in runner.view(name).collect())


def test_poison_goes_to_the_dead_letters_once_and_the_rest_goes_on(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic(), 2)

    @pipeline(reads=Topic(topic, SCHEMA))
    def copies(orders: DataFrame) -> DataFrame:
        return orders

    seen: list[Progress] = []
    runner = Runner(spark, [copies], tmp_path, server.bootstrap, trigger_s=0.1, report=seen.append)
    send(server, topic, [order(0), *POISON, order(1)])
    with runner.start() as running:
        running.drain()
        assert ids(runner, "copies") == [0, 1]
        send(server, topic, [order(2), b"late poison"])
        running.drain()
        assert ids(runner, "copies") == [0, 1, 2]
    runner.replay()
    assert ids(runner, "copies") == [0, 1, 2]
    found = records(spark, server, f"{topic}.dead-letters")
    assert sorted(bytes(row.value) for row in found) == sorted([*POISON, b"late poison"])
    for row in found:
        headers = {pair.key: bytes(pair.value).decode() for pair in row.headers}
        assert bytes(row.key).startswith(b"key ")
        assert headers["dead-letter.topic"] == topic
        assert POISON.get(bytes(row.value), "not JSON") in headers["dead-letter.reason"]
    live = [each for each in seen if each.version == 1]
    assert (sum(each.rows for each in live), sum(each.poison for each in live)) == (11, 8)
    metrics = (tmp_path / "metrics.prom").read_text()
    assert 'entrepot_pipeline_poison_total{pipeline="copies"} 8' in metrics
    assert 'entrepot_pipeline_lag_records{pipeline="copies"} 0' in metrics


def copies_of(topic: str, *select: str, **said: Any) -> Pipeline:
    @pipeline(**({"reads": Topic(topic, SCHEMA)} | said))
    def copies(frame: DataFrame) -> DataFrame:
        return frame.selectExpr(*select or ("id", "cents"))

    return copies


def test_what_does_not_fit_is_named_before_anything_runs(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic())
    out, by = Topic("out"), Delta("d", keys=["customer"])
    wrong = {
        "pipeline copies: topic absent does not exist": copies_of("absent"),
        "schema 'id bigwig'": copies_of(topic, reads=Topic(topic, "id bigwig")),
        "the name _key is taken": copies_of(topic, reads=Topic(topic, "_key string")),
        "pipeline copies: .*`sense`": copies_of(topic, "sense"),
        "no pipeline writes table nowhere": copies_of(topic, reads=Table("nowhere")),
        "keys: there is no column customer; there are id, cents": copies_of(topic, writes=by),
        "merge: there is no column n": copies_of(topic, merge={"n": "sum"}),
        "keys are customer, but columns that are not merged are customer, at": copies_of(
            topic, "id", "customer", "at", writes=by, merge={"id": "max"}
        ),
        "topic out: column value is bigint": copies_of(topic, "id as value", writes=out),
    }
    for words, made in wrong.items():
        with pytest.raises(PipelineError, match=words):
            Runner(spark, [made], tmp_path, server.bootstrap).start()
    into_topic = Runner(spark, [copies_of(topic, writes=out)], tmp_path, server.bootstrap)
    for run in (into_topic.replay, into_topic.batch):
        with pytest.raises(PipelineError, match=r"writes topic out and cannot be .* twice"):
            run()
    with pytest.raises(PipelineError, match=r"127\.0\.0\.1:1"):
        Runner(spark, [copies_of(topic)], tmp_path, "127.0.0.1:1").start()
    assert list(tmp_path.glob("*/CURRENT")) == []


def test_a_view_keeps_its_columns_until_it_is_replayed(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic())
    produce(server, topic, [json.dumps(each) for each in orders(0, 3)])
    Runner(spark, [copies_of(topic)], tmp_path, server.bootstrap).replay()
    changed = copies_of(topic, "id", "cents / 100 as cents", "customer")
    runner = Runner(spark, [changed], tmp_path, server.bootstrap)
    words = "gone are cents bigint, new are cents double, customer string; --replay makes"
    with pytest.raises(PipelineError, match=words):
        runner.start()
    with pytest.raises(PipelineError, match="kind was Parquet and is Delta"):
        Runner(spark, [copies_of(topic, writes=Delta("d"))], tmp_path, server.bootstrap).start()
    runner.replay()
    assert runner.view("copies").columns == ["id", "cents", "customer"]
    assert ids(runner, "copies") == [0, 1, 2]


def test_a_pipeline_that_fails_is_named_and_the_others_stop(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic())

    @pipeline(reads=Topic(topic, SCHEMA))
    def strict(frame: DataFrame) -> DataFrame:
        return frame.selectExpr("if(cents > 5, raise_error('too dear'), id) as id")

    runner = Runner(spark, [strict, copies_of(topic)], tmp_path, server.bootstrap, trigger_s=0.1)
    with runner.start() as running:
        produce(server, topic, [json.dumps(each) for each in orders(0, 3)])
        with pytest.raises(PipelineError, match=r"^pipeline strict: too dear$"):
            running.wait()
    assert spark.streams.active == []
    with pytest.raises(PipelineError, match=r"^pipeline strict: too dear$"):
        runner.batch()
    assert runner.versions() == {"strict": 1, "copies": 1}


def test_the_reason_of_what_is_nested_too_deep() -> None:
    """A function that fails here would end the query that sends poison away."""
    assert reason("[" * 100_000, None, "{}") == "not JSON: nested too deep"
