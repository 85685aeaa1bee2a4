"""What the source must reach."""

from collections.abc import Iterator

from bench.spark.session import OURS
from bench.spark.sources import label
from bench.table import PEER, Readings, Row
from bench.targets import Verdict, at_least, at_most, worst_ratio

RECORDS = 5_000_000


def spark_targets(readings: Readings) -> Iterator[Verdict]:
    for name, rate in (("noop", 1_000_000), ("parquet", 400_000), ("stream", 250_000)):
        yield at_least(readings, Row("spark", label(name, RECORDS), "rows/s"), OURS, rate)
    rows = [row for row in readings.rows if row.section == "spark"]
    target = f"{OURS}, every row: at least the rate of Spark's own connector ({PEER})"
    yield worst_ratio(readings, target, rows, OURS, more_is_better=True)
    yield at_most(readings, Row("spark micro-batch", "one row", "ms"), OURS, 150)
    row = Row("spark micro-batch", "one row, a trigger of 100 ms", "ms")
    target = f"{OURS}, one row, a trigger of 100 ms: at most half of the time of {PEER}'s"
    yield worst_ratio(readings, target, [row], OURS, more_is_better=False, limit=0.5)
