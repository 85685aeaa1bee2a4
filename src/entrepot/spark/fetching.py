"""One range of one partition, from the broker into Arrow: what a task of the source does.

While one answer is decoded the next is on its way. Nothing becomes a Python object for
each record: batches are checked, unpacked and handed to the columns as bytes. What a
reader must not see (markers, aborted transactions, records outside of the range) is left
out here; so a range may give fewer rows than it has offsets, or none.
"""

import logging
from collections.abc import Iterator
from typing import NamedTuple

import pyarrow as pa
from kio.schema.errors import ErrorCode

from entrepot.client.client import EARLIEST, LATEST, Client, Fetched, TopicPartition
from entrepot.client.errors import Refused
from entrepot.client.reader import Visible
from entrepot.core.batch import HEADER_BYTES, BatchHeader, Codec, check, walk
from entrepot.core.compression import decompress
from entrepot.core.errors import InvalidBatch
from entrepot.core.limits import DECOMPRESSED_BYTES_MAX, MIB
from entrepot.spark.columns import new_columns
from entrepot.spark.connecting import Connected, Underway

ROWS_MAX = 64 * 1024  # Of one Arrow batch.
BYTES_MAX = 32 * MIB  # Of one Arrow batch, before the last that was added.
FETCH_BYTES = 8 * MIB

MADE = ("key", "value", "offset", "timestamp", "headers")  # In the columns' order.
CREATE_TIME, LOG_APPEND_TIME = 0, 1  # Kafka's numbers of what a timestamp means.

logger = logging.getLogger("entrepot.spark")


class Range(NamedTuple):
    topic: str
    partition: int
    offset_from: int
    offset_until: int  # Exclusive.

    @property
    def part(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class DataLost(Exception):
    """Records that were asked for are gone, and failOnDataLoss is true."""


class Damaged(Exception):
    """What came from the broker cannot be read."""


def lost(part: TopicPartition, what: str, *, fail: bool) -> None:
    """Say so: as an error, or in the log."""
    if fail:
        raise DataLost(
            f"{part}: {what}. They were deleted, or the topic was made anew. "
            "With failOnDataLoss=false the query goes on without them."
        )
    logger.warning("%s: %s; going on without them, as failOnDataLoss is false", part, what)


class RangeReader:
    def __init__(
        self,
        connected: Connected,
        wanted: Range,
        schema: pa.Schema,
        *,
        committed: bool = True,
        fail_on_data_loss: bool = True,
    ) -> None:
        """The schema names the columns to make, of those that Spark's Kafka source has."""
        self._connected = connected
        self._wanted = wanted
        self._schema = schema
        self._committed = committed
        self._fail = fail_on_data_loss
        self._position = wanted.offset_from
        self._columns = new_columns("headers" in schema.names)
        self._time_type = CREATE_TIME  # Of all rows in the columns.
        self._constant: dict[tuple[str, object], pa.Array] = {}  # The same in every row.

    def batches(self) -> Iterator[pa.RecordBatch]:
        until = self._wanted.offset_until
        underway = None
        while self._position < until:
            fetched = self._fetched(underway)
            underway = None
            if fetched is None:
                continue
            view = memoryview(fetched.batches)
            try:
                whole = list(walk(view))
            except InvalidBatch as error:
                raise Damaged(f"{self._wanted.part} at {self._position}: {error}") from None
            start, self._position = self._position, self._after(whole)
            if self._position < until:
                underway = self._ask()
            yield from self._decoded(view, whole, start, fetched.aborted)
        if self._columns.count:
            yield from self._taken()

    # --- asking

    def _ask(self) -> Underway[dict[TopicPartition, Fetched]]:
        return self._connected.start(self._fetch)

    async def _fetch(self, client: Client) -> dict[TopicPartition, Fetched]:
        return await client.fetch(
            {self._wanted.part: self._position},
            bytes_max=FETCH_BYTES,
            partition_bytes_max=FETCH_BYTES,
            committed=self._committed,
        )

    def _fetched(self, underway: Underway[dict[TopicPartition, Fetched]] | None) -> Fetched | None:
        """None: look at the position again, it has moved."""
        try:
            if underway is not None:
                answer = self._connected.finish(underway)
            else:
                answer = self._connected.run(self._fetch)
        except Refused as error:
            if error.code is ErrorCode.offset_out_of_range:
                self._skip_lost()
            elif error.code is ErrorCode.unknown_topic_or_partition:
                self._lose(self._wanted.offset_until, "the partition is not there any more, nor ")
            else:
                raise
            return None
        fetched = answer[self._wanted.part]
        if not len(fetched.batches):
            self._end_in_gap()
            return None
        return fetched

    def _skip_lost(self) -> None:
        """The position is not in the log; it may begin later, or end before."""
        first, _ = self._ends()
        until = self._wanted.offset_until
        self._lose(min(first, until) if first > self._position else until, "")

    def _end_in_gap(self) -> None:
        """Nothing came. Then compaction has removed the rest, or the log has become shorter."""
        _, end = self._ends()
        if end >= self._wanted.offset_until:
            self._position = self._wanted.offset_until
        else:
            self._lose(self._wanted.offset_until, f"the log ends at {end}; ")

    def _ends(self) -> tuple[int, int]:
        part = self._wanted.part

        async def ask(client: Client) -> tuple[int, int]:
            first = await client.list_offsets({part: EARLIEST})
            end = await client.list_offsets({part: LATEST}, committed=self._committed)
            return first[part].offset, end[part].offset

        return self._connected.run(ask)

    def _lose(self, until: int, why: str) -> None:
        offsets = f"{why}offsets {self._position} to {until - 1} are gone"
        lost(self._wanted.part, offsets, fail=self._fail)
        self._position = until

    # --- decoding

    def _after(self, whole: list[tuple[int, BatchHeader]]) -> int:
        after = whole[-1][1].offset_end if whole else self._position
        if after <= self._position:
            raise Damaged(f"{self._wanted.part} at {self._position}: not one whole batch came")
        return after

    def _decoded(
        self,
        view: memoryview,
        whole: list[tuple[int, BatchHeader]],
        start: int,
        aborted: tuple[tuple[int, int], ...],
    ) -> Iterator[pa.RecordBatch]:
        visible = Visible(aborted) if self._committed else None
        columns, until = self._columns, self._wanted.offset_until
        for position, header in whole:
            if header.count == 0 or header.offset_first >= until:
                continue  # Compaction may leave a batch without its records.
            batch = view[position : position + header.size]
            try:
                check(batch, allow_gaps=True)
                if header.is_control:
                    if visible is not None:
                        visible.pass_marker(header, batch)
                elif visible is None or visible.shows(header):
                    time_type = LOG_APPEND_TIME if header.is_append_time else CREATE_TIME
                    is_full = columns.count + header.count > ROWS_MAX or columns.size >= BYTES_MAX
                    if columns.count and (is_full or time_type != self._time_type):
                        yield from self._taken()
                    self._time_type = time_type
                    self._add(header, batch, start)
            except InvalidBatch as error:
                place = f"{self._wanted.part} at {header.offset_first}"
                raise Damaged(f"{place}: {error}") from None

    def _add(self, header: BatchHeader, batch: memoryview, start: int) -> None:
        body = batch[HEADER_BYTES:]
        codec = header.codec
        self._columns.add(
            body if codec is Codec.NONE else decompress(codec, body, DECOMPRESSED_BYTES_MAX),
            header.count,
            header.offset_first,
            header.timestamp_first,
            header.timestamp_max if header.is_append_time else -1,
            start,
            self._wanted.offset_until,
        )

    def _taken(self) -> Iterator[pa.RecordBatch]:
        count = self._columns.count
        made = self._columns.take()
        arrays = dict(zip(MADE[: len(made)], made, strict=True))
        for name, value, kind in (
            ("topic", self._wanted.topic, pa.string()),
            ("partition", self._wanted.partition, pa.int32()),
            ("timestampType", self._time_type, pa.int32()),
        ):
            if name in self._schema.names:
                arrays[name] = self._repeated(name, pa.scalar(value, kind), count)
        wanted = [arrays[name] for name in self._schema.names]
        table = pa.RecordBatch.from_arrays(wanted, schema=self._schema)
        for first in range(0, count, ROWS_MAX):  # One huge batch may have more.
            yield table.slice(first, ROWS_MAX)

    def _repeated(self, name: str, value: pa.Scalar, count: int) -> pa.Array:
        known = self._constant.get((name, value))
        if known is None or len(known) < count:
            known = self._constant[name, value] = pa.repeat(value, max(count, 1_024))
        return known.slice(0, count)
