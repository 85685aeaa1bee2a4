"""Lake, warehouse, mart: what each holds of the same records."""

from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

pytest.importorskip("pyspark")

from entrepot.spark.pipelines import Runner
from entrepot.testing import broker
from examples.pipelines import lake_warehouse_mart as house
from tests.spark.pipelines.ready import live, send

NOON = datetime(2026, 3, 1, 12)
COLUMNS = house.PURCHASES.schema
RAW = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp"

PURCHASES: list[tuple[Any, ...]] = [
    ("1", "tea ", "de", 300, NOON),
    ("1", "tea", "de", 300, NOON),  # Sent again.
    ("2", "tea", "DE", 500, NOON + timedelta(minutes=59)),
    ("3", "tea", "de", 700, NOON + timedelta(minutes=60)),
    ("4", "cake", "at", 900, NOON),
    ("5", "cake", "at", -1, NOON),
    ("5", "cake", "at", 2**62, NOON),
    (None, "cake", "at", 900, NOON),
    ("6", "cake", "at", 900, None),
    ("7", "cake", "at", 100, NOON - timedelta(days=1)),
]


def test_the_lake_takes_everything(spark: Any) -> None:
    rows = [
        (b"k", b'{"id": "1"}', "purchases", 0, 0, NOON),
        (None, b"poison", "purchases", 0, 1, NOON),
    ]
    found = house.lake(spark.createDataFrame(rows, RAW)).orderBy("offset").collect()
    assert [(row.key, row.value, row.offset, row.day) for row in found] == [
        ("k", '{"id": "1"}', 0, date(2026, 3, 1)),
        (None, "poison", 1, date(2026, 3, 1)),
    ]


def test_the_warehouse_has_each_purchase_once_and_nothing_senseless(spark: Any) -> None:
    found = house.warehouse(spark.createDataFrame(PURCHASES, COLUMNS)).collect()
    assert sorted((row.id, row.product, row.country, row.day.day) for row in found) == [
        ("1", "tea", "DE", 1),
        ("2", "tea", "DE", 1),
        ("3", "tea", "DE", 1),
        ("4", "cake", "AT", 1),
        ("7", "cake", "AT", 28),
    ]


def test_the_marts_add_up_to_the_warehouse(spark: Any) -> None:
    clean = house.warehouse(spark.createDataFrame(PURCHASES, COLUMNS)).cache()
    hours = {(r.hour, r.product): (r.purchases, r.cents) for r in house.mart(clean).collect()}
    assert hours == {
        (NOON, "tea"): (2, 800),
        (NOON + timedelta(hours=1), "tea"): (1, 700),
        (NOON, "cake"): (1, 900),
        (NOON - timedelta(days=1), "cake"): (1, 100),
    }
    days = {row.day: (row.purchases, row.cents) for row in house.revenue(clean).collect()}
    assert days == {date(2026, 3, 1): (4, 2400), date(2026, 2, 28): (1, 100)}


def test_what_sells_now_is_counted_in_every_window_it_falls_into(spark: Any) -> None:
    rows = [("1", "tea", "DE", 1, NOON + timedelta(seconds=90))]
    found = house.trending(spark.createDataFrame(rows, COLUMNS)).collect()
    assert sorted(row.since for row in found) == [
        NOON + timedelta(minutes=minute) for minute in (-3, -2, -1, 0, 1)
    ]
    assert {(row.product, row.purchases) for row in found} == {("tea", 1)}


def purchase(number: int, minute: int) -> dict[str, Any]:
    at = NOON + timedelta(minutes=minute)
    return {"id": str(number), "product": "tea", "country": "de", "cents": 100, "at": at}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_live_late_purchases_count_until_their_hour_is_closed(spark: Any, tmp_path: Path) -> None:
    """And a batch over history has them all."""
    in_time = [purchase(1, 5), purchase(2, 50), purchase(3, 62), purchase(4, 55), purchase(2, 50)]
    closing, too_late = [purchase(5, 80)], [purchase(6, 30), purchase(7, 81)]
    names = ("lake", "warehouse", "mart", "revenue")
    with broker() as server:
        send(server, "purchases", in_time, "product")
        producer = Producer({"bootstrap.servers": server.bootstrap})
        producer.produce("purchases", b"poison")
        assert producer.flush(30) == 0
        with live(spark, house, tmp_path, server, *names) as running:
            assert running.view("mart") == [], "the hour is not over"
            for more in (closing, too_late):
                send(server, "purchases", more, "product")
                running.drain()
            hours = [(row.hour, row.purchases) for row in running.view("mart")]
            assert hours == [(NOON, 3)], "number 2 once, number 4 in time, number 6 too late"
            assert len(running.view("lake")) == 9, "as they came, poison and all"
            assert sorted(row.id for row in running.view("warehouse")) == list("123457")
            (day,) = running.view("revenue")
            assert day.purchases == 6
        runner = Runner(spark, house, tmp_path / "batch", server.bootstrap)
        runner.batch("warehouse", "mart", "revenue")
        found = {row.hour: row.purchases for row in runner.view("mart").collect()}
        assert found == {NOON: 4, NOON + timedelta(hours=1): 3}
