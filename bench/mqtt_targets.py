"""What MQTT must reach beside Mosquitto: many times its rate when messages come thick, and at
least its rate and its patience when they come one at a time."""

from collections.abc import Iterator

from bench.amqp_targets import at_least_times
from bench.mqtt_scenarios import CONNECTIONS_IDLE, FAN_OUT, MORE, SECTION, SINGLES
from bench.table import MOSQUITTO, Readings, Row
from bench.targets import OURS, Verdict, at_most, worst_ratio

TIMES_MIN, FAN_OUT_TIMES_MIN = 5, 10
IDLE_KIB_MAX, IDLE_S_MAX = 10, 30
SUBSCRIPTIONS_TIMES_MAX = 1.5


def mqtt_targets(readings: Readings) -> Iterator[Verdict]:
    ours = OURS[1]
    for row in readings.rows:
        if row.section == SECTION and row.label.startswith(f"1 to {FAN_OUT},"):
            yield at_least_times(readings, row, ours, FAN_OUT_TIMES_MIN)
        elif row.section == SECTION and row.label.startswith(("1 to 1,", "100 topics")):
            yield at_least_times(readings, row, ours, TIMES_MIN)
    rows = [row for row in readings.rows if row.section == SINGLES]
    target = f"one at a time, MQTT: at least {MOSQUITTO}'s rate"
    yield worst_ratio(readings, target, rows, ours, more_is_better=True)
    rows = [row for row in readings.rows if row.section == f"{SINGLES}: p99"]
    target = f"one at a time, MQTT: p99 no higher than {MOSQUITTO}'s"
    yield worst_ratio(readings, target, rows, ours, more_is_better=False)
    label = f"{CONNECTIONS_IDLE:,} idle connections"
    row = Row(SECTION, f"{label}: memory of each", "KiB")
    yield at_most(readings, row, ours, IDLE_KIB_MAX)
    row = Row(SECTION, f"{label}: until all are there", "s")
    yield at_most(readings, row, ours, IDLE_S_MAX)
    yield at_most(readings, Row(SECTION, MORE, "x"), ours, SUBSCRIPTIONS_TIMES_MAX)
