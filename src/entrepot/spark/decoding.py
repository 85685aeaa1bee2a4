"""One range of one partition into Arrow: what a task of the source does with bytes of the log.

Nothing becomes a Python object for each record: batches are checked, unpacked and handed
to the columns as bytes. What a reader must not see (markers, aborted transactions, records
outside of the range) is left out here; so a range may give fewer rows than it has offsets,
or none. Where the bytes come from, the broker or its files, is for others to say; what is too old
for either comes out of the topic's archive, if it has one.
"""

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa

from entrepot.client.client import TopicPartition
from entrepot.client.reader import Visible
from entrepot.core.batch import HEADER_BYTES, BatchHeader, Codec, check, walk
from entrepot.core.compression import decompress
from entrepot.core.errors import Corruption, InvalidBatch
from entrepot.core.limits import DECOMPRESSED_BYTES_MAX, MIB
from entrepot.core.ports import Buffer
from entrepot.spark.columns import new_columns

if TYPE_CHECKING:
    from entrepot.log.read_only import ArchivedPartition

ROWS_MAX = 64 * 1024  # Of one Arrow batch.
BYTES_MAX = 32 * MIB  # Of one Arrow batch, before the last that was added.
PIECE_BYTES = 8 * MIB

MADE = ("key", "value", "offset", "timestamp", "headers")  # In the columns' order.
TIMESTAMP_MS_MAX = 2**63 - 1
CREATE_TIME, LOG_APPEND_TIME = 0, 1  # Kafka's numbers of what a timestamp means.

logger = logging.getLogger("entrepot.spark")


class Range(NamedTuple):
    topic: str
    partition: int
    offset_from: int
    offset_until: int  # Exclusive.
    topic_id: str = ""  # Whose archive has what is too old for the broker; empty: nobody's.

    @property
    def part(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class DataLost(Exception):
    """Records that were asked for are gone, and failOnDataLoss is true."""


class Damaged(Exception):
    """What came from the broker, or out of an archive, cannot be read."""


class TooOld(Exception):
    """The log begins later than what is asked for, or ends before."""

    def __init__(self, offset_start: int) -> None:
        super().__init__(offset_start)
        self.offset_start = offset_start


def lost(part: TopicPartition, what: str, *, fail: bool) -> None:
    """Raise DataLost, or log a warning where the query goes on without what is gone."""
    if fail:
        raise DataLost(
            f"{part}: {what}. They were deleted, or the topic was made anew. "
            "With failOnDataLoss=false the query goes on without them."
        )
    logger.warning("%s: %s; going on without them, as failOnDataLoss is false", part, what)


class Condition(NamedTuple):
    """What a column must be like, as one of Arrow's functions says."""

    column: str  # key, value or timestamp.
    function: str
    constant: Any = None


class RowFilter(NamedTuple):
    """Which of the records become rows: those for which all conditions hold."""

    conditions: tuple[Condition, ...]
    timestamp_ms_min: int = -1  # What is older does not meet them, whatever else it is,
    timestamp_ms_max: int = TIMESTAMP_MS_MAX  # nor what is younger.

    def may_keep(self, header: BatchHeader) -> bool:
        """Return whether a batch may have rows, as far as its header says. That notes the latest
        time, which is also the earliest where there is but one."""
        has_one_time = header.is_append_time or header.count == 1
        is_too_young = has_one_time and header.timestamp_max > self.timestamp_ms_max
        return header.timestamp_max >= self.timestamp_ms_min and not is_too_young

    def kept(self, arrays: Mapping[str, pa.Array]) -> pa.Array:
        """Return true for each row that is wanted, and null where a condition has no answer."""
        import pyarrow.compute as pc  # Most tasks have no filter.

        answers = []
        for column, function, constant in self.conditions:
            array = arrays[column]
            if function == "is_in":
                answers.append(pc.is_in(array, value_set=pa.array(constant, array.type)))
            elif constant is None:
                answers.append(pc.call_function(function, [array]))
            else:
                scalar = pa.scalar(constant, array.type)
                answers.append(pc.call_function(function, [array, scalar]))
        return reduce(pc.and_, answers)


class Piece(NamedTuple):
    """A run of whole batches, as they are in the log."""

    view: memoryview
    whole: list[tuple[int, BatchHeader]]  # Where each begins.
    offset_from: int  # What is below was in the piece before.
    aborted: tuple[tuple[int, int], ...]  # Producer id and first offset of transactions in it.


class RangeDecoder(ABC):
    def __init__(
        self,
        wanted: Range,
        schema: pa.Schema,
        *,
        committed: bool,
        fail_on_data_loss: bool,
        archive: Callable[[], "ArchivedPartition | None"] = lambda: None,
        row_filter: RowFilter | None = None,
    ) -> None:
        """Set up; `schema` names the columns to make. The archive is opened when it is needed."""
        self._wanted = wanted
        self._schema = schema
        self._committed = committed
        self._fail = fail_on_data_loss
        self._archive = archive
        self._row_filter = row_filter
        self._position = wanted.offset_from
        self._columns = new_columns("headers" in schema.names)
        self._time_type = CREATE_TIME  # Of all rows in the columns.
        self._constant: dict[tuple[str, object], pa.Array] = {}  # The same in every row.

    @abstractmethod
    def _pieces(self) -> Iterator[Piece]:
        """Yield all batches of the range, in order, and move the position along."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        for piece in self._pieces():
            yield from self._decoded(piece)
        if self._columns.count:
            yield from self._taken()

    # --- for those who find the pieces

    def _cut(self, batches: Buffer, aborted: tuple[tuple[int, int], ...]) -> Piece:
        """Divide what came from the position on into batches; move the position behind them."""
        view, start = memoryview(batches), self._position
        try:
            whole = list(walk(view))
        except InvalidBatch as error:
            raise Damaged(f"{self._wanted.part} at {start}: {error}") from None
        self._position = whole[-1][1].offset_end if whole else start
        if self._position <= start:
            raise Damaged(f"{self._wanted.part} at {start}: not one whole batch came")
        return Piece(view, whole, start, aborted)

    def _missing(self, offset_start: int) -> Iterator[Piece]:
        """Go on from a position that is not in the log, which begins later or ends before it."""
        if offset_start > self._position:
            yield from self._older(offset_start)
        else:
            self._lose(self._wanted.offset_until, "")

    def _older(self, offset_start: int) -> Iterator[Piece]:
        """Yield all below an offset, out of the archive. What is not there is lost."""
        until, archive = min(offset_start, self._wanted.offset_until), self._archive()
        while self._position < until:
            offset = None if archive is None else archive.next_offset(self._position)
            if archive is None or offset is None or offset > self._position:
                self._lose(until if offset is None else min(until, offset), "")
                continue
            try:
                run = archive.read(offset, PIECE_BYTES)
                aborted = archive.aborted(offset, run.offset_end) if self._committed else []
            except Corruption as error:
                raise Damaged(f"{self._wanted.part}: {error}") from None
            if len(run.batches):
                yield self._cut(run.batches, tuple(aborted))
            self._position = run.offset_end

    def _end_in_gap(self, offset_end: int) -> None:
        """Go on where nothing came: compaction removed the rest, or the log became shorter."""
        if offset_end >= self._wanted.offset_until:
            self._position = self._wanted.offset_until
        else:
            self._lose(self._wanted.offset_until, f"the log ends at {offset_end}; ")

    def _lose(self, until: int, why: str) -> None:
        offsets = f"{why}offsets {self._position} to {until - 1} are gone"
        lost(self._wanted.part, offsets, fail=self._fail)
        self._position = until

    # --- decoding

    def _decoded(self, piece: Piece) -> Iterator[pa.RecordBatch]:
        visible = Visible(piece.aborted) if self._committed else None
        columns, until, row_filter = self._columns, self._wanted.offset_until, self._row_filter
        for position, header in piece.whole:
            if header.count == 0 or header.offset_first >= until:
                continue  # Compaction may leave a batch without its records.
            if row_filter and not header.is_control and not row_filter.may_keep(header):
                continue
            batch = piece.view[position : position + header.size]
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
                    self._add(header, batch, piece.offset_from)
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
        if self._row_filter is not None:
            kept = self._row_filter.kept(arrays)
            arrays = {name: array.filter(kept) for name, array in arrays.items()}
            count = len(arrays["offset"])
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
