"""The queries of one run: watched together, ended together.

One that fails ends the run: a pipeline that silently stands still is worse than one that
has stopped. The error names the pipeline; the others are stopped, and go on from their
checkpoints next time.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

from pyspark.errors import PySparkException
from pyspark.sql.streaming import StreamingQuery

from entrepot.spark.errors import PipelineError
from entrepot.spark.pipelines.failing import reason_of
from entrepot.spark.pipelines.progress import Metrics, Progress, Watch

LOOK_S = 0.2
FINISH_S_MAX = 10.0  # For the batch that is under way, before it is cut off.
BEGIN_S_MAX = 20.0  # For the first batch of a query, before the next query is started.
TRIES_MAX = 12  # For some minutes: what keeps the cores busy may be at its end by then.
PAUSE_S = 2.0  # Before the second try; each pause is twice the last one,
PAUSE_S_MAX = 30.0  # up to this.
# Spark gives a process ten seconds from its start to its first word, by no setting. Where
# many are started at once, on few cores, some take longer. The next try is a new process.
SLOW_WORKER = "Python worker failed to connect back"

Report = Callable[[Progress], None]
Tell = Callable[[str], None]

_Result = TypeVar("_Result")


def is_slow_worker(error: BaseException) -> bool:
    return SLOW_WORKER in str(error)


def persist(about: str, work: Callable[[], _Result], tell: Tell) -> _Result:
    """Do work that starts processes of Python; do it again if one of them was too slow."""
    for tries in range(1, TRIES_MAX + 1):
        try:
            return work()
        except PySparkException as error:
            if tries == TRIES_MAX or not is_slow_worker(error):
                raise PipelineError(f"{about}: {reason_of(error)}") from error
        pause(about, tries, tell)
    raise AssertionError("the last try returns or raises")


def pause(about: str, tries: int, tell: Tell) -> None:
    """Wait before another try, the longer the more there were: the machine is busy."""
    pause_s = min(PAUSE_S * 2 ** (tries - 1), PAUSE_S_MAX)
    words = f"trying again in {pause_s:.0f} s" if pause_s > PAUSE_S else "trying again"
    tell(f"{about}: a process of Python was too slow to start; {words}")
    time.sleep(pause_s)


@dataclass
class Started:
    about: str  # For people: what fails under it.
    begin: Callable[[], StreamingQuery]
    version: int | None  # None: nobody wants to know of its progress.
    query: StreamingQuery
    watch: Watch | None
    tries: int = 1  # Since it last came as far as its source.


class Queries:
    def __init__(self, metrics: Metrics, report: Report | None, tell: Tell) -> None:
        self._metrics = metrics
        self._report = report
        self._tell = tell
        self._started: dict[str, Started] = {}

    def start(
        self, name: str, about: str, begin: Callable[[], StreamingQuery], version: int | None = None
    ) -> None:
        """Begin a query; with a version its progress is reported."""
        query = persist(about, begin, self._tell)
        watch = None if version is None else Watch(query, name, version)
        self._started[name] = Started(about, begin, version, query, watch)

    def settle(self, name: str) -> None:
        """Wait for the query's first batch, but not for long: what it starts needs the cores."""
        for _ in range(round(BEGIN_S_MAX / LOOK_S)):
            if not self.look() or _has_begun(self._started[name].query):
                return
            with suppress(PySparkException):  # `look` says it, with the pipeline's name.
                self._started[name].query.awaitTermination(LOOK_S)

    def end(self, name: str) -> None:
        _stop(self._started[name].query)
        self._say()
        del self._started[name]

    def look(self) -> bool:
        """Report what has been done; return whether any query still runs. Raise if one failed."""
        self._say()
        active = False
        for name, each in self._started.items():
            if each.query.isActive:
                active = True
            elif (error := each.query.exception()) is not None:
                self._begin_again(name, each, error)
                active = True
        return active

    def _begin_again(self, name: str, each: Started, error: Exception) -> None:
        """Begin a query again after a failure that another try may mend, or raise the failure."""
        each.tries = 1 if each.query.lastProgress is not None else each.tries + 1
        if each.tries > TRIES_MAX or not is_slow_worker(error):
            raise PipelineError(f"{each.about}: {reason_of(error)}") from error
        pause(each.about, each.tries - 1, self._tell)
        each.query = persist(each.about, each.begin, self._tell)
        each.watch = None if each.version is None else Watch(each.query, name, each.version)

    def pause(self) -> None:
        """Wait for a moment, or until one ends."""
        for each in self._started.values():
            if each.query.isActive:
                with suppress(PySparkException):  # `look` says it, with the pipeline's name.
                    each.query.awaitTermination(LOOK_S)
                return

    def drain(self) -> None:
        """Wait until all that is there now has passed through all queries."""
        for name, each in self._started.items():
            while True:
                try:
                    each.query.processAllAvailable()
                    break
                except PySparkException as error:
                    self._begin_again(name, each, error)
        self._say()

    def close(self) -> None:
        for each in self._started.values():
            _stop(each.query)
        self._say()

    def _say(self) -> None:
        watches = [each.watch for each in self._started.values() if each.watch is not None]
        reports = [progress for watch in watches for progress in watch.take()]
        for each in reports:
            self._metrics.add(each)
            if self._report is not None:
                self._report(each)
        if reports:
            self._metrics.write()


def _has_begun(query: StreamingQuery) -> bool:
    """Return whether the query has done a batch, or found that there is nothing to do."""
    return query.lastProgress is not None or str(query.status["message"]).startswith("Waiting")


def _stop(query: StreamingQuery) -> None:
    """Stop a query after the batch under way, if that does not take long: it would come again."""
    for _ in range(round(FINISH_S_MAX / LOOK_S)):
        if not query.isActive or not query.status["isTriggerActive"]:
            break
        with suppress(PySparkException):
            query.awaitTermination(LOOK_S)
    query.stop()
