"""Change data capture: the view equals the table, whatever happened to it."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from entrepot.testing import broker
from examples.pipelines import change_data_capture as capture
from tests.end_to_end.connecting import describe, run_once
from tests.end_to_end.databases import Trial, open_trial, trials
from tests.spark.pipelines.ready import live

Customer = tuple[int, str, str | None, int]
COLUMNS = (
    f"op string, at timestamp, before {capture.ROW}, after {capture.ROW},"
    " _partition int, _offset bigint"
)


def changes(spark: Any, told: list[tuple[str, Customer | None, Customer | None]]) -> Any:
    rows = [(op, None, before, after, 0, n) for n, (op, before, after) in enumerate(told)]
    return spark.createDataFrame(rows[::-1], COLUMNS)


ADA: Customer = (1, "Ada", "London", 100)
BOB: Customer = (2, "Bob", None, 0)


def test_the_newest_change_of_a_row_is_the_row(spark: Any) -> None:
    moved: Customer = (1, "Ada", "Ulm", 100)
    told = [
        ("snapshot", None, ADA),
        ("insert", None, BOB),
        ("update", ADA, moved),
        ("delete", BOB, None),
        ("insert", None, (3, "Cleo", "Rome", 5)),
        ("delete", (3, "Cleo", "Rome", 5), None),
        ("insert", None, (3, "Cleo", "Bern", 7)),
        ("delete", None, None),  # A tombstone, or another table's: nobody's row.
    ]
    frame = changes(spark, told)
    view = capture.customers(frame).cache()
    assert sorted(tuple(row) for row in capture.present(view).collect()) == [
        moved,
        (3, "Cleo", "Bern", 7),
    ]
    assert {row.id: row.is_deleted for row in view.collect()} == {1: False, 2: True, 3: False}
    history = capture.customer_history(frame).orderBy("_offset").collect()
    assert [(row.id, row.op) for row in history] == [
        (1, "snapshot"), (2, "insert"), (1, "update"), (2, "delete"),
        (3, "insert"), (3, "delete"), (3, "insert"),
    ]  # fmt: skip


@pytest.fixture(params=trials())
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Trial]:
    opened = open_trial(request.param, tmp_path)
    opened.execute(
        "CREATE TABLE customers (id INTEGER PRIMARY KEY, name VARCHAR(20), city VARCHAR(20),"
        " credit_cents BIGINT)"
    )
    yield opened
    opened.close()


def change_at_random(database: Trial, chance: random.Random, count: int) -> None:
    for number in range(count):
        id_ = chance.randrange(12)
        values = f"'customer {number}', {chance.choice(['NULL', repr('Ulm')])}, {number}"
        there = database.execute(f"SELECT 1 FROM customers WHERE id = {id_}")
        if not there:
            database.execute(f"INSERT INTO customers VALUES ({id_}, {values})")
        elif chance.random() < 0.4:
            database.execute(f"DELETE FROM customers WHERE id = {id_}")
        else:
            database.execute(f"UPDATE customers SET credit_cents = {number} WHERE id = {id_}")


def test_a_real_table_is_followed(spark: Any, database: Trial, tmp_path: Path) -> None:
    """By the connector, a broker and a stream; with what was there before it was watched."""
    chance = random.Random(5)
    options = {**database.options, "tables": ["customers"], "install": True, "snapshot": True}
    topic = capture.CHANGES.name
    path = describe(tmp_path, "c", f"{database.name}-changes", topic=topic, options=options)
    change_at_random(database, chance, 20)
    with broker() as server:
        run_once(server.bootstrap, path)
        with live(spark, capture, tmp_path, server, "customers") as running:
            for _ in range(2):
                change_at_random(database, chance, 40)
                run_once(server.bootstrap, path)
                running.drain()
                view = capture.present(running.runner.view("customers")).orderBy("id")
                table = database.execute("SELECT * FROM customers ORDER BY id")
                assert [tuple(row) for row in view.collect()] == table
