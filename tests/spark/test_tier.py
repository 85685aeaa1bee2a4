"""A topic whose beginning is only in its archive gives the rows that it gave before.

Here the source's parts are called as Spark calls them; with Spark itself in
`test_tier_in_spark`.
"""

import random
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pip install 'entrepot[spark]' for this test")

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka import TopicPartition as Place  # noqa: E402
from confluent_kafka.admin import AdminClient  # noqa: E402
from pyspark.sql.datasource import GreaterThanOrEqual, LessThan  # noqa: E402

from entrepot.client.client import EARLIEST, LATEST, TopicPartition  # noqa: E402
from entrepot.log.read_only import Archive, open_archive  # noqa: E402
from entrepot.spark import decoding, segments  # noqa: E402
from entrepot.spark.connecting import Connected  # noqa: E402
from entrepot.spark.decoding import Damaged, DataLost, Range  # noqa: E402
from entrepot.spark.options import Address, OptionError  # noqa: E402
from entrepot.spark.pushdown import narrow  # noqa: E402
from entrepot.spark.source import (  # noqa: E402
    EntrepotSource,
    FilteringReader,
    StreamReader,
    TableReader,
    columns,
)
from entrepot.spark.tier import WithTier  # noqa: E402
from entrepot.testing import Broker, broker  # noqa: E402
from tests.spark.producing import create, produce, texts, wait_for_copies  # noqa: E402
from tests.spark.test_segments import Story, at_times, ends  # noqa: E402

SLOW_S = 30.0


def tiered(server: Broker, directory: Path, topic: str = "t", **settings: str) -> str:
    """Create a topic with small segments that are copied. Return the tier's address."""
    directory.mkdir(exist_ok=True)
    address = directory.as_uri()
    create(server, topic, **{"entrepot.tier": address, "segment_bytes": "4000"} | settings)
    return address


def delete_below(server: Broker, offset: int, topic: str = "t") -> None:
    """As retention does, at once."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_records([Place(topic, 0, offset)])[Place(topic, 0)].result()


def source(server: Broker | None, address: str, **options: str) -> EntrepotSource:
    named = {} if server is None else {"kafka.bootstrap.servers": server.bootstrap}
    return EntrepotSource(named | {"subscribe": "t", "tier": address} | options)


def table(server: Broker | None, address: str, **options: str) -> TableReader:
    made = source(server, address, **options)
    reader = made.reader(columns("includeHeaders" in options))
    assert isinstance(reader, TableReader)
    return reader


def rows(reader: TableReader | StreamReader, *between: Any) -> list[dict[str, Any]]:
    found = [
        row
        for part in reader.partitions(*between)
        for batch in reader.read(part)
        for row in batch.to_pylist()
    ]
    return sorted(found, key=lambda row: (row["partition"], row["offset"]))


def values(reader: TableReader | StreamReader, *between: Any) -> list[str]:
    return [row["value"].decode() for row in rows(reader, *between)]


# --- the same rows


@pytest.mark.slow
def test_many_stories(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tell_and_compare(seed, tmp_path, monkeypatch)


@pytest.mark.slow
def test_an_archive_gives_what_the_broker_gave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_and_compare(0, tmp_path, monkeypatch)


def tell_and_compare(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (decoding, segments):
        monkeypatch.setattr(module, "PIECE_BYTES", 2_000)
    chance = random.Random(seed)
    said = {"includeHeaders": "true"}
    with broker() as server:
        address = tiered(server, tmp_path / "archive")
        plain = {"subscribe": "t", "kafka.bootstrap.servers": server.bootstrap} | said
        Story(server, chance).tell(steps=40)
        isolations = {}
        for isolation in ("read_committed", "read_uncommitted"):
            level = {"kafka.isolation.level": isolation}
            reader = EntrepotSource(plain | level).reader(columns(True))
            isolations[isolation] = rows(reader)
        with Connected(Address(server.bootstrap)) as connected:
            before = [ends(connected, committed) for committed in (True, False)]
            times = [at_times(connected, committed) for committed in (True, False)]
            end = wait_for_copies(server, address, stable=before[0][1])
            start = chance.randrange(end // 2, end + 1)
            delete_below(server, start)
            asked = WithTier(connected, address)
            assert [ends(asked, committed) for committed in (True, False)] == before
            assert [at_times(asked, committed) for committed in (True, False)] == times
        for isolation, expected in isolations.items():
            level = {"kafka.isolation.level": isolation, **said}
            many = level | {"minPartitions": str(chance.randrange(2, 9))}
            files = {"dataDirectory": str(server.data_dir)}
            for options in (level, many, level | files, many | files):
                assert rows(table(server, address, **options)) == expected
            alone = [row for row in expected if row["offset"] < end]
            assert rows(table(None, address, **level)) == alone
            first = chance.randrange(end)
            part = level | {"startingOffsets": f'{{"t": {{"0": {first}}}}}'}
            found = [row for row in expected if row["offset"] >= first]
            assert rows(table(server, address, **part)) == found


def test_a_stream_begins_with_the_archive(entrepot_broker: Broker, tmp_path: Path) -> None:
    server, address = entrepot_broker, tiered(entrepot_broker, tmp_path / "archive")
    produce(server, "t", texts(2_000), batch_num_messages=50)
    end = wait_for_copies(server, address)
    delete_below(server, end)
    made = source(server, address, startingOffsets="earliest", maxOffsetsPerTrigger="700")
    reader = made.streamReader(columns(False))
    assert isinstance(reader, StreamReader)
    try:
        begin, found = reader.initialOffset(), list[str]()
        assert begin == {"t": {"0": 0}}
        reader.prepareForTriggerAvailableNow()
        produce(server, "t", texts(100, 2_000))
        while (until := reader.latestOffset(begin, reader.getDefaultReadLimit())) != begin:
            found += values(reader, begin, until)
            assert len(found) % 700 == 0 or len(found) == 2_000
            begin = until
        assert found == texts(2_000)
    finally:
        reader.stop()


def test_records_that_leave_the_broker_after_they_were_planned(
    entrepot_broker: Broker, tmp_path: Path
) -> None:
    server, address = entrepot_broker, tiered(entrepot_broker, tmp_path / "archive")
    produce(server, "t", texts(2_000), batch_num_messages=50)
    end = wait_for_copies(server, address)
    reader = table(server, address, minPartitions="4")
    planned = reader.partitions()
    assert len(planned) == 4
    delete_below(server, end)
    found = [row for part in planned for batch in reader.read(part) for row in batch.to_pylist()]
    assert [row["value"].decode() for row in found] == texts(2_000)


# --- planning


@pytest.mark.slow
def test_several_tasks_read_what_is_in_both(entrepot_broker: Broker, tmp_path: Path) -> None:
    server, address = entrepot_broker, tiered(entrepot_broker, tmp_path / "archive")
    produce(server, "t", texts(2_000), batch_num_messages=50)
    end = wait_for_copies(server, address)
    delete_below(server, end)
    planned = [part.value for part in table(server, address, minPartitions="6").partitions()]
    bounds = [(each.offset_from, each.offset_until) for each in planned]
    assert len(bounds) == 6
    assert (bounds[0][0], bounds[-1][1]) == (0, 2_000)
    assert len([until for _, until in bounds if until <= end]) >= 3
    assert values(table(server, address, minPartitions="6")) == texts(2_000)


def test_filters_leave_whole_segments_unread(entrepot_broker: Broker, tmp_path: Path) -> None:
    server, address = entrepot_broker, tiered(entrepot_broker, tmp_path / "archive")
    producer = Producer({"bootstrap.servers": server.bootstrap, "linger.ms": 0})
    for number in range(1_000):
        producer.produce("t", f"value {number}".encode(), timestamp=1_000 + number, partition=0)
        if number % 20 == 0:
            assert producer.flush(30) == 0
    assert producer.flush(30) == 0
    end = wait_for_copies(server, address)
    delete_below(server, end)
    made = source(server, address)
    base = made.reader(columns(False))
    assert isinstance(base, TableReader)
    reader = FilteringReader(base._options, base._schema)
    filters = [GreaterThanOrEqual(("offset",), 500), LessThan(("offset",), 600)]
    assert reader.pushFilters(filters) == []
    directory = next((tmp_path / "archive/t").iterdir()) / "0"
    for path in directory.glob("*.log"):  # Who reads it finds it damaged.
        if int(path.stem) < 300 or int(path.stem) > 600:
            path.write_bytes(b"")
    assert values(reader) == texts(100, 500)
    assert narrow(filters)[0].offset_from == 500
    young = FilteringReader(base._options, base._schema)
    later = datetime.fromtimestamp(1.5, UTC)
    young.pushFilters([GreaterThanOrEqual(("timestamp",), later), LessThan(("offset",), 600)])
    assert values(young) == texts(100, 500)


# --- without a broker


def test_an_archive_alone(tmp_path: Path) -> None:
    with broker() as server:
        address = tiered(server, tmp_path / "archive")
        produce(server, "t", texts(1_000), batch_num_messages=50)
        end = wait_for_copies(server, address)
    assert values(table(None, address)) == texts(end)
    assert values(table(None, address, startingOffsets='{"t": {"0": 100}}')) == texts(
        end - 100, 100
    )
    with pytest.raises(Exception, match="topic u does not exist"):
        table(None, address, subscribe="u").partitions()


@pytest.mark.slow
def test_a_topic_that_was_made_anew(entrepot_broker: Broker, tmp_path: Path) -> None:
    server, address = entrepot_broker, tiered(entrepot_broker, tmp_path / "archive")
    produce(server, "t", texts(1_000), batch_num_messages=50)
    wait_for_copies(server, address)
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    admin.delete_topics(["t"])["t"].result()
    tiered(server, tmp_path / "archive")
    produce(server, "t", texts(5, 7_000))
    assert values(table(server, address)) == texts(5, 7_000)
    produce(server, "t", texts(1_000, 7_005), batch_num_messages=50)
    deadline = time.monotonic() + SLOW_S
    while len(Archive.ids(open_archive(address), "t")) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert values(table(server, address)) == texts(1_005, 7_000)
    with pytest.raises(OptionError, match="several topics named t"):
        table(None, address).partitions()


# --- what is wrong


def test_a_wrong_address(entrepot_broker: Broker, tmp_path: Path) -> None:
    create(entrepot_broker, "t")
    for bad in ("archive", "file://archive", "http://x"):
        with pytest.raises(OptionError, match="tier: "):
            source(entrepot_broker, bad)
    missing = (tmp_path / "missing").as_uri()
    with pytest.raises(OptionError, match="there is no directory"):
        table(entrepot_broker, missing).partitions()


def test_damage_in_the_archive_is_said(entrepot_broker: Broker, tmp_path: Path) -> None:
    server, address = entrepot_broker, tiered(entrepot_broker, tmp_path / "archive")
    produce(server, "t", texts(1_000), batch_num_messages=50)
    delete_below(server, wait_for_copies(server, address))
    directory = next((tmp_path / "archive/t").iterdir()) / "0"
    segment = sorted(directory.glob("*.log"))[1]
    whole = bytearray(segment.read_bytes())
    whole[len(whole) // 2] ^= 1
    segment.write_bytes(whole)
    with pytest.raises(Damaged, match=r"checksum does not match|damaged"):
        values(table(server, address))
    whole[len(whole) // 2] ^= 1
    segment.write_bytes(whole)
    assert values(table(server, address)) == texts(1_000)
    manifest = directory / "manifest"
    manifest.write_bytes(manifest.read_bytes().replace(b'"base":0', b'"base":1'))
    with pytest.raises(Damaged, match="manifest is damaged"):
        values(table(server, address))


def test_what_is_in_neither_is_lost(entrepot_broker: Broker, tmp_path: Path) -> None:
    server, address = entrepot_broker, tiered(entrepot_broker, tmp_path / "archive")
    produce(server, "t", texts(1_000), batch_num_messages=50)
    end = wait_for_copies(server, address)
    reader = table(server, address)
    planned = reader.partitions()
    delete_below(server, end)
    shutil.rmtree(tmp_path / "archive/t")
    with pytest.raises(DataLost, match=rf"offsets 0 to {end - 1} are gone"):
        [list(reader.read(part)) for part in planned]
    assert values(table(server, address)) == texts(1_000 - end, end)


def test_the_ranges_of_a_topic_without_an_archive(entrepot_broker: Broker, tmp_path: Path) -> None:
    create(entrepot_broker, "t")
    produce(entrepot_broker, "t", texts(10))
    (tmp_path / "archive").mkdir()
    address = (tmp_path / "archive").as_uri()
    (part,) = table(entrepot_broker, address).partitions()
    assert part.value[:4] == Range("t", 0, 0, 10)[:4]
    assert values(table(entrepot_broker, address)) == texts(10)
    with Connected(Address(entrepot_broker.bootstrap)) as connected:
        asked = WithTier(connected, address)
        for place, expected in ((EARLIEST, 0), (LATEST, 10)):
            wanted = {TopicPartition("t", 0): place}
            found = asked.run(lambda client, wanted=wanted: client.list_offsets(wanted))
            assert found[TopicPartition("t", 0)].offset == expected
