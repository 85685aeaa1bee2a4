"""Rows into queues and exchanges: the sink with the option `queue` or `exchange`.

A task publishes its rows and is done when all are confirmed: at least once. What a task that
fails has published stays published, and a batch that Spark repeats is published again; AMQP
knows no transaction that several connections share.
"""

import asyncio
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import ArrayType, BinaryType, DataType, StringType, StructField, StructType

from entrepot.client.amqp_publisher import AmqpPublisher, Headers, Outgoing, connect
from entrepot.client.errors import Unreachable
from entrepot.spark.options import QueueSinkOptions

ATTEMPTS = 50  # Some 25 seconds: a broker may be started again under a running query.
PAUSE_S = 0.5

_TEXT = (StringType(), BinaryType())
_PAIR = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_KINDS: dict[str, tuple[DataType, ...]] = {
    "value": _TEXT,
    "routing_key": (StringType(),),
    "headers": (ArrayType(_PAIR),),
}
# What the source has, and a row may keep.
_PASSED_OVER = ("key", "topic", "partition", "offset", "timestamp", "timestampType")


class QueueColumnError(ValueError):
    """A column that is missing, or not of its type."""


def check_columns(schema: StructType, options: QueueSinkOptions) -> None:
    kinds = {field.name: field.dataType for field in schema.fields}
    if "value" not in kinds:
        raise QueueColumnError("column value is missing: what is written is in it")
    if options.queue is not None and "routing_key" in kinds:
        raise QueueColumnError("column routing_key: with the option queue there is nothing to say")
    for name, kind in kinds.items():
        if name in _PASSED_OVER:
            continue
        if name not in _KINDS:
            raise QueueColumnError(f"column {name} means nothing here: {', '.join(_KINDS)} do")
        if kind.simpleString() not in [each.simpleString() for each in _KINDS[name]]:
            names = " or ".join(each.simpleString() for each in _KINDS[name])
            raise QueueColumnError(f"column {name} is {kind.simpleString()}, and must be {names}")


def messages_of(batch: pa.RecordBatch, options: QueueSinkOptions) -> list[Outgoing]:
    values = batch.column("value").cast(pa.binary()).to_pylist()
    names = batch.schema.names
    nothing = [None] * batch.num_rows
    keys = batch.column("routing_key").to_pylist() if "routing_key" in names else nothing
    headers = batch.column("headers").to_pylist() if "headers" in names else nothing
    exchange, queue = options.exchange or "", options.queue or ""
    return [
        Outgoing(exchange, queue or key or "", _headers(pairs), value or b"")
        for key, pairs, value in zip(keys, headers, values, strict=True)
    ]


def _headers(pairs: list[Mapping[str, Any]] | None) -> Headers:
    return tuple((pair["key"], pair["value"]) for pair in pairs or () if pair)


async def publish(options: QueueSinkOptions, batches: Iterator[pa.RecordBatch]) -> None:
    """Publish batch by batch; what was not confirmed when a connection is lost is sent again."""
    publisher: AmqpPublisher | None = None
    try:
        for batch in batches:
            messages = messages_of(batch, options)
            for attempt in range(ATTEMPTS):
                try:
                    publisher = publisher or await connect(options.amqp, options.login)
                    await publisher.publish(messages, mandatory=options.queue is not None)
                    break
                except Unreachable:
                    publisher = None
                    if attempt + 1 == ATTEMPTS:
                        raise
                    await asyncio.sleep(PAUSE_S)
    finally:
        if publisher is not None:
            publisher.close()
            await asyncio.sleep(0)


class QueueTableWriter(DataSourceArrowWriter):
    def __init__(self, options: QueueSinkOptions, schema: StructType, overwrite: bool) -> None:
        check_columns(schema, options)
        if overwrite:
            raise ValueError("mode overwrite: a queue is appended to; use mode append")
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        asyncio.run(publish(self._options, iterator))
        return WriterCommitMessage()


class QueueStreamWriter(DataSourceStreamArrowWriter):
    def __init__(self, options: QueueSinkOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        asyncio.run(publish(self._options, iterator))
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: all rows were published when their tasks were done."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: what was published stays published."""
