"""From a pipeline and a version to the frame that is run: which rows go in, what comes out.

What was decided when a version was made holds for its whole life, and is read from its
files: its columns, which versions of other tables it follows, at which offsets its stream
goes on after a batch. What does not fit is refused, before anything is written.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from entrepot.client.client import EARLIEST, LATEST, Client
from entrepot.client.errors import ClientError
from entrepot.spark import offsets
from entrepot.spark.connecting import Connected
from entrepot.spark.errors import PipelineError
from entrepot.spark.offsets import Json, MissingTopic
from entrepot.spark.options import Address, OptionError, Which
from entrepot.spark.pipelines import outputs, views
from entrepot.spark.pipelines.declaring import Pipeline, Queue, Table, Topic
from entrepot.spark.pipelines.failing import blame, reason_of
from entrepot.spark.pipelines.inputs import QueueAddress, Source
from entrepot.spark.pipelines.versions import Directory, PipelineVersions, Version

# What keeps rows from one micro-batch to the next, in Spark's names for parts of a plan.
_STATEFUL = ("Aggregate", "Deduplicate", "Distinct", "Limit", "State", "FlatMapGroups", "Window")


class Planner:
    def __init__(
        self,
        spark: SparkSession,
        pipelines: list[Pipeline],
        directory: Directory,
        address: Address,
        rows_max: int | None = None,
        queues: QueueAddress | None = None,
    ) -> None:
        self._spark = spark
        self._writers = {each.writes.name: each for each in pipelines if each.has_table}
        self._directory = directory
        self._address = address
        self._rows_max = rows_max
        self._queues = queues or QueueAddress()

    # --- topics

    def check_topics(self, chosen: Iterable[Pipeline]) -> None:
        """Check that topics to read are there; make those to write, if the broker makes topics."""
        try:
            with Connected(self._address, client_id="entrepot-pipelines") as connected:
                connected.check()
                for pipeline in chosen:
                    connected.run(_checks(pipeline))
        except (ClientError, OptionError) as error:
            raise PipelineError(str(error)) from None

    def beginnings(self, topics: Iterable[Topic]) -> dict[str, Json]:
        """Return where each topic begins now."""
        return self._found(topics, EARLIEST)

    def ends(self, topics: Iterable[Topic]) -> dict[str, Json]:
        """Return where each topic ends now, for readers of committed records."""
        return self._found(topics, LATEST)

    def _found(self, topics: Iterable[Topic], which_end: int) -> dict[str, Json]:

        async def find(client: Client) -> dict[str, Json]:
            found = {}
            for topic in topics:
                parts = await offsets.partitions_of(client, which(topic))
                at = await offsets.ends(client, parts, which_end, committed=True)
                found[topic.name] = offsets.to_json(at)
            return found

        with Connected(self._address, client_id="entrepot-pipelines") as connected:
            return connected.run(find)

    def _beginning(self, topic: Topic, known: Json) -> Json:
        """Return where a stream goes on after a batch; new partitions, from their first record."""

        async def find(client: Client) -> Json:
            parts = await offsets.partitions_of(client, which(topic))
            return offsets.to_json(dict.fromkeys(parts, EARLIEST) | offsets.from_json(known))

        with Connected(self._address, client_id="entrepot-pipelines") as connected:
            return connected.run(find)

    # --- frames

    def stream(
        self, pipeline: Pipeline, version: Version, building: Mapping[str, Version]
    ) -> DataFrame:
        """Return the pipeline's stream in this version. `building` are versions not yet current."""
        known = version.description
        follows = self._follows(pipeline, version, building)
        at = version.offsets or {}
        source = Source(self._spark, self._address, is_stream=True, rows_max=self._rows_max)
        frames: list[DataFrame] = []
        for number, each in enumerate(pipeline.reads):
            if isinstance(each, Topic):
                begin = self._beginning(each, at[each.name]) if each.name in at else None
                places = {} if begin is None else {"startingOffsets": json.dumps(begin)}
                frames.append(source.frame(each, number, places))
            elif isinstance(each, Queue):
                frames.append(source.messages(each, self._queues))
            elif each.static:
                frames.append(self._static(pipeline, each))
            else:
                frames.append(views.followed(self._spark, follows[each.name]))
        frame = outputs.shaped(pipeline, apply(pipeline, frames), self._address)
        if known is None:
            numbers = {name: found.number for name, found in follows.items()}
            version.describe(views.describe(pipeline, frame.schema, numbers))
        else:
            views.check_version(pipeline, version, frame.schema)
        if version.offsets is not None and not pipeline.is_lambda:
            _check_goes_on(pipeline, frame)
        return frame

    def table(
        self,
        pipeline: Pipeline,
        version: Version,
        building: Mapping[str, Version],
        ends: Mapping[str, Json],
    ) -> DataFrame:
        """Return the pipeline's table over history, up to these ends."""
        source = Source(self._spark, self._address, is_stream=False)
        frames: list[DataFrame] = []
        for number, each in enumerate(pipeline.reads):
            if isinstance(each, Topic):
                places = {"endingOffsets": json.dumps(ends[each.name])}
                frames.append(source.frame(each, number, places))
            else:
                assert isinstance(each, Table), "queues are refused before"
                found = self._version(pipeline, each, building)
                frames.append(views.view(self._spark, found))
        frame = outputs.shaped(pipeline, apply(pipeline, frames), self._address)
        version.describe(views.describe(pipeline, frame.schema, {}))
        return frame

    # --- other pipelines' tables

    def _follows(
        self, pipeline: Pipeline, version: Version, building: Mapping[str, Version]
    ) -> dict[str, Version]:
        """Return which version of each table this version follows for as long as it lives."""
        found = {}
        for table in pipeline.tables:
            if table.static:
                continue
            newest = found[table.name] = self._version(pipeline, table, building)
            known = version.description
            if known is None:
                continue
            number = known["follows"].get(table.name)
            if number is None:
                raise PipelineError(
                    f"pipeline {pipeline.name}: its view was made by --batch, which does not "
                    f"tell how far table {table.name} was read; --replay it"
                )
            if number < newest.number:
                raise PipelineError(
                    f"pipeline {pipeline.name}: table {table.name} has been rebuilt since "
                    f"(version {newest.number}, and {number} was read); --replay it, too"
                )
        return found

    def _version(
        self, pipeline: Pipeline, table: Table, building: Mapping[str, Version]
    ) -> Version:
        place = self._place(pipeline, table)
        found = building.get(place.name) or place.current()
        if found is None:
            raise PipelineError(
                f"pipeline {pipeline.name}: table {table.name} has never been written; "
                f"run pipeline {place.name} first, or both"
            )
        return found

    def _static(self, pipeline: Pipeline, table: Table) -> DataFrame:
        place = self._place(pipeline, table)
        description = self._version(pipeline, table, {}).description
        assert description is not None
        return views.static(self._spark, place, description)

    def _place(self, pipeline: Pipeline, table: Table) -> PipelineVersions:
        writer = self._writers.get(table.name)
        if writer is not None:
            return self._directory.place(writer.name)
        found = self._directory.find_table(table.name)
        if found is None:
            raise PipelineError(
                f"pipeline {pipeline.name}: no pipeline writes table {table.name}, neither in "
                f"this module nor in {self._directory.path}"
            )
        return found


def which(topic: Topic) -> Which:
    return Which(pattern=topic.name) if topic.pattern else Which(topics=(topic.name,))


def _checks(pipeline: Pipeline) -> Callable[[Client], Any]:
    async def work(client: Client) -> None:
        for topic in pipeline.topics:
            try:
                await offsets.partitions_of(client, which(topic))
            except MissingTopic as error:
                raise PipelineError(f"pipeline {pipeline.name}: {error}") from None
        made = [topic.dead_letter_topic for topic in pipeline.topics]
        if isinstance(pipeline.writes, Topic):
            made.append(pipeline.writes.name)
        for name in made:
            if name is not None:
                await client.topic(name, create=True)

    return work


def apply(pipeline: Pipeline, frames: list[DataFrame]) -> DataFrame:
    try:
        frame = pipeline(*frames)
    except PySparkException as error:
        raise PipelineError(f"pipeline {pipeline.name}: {reason_of(error)}") from error
    except Exception as error:
        raise PipelineError(f"pipeline {pipeline.name}: {blame(error)}") from error
    if not isinstance(frame, DataFrame):
        kind = type(frame).__name__
        raise PipelineError(f"pipeline {pipeline.name}: it returns {kind}, not a DataFrame")
    return frame


def _check_goes_on(pipeline: Pipeline, frame: DataFrame) -> None:
    """Raise PipelineError if the stream needs state, which the batch before it has not left."""
    part = stateful_part(frame._jdf.queryExecution().analyzed())
    if part is not None:
        raise PipelineError(
            f"pipeline {pipeline.name}: its view was made by --batch, and it keeps state "
            f"({part}) that a batch does not leave behind: --replay makes a view that goes on, "
            "and merge={…} a view of two parts"
        )


def stateful_part(plan: Any) -> str | None:
    """Return the first part of a plan that remembers rows of a stream; None if none does."""
    if not plan.isStreaming():
        return None
    children = [plan.children().apply(number) for number in range(plan.children().size())]
    name = str(plan.nodeName())
    joins = name == "Join" and all(child.isStreaming() for child in children)
    if joins or any(word in name for word in _STATEFUL):
        return name
    return next(filter(None, map(stateful_part, children)), None)
