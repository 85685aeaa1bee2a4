"""One task's rows, into one transaction that stays open: what a task of the sink does.

Rows of an Arrow batch are gathered by partition; while the next one is gathered, these are
on their way. Who ends the transaction is not decided here, unless the task fails: then it
is aborted.
"""

import contextlib
from collections.abc import Awaitable, Callable, Iterable
from functools import lru_cache, partial
from typing import Any

import pyarrow as pa

from entrepot.client.client import Client, TopicPartition
from entrepot.client.errors import ClientError
from entrepot.client.transaction_writer import TransactionWriter
from entrepot.client.transactions import OpenTransaction, Transactions
from entrepot.core.batch import Codec
from entrepot.core.partitioner import partition_of
from entrepot.core.ports import Clock
from entrepot.core.record import Record
from entrepot.spark.connecting import Connected, Underway

KEYS_REMEMBERED = 10_000

Lanes = dict[TopicPartition, list[Record]]
Begin = Callable[[Client], Awaitable[OpenTransaction]]


class RowError(ValueError):
    """A row that cannot be written."""


class TaskWriter:
    def __init__(
        self,
        connected: Connected,
        clock: Clock,
        *,
        topic: str | None,
        codec: Codec,
        first_partition: int,
    ) -> None:
        """Set up. Rows without a key go to the partitions in turn; each task begins at another."""
        self._connected = connected
        self._clock = clock
        self._topic = topic
        self._codec = codec
        self._turn = first_partition
        self._counts: dict[str, int] = {}  # Partitions of each topic.
        self._writer: TransactionWriter | None = None
        self._partition_of = lru_cache(KEYS_REMEMBERED)(partition_of)
        self.transaction: OpenTransaction | None = None  # Begun with the first row.
        self.rows = 0

    def write(self, batches: Iterable[pa.RecordBatch], begin: Begin) -> None:
        """Write rows; all are acknowledged when it returns, and nobody sees them yet."""
        underway: Underway[None] | None = None
        try:
            for batch in batches:
                if batch.num_rows == 0:
                    continue
                writer = self._writer or self._begin(begin)
                lanes = self._gathered(batch)
                if underway is not None:
                    self._connected.finish(underway)
                underway = self._connected.start(partial(_send, writer, lanes))
                self.rows += batch.num_rows
            if underway is not None:
                self._connected.finish(underway)
        except BaseException:
            self._abort()
            raise

    def _begin(self, begin: Begin) -> TransactionWriter:
        async def work(client: Client) -> TransactionWriter:
            self.transaction = await begin(client)
            return TransactionWriter(client, self._clock, self.transaction, codec=self._codec)

        self._writer = self._connected.run(work)
        return self._writer

    def _abort(self) -> None:
        transaction, self.transaction = self.transaction, None
        if transaction is not None:
            with contextlib.suppress(ClientError):  # Then the driver does it.
                self._connected.run(
                    lambda client: Transactions(client).end(transaction, commit=False)
                )

    # --- rows into lanes

    def _gathered(self, batch: pa.RecordBatch) -> Lanes:
        count = batch.num_rows
        values = _bytes_of(batch, "value")
        keys = _bytes_of(batch, "key")
        topics = [self._topic] * count if self._topic else _column(batch, "topic")
        partitions = _column(batch, "partition")
        headers = _column(batch, "headers")
        lanes: Lanes = {}
        self._turn += 1
        for key, value, topic, partition, pairs in zip(
            keys, values, topics, partitions, headers, strict=True
        ):
            place = TopicPartition(topic, self._place(topic, partition, key))
            record = Record(key, value, _pairs(pairs) if pairs else ())
            lanes.setdefault(place, []).append(record)
        return lanes

    def _place(self, topic: str | None, partition: int | None, key: bytes | None) -> int:
        if topic is None:
            raise RowError("column topic: a row has none, and there is no option topic")
        count = self._counts.get(topic)
        if count is None:
            found = self._connected.run(lambda client: client.topic(topic, create=True))
            count = self._counts[topic] = len(found.partitions)
        if partition is None:
            return self._turn % count if key is None else self._partition_of(key, count)
        if not 0 <= partition < count:
            raise RowError(
                f"column partition: topic {topic} has partitions 0 to {count - 1}, not {partition}"
            )
        return partition


async def _send(writer: TransactionWriter, lanes: Lanes, _: Client) -> None:
    await writer.write(lanes)


def _column(batch: pa.RecordBatch, name: str) -> list[Any]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    found: list[Any] = batch.column(name).to_pylist()
    return found


def _bytes_of(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    if name not in batch.schema.names:
        return [None] * batch.num_rows
    found: list[bytes | None] = batch.column(name).cast(pa.binary()).to_pylist()
    return found


def _pairs(pairs: list[dict[str, bytes | None] | None]) -> tuple[tuple[str, bytes | None], ...]:
    found: list[tuple[str, bytes | None]] = []
    for pair in pairs:
        name = None if pair is None else pair["key"]
        if pair is None or not isinstance(name, str):
            raise RowError("column headers: a header has no key")
        found.append((name, pair["value"]))
    return tuple(found)
