"""Readings into a table: medians of the runs, their range, and ours against the peer's.

Sections have the peer that they are measured beside: Kafka, RabbitMQ for queues, Mosquitto for
MQTT.
"""

import statistics
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from bench.meter import CLIENT_BOUND, Sample

PEER, RABBITMQ, MOSQUITTO = "Kafka", "RabbitMQ", "Mosquitto"
PEERS = (PEER, RABBITMQ, MOSQUITTO)
NATS, REDIS = "NATS", "Redis"
REFERENCES = (NATS, REDIS)  # Shown beside a peer; nothing is compared with them.
RATES = ("msg/s", "rows/s")

SECTIONS = {
    "start": "From exec to serving, and memory when empty (less is better)",
    "topics": "1,000 topics with 4 partitions each (less is better)",
    "memory": "Memory after data went in and out (less is better)",
    "throughput": "confluent-kafka: messages/s and MB/s of payload (more is better)",
    "raw": "Requests built beforehand, 1 KiB records, one connection (more is better)",
    "latency": "confluent-kafka: end to end at 1,000 messages/s, acks=all (less is better)",
    "transactions": "confluent-kafka: exactly once, records/s and MB/s (more is better)",
    "groups": "Cores for heartbeats; time beyond the session to take over (less is better)",
    "spark": "Spark, two cores, records of 100 B: rows/s (more is better)",
    "spark cost": "The same: processor seconds a million rows, with the broker (less is better)",
    "spark micro-batch": "Spark: from `produce` to foreachBatch, row by row (less is better)",
    "queues": "AMQP: through a queue, one publisher, one consumer, messages/s (more is better)",
    "routing": "AMQP: routing, deliveries/s (more is better), and what it costs to have more",
    "depth": "AMQP: durable, with so many messages waiting: messages/s (more is better), MiB",
    "one at a time, AMQP": "amqp091-go, confirms, acks, a queue each: messages/s (more is better)",
    "one at a time, AMQP: p99": "The same: published until confirmed and received (less is better)",
    "one at a time, AMQP: cost": "The same: the broker's processor time for each (less is better)",
    "one at a time, Kafka": "franz-go, no linger, a partition each: messages/s (more is better)",
    "one at a time, Kafka: p99": "The same: produced until acked and received (less is better)",
    "one at a time, Kafka: cost": "The same: the broker's processor time for each (less is better)",
    "mqtt": "MQTT: deliveries/s and MB/s (more is better); seconds, memory (less is better)",
    "mqtt: cost": "The same: the broker's processor time for each delivery (less is better)",
    "one at a time, MQTT": "MQTT, QoS 1, a topic each, a wildcard subscriber: messages/s (more)",
    "one at a time, MQTT: p99": "The same: published until acked and received (less is better)",
    "one at a time, MQTT: cost": "The same: the broker's processor time for each (less is better)",
    "tick": "1,000 batches at once, acks=all: the same bytes wide and narrow (less is better)",
}


class Row(NamedTuple):
    section: str
    label: str
    unit: str  # One of RATES, "µs", "ms", "s", "KiB", "MiB", "cores" or "x".


class Readings:
    """All samples so far: by row, then by contestant."""

    def __init__(self) -> None:
        self.rows: dict[Row, dict[str, list[Sample]]] = {}

    def add(self, row: Row, contestant: str, sample: Sample) -> None:
        self.rows.setdefault(row, {}).setdefault(contestant, []).append(sample)

    def samples(self, row: Row) -> Iterable[Sample]:
        """Of all contestants."""
        return chain.from_iterable(self.rows[row].values())

    def median(self, row: Row, contestant: str) -> float | None:
        samples = self.rows.get(row, {}).get(contestant)
        return statistics.median(sample.value for sample in samples) if samples else None

    def peer(self, row: Row) -> str:
        """Whom the row is measured beside."""
        return next((name for name in PEERS if name in self.rows.get(row, {})), PEER)

    def ratio(self, row: Row, contestant: str) -> float | None:
        """Ours divided by the peer's."""
        ours, theirs = self.median(row, contestant), self.median(row, self.peer(row))
        return ours / theirs if ours is not None and theirs else None

    def overlap(self, row: Row, contestant: str) -> bool:
        """Whether the ranges of ours and of the peer's meet: the machine may have decided."""
        ours, theirs = (
            [sample.value for sample in self.rows[row][name]]
            for name in (contestant, self.peer(row))
        )
        return min(ours) <= max(theirs) and min(theirs) <= max(ours)

    def as_json(self) -> list[dict[str, object]]:
        return [
            {**row._asdict(), "contestant": name, "samples": [each._asdict() for each in samples]}
            for row, contestants in self.rows.items()
            for name, samples in contestants.items()
        ]


def tables(readings: Readings, contestants: Sequence[str]) -> str:
    """One table for each section that has rows."""
    parts = []
    for section, title in SECTIONS.items():
        rows = [row for row in readings.rows if row.section == section]
        if rows:
            present = {name for row in rows for name in readings.rows[row]}
            columns = [name for name in contestants if name in present]
            parts.append(f"{title}\n{_table(readings, rows, columns)}")
    return "\n\n".join(parts)


def _table(readings: Readings, rows: Sequence[Row], contestants: Sequence[str]) -> str:
    ours = [name for name in contestants if name not in (*PEERS, *REFERENCES)]
    peers = [name for name in contestants if name in PEERS]
    versus = [f"{name.removeprefix('entrepot ')}/{peer}" for peer in peers for name in ours]
    loads = any(each.client is not None for row in rows for each in readings.samples(row))
    lines = [["", *contestants, *versus, *(["broker cores", "client-bound"] if loads else [])]]
    for row in rows:
        line = [row.label if row.unit in (*RATES, "x") else f"{row.label}, {row.unit}"]
        line += [_cell(row, readings.rows[row].get(name)) for name in contestants]
        line += [_times(readings.ratio(row, name)) for name in ours if versus]
        if loads:
            line += _notes(row, readings.rows[row], contestants)
        lines.append(line)
    return align(lines)


def align(lines: Sequence[Sequence[str]]) -> str:
    """Columns as wide as their widest cell; the first to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def number(value: float) -> str:
    """Three digits: more would be noise."""
    if value >= 100:
        return f"{value:.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _cell(row: Row, samples: Sequence[Sample] | None) -> str:
    if not samples:
        return "-"
    rate = row.unit in RATES
    values = [sample.value / 1e3 if rate else sample.value for sample in samples]
    middle = number(statistics.median(values)) + ("k" if rate else "")
    spread = f"[{number(min(values))}..{number(max(values))}]" if len(values) > 1 else "(once)"
    text = f"{middle} {spread}"
    speeds = [sample.mb_per_second for sample in samples if sample.mb_per_second is not None]
    return f"{text} {number(statistics.median(speeds)):>4} MB/s" if speeds else text


def _times(ratio: float | None) -> str:
    return "-" if ratio is None else f"{ratio:.2f}x"


def _notes(row: Row, samples: dict[str, list[Sample]], contestants: Iterable[str]) -> list[str]:
    """The cores each broker used, and for which of them the client was the limit."""
    if row.unit != "msg/s":
        return ["", ""]
    present = [name for name in contestants if name in samples]
    cores = [_median(sample.broker for sample in samples[name]) for name in present]
    busy = [_median(sample.client for sample in samples[name]) for name in present]
    bound = [
        name.removeprefix("entrepot ")
        for name, share in zip(present, busy, strict=True)
        if share >= CLIENT_BOUND
    ]
    return [" ".join(f"{each:.2f}" for each in cores), " ".join(bound)]


def _median(values: Iterable[float | None]) -> float:
    return statistics.median(value for value in values if value is not None)
