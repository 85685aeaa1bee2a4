"""A few rows of a view, read from its files: without Spark, and so without Java."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from entrepot.spark.errors import PipelineError
from entrepot.spark.pipelines import tables, views
from entrepot.spark.pipelines.declaring import Pipeline
from entrepot.spark.pipelines.versions import Description, Directory


def rows_of(pipeline: Pipeline, directory: Directory, count: int) -> list[dict[str, Any]]:
    """Return the first rows, sorted by all columns. Of a Lambda pipeline, the serving view."""
    version = views.current(pipeline, directory)
    description = version.description
    if description is None or description["table"] is None:
        raise PipelineError(f"{version.path} holds no table")
    schema = tables.arrow_schema(views.columns(description))
    parts = [
        views.read(part, paths, schema).to_table().cast(schema)
        for part, paths in views.files(version, description["kind"]).items()
    ]
    table = _merged(pa.concat_tables(parts or [schema.empty_table()]), description)
    sortable = [(field.name, "ascending") for field in schema if not pa.types.is_nested(field.type)]
    if sortable:
        order = pc.select_k_unstable(table, min(count, len(table)), sortable)
        table = table.take(order)
    found: list[dict[str, Any]] = table.slice(0, count).to_pylist()
    return found


def _merged(table: pa.Table, description: Description) -> pa.Table:
    """Merge the rows that have the same key into one."""
    merge: dict[str, str] = description["merge"]
    if not merge:
        return table
    keys = [name for name in table.column_names if name not in merge]
    grouped = table.group_by(keys).aggregate(list(merge.items()))
    sums = [f"{column}_{function}" for column, function in merge.items()]
    names = dict(zip(sums, merge, strict=True))
    renamed = grouped.rename_columns([names.get(name, name) for name in grouped.column_names])
    return renamed.select(table.column_names).cast(table.schema)
