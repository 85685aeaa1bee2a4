"""What is told of micro-batches: each of them once."""

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pip install 'entrepot[spark]' for this test")

from entrepot.spark.pipelines.progress import Watch


def report(batch: int) -> Any:
    return SimpleNamespace(
        timestamp=f"2026-01-01T00:00:0{batch}.000Z",
        batchId=batch,
        numInputRows=10,
        processedRowsPerSecond=1.0,
        batchDuration=5,
        durationMs={"addBatch": 1},
        observedMetrics={},
        sources=[],
    )


class Query:
    """One that ends a batch whenever it was looked at."""

    def __init__(self) -> None:
        self.recentProgress = [report(0)]

    @property
    def lastProgress(self) -> Any:  # noqa: N802
        newest = self.recentProgress[-1]
        if len(self.recentProgress) < 5:
            self.recentProgress.append(report(len(self.recentProgress)))
        return newest


def test_a_batch_that_ends_meanwhile_is_told_of_once() -> None:
    watch = Watch(Query(), "p", 1)
    told = [each.batch for _ in range(8) for each in watch.take()]
    assert told == [0, 1, 2, 3, 4]
