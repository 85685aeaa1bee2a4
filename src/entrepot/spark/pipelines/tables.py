"""Views in files: Delta tables that a micro-batch changes once, and which files a view has.

A micro-batch comes again when Spark was ended between writing it and noting that. So every
commit to a Delta table carries the query's id and the batch's number, in the same atomic
step as the rows, and a number that is there already is passed over.

Rows do not pass through the driver: tasks write them as Parquet files, and the driver
commits the files' names. For an upsert it hands the files on to the merge of deltalake,
which reads them in pieces. Files of tasks that failed are in no commit, and are swept up
later with those that were replaced.
"""

import json
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction
from pyspark import TaskContext
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructField, StructType

from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.limits import MIB
from entrepot.spark.pipelines.declaring import Delta
from entrepot.spark.pipelines.versions import Version
from entrepot.spark.sink import QUERY_PROPERTY

TIDY_COMMITS = 100  # As often small files are made one, and old ones removed.
KEEP_HOURS = 1  # A file that was replaced stays so long for whoever still reads it.
MERGE_BYTES_MAX = 64 * MIB  # A larger batch is not held in memory as a whole.
TOKEN_BYTES = 8
RANK = "_rank_in_key"


def nullable(schema: StructType) -> StructType:
    """Return a view's columns, all nullable: what is never null today may be tomorrow."""
    return StructType([StructField(field.name, field.dataType, True) for field in schema.fields])


def arrow_schema(schema: StructType) -> pa.Schema:
    return to_arrow_schema(nullable(schema), timezone="UTC")


# --- rows into files, by tasks


def write_files(frame: DataFrame, place: Path) -> list[AddAction]:
    """Write the frame's rows as Parquet files, one of each task that has any."""
    place.mkdir(parents=True, exist_ok=True)
    write = partial(_write_file, str(place), arrow_schema(frame.schema))
    written = frame.mapInArrow(write, "path string, size bigint, rows bigint").collect()
    now_ms = SystemClock().now_ms()
    return [
        AddAction(row.path, row.size, {}, now_ms, True, json.dumps({"numRecords": row.rows}))
        for row in written
    ]


def _write_file(
    place: str, schema: pa.Schema, batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    task = TaskContext.get()
    assert task is not None, "only in a task of Spark"
    token = SystemEntropy().token(TOKEN_BYTES).hex()
    path = Path(place) / f"part-{task.partitionId():05d}-{token}.parquet"
    writer, rows = None, 0
    for batch in batches:
        if batch.num_rows == 0:
            continue
        if writer is None:
            writer = pq.ParquetWriter(path, schema, compression="zstd")
        writer.write_table(pa.Table.from_batches([batch]).cast(schema))
        rows += batch.num_rows
    if writer is not None:
        writer.close()
        row = {"path": [path.name], "size": [path.stat().st_size], "rows": [rows]}
        yield pa.RecordBatch.from_pydict(row)


# --- batches into a Delta table


def create(path: Path, schema: StructType) -> None:
    """Make an empty table, if there is none."""
    DeltaTable.create(str(path), arrow_schema(schema), mode="ignore")


def writer_of(
    version: Version, output: Delta, *, replaces: bool
) -> Callable[[DataFrame, int], None]:
    """Return the function that writes a micro-batch, for `foreachBatch`."""

    def write(frame: DataFrame, batch: int) -> None:
        query = frame.sparkSession.sparkContext.getLocalProperty(QUERY_PROPERTY)
        assert query, f"Spark runs this with {QUERY_PROPERTY}"
        write_once(frame, version, output, query, batch, replaces=replaces)

    return write


def write_once(
    frame: DataFrame,
    version: Version,
    output: Delta,
    query: str,
    batch: int,
    *,
    replaces: bool = False,
) -> bool:
    """Write a batch into the table; return False if it was there already."""
    table = DeltaTable(str(version.table))
    done = table.transaction_version(query)
    if done is not None and done >= batch:
        return False
    mark = CommitProperties(app_transactions=[Transaction(query, batch)])
    if output.keys and not replaces:
        _upsert(table, one_per_key(frame, output), version.staging / str(batch), output.keys, mark)
    else:
        _add(table, version.table, frame, mark, replaces=replaces)
    if batch % TIDY_COMMITS == TIDY_COMMITS - 1:
        tidy(DeltaTable(str(version.table)))
    return True


def write_table(frame: DataFrame, path: Path, output: Delta) -> None:
    """Write a whole table, as a batch makes it."""
    create(path, frame.schema)
    rows = one_per_key(frame, output) if output.keys else frame
    _add(DeltaTable(str(path)), path, rows, CommitProperties(), replaces=True)


def one_per_key(frame: DataFrame, output: Delta) -> DataFrame:
    """Return the newest row of each key; where nothing says which is newest, Spark will fail."""
    order = F.lit(1) if output.order is None else F.col(output.order).desc_nulls_last()
    rank = F.row_number().over(Window.partitionBy(*output.keys).orderBy(order))
    if output.order is not None:
        return frame.withColumn(RANK, rank).where(F.col(RANK) == 1).drop(RANK)
    keys = ", ".join(output.keys)
    words = F.concat(
        F.lit(f"{keys}: there is more than one row for "),
        F.to_json(F.struct(*output.keys)),
        F.lit(f" in a batch; Delta({output.name!r}, order=…) would say which one counts"),
    )
    is_first = F.when(F.col(RANK) > 1, F.raise_error(words).cast("boolean")).otherwise(True)
    return frame.withColumn(RANK, rank).where(is_first).drop(RANK)


def _add(
    table: DeltaTable, path: Path, frame: DataFrame, mark: CommitProperties, *, replaces: bool
) -> None:
    added = write_files(frame, path)
    if not added and not replaces:
        return
    table.create_write_transaction(
        actions=added,
        mode="overwrite" if replaces else "append",
        schema=arrow_schema(frame.schema),
        commit_properties=mark,
    )


def _upsert(
    table: DeltaTable,
    frame: DataFrame,
    staging: Path,
    keys: Iterable[str],
    mark: CommitProperties,
) -> None:
    _remove(staging)  # Of a driver that was ended here.
    added = write_files(frame, staging)
    if added:
        staged = (
            batch for each in added for batch in pq.ParquetFile(staging / each.path).iter_batches()
        )
        # Not `=`: a key may be null, and then it is one key, too.
        same = " and ".join(f"(old.`{key}` is not distinct from new.`{key}`)" for key in keys)
        merger = table.merge(
            pa.RecordBatchReader.from_batches(arrow_schema(frame.schema), staged),
            predicate=same,
            source_alias="new",
            target_alias="old",
            streamed_exec=sum(each.size for each in added) > MERGE_BYTES_MAX,
            commit_properties=mark,
        )
        merger.when_matched_update_all().when_not_matched_insert_all().execute()
    _remove(staging)


def _remove(staging: Path) -> None:
    if staging.exists():
        for path in staging.iterdir():
            path.unlink()
        staging.rmdir()


def tidy(table: DeltaTable) -> None:
    table.optimize.compact()
    table.vacuum(KEEP_HOURS, dry_run=False, enforce_retention_duration=False)
    table.cleanup_metadata()


# --- which files


def delta_files(path: Path) -> list[str]:
    if not DeltaTable.is_deltatable(str(path)):
        return []
    return [unquote(uri.removeprefix("file://")) for uri in DeltaTable(str(path)).file_uris()]


def stream_files(path: Path) -> list[str]:
    """Return the Parquet files that a stream has noted: others are of batches that failed.

    Spark's note of a batch has a line for each file; every tenth note has all before it.
    """
    notes = path / "_spark_metadata"
    if not notes.exists():
        return []
    numbers = [each.name for each in notes.iterdir() if each.name[:1].isdecimal()]
    whole = max((int(name.split(".")[0]) for name in numbers if "." in name), default=-1)
    later = sorted(int(name) for name in numbers if "." not in name and int(name) > whole)
    names = ([f"{whole}.compact"] if whole >= 0 else []) + [str(number) for number in later]
    found: dict[str, None] = {}
    for name in names:
        for line in (notes / name).read_text().splitlines()[1:]:
            entry: dict[str, Any] = json.loads(line)
            found[unquote(urlparse(entry["path"]).path)] = None
    return list(found)


def batch_files(path: Path) -> list[str]:
    """Return the Parquet files that a batch wrote; it is there as a whole."""
    return sorted(str(each) for each in path.rglob("part-*.parquet"))
