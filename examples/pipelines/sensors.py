"""Sensors: averages of each minute, and an alarm when a device is not as it should be.

    readings ──┬── averages ──> averages
               ├── model ─────> Delta table, a row per device (learned, --batch)
               └── alerts ────> alerts      (applied, --live, with the model as it is)

A device has its own level, and a day that goes up and down. The model says so: temperature =
base + sine * sin(t) + cosine * cos(t), where t goes round once a day, and `spread` is the
standard deviation of what that leaves unexplained. It is an ordinary least-squares fit.
Of all the history it needs ten sums per device, which Spark adds up in parallel; the
solution of three equations is then a matter of microseconds. So it may be learned from any
amount of history, again each night, or as records come.

A reading is an alarm when it is further from the model than `SPREADS_MAX` spreads, which
for normal noise happens to one reading in two million.

    python -m examples.pipelines.feed sensors
    entrepot pipeline run examples/pipelines/sensors.py model --batch
    entrepot pipeline run examples/pipelines/sensors.py averages alerts --live
"""

import math
from collections.abc import Sequence

import numpy as np
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from entrepot.spark.pipelines import Delta, Table, Topic, pipeline

READINGS = Topic("readings", schema="device string, celsius double, at timestamp")
LATE = "30 seconds"  # How late a reading may come and still count in its minute.
SPREADS_MAX = 5.0
SPREAD_MIN = 0.05  # Celsius; what sensors of this kind cannot tell apart.
CELSIUS_MAX = 1000.0  # What is beyond, or no number, is not a temperature.
READINGS_MIN = 10  # A device with fewer is not judged.
DAY_S = 24 * 60 * 60


def sensible(readings: DataFrame) -> DataFrame:
    return readings.where((F.abs("celsius") <= CELSIUS_MAX) & F.col("at").isNotNull())


@pipeline(reads=READINGS, writes=Topic("averages", key="device"))
def averages(readings: DataFrame) -> DataFrame:
    """Each device's minute, told once, when it is over."""
    told = sensible(readings).withWatermark("at", LATE)
    minutes = told.groupBy(F.window("at", "1 minute"), "device").agg(
        F.avg("celsius").alias("celsius"),
        F.min("celsius").alias("lowest"),
        F.max("celsius").alias("highest"),
        F.count("*").alias("readings"),
    )
    minute = F.col("window.start").alias("minute")
    return minutes.select("device", minute, "celsius", "lowest", "highest", "readings")


# --- learning


def solve(sums: Sequence[float]) -> tuple[float, float, float, float]:
    """Base, sine, cosine and spread out of the sums that `model` gathers.

    Of all solutions the smallest one is taken: a device that was read at one time of the
    day only has many.
    """
    n, s, c, ss, sc, cc, y, ys, yc, yy = sums
    inputs = np.array([[n, s, c], [s, ss, sc], [c, sc, cc]])
    outputs = np.array([y, ys, yc])
    fitted, *_ = np.linalg.lstsq(inputs, outputs, rcond=None)
    unexplained = max(yy - float(fitted @ outputs), 0.0)
    base, sine, cosine = map(float, fitted)
    return base, sine, cosine, max(math.sqrt(unexplained / (n - 3)), SPREAD_MIN)


def time_of_day() -> Column:
    """An angle that goes round once a day."""
    seconds = F.unix_micros("at") / 1e6
    return (seconds % DAY_S) * (2 * math.pi / DAY_S)


@pipeline(reads=READINGS, writes=Delta("model", keys=["device"]), mode="update")
def model(readings: DataFrame) -> DataFrame:
    """What each device does on an ordinary day."""
    s, c, y = F.sin("angle"), F.cos("angle"), F.col("celsius")
    terms = [F.lit(1.0), s, c, s * s, s * c, c * c, y, y * s, y * c, y * y]
    learned = (
        sensible(readings)
        .withColumn("angle", time_of_day())
        .groupBy("device")
        .agg(F.array(*(F.sum(term) for term in terms)).alias("sums"), F.count("*").alias("n"))
        .where(F.col("n") >= READINGS_MIN)
    )
    fit = F.udf(solve, "base double, sine double, cosine double, spread double")
    return learned.withColumn("fitted", fit("sums")).select("device", "fitted.*", "n")


# --- applying


@pipeline(reads=(READINGS, Table("model", static=True)), writes=Topic("alerts", key="device"))
def alerts(readings: DataFrame, model: DataFrame) -> DataFrame:
    """Readings that the model does not believe."""
    expected = F.col("base") + F.col("sine") * F.sin("angle") + F.col("cosine") * F.cos("angle")
    judged = (
        sensible(readings)
        .withColumn("angle", time_of_day())
        .join(model, "device")
        .withColumn("expected", expected)
        .withColumn("spreads", (F.col("celsius") - F.col("expected")) / F.col("spread"))
    )
    return judged.where(F.abs("spreads") > SPREADS_MAX).select(
        "device", "at", "celsius", "expected", "spreads"
    )
