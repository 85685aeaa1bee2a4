"""Running pipelines: live, replayed, over history.

Live, a stream goes on in the current version. A replay (Kappa) makes a fresh version from
the first record to the last there is, and then makes it the current one; its stream goes
on from there, in whichever run is live. A batch makes a fresh version from tables; of a
Lambda pipeline that is the batch layer, and the stream, the speed layer, begins exactly
where the batch ended.

A topic is no view: records in it cannot be swapped for others, so what writes to one is
run live only.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from os import PathLike
from types import ModuleType
from typing import Any, Self

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from entrepot.spark import offsets
from entrepot.spark.errors import PipelineError
from entrepot.spark.offsets import Json
from entrepot.spark.options import Address
from entrepot.spark.pipelines import outputs, views
from entrepot.spark.pipelines.batch_progress import BatchProgress
from entrepot.spark.pipelines.declaring import (
    Pipeline,
    Queue,
    Topic,
    choose,
    collect,
    with_readers,
)
from entrepot.spark.pipelines.failing import reason_of
from entrepot.spark.pipelines.inputs import QueueAddress, Source, digest, options_of
from entrepot.spark.pipelines.planning import Planner
from entrepot.spark.pipelines.progress import Metrics
from entrepot.spark.pipelines.running import Queries, Report, Tell, persist
from entrepot.spark.pipelines.versions import Directory, Locks, Version, rebuilding

AVAILABLE_NOW = {"availableNow": True}


class Runner:
    """Pipelines, a directory for what they make, and a broker."""

    def __init__(
        self,
        spark: SparkSession,
        pipelines: ModuleType | Iterable[Pipeline],
        directory: str | PathLike[str],
        address: str | Address,
        *,
        trigger_s: float = 1.0,
        rows_max: int | None = None,
        report: Report | None = None,
        tell: Tell = lambda text: None,
        queues: QueueAddress | None = None,
    ) -> None:
        """Set up. `rows_max` is of a micro-batch; `report` is told of each, `tell` of the rest."""
        self.pipelines = collect(pipelines)
        self.directory = Directory(directory)
        self._spark = spark
        self._address = Address(address) if isinstance(address, str) else address
        self._trigger = {"processingTime": f"{round(trigger_s * 1000)} milliseconds"}
        self._report = report
        self.tell = tell
        self._rows_max = rows_max
        self._queues = queues or QueueAddress()
        self._planner = Planner(
            spark, self.pipelines, self.directory, self._address, rows_max, self._queues
        )

    def view(self, name: str) -> DataFrame:
        """Return what a pipeline has made, as a table: of a Lambda pipeline, the serving view."""
        (pipeline,) = choose(self.pipelines, [name])
        return views.view(self._spark, views.current(pipeline, self.directory))

    def versions(self, *names: str) -> dict[str, int]:
        """Return the current version of each view that has one."""
        chosen = choose(self.pipelines, names)
        found = {each.name: self.directory.place(each.name).current() for each in chosen}
        return {name: version.number for name, version in found.items() if version is not None}

    # --- live

    def live(self, *names: str, until: Callable[[], bool] = lambda: False) -> None:
        """Run the pipelines live until told to stop, or interrupted, or until one fails."""
        with self.start(*names) as running:
            running.wait(until)

    def start(self, *names: str) -> "Running":
        """Start the pipelines live, and return."""
        chosen = choose(self.pipelines, names)
        self._planner.check_topics(chosen)
        running = Running(self, chosen, self._queries("metrics.prom"))
        try:
            running.begin()
        except BaseException:
            running.stop()
            raise
        return running

    def _queries(self, metrics: str) -> Queries:
        return Queries(Metrics(self.directory.path / metrics), self._report, self.tell)

    def open(self, pipeline: Pipeline) -> tuple[Version, DataFrame]:
        """Return the version to go on in, the first if there is none, and its stream."""
        place = self.directory.place(pipeline.name)
        current = place.current()
        if current is not None:
            return current, self._planner.stream(pipeline, current, {})
        with rebuilding([place]):
            version = place.new_version()
            frame = self._planner.stream(pipeline, version, {})
            place.swap(version)
            return version, frame

    def begin(
        self,
        queries: Queries,
        pipeline: Pipeline,
        version: Version,
        frame: DataFrame,
        trigger: dict[str, Any] | None = None,
    ) -> None:
        """Start the pipeline's stream in this version."""
        queries.start(
            pipeline.name,
            f"pipeline {pipeline.name}",
            lambda: outputs.start(
                pipeline, frame, version, self._address, self._queues, trigger or self._trigger
            ),
            version.number,
        )

    def begin_dead_letters(
        self,
        queries: Queries,
        locks: Locks,
        chosen: Iterable[Pipeline],
        trigger: dict[str, Any] | None = None,
    ) -> None:
        """Start a query for the dead letters of each parsed topic, unless another run has it."""
        topics = {topic: None for each in chosen for topic in each.topics}
        source = Source(self._spark, self._address, is_stream=True, rows_max=self._rows_max)
        for topic in topics:
            dead = topic.dead_letter_topic
            if dead is None:
                continue
            place = self.directory.dead_letters(dead, digest(topic))
            if not locks.take(place / "LIVE"):
                continue
            self.tell(f"dead letters of {topic.name} are starting")
            writer = source.dead_letters(topic).writeStream.format("entrepot")
            writer = writer.options(**options_of(self._address), topic=dead)
            writer = writer.option("checkpointLocation", str(place / "checkpoint"))
            writer = writer.trigger(**(trigger or self._trigger))
            name = f"{dead}/{digest(topic)}"
            queries.start(name, f"dead letters {dead}", writer.start)
            queries.settle(name)

    # --- anew

    def replay(self, *names: str) -> None:
        """Make a fresh version from the first record to now, in place of the current one."""
        chosen = with_readers(choose(self.pipelines, names), self.pipelines)
        _check_swappable(chosen, "replayed")
        self._planner.check_topics(chosen)
        places = [self.directory.place(each.name) for each in chosen]
        locks, queries = Locks(), self._queries("metrics-replay.prom")
        with rebuilding(places):
            try:
                self.begin_dead_letters(queries, locks, chosen, AVAILABLE_NOW)
                building: dict[str, Version] = {}
                for pipeline, place in zip(chosen, places, strict=True):
                    building[place.name] = version = place.new_version()
                    frame = self._planner.stream(pipeline, version, building)
                    self.begin(queries, pipeline, version, frame, AVAILABLE_NOW)
                    while queries.look():
                        queries.pause()
            finally:
                queries.close()
                locks.release()
            for place in places:
                place.swap(building[place.name])

    def batch(self, *names: str) -> None:
        """Make a fresh version from tables, of all records there are now."""
        chosen = with_readers(choose(self.pipelines, names), self.pipelines)
        _check_swappable(chosen, "run as a batch")
        self._planner.check_topics(chosen)
        places = [self.directory.place(each.name) for each in chosen]
        topics = {topic: None for each in chosen for topic in each.topics}
        ends, begun = self._planner.ends(topics), self._planner.beginnings(topics)
        with rebuilding(places):
            building: dict[str, Version] = {}
            for pipeline, place in zip(chosen, places, strict=True):
                building[place.name] = version = place.new_version()
                frame = self._planner.table(pipeline, version, building, ends)
                read = [each.name for each in pipeline.topics]
                count = sum(_count(begun[name], ends[name]) for name in read)
                try:
                    with BatchProgress(self._spark, pipeline.name, count, self.tell):
                        outputs.write(pipeline, frame, version)
                except PySparkException as error:
                    words = f"pipeline {pipeline.name}: {reason_of(error)}"
                    raise PipelineError(words) from error
                version.keep_offsets({name: ends[name] for name in read})
            self._send_dead_letters(chosen)
            for place in places:
                place.swap(building[place.name])

    def _send_dead_letters(self, chosen: list[Pipeline]) -> None:
        locks, queries = Locks(), self._queries("metrics-replay.prom")
        try:
            self.begin_dead_letters(queries, locks, chosen, AVAILABLE_NOW)
            while queries.look():
                queries.pause()
        finally:
            queries.close()
            locks.release()


def _count(begun: Json, ends: Json) -> int:
    """Return how many offsets lie between."""
    first, end = offsets.from_json(begun), offsets.from_json(ends)
    return sum(max(0, offset - first.get(part, 0)) for part, offset in end.items())


def _check_swappable(chosen: Iterable[Pipeline], what: str) -> None:
    for each in chosen:
        if (queue := next(iter(each.queues), None)) is not None:
            raise PipelineError(
                f"pipeline {each.name} reads {queue} and cannot be {what}: a message that was "
                "read is gone"
            )
        if isinstance(each.writes, Queue):
            raise PipelineError(
                f"pipeline {each.name} writes {each.writes} and cannot be {what}: all messages "
                "would be there twice"
            )
        if isinstance(each.writes, Topic):
            raise PipelineError(
                f"pipeline {each.name} writes topic {each.writes.name} and cannot be {what}: "
                "records that are in a topic cannot be swapped for others, so all would be "
                "there twice"
            )


@dataclass
class Running:
    """Pipelines that are live."""

    runner: Runner
    chosen: list[Pipeline]
    queries: Queries

    def __post_init__(self) -> None:
        self._locks = Locks()
        self._versions: dict[str, Version] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def begin(self) -> None:
        for pipeline in self.chosen:
            place = self.runner.directory.place(pipeline.name)
            if not self._locks.take(place.path / "LIVE"):
                raise PipelineError(f"pipeline {pipeline.name} is live already, in another run")
            self.runner.tell(f"pipeline {pipeline.name} is starting")
            self._begin(pipeline)
            self.queries.settle(pipeline.name)
        self.runner.begin_dead_letters(self.queries, self._locks, self.chosen)
        self.runner.tell(f"live: {', '.join(each.name for each in self.chosen)}")

    def wait(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until told to stop, or until one fails: live runs do not end by themselves."""
        while not until() and self.step():
            self.queries.pause()

    def step(self) -> bool:
        """Report, and move over to new versions; return whether any query still runs."""
        active = self.queries.look()
        for pipeline in self.chosen:
            current = self.runner.directory.place(pipeline.name).current()
            if current is not None and current != self._versions[pipeline.name]:
                # The old one stays as it is; the new one's stream goes on where it ended.
                self.queries.end(pipeline.name)
                self._begin(pipeline)
        return active

    def _begin(self, pipeline: Pipeline) -> None:
        about = f"pipeline {pipeline.name}"
        version, frame = persist(about, lambda: self.runner.open(pipeline), self.runner.tell)
        self._versions[pipeline.name] = version
        self.runner.begin(self.queries, pipeline, version, frame)

    def drain(self) -> None:
        """Wait until all that is there now is in the views."""
        self.step()
        self.queries.drain()

    def stop(self) -> None:
        self.queries.close()
        self._locks.release()
