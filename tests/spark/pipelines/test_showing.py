"""Views that are shown from their files. No Java is started here."""

from pathlib import Path

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

import deltalake
from click.testing import CliRunner
from pyspark.sql.types import LongType, StringType, StructField, StructType

from entrepot.cli import main
from entrepot.spark.pipelines import views
from entrepot.spark.pipelines.declaring import collect
from entrepot.spark.pipelines.loading import load
from entrepot.spark.pipelines.showing import rows_of
from entrepot.spark.pipelines.versions import Directory, Version

FILE = """
from entrepot.spark.pipelines import Delta, Topic, pipeline

@pipeline(reads=Topic("t"), merge={"cents": "sum", "top": "max"})
def sales(t): ...

@pipeline(reads=Topic("t"), writes=Delta("plain"))
def plain(t): ...

@pipeline(reads=Topic("t"), writes=Topic("u"))
def passed_on(t): ...
"""
SCHEMA = StructType(
    [
        StructField("customer", StringType()),
        StructField("cents", LongType()),
        StructField("top", LongType()),
    ]
)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nothing"))
    monkeypatch.setenv("PATH", "")
    file = tmp_path / "shown_pipelines.py"
    file.write_text(FILE)
    return file


def make(directory: Path, shop: Path, name: str) -> Version:
    (pipeline,) = [each for each in collect(load(str(shop))) if each.name == name]
    place = Directory(directory).place(name)
    version = place.new_version()
    version.describe(views.describe(pipeline, SCHEMA, {}))
    place.swap(version)
    return version


def write(path: Path, rows: list[tuple[str | None, int, int]]) -> None:
    names = SCHEMA.fieldNames()
    deltalake.write_deltalake(
        str(path), pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows])
    )


def test_the_serving_view_is_merged(tmp_path: Path, shop: Path) -> None:
    version = make(tmp_path / "views", shop, "sales")
    write(version.batch, [("ada", 5, 5), ("bob", 1, 1), (None, 7, 7)])
    write(version.table, [("ada", 2, 9), ("cleo", 4, 4)])
    sales = load(str(shop)).sales
    found = rows_of(sales, Directory(tmp_path / "views"), 10)
    assert [tuple(row.values()) for row in found] == [
        ("ada", 7, 9),
        ("bob", 1, 1),
        ("cleo", 4, 4),
        (None, 7, 7),
    ]


def test_show_prints_the_first_rows(tmp_path: Path, shop: Path) -> None:
    version = make(tmp_path / "views", shop, "plain")
    write(version.table, [("bob", 1, 1), ("ada", 5, 5), ("cleo", 4, 4)])
    line = ["pipeline", "show", str(shop), "--dir", str(tmp_path / "views")]
    ran = CliRunner().invoke(main, [*line, "plain", "-n", "2"])
    assert ran.exit_code == 0, ran.output
    found = [text.split() for text in ran.output.splitlines()]
    assert found == [["customer", "cents", "top"], ["ada", "5", "5"], ["bob", "1", "1"]]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("plain", "pipeline plain has not been run in"),
        ("passed_on", "pipeline passed_on writes topic u; read that"),
    ],
)
def test_what_cannot_be_shown(tmp_path: Path, shop: Path, name: str, words: str) -> None:
    line = ["pipeline", "show", str(shop), "--dir", str(tmp_path / "views"), name]
    ran = CliRunner().invoke(main, line)
    assert (ran.exit_code, words in ran.output) == (1, True), ran.output
