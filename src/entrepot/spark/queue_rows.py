"""Messages of a queue as rows: its log is read as a topic's, and what is not ours left out.

Where many consumers take turns, a batch's messages stand in many short ranges. To fetch each
by itself would take longer than to read what is between them, too; so ranges that are near
one another are one task's, and read as one.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from entrepot.spark.connecting import Connected
from entrepot.spark.decoding import Range
from entrepot.spark.fetching import RangeReader
from entrepot.spark.options import QueueSourceOptions
from entrepot.spark.spans import Spans

GAP_MAX = 10_000  # Messages of others that are read, and passed over, rather than jumped.


class Rows(NamedTuple):
    """One task's: all of a range, or some of its offsets."""

    whole: Range
    offsets: tuple[tuple[int, int], ...]  # First and end of each run that is wanted.

    @property
    def size(self) -> int:
        return sum(end - first for first, end in self.offsets)


def divide(queue: str, spans: Spans, tasks_min: int | None, rows_max: int | None) -> list[Rows]:
    """Divide messages into tasks of about equal size."""
    size = max(1, -(-len(spans) // (tasks_min or 1)))
    size = min(size, rows_max or size)
    tasks: list[Rows] = []
    for lane, first, end in spans:
        while first < end:
            last = tasks[-1] if tasks else None
            is_near = (
                last is not None
                and last.whole.partition == lane
                and first - last.whole.offset_until <= GAP_MAX
                and last.size < size
            )
            if last is None or not is_near:
                last = Rows(Range(queue, lane, first, first), ())
            else:
                tasks.pop()
            stop = min(end, first + size - last.size)
            whole = last.whole._replace(offset_until=stop)
            tasks.append(Rows(whole, (*last.offsets, (first, stop))))
            first = stop
    return tasks


def read_rows(
    options: QueueSourceOptions, schema: pa.Schema, rows: Rows
) -> Iterator[pa.RecordBatch]:
    with Connected(options.address) as connected:
        made = schema
        if len(rows.offsets) > 1 and "offset" not in schema.names:
            made = schema.append(pa.field("offset", pa.int64()))
        reader = RangeReader(
            connected, rows.whole, made, fail_on_data_loss=options.fail_on_data_loss
        )
        if len(rows.offsets) == 1:
            yield from reader.batches()
        else:
            yield from _some(reader.batches(), rows, schema)


def _some(
    batches: Iterable[pa.RecordBatch], rows: Rows, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    wanted = pa.array(
        [offset for first, end in rows.offsets for offset in range(first, end)], pa.int64()
    )
    for batch in batches:
        found = batch.filter(pc.is_in(batch.column("offset"), value_set=wanted))
        if found.num_rows:
            yield found.select(schema.names)
