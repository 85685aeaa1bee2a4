"""Rows into topics: `df.write.format("entrepot")`, and `writeStream`, which writes once.

A task writes in a transaction of its own and reports it; the driver commits those of all
tasks when the last one is done. For a stream that is a decision which survives a crash
(see `deciding`), under the query's id and the batch's number, so a batch that Spark
repeats after a restart is not seen twice. A batch write has no number to be repeated
under: what fails is aborted, and what is started again is written again.
"""

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
)

from entrepot.client import deciding
from entrepot.client.client import Client
from entrepot.client.transactions import OpenTransaction, Transactions
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.spark.connecting import Connected
from entrepot.spark.options import SinkOptions
from entrepot.spark.writing import TaskWriter

QUERY_PROPERTY = "sql.streaming.queryId"
JOB_BYTES = 8

_TEXT = (StringType(), BinaryType())
_PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_KINDS: dict[str, tuple[DataType, ...]] = {
    "value": _TEXT,
    "key": _TEXT,
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "headers": (ArrayType(_PAIR),),
}
_PASSED_OVER = ("offset", "timestamp", "timestampType")  # What the source has and a row may keep.


class ColumnError(ValueError):
    """A column that is missing, or not of its type."""


class Written(WriterCommitMessage):
    """What a task has done; without rows there is no transaction."""

    def __init__(self, query: str, transaction: OpenTransaction | None, rows: int) -> None:
        self.query = query
        self.transaction = transaction
        self.rows = rows


def check_columns(schema: StructType, options: SinkOptions) -> None:
    kinds = {field.name: field.dataType for field in schema.fields}
    if "value" not in kinds:
        raise ColumnError("column value is missing: what is written is in it")
    if "topic" not in kinds and options.topic is None:
        raise ColumnError("neither a column topic nor an option topic says where to write")
    for name, kind in kinds.items():
        if name in _PASSED_OVER:
            continue
        if name not in _KINDS:
            raise ColumnError(f"column {name} means nothing here: {', '.join(_KINDS)} do")
        if not any(_is_same(kind, allowed) for allowed in _KINDS[name]):
            names = " or ".join(allowed.simpleString() for allowed in _KINDS[name])
            raise ColumnError(f"column {name} is {kind.simpleString()}, and must be {names}")


def _is_same(kind: DataType, allowed: DataType) -> bool:
    """Compare two types, whatever they say of nulls."""
    return bool(kind.simpleString() == allowed.simpleString())


def write_task(
    options: SinkOptions, query: str, batches: Iterator[pa.RecordBatch], *, is_stream: bool
) -> Written:
    task = TaskContext.get()
    assert task is not None, "only in a task of Spark"
    transactional_id = f"{deciding.prefix_of(query)}{task.partitionId()}-{task.attemptNumber()}"

    async def begin(client: Client) -> OpenTransaction:
        if is_stream:
            await deciding.clear(client, query, transactional_id)
        return await Transactions(client).take(transactional_id, two_phase=is_stream)

    with Connected(options.address) as connected:
        writer = TaskWriter(
            connected,
            SystemClock(),
            topic=options.topic,
            codec=options.codec,
            first_partition=task.partitionId(),
        )
        writer.write(batches, begin)
        return Written(query, writer.transaction, writer.rows)


def transactions_of(messages: Sequence[WriterCommitMessage | None]) -> list[OpenTransaction]:
    """Return the transactions of the tasks that have succeeded."""
    found = [each.transaction for each in messages if isinstance(each, Written)]
    return [each for each in found if each is not None]


def abort_all(options: SinkOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    async def work(client: Client) -> None:
        for each in transactions_of(messages):
            await Transactions(client).end(each, commit=False)

    with Connected(options.address) as connected:
        connected.run(work)


class TableWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        check_columns(schema, options)
        if overwrite:
            raise ValueError("mode overwrite: a topic is appended to; use mode append")
        self._options = options
        self._job = SystemEntropy().token(JOB_BYTES).hex()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_task(self._options, self._job, iterator, is_stream=False)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        async def work(client: Client) -> None:
            for each in transactions_of(messages):
                await Transactions(client).end(each, commit=True)

        with Connected(self._options.address) as connected:
            connected.run(work)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        abort_all(self._options, messages)


class StreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = TaskContext.get()
        query = None if task is None else task.getLocalProperty(QUERY_PROPERTY)
        assert query, f"Spark gives its tasks {QUERY_PROPERTY}"
        return write_task(self._options, query, iterator, is_stream=True)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        queries = [each.query for each in messages if isinstance(each, Written)]
        if not queries:
            return  # No task, no rows.

        async def work(client: Client) -> None:
            written = transactions_of(messages)
            await deciding.commit(client, SystemClock(), queries[0], batchId, written)

        with Connected(self._options.address) as connected:
            connected.run(work)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        abort_all(self._options, messages)
