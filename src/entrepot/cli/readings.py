"""What a broker's metrics say: figures at one moment, and rates between two of them.

A `Reading` is one scrape. `Figures` are made of two: what there is now, and how much came and went
each second since the first. A counter that is less than before belongs to another life of the
broker, or another queue of the same name: there is no rate then, and none is shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Labels = tuple[str, ...]  # Values, in the order of the labels' names.
Row = dict[str, Any]  # By column. None means: not known.

PREFIX = "entrepot_"


class Reading:
    """The samples of one scrape."""

    def __init__(self, text: str, time_s: float) -> None:
        """Parse a page of metrics. Raises ValueError if it is none."""
        from prometheus_client.parser import text_string_to_metric_families

        self.time_s = time_s
        self._samples: dict[str, dict[Labels, float]] = {}
        self.version = ""
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                key = tuple(labels[each] for each in sorted(labels))
                self._samples.setdefault(name.removeprefix(PREFIX), {})[key] = value
                if name == f"{PREFIX}build_info":
                    self.version = labels["version"]
        if not self.version:
            raise ValueError("these are not the metrics of an entrepot")

    def all(self, name: str) -> Mapping[Labels, float]:
        """Return the samples of a metric by the values of their labels, in the labels' order."""
        return self._samples.get(name, {})

    def one(self, name: str, *labels: str) -> float | None:
        return self.all(name).get(labels)


class Figures(NamedTuple):
    """What `entrepot top` shows. The order of rows is that of the metrics."""

    node: Row
    protocols: Sequence[Row]
    topics: Sequence[Row]
    queues: Sequence[Row]
    groups: Sequence[Row]


def figures(before: Reading | None, now: Reading) -> Figures:
    """Return the figures. Without a reading before there are no rates."""
    between = _Between(before, now)
    return Figures(
        _node(between),
        [*_protocols(between)],
        [*_topics(between)],
        [*_queues(between)],
        [*_groups(between)],
    )


class _Between:
    """Two readings."""

    def __init__(self, before: Reading | None, now: Reading) -> None:
        self.before, self.now = before, now
        self.seconds = 0.0 if before is None else now.time_s - before.time_s

    def change(self, name: str, labels: Labels) -> float | None:
        """Return how much more it is than before; None if that is not known, or it is less."""
        now = self.now.all(name).get(labels)
        then = None if self.before is None else self.before.all(name).get(labels)
        if now is None or then is None or now < then:
            return None
        return now - then

    def rate(self, name: str, labels: Labels = ()) -> float | None:
        change = self.change(name, labels)
        return None if change is None or self.seconds <= 0 else change / self.seconds

    def quantile(self, name: str, share: float, *labels: str) -> float | None:
        """Return a quantile of what was added to a histogram since, in seconds."""
        bounds = []
        for key in self.now.all(f"{name}_bucket"):
            le, *others = key
            if tuple(others) == labels:
                bounds.append((float(le), self.change(f"{name}_bucket", key) or 0.0))
        return _quantile(sorted(bounds), share)


def _quantile(bounds: Sequence[tuple[float, float]], share: float) -> float | None:
    """Return the value below which that share is, given cumulative counts by their bounds."""
    if not bounds or not bounds[-1][1]:
        return None
    wanted = share * bounds[-1][1]
    low, below = 0.0, 0.0
    for bound, count in bounds:
        if count >= wanted and count > below:
            if bound == float("inf"):
                return low
            return low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return low


def _node(between: _Between) -> Row:
    now = between.now
    started = now.one("process_start_time_seconds")
    return {
        "version": now.version,
        "started": started,
        "connections": round(sum(now.all("connections").values())),
        "partitions": _whole(now.one("partitions")),
        "queues": _whole(now.one("queues")),
        "processor": between.rate("process_cpu_seconds_total"),
        "memory_bytes": _whole(now.one("process_resident_memory_bytes")),
        "disk_free_bytes": _whole(now.one("disk_free_bytes")),
        "loop_late_s": between.quantile("event_loop_lag_seconds", 0.99),
        "commit_s": between.quantile("commit_latency_seconds", 0.99),
        "alarms": [labels[0] for labels, value in now.all("alarm").items() if value],
        "partitions_faulty": round(sum(now.all("partitions_faulty").values())),
        "internal_errors": _whole(now.one("internal_errors_total")),
        "left_out": round(sum(now.all("rows_left_out").values())),
    }


def _whole(value: float | None) -> int | None:
    return None if value is None else round(value)


def _protocols(between: _Between) -> Iterator[Row]:
    for (name,), connections in between.now.all("connections").items():
        latency = "produce" if name.startswith("kafka") else "confirm"
        yield {
            "protocol": name,
            "connections": round(connections),
            "in_s": between.rate("messages_published_total", (name,)),
            "out_s": between.rate("messages_delivered_total", (name,)),
            "bytes_in_s": between.rate("received_bytes_total", (name,)),
            "bytes_out_s": between.rate("sent_bytes_total", (name,)),
            "answer_s": between.quantile(f"{latency}_latency_seconds", 0.5, name),
            "answer_99_s": between.quantile(f"{latency}_latency_seconds", 0.99, name),
        }


def _topics(between: _Between) -> Iterator[Row]:
    found: dict[str, Row] = {}
    now = between.now
    ends, starts = now.all("partition_log_end_offset"), now.all("partition_log_start_offset")
    for labels, end in ends.items():
        _, topic = labels  # Partition and topic: labels come in the order of their names.
        none = {"topic": topic, "partitions": 0, "in_s": None, "records": 0, "bytes": 0}
        row = found.setdefault(topic, none)
        row["partitions"] += 1
        row["records"] += round(end - starts.get(labels, 0.0))
        row["bytes"] += round(now.all("partition_size_bytes").get(labels, 0.0))
        rate = between.rate("partition_log_end_offset", labels)
        if rate is not None:
            row["in_s"] = (row["in_s"] or 0.0) + rate
    yield from found.values()


def _queues(between: _Between) -> Iterator[Row]:
    now = between.now
    for labels, ready in now.all("queue_messages_ready").items():
        queue, vhost = labels
        lost = [
            between.rate(f"queue_messages_{each}_total", labels)
            for each in ("dead_lettered", "dropped")
        ]
        yield {
            "queue": queue,
            "vhost": vhost,
            "ready": round(ready),
            "unacked": round(now.all("queue_messages_leased").get(labels, 0.0)),
            "consumers": round(now.all("queue_consumers").get(labels, 0.0)),
            "in_s": between.rate("queue_messages_accepted_total", labels),
            "out_s": between.rate("queue_messages_consumed_total", labels),
            "lost_s": None if None in lost else sum(each or 0.0 for each in lost),
        }


def _groups(between: _Between) -> Iterator[Row]:
    found: dict[Labels, Row] = {}
    for labels, lag in between.now.all("group_lag").items():
        group, _, topic = labels
        none = {"group": group, "topic": topic, "partitions": 0, "lag": 0, "out_s": None}
        row = found.setdefault((group, topic), none)
        row["partitions"] += 1
        row["lag"] += round(lag)
        rate = between.rate("group_committed_offset", labels)
        if rate is not None:
            row["out_s"] = (row["out_s"] or 0.0) + rate
    yield from found.values()
