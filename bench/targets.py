"""What must be reached, checked against the readings of this run: the broker's own targets,
and what those of any bench are made of."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from bench.table import PEER, Readings, Row, align, number

OURS = ("entrepot os", "entrepot fsync")  # Kafka's default gives what the first gives.


class Verdict(NamedTuple):
    target: str
    found: str
    reached: bool | None  # None: not measured in this run.


def verdicts(found: Iterable[Verdict]) -> str:
    lines = [["target", "found", ""]]
    words = {True: "reached", False: "MISSED", None: "not measured"}
    for verdict in found:
        lines.append([verdict.target, verdict.found, words[verdict.reached]])
    return "Must reach\n" + align(lines)


def broker_targets(readings: Readings) -> Iterator[Verdict]:
    for verb in ("produce", "consume"):
        rows = _rows(readings, "throughput", "1 KiB", verb)
        target = f"1 KiB {verb}, durability os: at least {PEER}'s rate"
        yield worst_ratio(readings, target, rows, OURS[0], more_is_better=True)
    target = f"p99 end to end, durability os: no higher than {PEER}'s"
    rows = _rows(readings, "latency", "", "p99")
    yield worst_ratio(readings, target, rows, OURS[0], more_is_better=False)
    target = f"transactions, durability os: at least {PEER}'s rate"
    rows = _rows(readings, "transactions", "", "")
    yield worst_ratio(readings, target, rows, OURS[0], more_is_better=True)
    target = f"a fetch of 16 KiB, 1 in flight, durability os: at least {PEER}'s rate"
    rows = _rows(readings, "raw", "16 KiB", "fetch, 1 in flight")
    yield worst_ratio(readings, target, rows, OURS[0], more_is_better=True)
    target = f"one at a time, durability os: at least 0.8 times {PEER}'s rate"
    rows = _rows(readings, "one at a time, Kafka", "", "")
    yield worst_ratio(readings, target, rows, OURS[0], more_is_better=True, limit=0.8)
    for protocol in ("classic", "modern"):
        row = Row("groups", f"10,000 idle members, {protocol}", "cores")
        yield at_most(readings, row, OURS[1], 0.25)
        row = Row("groups", f"1 of 100 members gone, {protocol}", "s")
        yield at_most(readings, row, OURS[1], 1)
    for name in OURS:
        yield at_most(readings, Row("start", "ready", "s"), name, 0.5)
        yield at_most(readings, Row("start", "memory", "MiB"), name, 80)
    for size in ("16 KiB", "1 KiB"):
        yield at_most(readings, Row("tick", f"{size} each, wide : narrow", "x"), OURS[1], 5)
    for name in OURS:
        yield at_most(readings, Row("topics", "start after a clean stop", "s"), name, 3)
    for name in OURS:
        yield at_most(readings, Row("memory", "twice the data : half", "x"), name, 1.1)


def _rows(readings: Readings, section: str, first: str, last: str) -> list[Row]:
    rows = (row for row in readings.rows if row.section == section)
    return [row for row in rows if row.label.startswith(first) and row.label.endswith(last)]


def worst_ratio(
    readings: Readings,
    target: str,
    rows: Sequence[Row],
    contestant: str,
    *,
    more_is_better: bool,
    limit: float = 1,
) -> Verdict:
    """Judge a ratio in the row where it is worst."""
    pairs = [(readings.ratio(row, contestant), row) for row in rows]
    ratios = [(ratio, row) for ratio, row in pairs if ratio is not None]
    if not ratios:
        return Verdict(target, "-", None)
    ratio, row = min(ratios) if more_is_better else max(ratios)
    reached = ratio >= limit if more_is_better else ratio <= limit
    doubt = ", ranges overlap" if readings.overlap(row, contestant) else ""
    return Verdict(target, f"{ratio:.2f}x{doubt} ({row.label})", reached)


def at_most(readings: Readings, row: Row, contestant: str, limit: float) -> Verdict:
    value = readings.median(row, contestant)
    target = f"{contestant}, {row.section}: {row.label} at most {limit:g} {row.unit}"
    if value is None:
        return Verdict(target, "-", None)
    return Verdict(target, f"{number(value)} {row.unit}", value <= limit)


def at_least(readings: Readings, row: Row, contestant: str, limit: float) -> Verdict:
    value = readings.median(row, contestant)
    target = f"{contestant}, {row.section}: {row.label} at least {limit:,.0f} {row.unit}"
    if value is None:
        return Verdict(target, "-", None)
    return Verdict(target, f"{value:,.0f} {row.unit}", value >= limit)
