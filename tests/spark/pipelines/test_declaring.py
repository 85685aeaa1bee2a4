"""What a pipeline says of itself, and what is refused before anything runs. Without Spark."""

from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from entrepot.spark.pipelines import (
    Delta,
    Parquet,
    Pipeline,
    PipelineError,
    Table,
    Topic,
    pipeline,
)
from entrepot.spark.pipelines.declaring import choose, collect, with_readers

ORDERS = Topic("orders", schema="id bigint")


def same(frame: Any) -> Any:
    return frame


def named(name: str, **said: Any) -> Pipeline:
    def function(frame: Any) -> Any:
        return frame

    function.__name__ = name
    return pipeline(**said)(function)


def test_a_pipeline_is_still_its_function() -> None:
    assert pipeline(reads=ORDERS)(lambda rows: [*rows, 3])([1, 2]) == [1, 2, 3]


def test_what_is_not_said_has_a_default() -> None:
    made = pipeline(reads=ORDERS)(same)
    assert (made.writes, made.mode, made.merge) == (Parquet("same"), "append", ())
    assert ORDERS.dead_letter_topic == "orders.dead-letters"
    assert Topic("orders").dead_letter_topic is None
    merged = pipeline(reads=ORDERS, merge={"n": "sum"})(same)
    assert (merged.writes, merged.mode, merged.is_lambda) == (Delta("same"), "update", True)


def test_inputs_go_to_parameters_in_order_or_by_name() -> None:
    def join(left: Any, right: Any) -> Any:
        return left, right

    customers = Table("customers", static=True)
    assert pipeline(reads=(ORDERS, customers))(join).reads == (ORDERS, customers)
    by_name = {"right": customers, "left": ORDERS}
    assert pipeline(reads=by_name)(join).reads == (ORDERS, customers)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"reads": (ORDERS, ORDERS)}, "it reads 2 inputs and has 1 parameters"),
        ({"reads": {"rows": ORDERS}}, "reads names rows; the parameters are frame"),
        ({"reads": Table("t", static=True)}, "all it reads is static"),
        ({"mode": "upsert"}, "mode 'upsert' is not one of append, update, complete"),
        ({"mode": "update"}, "Parquet is only added to"),
        ({"writes": Topic("t"), "mode": "update"}, "a topic is only added to"),
        ({"mode": "update", "writes": Delta("d")}, "mode update needs keys"),
        ({"writes": Topic("o.*", pattern=True)}, "one topic, not a pattern"),
        ({"merge": {"n": "avg"}, "writes": Delta("d")}, "n by 'avg'; only sum, min, max"),
        ({"merge": {"n": "sum"}, "writes": Parquet("p")}, "merge needs writes=Delta"),
        ({"merge": {"n": "sum"}, "writes": Delta("d", keys="n")}, "n is a key"),
        (
            {"merge": {"n": "sum"}, "writes": Delta("d"), "reads": Table("t")},
            "merge needs topics and static tables",
        ),
    ],
)
def test_a_contradiction_is_refused_where_it_is_declared(said: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=f"^pipeline same: .*{words}"):
        pipeline(**({"reads": ORDERS} | said))(same)


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"name": "a b"}, "topic name 'a b' is not legal"),
        ({"name": "o", "schema": "a int", "dead_letters": "a b"}, "topic name 'a b' is not legal"),
        ({"name": "(", "pattern": True}, "is not a regular expression"),
        ({"name": "o.*", "pattern": True, "schema": "a int"}, "dead_letters must name one topic"),
        (
            {"name": "o.*", "pattern": True, "schema": "a int", "dead_letters": "oh"},
            "that the pattern does not match",
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        Topic(**said)


# --- several


def test_those_of_a_module_come_in_the_order_of_their_tables() -> None:
    module = ModuleType("m")
    module.mart = named("mart", reads=Table("clean"))  # type: ignore[attr-defined]
    module.clean = named("clean", reads=Table("raw"))  # type: ignore[attr-defined]
    module.raw = module.again = named("raw", reads=ORDERS)  # type: ignore[attr-defined]
    assert [each.name for each in collect(module)] == ["raw", "clean", "mart"]


def test_a_rebuilt_table_is_rebuilt_with_those_that_follow_it() -> None:
    raw = named("raw", reads=ORDERS)
    clean = named("clean", reads=Table("raw"))
    looked_up = named("looked_up", reads=ORDERS)
    joined = pipeline(reads=(ORDERS, Table("raw", static=True)))(lambda one, two: one)
    made = [raw, clean, looked_up, joined]
    assert with_readers([raw], made) == [raw, clean]
    assert with_readers([clean], made) == [clean]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        ([], "there is no pipeline"),
        ([named("a", reads=ORDERS), named("a", reads=ORDERS)], "two pipelines are named a"),
        (
            [named("a", reads=ORDERS, writes=Parquet("t")), named("t", reads=ORDERS)],
            "two tables are named t",
        ),
        ([named("a", reads=Table("b")), named("b", reads=Table("a"))], "in a circle"),
    ],
)
def test_pipelines_that_do_not_go_together_are_refused(made: list[Pipeline], words: str) -> None:
    with pytest.raises(PipelineError, match=words):
        collect(made)


def test_an_unknown_name_is_answered_with_the_nearest() -> None:
    made = [named("sales", reads=ORDERS), named("alerts", reads=ORDERS)]
    assert choose(made, []) == made
    assert choose(made, ["alerts"]) == [made[1]]
    with pytest.raises(PipelineError, match="no pipeline sale; is it sales that is meant"):
        choose(made, ["sale"])
    with pytest.raises(PipelineError, match="no pipeline xyz; there are sales, alerts"):
        choose(made, ["xyz"])
