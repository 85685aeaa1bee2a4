"""Streams: every line of the guide does what it says, on plain rows and live."""

import inspect
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from entrepot.spark.pipelines import Pipeline, Runner, Topic
from entrepot.testing import Broker, broker
from examples.pipelines import streams
from tests.spark.pipelines.ready import as_json, live, received, send

GUIDE = (Path(__file__).parents[3] / "docs" / "guides" / "streams.md").read_text("utf-8")
PIPELINES = {name: made for name, made in vars(streams).items() if isinstance(made, Pipeline)}

NOON = datetime(2026, 3, 1, 12)
CLOCK = "clock"  # Whose records are there to be late: by their time, what came before is over.


def minute(number: int) -> datetime:
    return NOON + timedelta(minutes=number)


INPUTS: dict[str, list[tuple[Any, ...]]] = {
    "orders": [
        ("o1", "ann", 5000, minute(0)),
        ("o2", "ann", 12000, minute(10)),
        ("o3", "bob", 700, minute(15)),
        ("o4", "ann", 300, minute(65)),
        (CLOCK, CLOCK, 1, minute(360)),
    ],
    "shop-orders": [("s1", "bob", 900, minute(20))],
    "payments": [
        ("o1", 5000, minute(30)),
        ("o3", 700, minute(120)),  # Too late.
        (CLOCK, 1, minute(360)),
    ],
    "reviews": [("r1", "good tea"), ("r2", "tea")],
    "customers": [("ann", "de"), ("bob", "at"), ("ann", "fr")],
}
CUSTOMERS = [("ann", "fr"), ("bob", "at")]

# What each makes of it. A clock's own windows are not over, and are left out.
EXPECTED: dict[str, list[tuple[Any, ...]]] = {
    "mapped": [("o1", 50.0), ("o2", 120.0), ("o3", 7.0), ("o4", 3.0), (CLOCK, 0.01)],
    "filtered": [("o2", 12000)],
    "flat_mapped": [("r1", "good"), ("r1", "tea"), ("r2", "tea")],
    "rekeyed": [("ann", "o1"), ("ann", "o2"), ("bob", "o3"), ("ann", "o4"), (CLOCK, CLOCK)],
    "merged": [
        ("o1", "ann", 5000),
        ("o2", "ann", 12000),
        ("o3", "bob", 700),
        ("o4", "ann", 300),
        ("s1", "bob", 900),
        (CLOCK, CLOCK, 1),
    ],
    "branched": [
        ("small", "o1", '{"id":"o1","cents":5000}'),
        ("large", "o2", '{"id":"o2","cents":12000}'),
        ("small", "o3", '{"id":"o3","cents":700}'),
        ("small", "o4", '{"id":"o4","cents":300}'),
        ("small", CLOCK, '{"id":"clock","cents":1}'),
    ],
    "counted": [("ann", 3), ("bob", 1), (CLOCK, 1)],
    "aggregated": [("ann", 17300, 17300 / 3), ("bob", 700, 700.0), (CLOCK, 1, 1.0)],
    "reduced": [("ann", "o2"), ("bob", "o3"), (CLOCK, CLOCK)],
    "table": CUSTOMERS,
    "tumbling": [
        (minute(0), "ann", 2),
        (minute(0), "bob", 1),
        (minute(60), "ann", 1),
        (minute(360), CLOCK, 1),
    ],
    "hopping": [
        (minute(-30), "ann", 2),
        (minute(-30), "bob", 1),
        (minute(0), "ann", 2),
        (minute(0), "bob", 1),
        (minute(30), "ann", 1),
        (minute(60), "ann", 1),
        (minute(330), CLOCK, 1),
        (minute(360), CLOCK, 1),
    ],
    "sessions": [
        ("ann", minute(0), minute(30), 2),
        ("ann", minute(65), minute(85), 1),
        ("bob", minute(15), minute(35), 1),
    ],
    "suppressed": [("ann", minute(0), 2), ("ann", minute(60), 1), ("bob", minute(0), 1)],
    "joined": [("o1", 5000, 5000), (CLOCK, 1, 1)],
    "left_joined": [("o2", "ann", 12000), ("o3", "bob", 700), ("o4", "ann", 300)],
    "enriched": [
        ("o1", "ann", "fr"),
        ("o2", "ann", "fr"),
        ("o3", "bob", "at"),
        ("o4", "ann", "fr"),
    ],
    "processed": [("ann", "o4", 3)],
}
UNFINISHED = ("sessions", "suppressed")


def in_order(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=str)


# --- the guide


def squeezed(code: str) -> str:
    return re.sub(r",(?=[)\]])", "", re.sub(r"\s", "", code))


def lines_of_the_table() -> Iterator[tuple[str, list[str], str]]:
    for first, here, name in re.findall(r"^\| (.+) \| (.+) \| `(\w+)` \|$", GUIDE, re.MULTILINE):
        yield first, [code for code in re.findall(r"`([^`]+)`", here) if "(" in code], name


@pytest.mark.parametrize(
    ("code", "name"), [(code, name) for _, found, name in lines_of_the_table() for code in found]
)
def test_the_code_of_a_line_is_that_of_its_pipeline(code: str, name: str) -> None:
    assert squeezed(code) in squeezed(inspect.getsource(PIPELINES[name].function))


def test_every_pipeline_is_in_the_guide_and_is_tested() -> None:
    assert {name for *_, name in lines_of_the_table()} == set(PIPELINES) == set(EXPECTED)


def test_the_longer_examples_of_the_guide_are_those_of_the_module() -> None:
    blocks = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        assert block in inspect.getsource(streams)


# --- on plain rows


@pytest.fixture(scope="module")
def frames(spark: Any) -> dict[str, Any]:
    """Each topic as a frame, with the place that a record has in the log."""
    found = {}
    topics = [topic for made in PIPELINES.values() for topic in made.topics]
    for topic in dict.fromkeys(topics):
        rows = [(*row, offset) for offset, row in enumerate(INPUTS[topic.name])]
        found[topic.name] = spark.createDataFrame(rows, f"{topic.schema}, _offset bigint").cache()
    found["table"] = spark.createDataFrame(CUSTOMERS, "customer string, country string")
    return found


@pytest.mark.parametrize("name", EXPECTED)
def test_on_rows(frames: dict[str, Any], name: str) -> None:
    made = PIPELINES[name]
    rows = [tuple(row) for row in made(*(frames[each.name] for each in made.reads)).collect()]
    if name in UNFINISHED:
        rows = [row for row in rows if CLOCK not in row]
    if name == "left_joined":
        assert set(rows) == set(EXPECTED[name]), "the clock's order is paid"
    assert in_order(rows) == in_order(EXPECTED[name])


# --- live


@pytest.fixture
def town() -> Iterator[Broker]:
    """A broker with the records in their topics."""
    with broker() as server:
        for topic, rows in INPUTS.items():
            (made,) = {t for each in PIPELINES.values() for t in each.topics if t.name == topic}
            assert made.schema is not None
            names = [field.split()[0] for field in made.schema.split(",")]
            send(server, topic, [dict(zip(names, row, strict=True)) for row in rows], names[0])
        yield server


def told(server: Broker, name: str, runner: Runner) -> list[tuple[Any, ...]]:
    """What a pipeline wrote, wherever."""
    output = PIPELINES[name].writes
    if not isinstance(output, Topic):
        return [tuple(row) for row in runner.view(name).collect()]
    return [tuple(row.values()) for row in received(server, output.name)]


def as_sent(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """A time in JSON, as Spark writes it."""
    return tuple(
        as_json(value).replace("Z", ".000Z") if isinstance(value, datetime) else value
        for value in row
    )


def check(server: Broker, name: str, runner: Runner) -> None:
    expected = EXPECTED[name]
    if name == "branched":
        for topic in ("small", "large"):
            values = [json.loads(value) for to, _, value in expected if to == topic]
            assert received(server, topic) == values
        return
    if isinstance(PIPELINES[name].writes, Topic):
        expected = [as_sent(row) for row in expected]
    assert in_order(told(server, name, runner)) == in_order(expected), name


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "names",
    [
        ("mapped", "filtered", "flat_mapped", "rekeyed"),
        ("branched", "merged", "processed"),
        ("counted", "aggregated", "reduced"),
        ("tumbling", "hopping", "sessions", "suppressed"),
        ("table", "enriched", "joined", "left_joined"),
    ],
    ids=lambda names: names[0],
)
def test_live(names: tuple[str, ...], spark: Any, town: Broker, tmp_path: Path) -> None:
    """The same by streams, which tell of a window or a missing partner when time has passed."""
    with live(spark, streams, tmp_path, town, *names) as running:
        running.drain()
    for name in names:
        check(town, name, running.runner)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_batch_that_is_repeated_is_written_once(spark: Any, town: Broker, tmp_path: Path) -> None:
    """As after a crash before Spark notes that it is done."""
    for _ in range(2):
        with live(spark, streams, tmp_path, town, "mapped"):
            pass
        (commits,) = tmp_path.glob("mapped/1/checkpoint/commits")
        for note in [*commits.glob("[0-9]*"), *commits.glob(".*.crc")]:
            note.unlink()
        check(town, "mapped", Runner(spark, streams, tmp_path, town.bootstrap))
