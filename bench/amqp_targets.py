"""What queues must reach: five times the rate of RabbitMQ, whatever their depth."""

from collections.abc import Iterator

from bench.amqp_scenarios import DEEPER, DEPTH_DEEP, DEPTH_SHALLOW
from bench.table import Readings, Row
from bench.targets import OURS, Verdict, at_most

TIMES_MIN = 5
DEPTH_TIMES_MAX = 1.3


def queue_targets(readings: Readings) -> Iterator[Verdict]:
    """Each row by itself, against RabbitMQ's and with fdatasync."""
    for row in [row for row in readings.rows if row.section == "queues"]:
        yield at_least_times(readings, row, OURS[1], TIMES_MIN)
    for what in ("a message drained", "memory"):
        label = DEEPER.format(what, DEPTH_DEEP, DEPTH_SHALLOW)
        yield at_most(readings, Row("depth", label, "x"), OURS[1], DEPTH_TIMES_MAX)


def at_least_times(readings: Readings, row: Row, contestant: str, times: float) -> Verdict:
    ratio = readings.ratio(row, contestant)
    peer = readings.peer(row)
    target = f"{contestant}, {row.section}: {row.label} at least {times:g} times {peer}'s rate"
    if ratio is None:
        return Verdict(target, "-", None)
    return Verdict(target, f"{ratio:.2f}x", ratio >= times)
