"""The broker's files give the rows that the broker gives, while it runs and after it has ended.

Stories are random: several producers, codecs, transactions that are committed, aborted or
left open, deleted records, many small segments, compaction.
"""

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow", reason="pip install 'entrepot[spark]' for this test")

from confluent_kafka import Producer  # noqa: E402
from confluent_kafka import TopicPartition as KafkaPartition  # noqa: E402
from confluent_kafka.admin import AdminClient  # noqa: E402

from entrepot.client.client import EARLIEST, LATEST, TopicPartition  # noqa: E402
from entrepot.core.names import PartitionId  # noqa: E402
from entrepot.log.disk import FileDisk  # noqa: E402
from entrepot.log.journal import Journal  # noqa: E402
from entrepot.spark import segments  # noqa: E402
from entrepot.spark.columns import HEADERS, TIMESTAMP  # noqa: E402
from entrepot.spark.connecting import Connected  # noqa: E402
from entrepot.spark.decoding import Damaged, DataLost, Range  # noqa: E402
from entrepot.spark.directory import Directory  # noqa: E402
from entrepot.spark.fetching import RangeReader  # noqa: E402
from entrepot.spark.options import Address, OptionError  # noqa: E402
from entrepot.spark.segments import SegmentReader, open_data_directory  # noqa: E402
from entrepot.testing import Broker, broker  # noqa: E402
from tests.spark.producing import create, produce, texts, transaction  # noqa: E402

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("offset", pa.int64()),
        ("timestamp", TIMESTAMP),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
PART = TopicPartition("t", 0)
SETTLED_S_MAX = 20.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Story:
    """What some producers do to a topic."""

    def __init__(self, server: Broker, chance: random.Random) -> None:
        self._server = server
        self._chance = chance
        self._address = {"bootstrap.servers": server.bootstrap}
        self._producers = [self._transactional(name) for name in ("a", "b")]
        self._open: set[int] = set()

    def _transactional(self, name: str) -> Producer:
        codec = self._chance.choice(CODECS)
        said = {"transactional.id": name, "compression.type": codec, "linger.ms": 0}
        producer = Producer(self._address | said)
        producer.init_transactions(30)
        return producer

    def tell(self, steps: int) -> None:
        for _ in range(steps):
            self._chance.choice([self._plain, self._in_transaction, self._in_transaction])()

    def _write(self, producer: Producer) -> None:
        for _ in range(self._chance.randrange(1, 40)):
            key = f"k{self._chance.randrange(8)}".encode()
            value = bytes(self._chance.choices(b"abcd", k=self._chance.randrange(60)))
            headers = [("h", b"1")] if self._chance.random() < 0.2 else None
            time_ms = self._chance.randrange(1, 1_000)
            producer.produce("t", value, key, 0, headers=headers, timestamp=time_ms)
        assert producer.flush(30) == 0

    def _plain(self) -> None:
        codec = self._chance.choice(CODECS)
        self._write(Producer(self._address | {"compression.type": codec, "linger.ms": 0}))

    def _in_transaction(self) -> None:
        number = self._chance.randrange(2)
        producer = self._producers[number]
        if number not in self._open:
            producer.begin_transaction()
            self._open.add(number)
        self._write(producer)
        if self._chance.random() < 0.7:
            self._open.remove(number)
            end = self._chance.choice([producer.commit_transaction, producer.abort_transaction])
            end(30)

    def delete_some(self, end: int) -> None:
        admin = AdminClient(self._address)
        before = self._chance.randrange(end // 2)
        admin.delete_records([KafkaPartition("t", 0, before)])[KafkaPartition("t", 0)].result()


def rows(reader: Any) -> list[dict[str, Any]]:
    return [row for batch in reader.batches() for row in batch.to_pylist()]


def ends(asked: Any, committed: bool) -> tuple[int, int]:
    first = asked.run(lambda log: log.list_offsets({PART: EARLIEST}, committed=committed))
    last = asked.run(lambda log: log.list_offsets({PART: LATEST}, committed=committed))
    return first[PART].offset, last[PART].offset


def at_times(asked: Any, committed: bool) -> list[tuple[int, int]]:
    found = []
    for time_ms in range(0, 1_100, 100):
        answer = asked.run(
            lambda log, ms=time_ms: log.list_offsets({PART: ms}, committed=committed)
        )
        found.append(tuple(answer[PART]))
    return found


def ranges(chance: random.Random, first: int, end: int) -> Iterator[Range]:
    yield Range("t", 0, first, end)
    for _ in range(4):
        if first < end:
            start = chance.randrange(first, end)
            yield Range("t", 0, start, chance.randrange(start, end + 1))


def over_the_wire(server: Broker, seed: int) -> list[Any]:
    """All that is compared: ends, offsets by time, rows."""
    found: list[Any] = []
    with Connected(Address(server.bootstrap)) as connected:
        for committed in (True, False):
            first, end = ends(connected, committed)
            found += [first, end, at_times(connected, committed)]
            for wanted in ranges(random.Random(seed), first, end):
                found.append(rows(RangeReader(connected, wanted, SCHEMA, committed=committed)))
    return found


def out_of_files(asked: Any, data_dir: Path, seed: int) -> list[Any]:
    """The same; who is asked may be the broker, but the rows come from its files."""
    found: list[Any] = []
    disk = open_data_directory(str(data_dir))
    for committed in (True, False):
        first, end = ends(asked, committed)
        found += [first, end, at_times(asked, committed)]
        for wanted in ranges(random.Random(seed), first, end):
            found.append(rows(SegmentReader(disk, wanted, SCHEMA, committed=committed)))
    return found


@pytest.mark.slow
def test_many_stories(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    tell_and_compare(seed, "compact" if seed % 2 else "delete", monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "policy"),
    [(0, "delete"), pytest.param(1, "delete", marks=pytest.mark.slow), (2, "compact")],
)
def test_files_give_what_the_broker_gives(
    number: int, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell_and_compare(number, policy, monkeypatch)


def tell_and_compare(seed: int, policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "PIECE_BYTES", 2_000)
    settings = {"segment_bytes": "4000", "cleanup_policy": policy}
    if policy == "compact":
        settings |= {"min_cleanable_dirty_ratio": "0.01"}
    with broker() as server:
        create(server, "t", **settings)
        story = Story(server, random.Random(seed))
        story.tell(steps=30)
        with Connected(Address(server.bootstrap)) as connected:
            if policy == "delete":
                story.delete_some(ends(connected, False)[1])
            deadline = time.monotonic() + SETTLED_S_MAX  # Compaction may be at work.
            while True:
                told = over_the_wire(server, seed)
                found = out_of_files(connected, server.data_dir, seed)
                if found == told or time.monotonic() > deadline:
                    break
            assert found == told
        if policy == "compact":
            told = compacted(server, seed)
        for end in (server.kill, server.stop):
            end()
            with Directory(str(server.data_dir)) as directory:
                assert out_of_files(directory, server.data_dir, seed) == told
            server.start()


def compacted(server: Broker, seed: int) -> list[Any]:
    """What the broker says once compaction has come by, and has nothing left to do."""
    told, quiet = over_the_wire(server, seed), 0
    deadline = time.monotonic() + SETTLED_S_MAX
    while quiet < 3 and time.monotonic() < deadline:
        time.sleep(1)
        again = over_the_wire(server, seed)
        told, quiet = again, quiet + 1 if again == told else 0
    first, end, _, everything = told[-8:-4]
    assert len(everything) < end - first - 100, "nothing was compacted"
    return told


def read(data_dir: Path, first: int, end: int, **said: bool) -> list[bytes]:
    disk = open_data_directory(str(data_dir))
    found = rows(SegmentReader(disk, Range("t", 0, first, end), SCHEMA, **said))
    return [row["value"] for row in found]


def test_what_is_appended_meanwhile_is_left_alone(entrepot_broker: Broker) -> None:
    create(entrepot_broker, "t")
    produce(entrepot_broker, "t", texts(10))
    path = entrepot_broker.data_dir / "partitions/t-0/00000000000000000000.log"
    with path.open("ab") as log:
        log.write(path.read_bytes()[:100])  # As much of a batch as was written so far.
    assert read(entrepot_broker.data_dir, 2, 9) == [text.encode() for text in texts(7, 2)]


def test_a_transaction_whose_end_is_outside_of_the_range(entrepot_broker: Broker) -> None:
    create(entrepot_broker, "t")
    for name, commit in (("a", True), ("b", False)):
        with transaction(entrepot_broker, name, commit=commit) as producer:
            producer.produce("t", name.encode())
    assert read(entrepot_broker.data_dir, 0, 3) == [b"a"]
    assert read(entrepot_broker.data_dir, 0, 3, committed=False) == [b"a", b"b"]


def test_records_that_are_gone(entrepot_broker: Broker) -> None:
    create(entrepot_broker, "t", segment_bytes="4000")
    produce(entrepot_broker, "t", texts(1_000), linger_ms=0, batch_num_messages=10)
    directory = entrepot_broker.data_dir / "partitions/t-0"
    names = sorted(path.name for path in directory.glob("*.log"))
    (directory / names[0]).rename(directory / f"{names[0]}.deleted")
    second = int(names[1].removesuffix(".log"))
    with pytest.raises(DataLost, match=rf"offsets 1 to {second - 1} are gone"):
        read(entrepot_broker.data_dir, 1, 1_000)
    assert len(read(entrepot_broker.data_dir, 1, 1_000, fail_on_data_loss=False)) == 1_000 - second
    with pytest.raises(DataLost, match="the log ends at 1000; offsets 1000 to 1499 are gone"):
        read(entrepot_broker.data_dir, 990, 1_500)


def test_damage_is_named(entrepot_broker: Broker) -> None:
    create(entrepot_broker, "t")
    produce(entrepot_broker, "t", texts(10))
    path = entrepot_broker.data_dir / "partitions/t-0/00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(Damaged, match="topic t at 0: the checksum does not match"):
        read(entrepot_broker.data_dir, 0, 10)


def test_no_directory_and_another_directory(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="there is no directory /nowhere on "):
        open_data_directory("/nowhere")
    with pytest.raises(OptionError, match="is not a broker's data directory"):
        open_data_directory(str(tmp_path))


def test_a_broker_that_runs_must_be_asked(entrepot_broker: Broker) -> None:
    create(entrepot_broker, "t")
    with Directory(str(entrepot_broker.data_dir)) as directory:
        with pytest.raises(OptionError, match=r"a broker runs on .*kafka\.bootstrap\.servers"):
            ends(directory, True)
        entrepot_broker.stop()
        assert ends(directory, True) == (0, 0)


def test_what_only_a_start_can_mend(entrepot_broker: Broker) -> None:
    create(entrepot_broker, "t")
    produce(entrepot_broker, "t", texts(10))
    with Connected(Address(entrepot_broker.bootstrap)) as connected:
        [topic] = connected.run(lambda client: client.cluster.describe(["t"]))
    entrepot_broker.kill()
    root = entrepot_broker.data_dir
    segment, swap = (root / "partitions/t-0" / name for name in (f"{0:020}.log", "cleaned.swap"))
    with Directory(str(root)) as directory:
        assert ends(directory, True) == (0, 10)
        swap.touch()
        with pytest.raises(Damaged, match="t-0: a compaction was cut short; start the broker"):
            ends(directory, True)
        swap.unlink()
        # A power failure: what was acknowledged is in the journal, and not in the segment.
        Journal(FileDisk(root), 0).write([(PartitionId(topic.id, 0), 0, 10, segment.read_bytes())])
        assert ends(directory, True) == (0, 10)
        segment.write_bytes(b"")
        (root / "recovery.checkpoint").unlink(missing_ok=True)
        with pytest.raises(Damaged, match="ends at offset 0, but the journal goes on"):
            ends(directory, True)
    entrepot_broker.start()
    with Connected(Address(entrepot_broker.bootstrap)) as connected:
        assert ends(connected, True) == (0, 10)
