"""Delta tables: a batch is in them once, a key is in them once."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from deltalake import DeltaTable

from entrepot.spark.pipelines import Delta
from entrepot.spark.pipelines.tables import create, delta_files, tidy, write_once, write_table
from entrepot.spark.pipelines.versions import Version

COLUMNS = "id bigint, name string, n bigint"


def new_table(spark: Any, place: Path) -> Version:
    version = Version(place / "1")
    create(version.table, spark.createDataFrame([], COLUMNS).schema)
    return version


def rows(spark: Any, path: Path) -> list[tuple[Any, ...]]:
    found = [tuple(row) for row in spark.read.schema(COLUMNS).parquet(*delta_files(path)).collect()]
    return sorted(found, key=str)


@pytest.mark.parametrize(
    ("keys", "replaces", "after"),
    [
        ((), False, [(1, "a", 1), (1, "b", 3), (2, "a", 2)]),
        (("id",), False, [(1, "b", 3), (2, "a", 2)]),
        ((), True, [(1, "b", 3)]),
    ],
    ids=["added", "merged", "replaced"],
)
def test_a_batch_that_comes_again_is_written_once(
    spark: Any, tmp_path: Path, keys: tuple[str, ...], replaces: bool, after: list[Any]
) -> None:
    version, output = new_table(spark, tmp_path), Delta("t", keys=keys)
    first = spark.createDataFrame([(1, "a", 1), (2, "a", 2)], COLUMNS)
    second = spark.createDataFrame([(1, "b", 3)], COLUMNS)
    for batch, frame, written in ((0, first, True), (0, first, False), (1, second, True)):
        done = write_once(frame, version, output, "query", batch, replaces=replaces)
        assert done is written, batch
    for batch, frame in ((1, second), (0, first)):
        assert not write_once(frame, version, output, "query", batch, replaces=replaces)
    assert rows(spark, version.table) == after
    assert write_once(second, version, output, "another query", 0, replaces=replaces)


def test_of_a_key_that_comes_twice_the_last_in_order_counts(spark: Any, tmp_path: Path) -> None:
    version, output = new_table(spark, tmp_path), Delta("t", keys=["id"], order="n")
    said = [(1, "old", 1), (1, "new", 3), (1, "between", 2), (None, "x", 1), (None, "y", 2)]
    frame = spark.createDataFrame(said, COLUMNS)
    write_once(frame, version, output, "query", 0)
    assert rows(spark, version.table) == [(1, "new", 3), (None, "y", 2)]
    write_once(frame.where("n = 1"), version, output, "query", 1)
    assert rows(spark, version.table) == [(1, "old", 1), (None, "x", 1)], "no key is a key, too"


def test_a_key_that_comes_twice_without_an_order_is_refused(spark: Any, tmp_path: Path) -> None:
    version, output = new_table(spark, tmp_path), Delta("t", keys=["id"])
    frame = spark.createDataFrame([(1, "a", 1), (1, "b", 2)], COLUMNS)
    with pytest.raises(Exception, match=r'more than one row for \{"id":1\} in a batch; Delta'):
        write_once(frame, version, output, "query", 0)
    assert delta_files(version.table) == []


def test_tidying_leaves_the_rows_and_the_mark(spark: Any, tmp_path: Path) -> None:
    version, output = new_table(spark, tmp_path), Delta("t")
    for batch in range(3):
        write_once(spark.createDataFrame([(batch, "a", 1)], COLUMNS), version, output, "q", batch)
    assert len(delta_files(version.table)) == 3
    tidy(DeltaTable(str(version.table)))
    assert len(delta_files(version.table)) == 1
    assert rows(spark, version.table) == [(0, "a", 1), (1, "a", 1), (2, "a", 1)]
    again = spark.createDataFrame([(2, "a", 1)], COLUMNS)
    assert not write_once(again, version, output, "q", 2)


def test_a_table_of_no_rows_is_a_table(spark: Any, tmp_path: Path) -> None:
    write_table(spark.createDataFrame([], COLUMNS), tmp_path / "t", Delta("t", keys=["id"]))
    assert DeltaTable.is_deltatable(str(tmp_path / "t"))
    assert delta_files(tmp_path / "t") == []
