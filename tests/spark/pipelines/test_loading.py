"""Files with pipelines: what is found in them, and where they fail. Without Spark."""

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from click.testing import CliRunner
from pyspark import SparkContext

from entrepot.cli import main
from entrepot.spark.pipelines import PipelineError
from entrepot.spark.pipelines.declaring import collect
from entrepot.spark.pipelines.loading import load

GOOD = """
from beside_pipelines import ORDERS
from entrepot.spark.pipelines import Delta, pipeline

@pipeline(reads=ORDERS, writes=Delta("sales", keys=["customer"]), mode="update")
def sales(orders):
    return orders

@pipeline(reads=ORDERS, writes=Delta("totals"), merge={"cents": "sum"})
def totals(orders):
    return orders
"""


@pytest.fixture(autouse=True)
def _clean_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def write(place: Path, text: str, name: str = "some_pipelines.py") -> str:
    path = place / name
    path.write_text(text)
    return str(path)


def test_a_file_finds_what_is_beside_it(tmp_path: Path) -> None:
    write(
        tmp_path,
        "from entrepot.spark.pipelines import Topic\nORDERS = Topic('orders', 'id int')",
        "beside_pipelines.py",
    )
    path = write(tmp_path, GOOD)
    assert [each.name for each in collect(load(path))] == ["sales", "totals"]
    ran = CliRunner().invoke(main, ["pipeline", "list", path])
    assert ran.exit_code == 0, ran.output
    lines = [line.split("  ") for line in ran.output.splitlines()]
    found = [[word.strip() for word in line if word] for line in lines]
    assert found[0] == ["PIPELINE", "READS", "WRITES", "MODE"]
    assert found[1] == ["sales", "topic orders", "Delta sales by customer", "update"]
    assert found[2] == ["totals", "topic orders", "Delta totals", "lambda"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = (", r"some_pipelines.py, line 1: SyntaxError"),
        ("import nothing_of_that_name", r"line 1: ModuleNotFoundError: No module named"),
        ("def f():\n    return 1 / 0\n\nf()", r"line 2: ZeroDivisionError: division by zero"),
        (
            "from entrepot.spark.pipelines import *\n"
            "@pipeline(reads=Topic('t'), mode='x')\ndef p(t): ...",
            r"line 2: pipeline p: mode 'x'",
        ),
    ],
)
def test_a_file_that_does_not_import_is_named_with_its_line(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(PipelineError, match=words):
        load(write(tmp_path, text))


@pytest.mark.parametrize(
    ("arguments", "text", "words", "code"),
    [
        (["run", "{file}"], GOOD, "one of --live, --replay and --batch", 2),
        (["run", "{file}", "--live", "--trigger", "soon"], GOOD, "--trigger soon: not like", 2),
        (["run", "{file}", "--live", "sale"], "1 / 0", "line 1: ZeroDivisionError", 1),
        (["run", "nowhere.py", "--live"], "", "nowhere.py: there is no such file", 1),
        (["list", "{file}"], "x = 1", "there is no pipeline: @pipeline(reads=…)", 1),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(
    tmp_path: Path, arguments: list[str], text: str, words: str, code: int
) -> None:
    path = write(tmp_path, text)
    ran = CliRunner().invoke(main, ["pipeline", *(each.format(file=path) for each in arguments)])
    assert (ran.exit_code, words in ran.output) == (code, True), ran.output


def test_an_unknown_name_is_found_out_before_spark_is_started(tmp_path: Path) -> None:
    text = (
        "from entrepot.spark.pipelines import Topic, pipeline\n"
        "@pipeline(reads=Topic('t'))\ndef sales(t): ..."
    )
    ran = CliRunner().invoke(main, ["pipeline", "run", write(tmp_path, text), "--replay", "sale"])
    assert ran.exit_code == 1
    assert "there is no pipeline sale; is it sales that is meant?" in ran.output


def test_functions_for_columns_are_made_before_spark_is_started(tmp_path: Path) -> None:
    """Spark parses their types, in Java; a list of pipelines has none."""
    text = (
        "from pyspark.sql import functions as F\n"
        "from entrepot.spark.pipelines import Topic, pipeline\n"
        "@F.udf('array<int>')\ndef sizes(text): ...\n"
        "@pipeline(reads=Topic('t'))\ndef sales(t): ...\n"
    )
    module = load(write(tmp_path, text))
    assert [each.name for each in collect(module)] == ["sales"]
    assert module.sizes.returnType == "array<int>"  # Parsed when it is used.


def test_a_column_that_is_made_too_early_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)  # Of a test before this one.
    text = "from pyspark.sql import functions as F\n\nBIG = F.col('cents') > 100\n"
    with pytest.raises(PipelineError, match=r"line 3: .*make them within a function"):
        load(write(tmp_path, text, "early_pipelines.py"))
