"""How far pipelines are: rows, lag and time of every micro-batch, for people and for metrics."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from entrepot.spark.pipelines.inputs import POISON
from entrepot.spark.pipelines.versions import write_whole


@dataclass(frozen=True, slots=True)
class Progress:
    """One micro-batch."""

    pipeline: str
    version: int
    batch: int
    rows: int
    rows_per_s: float
    lag: int | None  # Records that were there and not yet read; None where nobody counts.
    batch_ms: int
    poison: int

    def __str__(self) -> str:
        lag = "" if self.lag is None else f", lag {self.lag:,}"
        poison = f", poison {self.poison:,}" if self.poison else ""
        return (
            f"{self.pipeline} v{self.version} batch {self.batch}: {self.rows:,} rows, "
            f"{self.rows_per_s:,.0f} rows/s{lag}, {self.batch_ms:,} ms{poison}"
        )


class Watch:
    """What one query has done since it was last looked at. Spark remembers a hundred batches."""

    def __init__(self, query: Any, pipeline: str, version: int) -> None:
        self._query = query
        self._pipeline = pipeline
        self._version = version
        self._seen = ""  # When the last trigger that was looked at began, in ISO 8601.

    def take(self) -> list[Progress]:
        newest = self._query.lastProgress
        if newest is None or newest.timestamp <= self._seen:
            return []
        news = [each for each in self._query.recentProgress if each.timestamp > self._seen]
        # One may have ended since we asked for the newest.
        self._seen = max(each.timestamp for each in (newest, *news))
        # While nothing comes, Spark now and then reports a batch that has not been.
        done = [each for each in news if "addBatch" in each.durationMs]
        return [_progress(each, self._pipeline, self._version) for each in done]


def _progress(report: Any, pipeline: str, version: int) -> Progress:
    counts = [row.asDict() for row in report.observedMetrics.values()]
    lags = [_lag(source.latestOffset, source.endOffset) for source in report.sources]
    known = [lag for lag in lags if lag is not None]
    return Progress(
        pipeline=pipeline,
        version=version,
        batch=report.batchId,
        rows=report.numInputRows,
        rows_per_s=report.processedRowsPerSecond or 0.0,
        lag=sum(known) if known else None,
        batch_ms=report.batchDuration,
        poison=sum(count.get(POISON) or 0 for count in counts),
    )


def _lag(latest: str | None, end: str | None) -> int | None:
    """Return how many offsets lie between; None if Spark counts otherwise, as it does files."""
    try:
        there, read = _offsets(latest), _offsets(end)
    except (ValueError, TypeError, AttributeError):
        return None
    return sum(max(0, offset - read.get(part, 0)) for part, offset in there.items())


def _offsets(text: str | None) -> dict[tuple[str, str], int]:
    document = json.loads(text or "")
    return {
        (topic, partition): int(offset)
        for topic, partitions in document.items()
        for partition, offset in partitions.items()
    }


# --- metrics


@dataclass
class _Sums:
    last: Progress
    rows: int = 0
    poison: int = 0
    batches: int = 0


_METRICS: tuple[tuple[str, str, str, Callable[[_Sums], float | None]], ...] = (
    ("rows_total", "counter", "Rows read.", lambda sums: sums.rows),
    ("batches_total", "counter", "Micro-batches done.", lambda sums: sums.batches),
    ("poison_total", "counter", "Records that did not parse.", lambda sums: sums.poison),
    ("lag_records", "gauge", "Records not yet read.", lambda sums: sums.last.lag),
    ("rows_per_second", "gauge", "Of the last batch.", lambda sums: sums.last.rows_per_s),
    ("batch_seconds", "gauge", "Of the last batch.", lambda sums: sums.last.batch_ms / 1000),
    ("version", "gauge", "Which version of the view.", lambda sums: sums.last.version),
)


@dataclass
class Metrics:
    """Sums since the run began, in a file that Prometheus' node exporter reads."""

    path: Path
    _sums: dict[str, _Sums] = field(default_factory=dict)

    def add(self, progress: Progress) -> None:
        sums = self._sums.setdefault(progress.pipeline, _Sums(progress))
        sums.last = progress
        sums.rows += progress.rows
        sums.poison += progress.poison
        sums.batches += 1

    def write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(self.path, self.text().encode())

    def text(self) -> str:
        lines = []
        for name, kind, words, value in _METRICS:
            whole = f"entrepot_pipeline_{name}"
            lines += [f"# HELP {whole} {words}", f"# TYPE {whole} {kind}"]
            for pipeline, sums in self._sums.items():
                number = value(sums)
                if number is not None:
                    lines.append(f'{whole}{{pipeline="{pipeline}"}} {number}')
        return "\n".join(lines) + "\n"
