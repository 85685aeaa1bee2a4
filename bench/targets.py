"""What the broker must reach, checked against the readings of this run."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bench.table import PEER, Readings, Row, align, number

OURS = ("entrepot os", "entrepot fsync")


class Verdict(NamedTuple):
    target: str
    found: str
    reached: bool | None  # None: not measured in this run.


def verdicts(readings: Readings) -> str:
    lines = [["target", "found", ""]]
    words = {True: "reached", False: "MISSED", None: "not measured"}
    for verdict in _all(readings):
        lines.append([verdict.target, verdict.found, words[verdict.reached]])
    return "Must reach\n" + align(lines)


def _all(readings: Readings) -> Iterator[Verdict]:
    for verb in ("produce", "consume"):
        rows = _rows(readings, "throughput", "1 KiB", verb)
        target = f"1 KiB {verb}, durability os: at least {PEER}'s rate"
        yield _worst_ratio(readings, target, rows, more_is_better=True)
    target = f"p99 end to end, durability os: no higher than {PEER}'s"
    rows = _rows(readings, "latency", "", "p99")
    yield _worst_ratio(readings, target, rows, more_is_better=False)
    target = f"transactions, durability os: at least {PEER}'s rate"
    rows = _rows(readings, "transactions", "", "")
    yield _worst_ratio(readings, target, rows, more_is_better=True)
    for protocol in ("classic", "modern"):
        row = Row("groups", f"10,000 idle members, {protocol}", "cores")
        yield _at_most(readings, row, OURS[1], 0.25)
        row = Row("groups", f"1 of 100 members gone, {protocol}", "s")
        yield _at_most(readings, row, OURS[1], 1)
    for name in OURS:
        yield _at_most(readings, Row("start", "ready", "s"), name, 0.5)
        yield _at_most(readings, Row("start", "memory", "MiB"), name, 80)
    for size in ("16 KiB", "1 KiB"):
        yield _at_most(readings, Row("tick", f"{size} each, wide : narrow", "x"), OURS[1], 5)
    for name in OURS:
        yield _at_most(readings, Row("topics", "start after a clean stop", "s"), name, 3)
    for name in OURS:
        yield _at_most(readings, Row("memory", "twice the data : half", "x"), name, 1.1)


def _rows(readings: Readings, section: str, first: str, last: str) -> list[Row]:
    rows = (row for row in readings.rows if row.section == section)
    return [row for row in rows if row.label.startswith(first) and row.label.endswith(last)]


def _worst_ratio(
    readings: Readings, target: str, rows: Sequence[Row], *, more_is_better: bool
) -> Verdict:
    """Durability os, which is what Kafka's default gives, in the row where it does worst."""
    pairs = [(readings.ratio(row, OURS[0]), row) for row in rows]
    ratios = [(ratio, row) for ratio, row in pairs if ratio is not None]
    if not ratios:
        return Verdict(target, "-", None)
    ratio, row = min(ratios) if more_is_better else max(ratios)
    reached = ratio >= 1 if more_is_better else ratio <= 1
    doubt = ", ranges overlap" if readings.overlap(row, OURS[0]) else ""
    return Verdict(target, f"{ratio:.2f}x{doubt} ({row.label})", reached)


def _at_most(readings: Readings, row: Row, contestant: str, limit: float) -> Verdict:
    value = readings.median(row, contestant)
    target = f"{contestant}, {row.section}: {row.label} at most {limit:g} {row.unit}"
    if value is None:
        return Verdict(target, "-", None)
    return Verdict(target, f"{number(value)} {row.unit}", value <= limit)
