"""Frames into what a pipeline writes, each in the way that makes it exactly once.

A topic by the stream sink, with a decision under (query, batch); Parquet by Spark's own
file sink, which notes the files of a batch; Delta by a commit that carries the batch's
number (see `tables`).
"""

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from entrepot.spark.errors import PipelineError
from entrepot.spark.options import AMQP, Address, read_sink
from entrepot.spark.pipelines import tables
from entrepot.spark.pipelines.declaring import Delta, Parquet, Pipeline, Queue, Topic
from entrepot.spark.pipelines.inputs import QueueAddress, options_of
from entrepot.spark.pipelines.versions import Version
from entrepot.spark.sink import ColumnError, check_columns


def _as_records(pipeline: Pipeline, frame: DataFrame, address: Address) -> DataFrame:
    """Make records for a topic: a value, as it is or as JSON of all columns."""
    output = pipeline.writes
    assert isinstance(output, Topic)
    if "value" not in frame.columns:
        columns = [F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value")]
        if output.key is not None:
            columns.append(F.col(output.key).cast("string").alias("key"))
        frame = frame.select(*columns)
    # A row may say its own topic; the others go to the one that is declared.
    said = F.col("topic") if "topic" in frame.columns else F.lit(None)
    frame = frame.withColumn("topic", F.coalesce(said, F.lit(output.name)))
    try:
        check_columns(frame.schema, read_sink(options_of(address)))
    except ColumnError as error:
        raise PipelineError(f"pipeline {pipeline.name}: topic {output.name}: {error}") from None
    return frame


def _as_messages(pipeline: Pipeline, frame: DataFrame) -> DataFrame:
    """Make messages for a queue: a body, as it is or as JSON of all columns, and headers."""
    if "value" not in frame.columns:
        return frame.select(F.to_json(F.struct("*"), {"ignoreNullFields": "false"}).alias("value"))
    kept = [name for name in ("value", "headers") if name in frame.columns]
    return frame.select(*kept)


def shaped(pipeline: Pipeline, frame: DataFrame, address: Address) -> DataFrame:
    """Return the columns that the output takes. Raises PipelineError, which names the column."""
    _check_named(pipeline, frame)
    _check_lambda_keys(pipeline, frame)
    if isinstance(pipeline.writes, Topic):
        return _as_records(pipeline, frame, address)
    return _as_messages(pipeline, frame) if isinstance(pipeline.writes, Queue) else frame


def _check_named(pipeline: Pipeline, frame: DataFrame) -> None:
    """Raise PipelineError if the output names a column that is not there."""
    output = pipeline.writes
    if isinstance(output, Delta):
        named = {"keys": list(output.keys), "order": [output.order] if output.order else []}
    elif isinstance(output, Parquet):
        named = {"partition_by": list(output.partition_by)}
    elif isinstance(output, Queue):
        named = {}
    else:
        has_value = "value" in frame.columns
        named = {"key": [output.key] if output.key and not has_value else []}
    named["merge"] = list(dict(pipeline.merge))
    for what, names in named.items():
        if missing := [name for name in names if name not in frame.columns]:
            there = ", ".join(frame.columns)
            words = f"{what}: there is no column {missing[0]}; there are {there}"
            raise PipelineError(f"pipeline {pipeline.name}: {words}")


def _check_lambda_keys(pipeline: Pipeline, frame: DataFrame) -> None:
    output = pipeline.writes
    if not pipeline.is_lambda or not isinstance(output, Delta):
        return
    keys = [name for name in frame.columns if name not in dict(pipeline.merge)]
    if output.keys and sorted(output.keys) != sorted(keys):
        raise PipelineError(
            f"pipeline {pipeline.name}: keys are {', '.join(output.keys)}, but columns that are "
            f"not merged are {', '.join(keys)}; these must be the same"
        )


def with_keys(pipeline: Pipeline, frame: DataFrame) -> Delta:
    """Return the Delta output. Keys of a Lambda pipeline are all columns that are not merged."""
    output = pipeline.writes
    assert isinstance(output, Delta)
    if not pipeline.is_lambda:
        return output
    keys = [name for name in frame.columns if name not in dict(pipeline.merge)]
    return Delta(output.name, tuple(keys), output.order)


def start(
    pipeline: Pipeline,
    frame: DataFrame,
    version: Version,
    address: Address,
    queues: QueueAddress,
    trigger: dict[str, Any],
) -> StreamingQuery:
    """Start the pipeline's stream."""
    output = pipeline.writes
    writer = frame.writeStream.queryName(query_name(pipeline, version)).outputMode(pipeline.mode)
    writer = writer.option("checkpointLocation", str(version.checkpoint)).trigger(**trigger)
    if isinstance(output, Topic):
        return writer.format("entrepot").options(**options_of(address)).start()
    if isinstance(output, Queue):
        said = {"queue": output.name, AMQP: queues.amqp} | queues.login
        return writer.format("entrepot").options(**said).start()
    if isinstance(output, Parquet):
        writer = writer.partitionBy(*output.partition_by)
        return writer.format("parquet").start(str(version.table))
    delta = with_keys(pipeline, frame)
    tables.create(version.table, frame.schema)
    write = tables.writer_of(version, delta, replaces=pipeline.mode == "complete")
    return writer.foreachBatch(write).start()


def query_name(pipeline: Pipeline, version: Version) -> str:
    return f"{pipeline.name}/{version.number}"


def write(pipeline: Pipeline, frame: DataFrame, version: Version) -> None:
    """Write the whole table as a batch."""
    output = pipeline.writes
    if isinstance(output, Parquet):
        frame.write.partitionBy(*output.partition_by).parquet(str(version.batch))
        return
    # A Lambda pipeline's stream has a view of its own; any other goes on in this one.
    place = version.batch if pipeline.is_lambda else version.table
    tables.write_table(frame, place, with_keys(pipeline, frame))
