"""The queries of one run: watched together, ended together.

One that fails ends the run: a pipeline that silently stands still is worse than one that
has stopped. The error names the pipeline; the others are stopped, and go on from their
checkpoints next time.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from pyspark.errors import PySparkException
from pyspark.sql.streaming import StreamingQuery

from entrepot.spark.pipelines.declaring import PipelineError
from entrepot.spark.pipelines.failing import reason_of
from entrepot.spark.pipelines.progress import Metrics, Progress, Watch

LOOK_S = 0.2
FINISH_S_MAX = 10.0  # For the batch that is under way, before it is cut off.

Report = Callable[[Progress], None]


@dataclass(frozen=True)
class Started:
    about: str  # For people: what fails under it.
    query: StreamingQuery
    watch: Watch | None  # None: nobody wants to know.


class Queries:
    def __init__(self, metrics: Metrics, report: Report | None) -> None:
        self._metrics = metrics
        self._report = report
        self._started: dict[str, Started] = {}

    def start(
        self, name: str, about: str, begin: Callable[[], StreamingQuery], version: int | None = None
    ) -> None:
        """Begin a query; with a version its progress is reported."""
        try:
            query = begin()
        except PySparkException as error:
            raise PipelineError(f"{about}: {reason_of(error)}") from error
        watch = None if version is None else Watch(query, name, version)
        self._started[name] = Started(about, query, watch)

    def end(self, name: str) -> None:
        _stop(self._started[name].query)
        self._tell()
        del self._started[name]

    def look(self) -> bool:
        """Report what has been done; whether any query still runs. Raise if one failed."""
        self._tell()
        active = False
        for each in self._started.values():
            if each.query.isActive:
                active = True
            elif (error := each.query.exception()) is not None:
                raise PipelineError(f"{each.about}: {reason_of(error)}") from error
        return active

    def pause(self) -> None:
        """For a moment, or until one ends."""
        for each in self._started.values():
            if each.query.isActive:
                with suppress(PySparkException):  # `look` says it, with the pipeline's name.
                    each.query.awaitTermination(LOOK_S)
                return

    def drain(self) -> None:
        """Until all that is there now has passed through all of them."""
        for each in list(self._started.values()):
            try:
                each.query.processAllAvailable()
            except PySparkException as error:
                raise PipelineError(f"{each.about}: {reason_of(error)}") from error
        self._tell()

    def close(self) -> None:
        for each in self._started.values():
            _stop(each.query)
        self._tell()

    def _tell(self) -> None:
        watches = [each.watch for each in self._started.values() if each.watch is not None]
        reports = [progress for watch in watches for progress in watch.take()]
        for each in reports:
            self._metrics.add(each)
            if self._report is not None:
                self._report(each)
        if reports:
            self._metrics.write()


def _stop(query: StreamingQuery) -> None:
    """After the batch that is under way, if that does not take long: it would come again."""
    for _ in range(round(FINISH_S_MAX / LOOK_S)):
        if not query.isActive or not query.status["isTriggerActive"]:
            break
        with suppress(PySparkException):
            query.awaitTermination(LOOK_S)
    query.stop()
