"""Parquet files as rows of JSON, and back."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from entrepot.connect.formats import Misfit, check_columns, key_of, to_json
from entrepot.connect.interface import ConfigError, Rejected, SourceRecord
from entrepot.connect.registry import need

_BATCH_ROWS = 1_000


def read_rows(
    file: Any, row_first: int, *, key: str | None, where: str
) -> Iterator[SourceRecord | Rejected]:
    """A record per row, from that row on. `file` is an open one."""
    parquet = need("pyarrow.parquet", "pyarrow", 'format = "parquet"')
    whole = parquet.ParquetFile(file)
    for group in range(whole.num_row_groups):
        count = whole.metadata.row_group(group).num_rows
        if row_first >= count:
            row_first -= count
            continue
        for batch in whole.iter_batches(_BATCH_ROWS, row_groups=[group]):
            skipped, row_first = min(row_first, batch.num_rows), max(0, row_first - batch.num_rows)
            for row in batch.slice(skipped).to_pylist():
                yield _record(row, key, where)


def _record(row: dict[str, Any], key: str | None, where: str) -> SourceRecord | Rejected:
    value = b""
    try:
        value = to_json(row)
        return SourceRecord(value, key=key_of(row, key))
    except Misfit as error:
        return Rejected(value, where, str(error))


class ParquetEncoder:
    """Rows of one schema, which the settings give: files must not differ by their contents."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._arrow = need("pyarrow", "pyarrow", 'format = "parquet"')
        self._parquet = need("pyarrow.parquet", "pyarrow", 'format = "parquet"')
        types = []
        for name, text in columns.items():
            try:
                types.append((name, self._arrow.type_for_alias(text)))
            except ValueError:
                raise ConfigError(f"options.columns.{name}: Arrow has no type {text}") from None
        self._schema = self._arrow.schema(types)

    def check(self, row: dict[str, Any]) -> None:
        """Raises Misfit for a row that is not of the schema."""
        check_columns(row, self._schema.names)
        self._table([row])

    def encode(self, rows: Sequence[dict[str, Any]]) -> bytes:
        target = self._arrow.BufferOutputStream()
        self._parquet.write_table(self._table(rows), target)
        written: bytes = target.getvalue().to_pybytes()
        return written

    def _table(self, rows: Sequence[dict[str, Any]]) -> Any:
        try:
            return self._arrow.Table.from_pylist(list(rows), schema=self._schema)
        except (self._arrow.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise Misfit(str(error)) from None
