"""Views as frames: what pipelines have made, to be looked at and to be read by others.

A version's rows are in what a stream writes and in what a batch wrote; together they are
the view. Of a Lambda pipeline both have rows of the same keys, and merging these is the
serving view: its offsets divide the records between the two, so every one counts once.

For a stream that joins a view as it stands, Spark would settle once and for all which files
to read. So there is a data source here that looks for them when it is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from entrepot.spark.errors import PipelineError
from entrepot.spark.pipelines import tables
from entrepot.spark.pipelines.declaring import Delta, Parquet, Pipeline
from entrepot.spark.pipelines.versions import Description, Directory, PipelineVersions, Version

if TYPE_CHECKING:
    import pyarrow.dataset as ds


def describe(pipeline: Pipeline, schema: StructType, follows: dict[str, int]) -> Description:
    """Return what a version must know of itself, for others to read it."""
    output = pipeline.writes
    return {
        "table": output.name if isinstance(output, Parquet | Delta) else None,
        "kind": type(output).__name__,
        "columns": tables.nullable(schema).jsonValue(),
        "merge": dict(pipeline.merge),
        "follows": follows,
    }


def columns(description: Description) -> StructType:
    return StructType.fromJson(description["columns"])


def check_version(pipeline: Pipeline, version: Version, schema: StructType) -> None:
    """Raise PipelineError if the form has changed: another form is another view."""
    known, now = version.description, describe(pipeline, schema, {})
    assert known is not None
    for what in ("kind", "merge"):
        if known[what] != now[what]:
            raise PipelineError(
                f"pipeline {pipeline.name}: its output has changed: {what} was {known[what]} "
                f"and is {now[what]}; --replay makes a new version of the view"
            )
    before, after = _kinds(columns(known)), _kinds(schema)
    if before != after:
        gone = [f"{name} {kind}" for name, kind in before.items() if after.get(name) != kind]
        new = [f"{name} {kind}" for name, kind in after.items() if before.get(name) != kind]
        raise PipelineError(
            f"pipeline {pipeline.name}: its columns have changed: gone are "
            f"{', '.join(gone) or 'none'}, new are {', '.join(new) or 'none'}; "
            "--replay makes a new version of the view"
        )


def _kinds(schema: StructType) -> dict[str, str]:
    return {field.name: field.dataType.simpleString() for field in schema.fields}


def files(version: Version, kind: str) -> dict[Path, list[str]]:
    """Return the files that the stream wrote, and the batch, by their directories."""
    if kind == "Delta":
        parts = {path: tables.delta_files(path) for path in (version.table, version.batch)}
    else:
        parts = {
            version.table: tables.stream_files(version.table),
            version.batch: tables.batch_files(version.batch),
        }
    return {path: found for path, found in parts.items() if found}


def current(pipeline: Pipeline, directory: Directory) -> Version:
    """Return the current version of a pipeline's view."""
    output = pipeline.writes
    if not isinstance(output, Parquet | Delta):
        raise PipelineError(f"pipeline {pipeline.name} writes {output}; read that")
    version = directory.place(pipeline.name).current()
    if version is None:
        raise PipelineError(f"pipeline {pipeline.name} has not been run in {directory.path}")
    return version


def read(part: Path, paths: list[str], schema: pa.Schema) -> ds.Dataset:
    """Return the files of one directory as a table, without Spark."""
    import pyarrow.dataset as ds  # Brings pandas along, which most processes do not need.

    return ds.dataset(
        paths,
        schema=schema,
        format="parquet",
        partitioning="hive",
        partition_base_dir=str(part),
    )


def view(spark: SparkSession, version: Version) -> DataFrame:
    """Return all rows of the version, as they are now."""
    description = version.description
    if description is None or description["table"] is None:
        raise PipelineError(f"{version.path} holds no table")
    schema = columns(description)
    rows = spark.createDataFrame([], schema)
    for path, found in files(version, description["kind"]).items():
        reader = spark.read.schema(schema).option("basePath", str(path))
        rows = rows.unionByName(reader.parquet(*found))
    return merged(rows, description)


def merged(rows: DataFrame, description: Description) -> DataFrame:
    """Merge rows of the same key into one: that is the serving view of a Lambda pipeline."""
    merge = description["merge"]
    if not merge:
        return rows
    keys = [name for name in rows.columns if name not in merge]
    sums = [getattr(F, function)(column).alias(column) for column, function in merge.items()]
    return rows.groupBy(*keys).agg(*sums).select(*rows.columns)


def followed(spark: SparkSession, version: Version) -> DataFrame:
    """Return a stream of the rows that are added to the view."""
    description = version.description
    assert description is not None
    if description["kind"] != "Parquet":
        raise PipelineError(
            f"table {description['table']} is a Delta table, whose rows change: read it as it "
            f"stands, Table({description['table']!r}, static=True)"
        )
    if version.batch.exists():
        raise PipelineError(
            f"table {description['table']} was made by --batch, and only what was replayed "
            "can be followed from its beginning: --replay it"
        )
    version.table.mkdir(parents=True, exist_ok=True)
    return spark.readStream.schema(columns(description)).parquet(str(version.table))


# --- as it stands, whenever it is read


def static(spark: SparkSession, place: PipelineVersions, description: Description) -> DataFrame:
    """Return a table that has the newest version's rows whenever it is read."""
    spark.dataSource.register(StandingView)
    reader = spark.read.format(StandingView.name()).schema(columns(description))
    return merged(reader.option("place", str(place.path)).load(), description)


class StandingView(DataSource):
    @classmethod
    def name(cls) -> str:
        return "entrepot-view"

    def reader(self, schema: StructType) -> DataSourceReader:
        return StandingViewReader(Path(self.options["place"]), tables.arrow_schema(schema))


class StandingViewReader(DataSourceReader):
    """One task reads it all: Spark plans a table once, and a task looks when it runs.

    Several would each look at a moment of its own, and see parts that do not fit together.
    """

    def __init__(self, place: Path, schema: pa.Schema) -> None:
        self._place = place
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        version = PipelineVersions(self._place).current()
        description = None if version is None else version.description
        if version is None or description is None:
            return
        for part, paths in files(version, description["kind"]).items():
            for batch in read(part, paths, self._schema).to_batches():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self._schema)
