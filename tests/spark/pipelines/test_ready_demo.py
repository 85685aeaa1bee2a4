"""The demo: its pipelines on its story, and that a wrong number is found."""

import subprocess
import sys
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from examples.demo import pipelines
from examples.demo import story as demo
from examples.demo.simulation import POISON, Simulation


@pytest.fixture(scope="module")
def simulation() -> Simulation:
    return Simulation(3)


@pytest.fixture(scope="module")
def found(spark: Any, simulation: Simulation) -> demo.Computed:
    """What the pipelines make of the story as plain rows."""

    def rows(whole: list[Any]) -> list[tuple[Any, ...]]:
        return [tuple(getattr(each, name) for name in each.__slots__) for each in whole]

    orders = spark.createDataFrame(rows(simulation.orders), pipelines.ORDERS.schema)
    readings = spark.createDataFrame(rows(simulation.readings), pipelines.READINGS.schema)
    packed = pipelines.packed(orders, readings).cache()
    alerts = pipelines.alerts(packed).collect()
    return demo.computed(
        pipelines.sales(packed).collect(),
        pipelines.minutes(readings).collect(),
        warm=sorted(row.id for row in alerts),
        heard=len(alerts),
        poison=POISON,
    )


def test_spark_and_plain_python_agree(found: demo.Computed, simulation: Simulation) -> None:
    expected = simulation.expected()
    assert expected.warm, "a story without alerts shows nothing"
    assert demo.differences(expected, found) == []


def test_every_difference_is_told(found: demo.Computed, simulation: Simulation) -> None:
    expected = simulation.expected()
    key = min(found.sales)
    orders, cents, warm = found.sales[key]
    for wrong in (
        replace(found, poison=0),
        replace(found, warm=found.warm[1:]),
        replace(found, warm=[*found.warm[1:], 0]),
        replace(found, sales=found.sales | {key: (orders, cents, warm + 1)}),
        replace(found, minutes={}),
    ):
        assert demo.differences(expected, wrong)


def test_the_records_are_the_story_in_another_order(simulation: Simulation) -> None:
    sent = Simulation(3).records()
    assert len(sent) == len(simulation.readings) + len(simulation.orders) + POISON
    assert sent == Simulation(3).records(), "one seed, one story"
    assert [each.at.tzinfo for each in simulation.orders[:1]] == [UTC]
    moments = [each.value for each in sent if each.topic == "orders"]
    in_order = sorted(moments, key=lambda value: int(value.split(b'"id": ')[1].split(b",")[0]))
    assert moments != in_order, "some are overtaken"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_demo_runs(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="pip install 'entrepot[demo]' for this test")
    picture = tmp_path / "demo.png"
    ran = subprocess.run(
        [sys.executable, "-m", "examples.demo", "--picture", str(picture)],
        cwd=Path(demo.__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "All of it is equal" in ran.stdout
    assert picture.read_bytes().startswith(b"\x89PNG")
