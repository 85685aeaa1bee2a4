"""Queries that are started again, with queries that only say what they are told to."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")
pytest.importorskip("deltalake", reason="pip install 'entrepot[spark]' for this test")

from pyspark.errors import StreamingQueryException

from entrepot.spark.errors import PipelineError
from entrepot.spark.pipelines import running
from entrepot.spark.pipelines.declaring import Parquet, Pipeline, Topic
from entrepot.spark.pipelines.progress import Metrics
from entrepot.spark.pipelines.runner import Running
from entrepot.spark.pipelines.running import TRIES_MAX, Queries, persist
from entrepot.spark.pipelines.versions import Directory

SLOW = (
    "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Python worker failed "
    "to connect back. SQLSTATE: XXKST"
)


@pytest.fixture(autouse=True)
def _without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "PAUSE_S", 0.0)


class Query:
    """One that has failed with these words, or one that does its first batch after a while."""

    def __init__(self, failure: str | None = None, *, looks: int = 0, progress: Any = None) -> None:
        self.error = None if failure is None else StreamingQueryException(failure)
        self.isActive = failure is None
        self.lastProgress = progress
        self.looks = looks  # Before its first batch is done.

    def exception(self) -> Exception | None:
        return self.error

    @property
    def status(self) -> dict[str, Any]:
        return {"message": "Processing new data", "isTriggerActive": False}

    def awaitTermination(self, timeout: float) -> bool:  # noqa: N802
        self.looks -= 1
        if self.looks <= 0:
            self.lastProgress = SimpleNamespace(timestamp="")
        return False

    def stop(self) -> None:
        self.isActive = False


def begin(queries: list[Query], path: Path) -> tuple[Queries, list[str]]:
    """The first of these, and when it has failed the next one."""
    told: list[str] = []
    made = Queries(Metrics(path / "metrics.prom"), None, told.append)
    left = iter(queries)
    made.start("sales", "pipeline sales", lambda: next(left))  # type: ignore[arg-type, return-value]
    return made, told


def test_a_query_whose_python_was_slow_is_started_again(tmp_path: Path) -> None:
    queries, told = begin([Query(SLOW), Query(SLOW), Query()], tmp_path)
    assert queries.look()
    assert queries.look()
    assert queries.look()
    assert told == ["pipeline sales: a process of Python was too slow to start; trying again"] * 2


def test_it_is_not_tried_for_ever(tmp_path: Path) -> None:
    queries, told = begin([Query(SLOW) for _ in range(TRIES_MAX)], tmp_path)
    for _ in range(TRIES_MAX - 1):
        queries.look()
    with pytest.raises(PipelineError, match="pipeline sales: Python worker failed to connect back"):
        queries.look()
    assert len(told) == TRIES_MAX - 1


def test_one_that_has_worked_meanwhile_has_all_its_tries_again(tmp_path: Path) -> None:
    worked = [Query(SLOW, progress=SimpleNamespace(timestamp="")) for _ in range(3 * TRIES_MAX)]
    queries, _ = begin([*worked, Query()], tmp_path)
    for _ in worked:
        assert queries.look()
    queries.close()


def test_what_is_wrong_with_the_pipeline_is_not_tried_again(tmp_path: Path) -> None:
    queries, told = begin([Query("[A_NAME_OF_SPARK] no such column")], tmp_path)
    with pytest.raises(PipelineError, match="pipeline sales: no such column"):
        queries.look()
    assert told == []


def test_settling_is_waiting_for_the_first_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = Query(looks=7)
    queries, _ = begin([query], tmp_path)
    queries.settle("sales")
    assert query.lastProgress is not None
    assert query.looks == 0


def test_settling_is_not_waiting_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "BEGIN_S_MAX", 1.0)
    query = Query(looks=1_000)
    queries, _ = begin([query], tmp_path)
    queries.settle("sales")
    assert 1_000 - query.looks == round(1.0 / running.LOOK_S)


def test_planning_is_tried_again_too() -> None:
    failures = [StreamingQueryException(SLOW)] * 2
    told: list[str] = []

    def plan() -> str:
        if failures:
            raise failures.pop()
        return "a frame"

    assert persist("pipeline sales", plan, told.append) == "a frame"
    assert len(told) == 2


def test_while_one_does_its_first_batch_the_next_is_planned(tmp_path: Path) -> None:
    chosen = [
        Pipeline(name, lambda rows: rows, (Topic("orders"),), Parquet(name), "append")
        for name in ("first", "second", "third")
    ]
    events: list[str] = []
    queries: Any = SimpleNamespace(settle=lambda name: events.append(f"{name} has settled"))
    runner: Any = SimpleNamespace(
        directory=Directory(tmp_path),
        tell=lambda text: None,
        open=lambda pipeline: (None, None),
        begin=lambda queries, pipeline, *_: events.append(f"{pipeline.name} begins"),
        begin_dead_letters=lambda *_: events.append("dead letters begin"),
    )
    Running(runner, chosen, queries).begin()
    assert events == [
        "first begins",
        "second begins",
        "first has settled",
        "third begins",
        "second has settled",
        "third has settled",
        "dead letters begin",
    ]
