"""Pipelines in a real Spark: live, replayed, over history, and all three agree."""

import itertools
import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from entrepot.spark.pipelines import (
    Delta,
    Parquet,
    Pipeline,
    PipelineError,
    Runner,
    Table,
    Topic,
    pipeline,
)
from entrepot.testing import Broker
from tests.spark.pipelines.orders import SCHEMA, order, orders, send
from tests.spark.producing import create


def sales_of(topic: str, **more: Any) -> Pipeline:
    @pipeline(reads=Topic(topic, SCHEMA), **more)
    def sales(orders: DataFrame) -> DataFrame:
        hour = F.date_trunc("hour", "at").alias("hour")
        return orders.groupBy("customer", hour).agg(
            F.sum("cents").alias("cents"), F.count("*").alias("orders"), F.max("cents").alias("top")
        )

    return sales


def rows(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in frame.collect())


def exact(numbers: range) -> list[tuple[Any, ...]]:
    """Sales per customer and hour, without Spark."""
    found: dict[tuple[str, str], list[int]] = {}
    for each in map(order, numbers):
        found.setdefault((each["customer"], each["at"][:13]), []).append(each["cents"])
    return sorted((*key, sum(cents), len(cents), max(cents)) for key, cents in found.items())


def as_text(view: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [(row[0], f"{row[1]:%Y-%m-%dT%H}", *row[2:]) for row in view]


def test_a_replay_equals_the_live_view_row_for_row(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic(), 2)
    sales = sales_of(topic, writes=Delta("sales", keys=["customer", "hour"]), mode="update")
    runner = Runner(spark, [sales], tmp_path, server.bootstrap, trigger_s=0.1, rows_max=60)
    send(server, topic, orders(0, 100))
    with runner.start() as running:
        running.drain()
    live = rows(runner.view("sales"))
    assert as_text(live) == exact(range(100))
    runner.replay()
    assert runner.versions() == {"sales": 2}
    assert rows(runner.view("sales")) == live


@pytest.mark.slow
def test_a_live_run_moves_over_to_a_replay_while_records_come_in(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic(), 2)

    @pipeline(reads=Topic(topic, SCHEMA))
    def copies(records: DataFrame) -> DataFrame:
        return records.select("id")

    sent, is_done = itertools.count(), threading.Event()

    def feed() -> None:
        while not is_done.is_set():
            send(server, topic, [order(next(sent)) for _ in range(10)])
            is_done.wait(0.2)

    runner = Runner(spark, [copies], tmp_path, server.bootstrap, trigger_s=0.1)
    feeder = threading.Thread(target=feed)
    with runner.start() as running:
        feeder.start()
        try:
            Runner(spark, [copies], tmp_path, server.bootstrap).replay()
            running.step()
        finally:
            is_done.set()
            feeder.join()
        running.drain()
    assert runner.versions() == {"copies": 2}
    assert rows(runner.view("copies")) == [(id,) for id in range(next(sent))]


def test_lambda_merges_batch_and_speed_to_the_exact_answer(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic(), 2)
    merge = {"cents": "sum", "orders": "sum", "top": "max"}
    sales = sales_of(topic, writes=Delta("sales"), merge=merge)
    runner = Runner(spark, [sales], tmp_path, server.bootstrap, trigger_s=0.1)
    send(server, topic, orders(0, 100))
    runner.batch()
    assert as_text(rows(runner.view("sales"))) == exact(range(100))
    with runner.start() as running:
        send(server, topic, orders(100, 130))
        running.drain()
        assert as_text(rows(runner.view("sales"))) == exact(range(130))
        runner.batch()
        assert as_text(rows(runner.view("sales"))) == exact(range(130))
        send(server, topic, orders(130, 150))
        running.drain()
        assert as_text(rows(runner.view("sales"))) == exact(range(150))


@pytest.mark.slow
def test_tables_are_followed_and_looked_up_and_replayed_together(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    """Orders, cleaned, with their customers' cities as these are at that moment."""
    orders_topic, cities_topic = create(server, new_topic(), 2), create(server, new_topic())

    @pipeline(
        reads=Topic(cities_topic, "customer string, city string"),
        writes=Delta("cities", keys=["customer"], order="_offset"),
    )
    def by_customer(records: DataFrame) -> DataFrame:
        return records.select("customer", "city", "_offset")

    @pipeline(reads=Topic(orders_topic, SCHEMA), writes=Parquet("clean", partition_by=["customer"]))
    def cleaned(records: DataFrame) -> DataFrame:
        return records.where("cents > 0").select("id", "customer")

    @pipeline(reads={"clean": Table("clean"), "cities": Table("cities", static=True)})
    def delivered(clean: DataFrame, cities: DataFrame) -> DataFrame:
        return clean.join(cities, "customer").select("id", "city")

    def moved(city: str) -> list[dict[str, str]]:
        return [{"customer": "bob", "city": "Nowhere"}, {"customer": "bob", "city": city}]

    made = [delivered, cleaned, by_customer]
    runner = Runner(spark, made, tmp_path, server.bootstrap, trigger_s=0.1, rows_max=30)
    send(server, cities_topic, moved("Ulm"), partitions=1)
    with runner.start() as running:
        running.drain()
        send(server, orders_topic, orders(0, 10))
        running.drain()
        before = [(1, "Ulm"), (4, "Ulm"), (7, "Ulm")]
        assert rows(runner.view("delivered")) == before
        send(server, cities_topic, moved("Rom"), partitions=1)
        running.drain()
        send(server, orders_topic, orders(10, 14))
        running.drain()
        assert rows(runner.view("delivered")) == [*before, (10, "Rom"), (13, "Rom")]
        runner.replay("cleaned")
        assert runner.versions() == {"by_customer": 1, "cleaned": 2, "delivered": 2}
        send(server, orders_topic, orders(14, 17))
        running.drain()
        assert rows(runner.view("delivered")) == [(id, "Rom") for id in (1, 4, 7, 10, 13, 16)]
        assert runner.view("cleaned").count() == 16
    runner.replay("cleaned")
    alone = Runner(spark, [delivered], tmp_path, server.bootstrap)
    assert rows(alone.view("delivered")) == [(id, "Rom") for id in (1, 4, 7, 10, 13, 16)]


def test_a_stream_goes_on_after_a_batch_unless_it_needs_what_was_before(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    topic = create(server, new_topic(), 2)

    @pipeline(reads=Topic(topic, SCHEMA))
    def copies(records: DataFrame) -> DataFrame:
        return records.select("id")

    @pipeline(reads=Topic(topic, SCHEMA), writes=Delta("newest", keys=["customer"], order="id"))
    def newest(records: DataFrame) -> DataFrame:
        return records.select("customer", "id")

    runner = Runner(spark, [copies, newest], tmp_path, server.bootstrap, trigger_s=0.1)
    send(server, topic, orders(0, 10))
    runner.batch()
    with runner.start() as running:
        send(server, topic, orders(10, 14))
        running.drain()
    assert rows(runner.view("copies")) == [(id,) for id in range(14)]
    assert rows(runner.view("newest")) == [("ada", 12), ("bob", 13), ("cleo", 11)]
    sales = sales_of(topic, writes=Delta("sales", keys=["customer", "hour"]), mode="update")
    stateful = Runner(spark, [sales], tmp_path, server.bootstrap)
    stateful.batch()
    assert as_text(rows(stateful.view("sales"))) == exact(range(14))
    with pytest.raises(PipelineError, match=r"keeps state \(Aggregate\).*--replay makes"):
        stateful.start()


def test_columns_become_records_of_a_topic(
    spark: Any, server: Broker, new_topic: Callable[[], str], tmp_path: Path
) -> None:
    source, target, other = (create(server, new_topic()) for _ in range(3))

    @pipeline(reads=Topic(source, SCHEMA), writes=Topic(target, key="customer"))
    def as_json(records: DataFrame) -> DataFrame:
        return records.select("customer", "id", F.lit(None).cast("int").alias("none"))

    @pipeline(reads=Topic(source), writes=Topic(target))
    def as_it_is(records: DataFrame) -> DataFrame:
        return records.selectExpr("value", f"if(offset = 0, '{other}', null) as topic")

    runner = Runner(spark, [as_json, as_it_is], tmp_path, server.bootstrap, trigger_s=0.1)
    send(server, source, orders(0, 2), partitions=1)
    with runner.start() as running:
        running.drain()
    said = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": f"{target},{other}"}
    frame = spark.read.format("entrepot").options(**said).load()
    found = frame.selectExpr("topic", "cast(key as string)", "cast(value as string)").collect()
    assert sorted(map(tuple, found), key=str) == sorted(
        [
            (target, "ada", '{"customer":"ada","id":0,"none":null}'),
            (target, "bob", '{"customer":"bob","id":1,"none":null}'),
            (target, None, json.dumps(order(1))),
            (other, None, json.dumps(order(0))),
        ],
        key=str,
    )
    with pytest.raises(PipelineError, match=f"as_json writes topic {target}; read that"):
        runner.view("as_json")
