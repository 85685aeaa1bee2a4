"""What filters leave to be fetched, counted; and that what they keep is what Spark would keep."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="the Spark source needs pyarrow")
datasource = pytest.importorskip("pyspark.sql.datasource", reason="needs pyspark")

from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from pyspark.sql.datasource import (  # noqa: E402
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from entrepot.client.client import Client  # noqa: E402
from entrepot.core.batch import build, walk  # noqa: E402
from entrepot.core.compression import Codec  # noqa: E402
from entrepot.core.record import Record  # noqa: E402
from entrepot.spark import decoding, fetching  # noqa: E402
from entrepot.spark.columns import TIMESTAMP  # noqa: E402
from entrepot.spark.connecting import Connected  # noqa: E402
from entrepot.spark.options import Address  # noqa: E402
from entrepot.spark.pushdown import narrow  # noqa: E402
from entrepot.spark.source import EntrepotSource, FilteringReader, TableReader, columns  # noqa: E402
from entrepot.testing import Broker  # noqa: E402
from tests.spark.producing import create  # noqa: E402

PARTITIONS, RECORDS, BATCH = 3, 600, 50
FIRST_MS = 1_700_000_000_000
KEYS = (b"ana", b"bea", None)


def moment(number: float) -> datetime:
    """When record `number` of a partition was made."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=FIRST_MS + number)


def append(server: Broker, topic: str, records: list[Record], partition: int = 0) -> None:
    """Append the records as one batch."""
    batch = build(records, now_ms=FIRST_MS, codec=Codec.ZSTD)
    with Connected(Address(server.bootstrap)) as connected:
        connected.run(lambda client: client.produce(topic, partition, batch))


@pytest.fixture(scope="module")
def topic(server: Broker) -> str:
    """Partitions of batches of fifty, each record a millisecond younger than the one before."""
    name = create(server, "pushed", PARTITIONS)
    for partition in range(PARTITIONS):
        for first in range(0, RECORDS, BATCH):
            records = [
                Record(KEYS[number % len(KEYS)], b"%d" % number, (), FIRST_MS + number)
                for number in range(first, first + BATCH)
            ]
            append(server, name, records, partition)
    return name


class Fetches:
    """Which offsets the broker was asked for, and the batches that came and were unpacked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.partitions: set[int] = set()
        self.batches: set[tuple[int, int]] = set()
        self.unpacked = 0
        fetch, unpack = Client.fetch, decoding.decompress

        async def counted(client: Client, places: Any, **how: Any) -> Any:
            answer = await fetch(client, places, **how)
            for (_, partition), found in answer.items():
                self.partitions.add(partition)
                for _, header in walk(memoryview(found.batches)):
                    self.batches.add((partition, header.offset_first))
            return answer

        def unpacked(*said: Any) -> bytes:
            self.unpacked += 1
            return unpack(*said)

        monkeypatch.setattr(Client, "fetch", counted)
        monkeypatch.setattr(decoding, "decompress", unpacked)
        monkeypatch.setattr(fetching, "PIECE_BYTES", 1)  # One batch an answer.


@pytest.fixture
def fetches(monkeypatch: pytest.MonkeyPatch) -> Iterator[Fetches]:
    return Fetches(monkeypatch)


def read(
    server: Broker, topic: str, *filters: Filter
) -> tuple[list[tuple[int, int]], list[Filter]]:
    """Partition and offset of each row; and the filters that Spark has to look at still."""
    said = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    plain = EntrepotSource(said).reader(columns(False))
    assert isinstance(plain, TableReader)
    reader = FilteringReader(plain._options, plain._schema)
    rest = reader.pushFilters(list(filters))
    rows = [
        row
        for part in reader.partitions()
        for batch in reader.read(part)
        for row in zip(
            *(batch.column(name).to_pylist() for name in ("partition", "offset")), strict=True
        )
    ]
    return rows, rest


def test_a_partition_is_all_that_is_fetched(server: Broker, topic: str, fetches: Fetches) -> None:
    rows, rest = read(server, topic, IsNotNull(("partition",)), EqualTo(("partition",), 1))
    assert (len(rows), rest) == (RECORDS, [])
    assert fetches.partitions == {1}


def test_a_range_of_offsets_is_all_that_is_fetched(
    server: Broker, topic: str, fetches: Fetches
) -> None:
    span = GreaterThanOrEqual(("offset",), 210), LessThan(("offset",), 290)
    rows, rest = read(server, topic, *span, In(("partition",), (0, 2)))
    assert rows == [(partition, offset) for partition in (0, 2) for offset in range(210, 290)]
    assert rest == []
    assert fetches.batches == {(partition, first) for partition in (0, 2) for first in (200, 250)}


def test_what_is_older_is_not_fetched(server: Broker, topic: str, fetches: Fetches) -> None:
    rows, rest = read(server, topic, GreaterThan(("timestamp",), moment(500)))
    assert rows == [(part, offset) for part in range(PARTITIONS) for offset in range(501, RECORDS)]
    assert rest == []
    assert fetches.batches == {(part, first) for part in range(PARTITIONS) for first in (500, 550)}


def test_an_upper_bound_of_time_is_done_here_but_all_is_fetched(
    server: Broker, topic: str, fetches: Fetches
) -> None:
    """A later record may be older, and no batch says that it has none."""
    only = EqualTo(("partition",), 0)
    rows, rest = read(server, topic, only, LessThanOrEqual(("timestamp",), moment(9.5)))
    assert (rows, rest) == ([(0, offset) for offset in range(10)], [])
    assert len(fetches.batches) == RECORDS // BATCH


def test_an_older_batch_is_not_unpacked(
    server: Broker, new_topic: Callable[[], str], fetches: Fetches
) -> None:
    """The broker says where the first young record is; what comes after may be old again."""
    name = create(server, new_topic())
    times = {"young": FIRST_MS + 10_000, "old": FIRST_MS, "younger": FIRST_MS + 20_000}
    for text, time_ms in times.items():
        append(server, name, [Record(None, text.encode() * 20, (), time_ms)] * 10)
    rows, _ = read(server, name, GreaterThanOrEqual(("timestamp",), moment(5_000)))
    assert rows == [(0, offset) for offset in (*range(10), *range(20, 30))]
    assert (len(fetches.batches), fetches.unpacked) == (3, 2)


def test_a_younger_batch_is_not_unpacked_where_its_header_says_so(
    server: Broker, new_topic: Callable[[], str], fetches: Fetches
) -> None:
    """One record is the latest and the earliest; and what the broker timed has one time."""
    by_producer = create(server, new_topic())
    by_broker = create(server, new_topic(), **{"message.timestamp.type": "LogAppendTime"})
    for count, time_ms in ((10, 0), (1, 10_000), (10, 20_000)):
        records = [Record(None, b"some text" * 20, (), FIRST_MS + time_ms)] * count
        append(server, by_producer, records)
        append(server, by_broker, records)
    rows, _ = read(server, by_producer, LessThan(("timestamp",), moment(5_000)))
    assert rows == [(0, offset) for offset in range(10)]
    assert (len(fetches.batches), fetches.unpacked) == (3, 2)
    rows, _ = read(server, by_broker, EqualTo(("timestamp",), moment(20_000)))
    assert (rows, fetches.unpacked) == ([], 2)


def test_rows_of_a_key(server: Broker, topic: str) -> None:
    only, is_ana = EqualTo(("partition",), 0), EqualTo(("key",), b"ana")
    rows, rest = read(server, topic, only, IsNotNull(("key",)), is_ana)
    assert (rows, rest) == ([(0, offset) for offset in range(0, RECORDS, 3)], [])
    rows, rest = read(server, topic, only, In(("key",), (b"bea", b"cid", None)))
    assert (rows, rest) == ([(0, offset) for offset in range(1, RECORDS, 3)], [])
    rows, rest = read(server, topic, only, IsNull(("key",)))
    assert (rows, rest) == ([(0, offset) for offset in range(2, RECORDS, 3)], [])
    rows, rest = read(server, topic, only, EqualTo(("value",), b"17"))
    assert (rows, rest) == ([(0, 17)], [])


def test_what_is_left_to_spark(server: Broker, topic: str) -> None:
    left = [
        Not(EqualTo(("key",), b"ana")),
        EqualTo(("key",), "ana"),
        EqualTo(("timestampType",), 0),
        In(("timestamp",), (moment(1),)),
        EqualTo(("headers", "key"), "a"),
        IsNull(("offset",)),
    ]
    rows, rest = read(server, topic, *left)
    assert rest == left
    assert len(rows) == PARTITIONS * RECORDS


def test_a_time_that_a_float_would_round_up() -> None:
    late = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    narrowed, _ = narrow([GreaterThanOrEqual(("timestamp",), late)])
    assert narrowed.timestamp_ms == 253_402_300_799_999


COMPARED = {
    EqualTo: lambda one, other: one == other,
    EqualNullSafe: lambda one, other: one == other,
    GreaterThan: lambda one, other: one > other,
    GreaterThanOrEqual: lambda one, other: one >= other,
    LessThan: lambda one, other: one < other,
    LessThanOrEqual: lambda one, other: one <= other,
}
keys = st.binary(max_size=2)
times = st.integers(-1, 5).map(moment)


@given(
    st.lists(st.tuples(st.none() | keys, times), max_size=20),
    st.lists(
        st.tuples(st.sampled_from(sorted(COMPARED, key=str)), st.just("key"), keys)
        | st.tuples(st.sampled_from(sorted(COMPARED, key=str)), st.just("timestamp"), times),
        min_size=1,
        max_size=3,
    ),
)
def test_columns_are_compared_as_values_are(rows: list[Any], said: list[Any]) -> None:
    narrowed, rest = narrow([kind((column,), constant) for kind, column, constant in said])
    assert rest == []
    assert narrowed.row_filter is not None
    arrays = {
        "key": pa.array([key for key, _ in rows], pa.binary()),
        "timestamp": pa.array([time for _, time in rows], TIMESTAMP),
    }
    numbers = pa.array(range(len(rows)), pa.int64())
    kept = numbers.filter(narrowed.row_filter.kept(arrays)).to_pylist()

    def holds(kind: type, column: str, constant: Any, row: Any) -> bool:
        value = row[0] if column == "key" else row[1]
        return value is not None and COMPARED[kind](value, constant)

    wanted = [n for n, row in enumerate(rows) if all(holds(*each, row) for each in said)]
    assert kept == wanted
