"""Ranges read from a real broker, without Spark."""

import asyncio
import logging
from collections.abc import Callable

import pytest

pa = pytest.importorskip("pyarrow", reason="the Spark source needs pyarrow")

from confluent_kafka import Producer, TopicPartition  # noqa: E402
from confluent_kafka.admin import AdminClient  # noqa: E402
from crc32c import crc32c  # noqa: E402

from entrepot.client.admin import Admin  # noqa: E402
from entrepot.client.client import EARLIEST, LATEST, Client, Fetched, OffsetAt  # noqa: E402
from entrepot.core.batch import build, read_header, records, retain  # noqa: E402
from entrepot.core.record import Record  # noqa: E402
from entrepot.spark import decoding, fetching  # noqa: E402
from entrepot.spark.columns import HEADERS, TIMESTAMP  # noqa: E402
from entrepot.spark.connecting import Connected  # noqa: E402
from entrepot.spark.decoding import Damaged, DataLost, Range  # noqa: E402
from entrepot.spark.fetching import RangeReader  # noqa: E402
from entrepot.spark.options import Address  # noqa: E402
from entrepot.testing import Broker, broker  # noqa: E402
from tests.spark.producing import create, produce, texts, transaction  # noqa: E402

ALL = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
VALUES = pa.schema([("offset", pa.int64()), ("value", pa.binary())])


def read(connected: Connected, *wanted, schema=VALUES, **options) -> list:
    reader = RangeReader(connected, Range(*wanted), schema, **options)
    return list(reader.batches())


def values(batches: list) -> list[str]:
    return [value.decode() for batch in batches for value in batch.column("value").to_pylist()]


def offsets(batches: list) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


def put(connected: Connected, topic: str, batch: bytes) -> None:
    async def work(client: Client) -> int:
        return await client.produce(topic, 0, batch)

    connected.run(work)


def delete_before(server: Broker, topic: str, offset: int) -> None:
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    part = TopicPartition(topic, 0, offset)
    admin.delete_records([part])[part].result()


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_any_range_is_exact(
    server: Broker, connected: Connected, new_topic: Callable[[], str], codec: str
) -> None:
    topic = create(server, new_topic())
    produce(server, topic, texts(3_000), compression_type=codec, batch_num_messages=100)
    for first, until in ((0, 3_000), (150, 151), (99, 2_001), (2_999, 3_000), (5, 5)):
        found = read(connected, topic, 0, first, until)
        assert offsets(found) == list(range(first, until))
        assert values(found) == texts(until - first, first)


def test_every_column(server: Broker, connected: Connected, new_topic: Callable[[], str]) -> None:
    topic = create(server, new_topic(), 2)
    producer = Producer({"bootstrap.servers": server.bootstrap})
    producer.produce(
        topic, b"v", b"k", partition=1, timestamp=1_700_000_000_123, headers=[("h", b"1")]
    )
    producer.produce(topic, None, None, partition=1, timestamp=1_700_000_000_456)
    producer.flush(30)
    (batch,) = read(connected, topic, 1, 0, 2, schema=ALL)
    assert batch.schema == ALL
    first, second = batch.to_pylist()
    stamp = first.pop("timestamp")
    assert stamp.isoformat() == "2023-11-14T22:13:20.123000+00:00"
    assert first == {
        "key": b"k",
        "value": b"v",
        "topic": topic,
        "partition": 1,
        "offset": 0,
        "timestampType": 0,
        "headers": [{"key": "h", "value": b"1"}],
    }
    assert (second["key"], second["value"], second["headers"]) == (None, None, [])


def test_more_than_one_answer_and_one_arrow_batch(
    server: Broker,
    connected: Connected,
    new_topic: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetching, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(decoding, "ROWS_MAX", 1_000)
    topic = create(server, new_topic())
    produce(server, topic, texts(5_000), batch_num_messages=300)
    put(connected, topic, build([Record(None, b"x")] * 2_500, now_ms=1))
    found = read(connected, topic, 0, 0, 7_500)
    assert offsets(found) == list(range(7_500))
    assert max(batch.num_rows for batch in found) <= 1_000
    monkeypatch.setattr(decoding, "BYTES_MAX", 1)
    assert len(read(connected, topic, 0, 0, 5_000)) > len(found)


def test_kinds_of_time_are_not_mixed(
    server: Broker, connected: Connected, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic())
    for value, kind in ((b"a", "CreateTime"), (b"b", "LogAppendTime"), (b"c", "CreateTime")):
        settings = {"message.timestamp.type": kind}
        connected.run(lambda client, to=settings: Admin(client).alter_settings(topic, to))
        put(connected, topic, build([Record(None, value, (), 5)], now_ms=5))
    found = read(connected, topic, 0, 0, 3, schema=ALL)
    rows = [row for batch in found for row in batch.to_pylist()]
    kinds = [(row["value"], row["timestampType"]) for row in rows]
    assert kinds == [(b"a", 0), (b"b", 1), (b"c", 0)]
    assert [row["timestamp"].year > 2000 for row in rows] == [False, True, False]


def test_aborted_transactions_and_markers(
    server: Broker, connected: Connected, new_topic: Callable[[], str]
) -> None:
    topic = create(server, new_topic())
    produce(server, topic, ["a"])
    for number, commit in enumerate([True, False, True, False]):
        with transaction(server, f"{topic}-{number}", commit=commit) as producer:
            for _ in range(3):
                producer.produce(topic, f"{number} {commit}".encode(), partition=0)
    committed = ["a", *["0 True"] * 3, *["2 True"] * 3]
    assert values(read(connected, topic, 0, 0, 17)) == committed
    everything = values(read(connected, topic, 0, 0, 17, committed=False))
    assert len(everything) == 13
    assert values(read(connected, topic, 0, 5, 9)) == []  # From within the aborted one.
    assert values(read(connected, topic, 0, 13, 17)) == []  # Ends in a marker.


class Canned:
    """Connected to a broker that has these batches, and nothing after them up to an offset."""

    def __init__(self, batches: list[bytes], end: int) -> None:
        self.batches = batches
        self.end = end

    def run(self, work):
        return asyncio.run(work(self))

    def start(self, work):
        return work

    finish = run

    async def fetch(self, positions, **_) -> dict:
        (part,) = positions
        after = [each for each in self.batches if read_header(each).offset_end > positions[part]]
        return {part: Fetched(b"".join(after[:1]), self.end, 0, ())}

    async def list_offsets(self, wanted, committed: bool = False) -> dict:
        places = {EARLIEST: 0, LATEST: self.end}
        return {part: OffsetAt(places[at], -1) for part, at in wanted.items()}


def test_gaps_that_compaction_leaves() -> None:
    whole = build([Record(b"k", b"%d" % number) for number in range(10)], now_ms=1, offset_first=20)
    kept = retain(whole, [record for record in records(whole) if record.offset in (22, 27)])
    emptied = bytearray(build([Record(None, None)], now_ms=1, offset_first=30))
    emptied[57:61] = bytes(4)  # Of a batch, the header may be left.
    canned = Canned([kept, bytes(emptied)], end=40)
    assert offsets(read(canned, "t", 0, 0, 40)) == [22, 27]
    assert offsets(read(canned, "t", 0, 23, 40)) == [27]
    assert read(canned, "t", 0, 30, 40) == []
    canned.end = 35
    with pytest.raises(DataLost, match="the log ends at 35; offsets 31 to 39 are gone"):
        read(canned, "t", 0, 30, 40)


def test_an_answer_that_leads_nowhere_is_an_error() -> None:
    cut_off = build([Record(b"k", b"v")], now_ms=1, offset_first=5)
    canned = Canned([cut_off], end=9)
    canned.batches = [cut_off[:-1]]
    with pytest.raises(Damaged, match="partition 0 of topic t at 5: not one whole batch"):
        read(canned, "t", 0, 5, 9)


def test_what_is_gone(
    server: Broker,
    connected: Connected,
    new_topic: Callable[[], str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    topic = create(server, new_topic())
    produce(server, topic, texts(100))
    delete_before(server, topic, 40)
    words = rf"partition 0 of topic {topic}: offsets 10 to 39 are gone.*failOnDataLoss=false"
    with pytest.raises(DataLost, match=words):
        read(connected, topic, 0, 10, 90)
    with caplog.at_level(logging.WARNING, "entrepot.spark"):
        found = read(connected, topic, 0, 10, 90, fail_on_data_loss=False)
    assert offsets(found) == list(range(40, 90))
    assert "offsets 10 to 39 are gone" in caplog.text
    assert read(connected, topic, 0, 10, 30, fail_on_data_loss=False) == []
    with pytest.raises(DataLost, match="offsets 150 to 159 are gone"):
        read(connected, topic, 0, 150, 160)
    with pytest.raises(DataLost, match="the log ends at 100; offsets 100 to 119 are gone"):
        read(connected, topic, 0, 90, 120)
    assert len(offsets(read(connected, topic, 0, 90, 120, fail_on_data_loss=False))) == 10


def test_a_topic_that_is_not_there(
    server: Broker,
    new_topic: Callable[[], str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("entrepot.spark.connecting.ATTEMPTS", 2)
    topic = new_topic()
    with Connected(Address(server.bootstrap)) as connected:
        with pytest.raises(DataLost, match=f"{topic}: the partition is not there any more"):
            read(connected, topic, 0, 0, 5)
        assert read(connected, topic, 0, 0, 5, fail_on_data_loss=False) == []


def test_a_body_that_is_no_records(
    server: Broker, connected: Connected, new_topic: Callable[[], str]
) -> None:
    """The broker looks at a batch's header and checksum, not into its records."""
    topic = create(server, new_topic())
    good = build([Record(None, b"xyz")], now_ms=1)
    bad = bytearray(good)
    bad[-5:] = b"\x7f" * 5
    bad[17:21] = crc32c(bad[21:]).to_bytes(4, "big")
    put(connected, topic, good)
    put(connected, topic, bytes(bad))
    assert values(read(connected, topic, 0, 0, 1)) == ["xyz"]
    with pytest.raises(Damaged, match=rf"partition 0 of topic {topic} at 1: "):
        read(connected, topic, 0, 0, 2)


def test_the_broker_is_started_again_on_the_way(
    new_topic: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "PIECE_BYTES", 20_000)
    monkeypatch.setattr(decoding, "ROWS_MAX", 1_000)
    with broker() as server, Connected(Address(server.bootstrap)) as connected:
        topic = create(server, new_topic())
        produce(server, topic, texts(10_000), batch_num_messages=500)
        reader = RangeReader(connected, Range(topic, 0, 0, 10_000), VALUES)
        found = []
        for number, batch in enumerate(reader.batches()):
            found.append(batch)
            if number == 2:
                server.kill()
                server.start()
        assert offsets(found) == list(range(10_000))
