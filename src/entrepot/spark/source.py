"""Topics as tables and streams: `spark.read.format("entrepot")`, and `readStream`.

The driver finds out which offsets there are and divides them into ranges; each task
fetches its range from the broker and yields Arrow. Spark makes these objects in several
processes and sends them to others, so they hold options and no connection; the one that
a stream's driver keeps is made when it is first needed. Each of these processes imports this
module, so what only some of them need, for writing, for queues and for files, is imported there.
"""

import logging
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    Filter,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from entrepot.client.client import LATEST, TopicPartition
from entrepot.core.clock import SystemClock
from entrepot.spark import offsets
from entrepot.spark.connecting import Connected
from entrepot.spark.decoding import Range, RowFilter, lost
from entrepot.spark.fetching import RangeReader
from entrepot.spark.offsets import Asked, Asking, Json, MissingTopic, Offsets
from entrepot.spark.options import (
    OptionError,
    QueueSourceOptions,
    SourceOptions,
    check,
    check_source,
    ignored,
    includes_headers,
    names_queue,
    read_queue_sink,
    read_queue_source,
    read_sink,
    read_source,
)
from entrepot.spark.pushdown import Narrowed, narrow

logger = logging.getLogger("entrepot.spark")

COLUMNS = (
    StructField("key", BinaryType()),
    StructField("value", BinaryType()),
    StructField("topic", StringType()),
    StructField("partition", IntegerType()),
    StructField("offset", LongType()),
    StructField("timestamp", TimestampType()),
    StructField("timestampType", IntegerType()),
)
HEADERS = StructField(
    "headers",
    ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())])),
)

# The process in which Spark plans a query with filters to push is started for that alone.
# It is the only one where a reader may have `pushFilters`: elsewhere Spark takes the method
# for a mistake, as long as spark.sql.python.filterPushdown.enabled is false.
_PUSHING = "pyspark.sql.worker.data_source_pushdown_filters"


class EntrepotSource(DataSource):
    def __init__(self, options: MutableMapping[str, str]) -> None:
        """Check the options. Spark does this on the driver at each `load`, `save` or `start`."""
        super().__init__(options)
        check(options)
        for line in ignored(options):
            logger.warning(line)

    @classmethod
    def name(cls) -> str:
        return "entrepot"

    def schema(self) -> StructType:
        """Return the columns. Spark asks for them when it reads, unless the user gave a schema."""
        if not names_queue(self.options):
            check_source(self.options)
        return columns(includes_headers(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        if names_queue(self.options):
            raise OptionError("queue: a queue is read as a stream, with readStream")
        options = read_source(self.options, is_stream=False)
        kind = FilteringReader if _PUSHING in sys.modules else TableReader
        return kind(options, arrow_schema(schema, options))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        if names_queue(self.options):
            from entrepot.spark.queue_sink import QueueTableWriter

            return QueueTableWriter(read_queue_sink(self.options), schema, overwrite)
        from entrepot.spark.sink import TableWriter

        return TableWriter(read_sink(self.options), schema, overwrite)

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamArrowWriter:
        if names_queue(self.options):
            from entrepot.spark.queue_sink import QueueStreamWriter

            return QueueStreamWriter(read_queue_sink(self.options), schema)
        from entrepot.spark.sink import StreamWriter

        return StreamWriter(read_sink(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        if names_queue(self.options):
            from entrepot.spark.queue_source import QueueStreamReader

            queue_options = read_queue_source(self.options)
            return QueueStreamReader(queue_options, arrow_schema(schema, queue_options))
        options = read_source(self.options, is_stream=True)
        return StreamReader(options, arrow_schema(schema, options))


class Part(InputPartition):
    """One task's work."""

    def __init__(self, wanted: Range) -> None:
        super().__init__(wanted)


class SchemaError(ValueError):
    """A column that the source does not have, or has with another type."""


def columns(with_headers: bool) -> StructType:
    return StructType([*COLUMNS, HEADERS] if with_headers else list(COLUMNS))


def arrow_schema(schema: StructType, options: SourceOptions | QueueSourceOptions) -> pa.Schema:
    """Return the columns to make: all, or those of a schema that the user gave."""
    known = {field.name: field.dataType for field in columns(options.with_headers).fields}
    for field in schema.fields:
        if field.name not in known:
            more = "" if options.with_headers else ", and headers with includeHeaders=true"
            raise SchemaError(f"no column {field.name}: there are {', '.join(known)}{more}")
        if field.dataType != known[field.name]:
            kinds = known[field.name].simpleString(), field.dataType.simpleString()
            raise SchemaError(f"column {field.name} is {kinds[0]}, not {kinds[1]}; cast it")
        if not field.nullable:
            raise SchemaError(f"column {field.name} cannot be NOT NULL here")
    return to_arrow_schema(schema, timezone="UTC")


def asking(options: SourceOptions) -> Asking:
    """Return whom to ask for topics: the broker, or its directory where no broker is named; and the
    archive, which can also be asked alone."""
    asked: Asking
    if options.address is not None:
        asked = Connected(options.address)
    elif options.data_directory is not None:
        from entrepot.spark.directory import Directory

        asked = Directory(options.data_directory)
    else:
        from entrepot.spark.tier import ArchiveAlone

        assert options.tier is not None
        return ArchiveAlone(options.tier)
    if options.tier is None:
        return asked
    from entrepot.spark.tier import WithTier

    return WithTier(asked, options.tier)


async def identified(options: SourceOptions, client: Asked, ranges: list[Range]) -> list[Range]:
    """Add to the ranges whose archive has what of them is too old for the broker."""
    if options.tier is None:
        return ranges
    from entrepot.spark import tier

    return await tier.identified(client, ranges)


def read_part(
    options: SourceOptions, schema: pa.Schema, wanted: Range, row_filter: RowFilter | None = None
) -> Iterator[pa.RecordBatch]:
    said: dict[str, Any] = {
        "row_filter": row_filter,
        "committed": options.committed,
        "fail_on_data_loss": options.fail_on_data_loss,
    }
    if options.tier is not None:
        from entrepot.spark.tier import ArchiveReader, archived_partition

        said["archive"] = partial(archived_partition, options.tier, wanted)
        if options.address is None and options.data_directory is None:
            yield from ArchiveReader(wanted, schema, **said).batches()
            return
    if options.data_directory is not None:
        from entrepot.spark.segments import SegmentReader, open_data_directory

        data = open_data_directory(options.data_directory)
        yield from SegmentReader(data, wanted, schema, **said).batches()
        return
    assert options.address is not None
    with Connected(options.address) as connected:
        yield from RangeReader(connected, wanted, schema, **said).batches()


class TableReader(DataSourceReader):
    """What is there when the query is planned."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._narrowed = Narrowed()

    def partitions(self) -> list[Part]:
        options = self._options
        with asking(options) as asked:
            asked.check()
            ranges = asked.run(self._ranges)
        pieces = offsets.split(ranges, options.partitions_min, options.range_rows_max)
        # For no partitions Spark would make one of its own, with nothing in it.
        return [Part(piece) for piece in pieces] or [Part(Range("", 0, 0, 0))]

    async def _ranges(self, client: Asked) -> list[Range]:
        options, narrowed = self._options, self._narrowed
        parts = await offsets.partitions_of(client, options.which)
        begin = await offsets.resolve(client, options, options.begin, parts)
        end = await offsets.resolve(client, options, options.end, parts)
        parts = [part for part in parts if narrowed.has(part)]
        if narrowed.timestamp_ms is not None and parts:
            young = await client.list_offsets(
                dict.fromkeys(parts, narrowed.timestamp_ms), committed=options.committed
            )
            for part, at in young.items():
                begin[part] = max(begin[part], at.offset if at.offset >= 0 else end[part])
        ranges = [narrowed.cut(Range(*part, begin[part], end[part])) for part in parts]
        return await identified(options, client, ranges)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        row_filter = self._narrowed.row_filter
        return read_part(self._options, self._schema, partition.value, row_filter)


class FilteringReader(TableReader):
    def pushFilters(self, filters: list[Filter]) -> list[Filter]:  # noqa: N802
        self._narrowed, rest = narrow(filters)
        return rest


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """What comes, batch by batch. Offsets are JSON that Spark keeps, and hands back."""

    def __init__(self, options: SourceOptions, schema: pa.Schema) -> None:
        self._options = options
        self._schema = schema
        self._asked: Asking | None = None  # Only on the driver.
        self._latest: Offsets = {}  # When we last looked.
        self._target: Offsets | None = None  # Where an available-now query ends.
        self._clock = SystemClock()
        self._triggered_s: float | None = None  # When there was last enough for a batch.

    def initialOffset(self) -> Json:  # noqa: N802
        options = self._options

        async def find(client: Asked) -> Offsets:
            parts = await offsets.partitions_of(client, options.which)
            return await offsets.resolve(client, options, options.begin, parts)

        asked = self._driver()
        asked.check()
        return offsets.to_json(asked.run(find))

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        rows_max = self._options.trigger_rows_max
        return ReadAllAvailable() if rows_max is None else ReadMaxRows(rows_max)

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:  # noqa: N802
        begin = offsets.from_json(start)
        self._latest = self._driver().run(self._find_latest)
        self._check_lost(begin)
        end = dict(self._latest)
        if self._target is not None:
            end = _up_to(begin, end, self._target)
        elif not self._is_enough(begin, end):
            return offsets.to_json(begin)
        if isinstance(limit, ReadMaxRows):
            place = {part: _begin(begin, end, part) for part in end}
            end = offsets.limited(place, end, limit.max_rows)
        return offsets.to_json(end)

    def _is_enough(self, begin: Offsets, end: Offsets) -> bool:
        """Return whether there is enough for a batch, or it has waited for long enough."""
        rows_min, now_s = self._options.trigger_rows_min, self._clock.monotonic()
        if rows_min is None:
            return True
        rows = sum(max(0, at - _begin(begin, end, part)) for part, at in end.items())
        is_first = self._triggered_s is None
        waited_s = 0.0 if self._triggered_s is None else now_s - self._triggered_s
        if not is_first and rows < rows_min and waited_s < self._options.trigger_delay_s:
            return False
        self._triggered_s = now_s
        return True

    def _check_lost(self, begin: Offsets) -> None:
        fail = self._options.fail_on_data_loss
        for part, at in begin.items():
            end = self._latest.get(part)
            if end is None:
                lost(part, "the partition is gone, and with it its records", fail=fail)
            elif end < at:
                what = f"its log ends at {end}, before {at}, where the query is: some are gone"
                lost(part, what, fail=fail)

    def reportLatestOffset(self) -> Json | None:  # noqa: N802
        return offsets.to_json(self._latest) or None

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._target = self._driver().run(self._find_latest)

    def partitions(self, start: Json, end: Json) -> list[Part]:
        begin, until = offsets.from_json(start), offsets.from_json(end)
        ranges = [Range(*part, _begin(begin, until, part), at) for part, at in until.items()]
        options = self._options
        if options.tier is not None:
            ranges = self._driver().run(lambda client: identified(options, client, ranges))
        pieces = offsets.split(ranges, options.partitions_min, options.range_rows_max)
        return [Part(piece) for piece in pieces]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_part(self._options, self._schema, partition.value)

    def commit(self, end: Json) -> None:
        """Do nothing: Spark keeps the offsets, and the broker need not know."""

    def stop(self) -> None:
        if self._asked is not None:
            self._asked.close()
            self._asked = None

    def _driver(self) -> Asking:
        if self._asked is None:
            self._asked = asking(self._options)
        return self._asked

    async def _find_latest(self, client: Asked) -> Offsets:
        options = self._options
        try:
            parts = await offsets.partitions_of(client, options.which)
        except MissingTopic:
            if options.fail_on_data_loss:
                raise
            parts = []
        return await offsets.ends(client, parts, LATEST, committed=options.committed)


def _up_to(begin: Offsets, end: Offsets, target: Offsets) -> Offsets:
    """Return where to end: not beyond the target, and never back where the query is beyond it."""
    found = {}
    for part, at in end.items():
        start = begin.get(part, 0)
        if part in target or part in begin:
            found[part] = at if at < start else max(start, min(at, target.get(part, start)))
    return found


def _begin(
    begin: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], part: TopicPartition
) -> int:
    """Return where to begin: a partition that is new, or begun anew, from its beginning."""
    start = begin.get(part, 0)
    return start if start <= end[part] else 0
