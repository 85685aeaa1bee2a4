"""How far a batch is: offsets done of how many, and how long the rest will take.

A batch is one call that returns when all is done. So a thread of its own asks Spark, now and
then, how many records the tasks of this batch have read. Tasks say so every ten seconds, and
when they end.
"""

import threading
import time
from contextlib import suppress
from typing import Any, Self

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import SparkSession

from entrepot.spark.pipelines.running import Tell

TELL_S = 5.0
STOP_S_MAX = 10.0


class BatchProgress:
    """Tells of one pipeline's batch, as long as the context lasts."""

    def __init__(self, spark: SparkSession, pipeline: str, offsets: int, tell: Tell) -> None:
        self._context = spark.sparkContext
        self._pipeline = pipeline
        self._offsets = offsets  # That there are to read.
        self._tell = tell
        self._group = f"entrepot-batch-{pipeline}-{id(self)}"
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._begun_s = 0.0

    def __enter__(self) -> Self:
        self._begun_s = time.monotonic()
        self._context.setJobGroup(self._group, f"batch of pipeline {self._pipeline}")
        self._thread.start()
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._is_over.set()
        self._thread.join(STOP_S_MAX)
        if kind is None:
            seconds = time.monotonic() - self._begun_s
            self._tell(f"pipeline {self._pipeline}: {self._offsets:,} offsets in {seconds:.0f} s")

    def _watch(self) -> None:
        while not self._is_over.wait(TELL_S):
            with suppress(Py4JError):  # Java is about to end, or knows the stage no more.
                seconds = time.monotonic() - self._begun_s
                words = in_words(self.rows_read(), self._offsets, seconds)
                self._tell(f"pipeline {self._pipeline}: {words}")

    def rows_read(self) -> int:
        """Return how many records tasks have read, as far as Spark has heard of it."""
        tracker, store = self._context.statusTracker(), _store(self._context)
        jobs = [tracker.getJobInfo(number) for number in tracker.getJobIdsForGroup(self._group)]
        stages = {number for job in jobs if job is not None for number in job.stageIds}
        known = [number for number in sorted(stages) if tracker.getStageInfo(number) is not None]
        return sum(int(store.lastStageAttempt(number).inputRecords()) for number in known)


def _store(context: Any) -> Any:
    return context._jsc.sc().statusStore()


def in_words(done: int, offsets: int, seconds: float) -> str:
    """Say how far it is. Offsets without a record (markers, compacted ones) count as done last."""
    done = min(done, offsets)
    if done == 0:
        return f"0 of {offsets:,} offsets after {seconds:.0f} s"
    left_s = seconds * (offsets - done) / done
    return (
        f"{done:,} of {offsets:,} offsets ({done / offsets:.0%}), {done / seconds:,.0f} rows/s, "
        f"about {left_s:.0f} s left"
    )
