"""Sensors: averages, and a model that is learned from history and judges what comes."""

import math
import random
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from entrepot.spark.pipelines import Runner
from entrepot.testing import broker
from examples.pipelines import sensors
from tests.spark.pipelines.ready import live, received, send

START = datetime(2026, 3, 1)
COLUMNS = sensors.READINGS.schema
Reading = tuple[str, float, datetime]


def usual(
    device: str, base: float, swing: float, days: int, chance: random.Random
) -> list[Reading]:
    """A reading every ten minutes, warmest at noon, with noise of half a degree."""
    found = []
    for number in range(days * 144):
        at = START + timedelta(minutes=10 * number)
        angle = (number % 144) / 144 * 2 * math.pi
        found.append((device, base - swing * math.cos(angle) + chance.gauss(0, 0.5), at))
    return found


def test_a_minute_of_a_device(spark: Any) -> None:
    told = [("a", 1.0, 0), ("a", 3.0, 59), ("a", 8.0, 60), ("b", 5.0, 30)]
    rows = [(device, celsius, START + timedelta(seconds=s)) for device, celsius, s in told]
    found = sensors.averages(spark.createDataFrame(rows, COLUMNS)).collect()
    assert sorted(tuple(row) for row in found) == [
        ("a", START, 2.0, 1.0, 3.0, 2),
        ("a", START + timedelta(minutes=1), 8.0, 8.0, 8.0, 1),
        ("b", START, 5.0, 5.0, 5.0, 1),
    ]


def test_the_fit_is_that_of_least_squares() -> None:
    """By the sums, as Spark gathers them, and by all the numbers at once."""
    import numpy as np

    chance = np.random.default_rng(7)
    angle = chance.uniform(0, 2 * math.pi, 500)
    inputs = np.stack([np.ones(500), np.sin(angle), np.cos(angle)], axis=1)
    celsius = inputs @ np.array([20.0, 3.0, -4.0]) + chance.normal(0, 0.7, 500)
    gathered = np.column_stack([inputs, celsius])
    products = gathered.T @ gathered
    sums = [*products[0, :3], *products[1, 1:3], products[2, 2], *products[3]]
    fitted, residual, *_ = np.linalg.lstsq(inputs, celsius, rcond=None)
    found = sensors.solve(sums)
    assert found[:3] == pytest.approx(list(fitted))
    assert found[3] == pytest.approx(math.sqrt(residual[0] / 497))


def test_the_model_learns_each_device_and_finds_what_is_wrong(spark: Any) -> None:
    chance = random.Random(11)
    history = usual("roof", 15, 10, 5, chance) + usual("cellar", 12, 0.5, 5, chance)
    history += [("new", 20.0, START), ("roof", math.nan, START), ("roof", math.inf, START)]
    learned = sensors.model(spark.createDataFrame(history, COLUMNS)).cache()
    found = {row.device: row for row in learned.collect()}
    assert set(found) == {"roof", "cellar"}, "a single reading is not enough"
    assert found["roof"].base == pytest.approx(15, abs=0.1)
    assert found["roof"].cosine == pytest.approx(-10, abs=0.1)
    assert found["roof"].spread == pytest.approx(0.5, abs=0.05)
    noon, midnight = START + timedelta(days=9, hours=12), START + timedelta(days=9)
    live = [
        ("roof", 25.0, noon),
        ("roof", 25.0, midnight),
        ("cellar", 25.0, noon),
        ("cellar", 12.4, noon),
        ("new", 99.0, noon),
    ]
    alarms = sensors.alerts(spark.createDataFrame(live, COLUMNS), learned).collect()
    assert sorted((row.device, row.at) for row in alarms) == [("cellar", noon), ("roof", midnight)]
    (night,) = [row for row in alarms if row.device == "roof"]
    assert night.expected == pytest.approx(5, abs=0.2)
    assert night.spreads == pytest.approx(40, rel=0.15)


def test_ordinary_days_raise_no_alarm(spark: Any) -> None:
    readings = usual("roof", 15, 10, 5, random.Random(13))
    frame = spark.createDataFrame(readings, COLUMNS).cache()
    assert sensors.alerts(frame, sensors.model(frame)).count() == 0


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_live_the_model_of_history_judges_what_comes(spark: Any, tmp_path: Path) -> None:
    def sent(readings: list[Reading]) -> list[dict[str, Any]]:
        return [dict(zip(("device", "celsius", "at"), each, strict=True)) for each in readings]

    with broker() as server:
        send(server, "readings", sent(usual("roof", 15, 10, 2, random.Random(17))), "device")
        Runner(spark, sensors, tmp_path, server.bootstrap).batch("model")
        with live(spark, sensors, tmp_path, server, "alerts", "averages") as running:
            assert received(server, "alerts") == [], "history was ordinary"
            night, later = START + timedelta(days=5), START + timedelta(days=5, minutes=2)
            send(server, "readings", sent([("roof", 5.1, night), ("roof", 25.0, night)]), "device")
            send(server, "readings", sent([("roof", 5.2, later)]), "device")
            running.drain()
        (alarm,) = received(server, "alerts")
        assert (alarm["device"], alarm["celsius"]) == ("roof", 25.0)
        assert alarm["expected"] == pytest.approx(5, abs=0.3)
        newest = max(received(server, "averages"), key=lambda minute: minute["minute"])
        assert (newest["readings"], newest["celsius"]) == (2, pytest.approx(15.05))
