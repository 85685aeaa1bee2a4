"""kill -9 on real files: nothing that was answered is lost, changed or reordered.

A killed process loses nothing that the system has; what this finds is bytes that waited
in the process, files left half changed, and starts that do not cope with them. What a
power failure does is `test_power_loss`'s.
"""

import asyncio
import gc
import time
from collections import defaultdict
from pathlib import Path
from random import Random

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from entrepot import testing
from entrepot.broker.broker import Broker
from entrepot.core import batch
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.log.disk import FileDisk
from entrepot.log.read_only import open_archive
from entrepot.log.verify import Verdict, verify
from tests import forking
from tests.crash import writer

UNANSWERED_MAX = 5_000
Found = dict[int, list[tuple[int, bytes]]]  # By partition: (offset, value), ascending.


# --- a broker without a server


def killed_after(
    directory: Path, life: int, lines: int, durability: str, *more: str
) -> list[tuple[int, int, bytes]]:
    """Run the writer, kill it when it has said so many lines; all it said."""
    process, output = forking.start(writer.main, directory, life, durability, *more)
    with output:
        said = [output.readline() for _ in range(lines)]
        process.kill()
        said += output.readlines()
    assert process.wait() == -9, "it did not live long enough to be killed"
    rows = [line.rstrip(b"\n").split(b" ", 2) for line in said]
    return [(int(index), int(offset), value) for index, offset, value in rows]


async def read_all(directory: Path) -> Found:
    """Recover and read everything; then let go of it as a killed process does."""
    disk = FileDisk(directory)
    broker = Broker(disk, SystemClock(), SystemEntropy())
    await broker.open()
    found: Found = {}
    for index in range(writer.PARTITIONS):
        partition = broker.served_partition(broker.topic(writer.TOPIC), index).partition
        assert partition.stopped is None
        found[index] = [
            (record.offset, record.value or b"")
            for data in partition.batches()
            for record in batch.records(data)
        ]
    disk.close()
    del broker, partition
    gc.collect()  # Its files close with it.
    return found


def check(found: Found, answered: list[tuple[int, int, bytes]]) -> None:
    for index, offset, value in answered:
        assert found[index][offset] == (offset, value)
    for rows in found.values():
        assert [offset for offset, _ in rows] == list(range(len(rows)))
        written = [tuple(map(int, value.split())) for _, value in rows]
        assert written == sorted(set(written)), "reordered or repeated"


def kill_again_and_again(directory: Path, rounds: int, durability: str = "fsync") -> None:
    random = Random(rounds)
    answered: list[tuple[int, int, bytes]] = []
    for life in range(rounds):
        answered += killed_after(directory, life, random.choice((1, 30, 300, 1_000)), durability)
        assert Verdict.CORRUPT not in [report.verdict for report in verify(FileDisk(directory))]
        check(asyncio.run(read_all(directory)), answered)
    assert len(answered) > 100 * rounds


@pytest.mark.parametrize(
    "durability", ["fsync", "os", pytest.param("interval", marks=pytest.mark.slow)]
)
def test_a_few_kills(tmp_path: Path, durability: str) -> None:
    kill_again_and_again(tmp_path, 4, durability)


def archived(address: str) -> Found:
    """What is in the archive."""
    archive = open_archive(address)
    found: Found = {index: [] for index in range(writer.PARTITIONS)}
    for identity in archive.ids(writer.TOPIC):
        for index in archive.numbers(writer.TOPIC, identity):
            partition = archive.partition(writer.TOPIC, identity, index)
            offset, end = 0, 0 if partition is None else partition.offset_end
            while partition is not None and offset < end:
                run = partition.read(offset, 1_000)
                for position, header in batch.walk(run.batches):
                    for record in batch.records(run.batches[position : position + header.size]):
                        found[index].append((record.offset, record.value or b""))
                offset = run.offset_end
    return found


def kill_while_copying(directory: Path, rounds: int) -> None:
    """The archive and what the broker still has are one log: nothing is missing between them, and
    where they overlap they are the same."""
    (directory / "archive").mkdir()
    address, random = (directory / "archive").as_uri(), Random(rounds)
    answered: list[tuple[int, int, bytes]] = []
    overlapping = removed = 0
    for life in range(rounds):
        lines = random.choice((300, 1_000, 4_000, 8_000))
        answered += killed_after(directory / "data", life, lines, "fsync", address)
        here, there = asyncio.run(read_all(directory / "data")), archived(address)
        for index, rows in here.items():
            end = len(there[index])
            start = rows[0][0] if rows else end
            assert start <= end, "removed before it was copied"
            assert rows[: end - start] == there[index][start:]
            overlapping, removed = overlapping + end - start, removed + start
            there[index] += rows[end - start :]
        check(there, answered)
    assert len(answered) > 100 * rounds
    assert removed, "retention had nothing to do"
    assert overlapping, "no kill came between copying and removing"


@pytest.mark.slow
def test_kills_while_segments_are_copied(tmp_path: Path) -> None:
    kill_while_copying(tmp_path, 5)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_twenty_kills_while_segments_are_copied(tmp_path: Path) -> None:
    kill_while_copying(tmp_path, 20)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_two_hundred_kills(tmp_path: Path) -> None:
    kill_again_and_again(tmp_path, 200)


# --- a server and a real client


class Load:
    """Producers that go on across kills, and what they were told."""

    def __init__(self, bootstrap: str) -> None:
        common = {
            "bootstrap.servers": bootstrap,
            "acks": "all",
            "linger.ms": 1,
            "message.timeout.ms": 600_000,
            "reconnect.backoff.ms": 10,
            "reconnect.backoff.max.ms": 50,
            "retry.backoff.ms": 10,
            "topic.metadata.refresh.fast.interval.ms": 10,
            "log_level": 0,
        }
        self._producers = {
            "once": Producer(common | {"enable.idempotence": True}),
            "plain": Producer(common | {"max.in.flight": 1}),
        }
        self._number = 0
        self.answered: list[tuple[int, int, bytes]] = []

    def run(self, seconds: float) -> None:
        """For a while, and until something was answered: each round is under load."""
        deadline, before = time.monotonic() + seconds, len(self.answered)
        while time.monotonic() < deadline or len(self.answered) == before:
            for name, producer in self._producers.items():
                for _ in range(20 if len(producer) < UNANSWERED_MAX else 0):
                    value = b"%b %d" % (name.encode(), self._number)
                    index = self._number % writer.PARTITIONS
                    producer.produce(writer.TOPIC, value, partition=index, callback=self._told)
                    self._number += 1
                producer.poll(0.001)

    def _told(self, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        offset, value = message.offset(), message.value()
        assert offset is not None
        if offset >= 0:  # A repeat whose first answer was lost has none.
            self.answered.append((message.partition() or 0, offset, value or b""))

    def finish(self) -> None:
        for producer in self._producers.values():
            assert producer.flush(60) == 0


def consume_all(bootstrap: str) -> Found:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "x", "enable.auto.commit": False,
         "log_level": 0}
    )  # fmt: skip
    partitions = [TopicPartition(writer.TOPIC, index, 0) for index in range(writer.PARTITIONS)]
    left = sum(consumer.get_watermark_offsets(partition, 30)[1] for partition in partitions)
    consumer.assign(partitions)
    found: Found = {index: [] for index in range(writer.PARTITIONS)}
    while left:
        for message in consumer.consume(min(left, 10_000), 30):
            assert message.error() is None, message.error()
            found[message.partition() or 0].append((message.offset() or 0, message.value() or b""))
            left -= 1
    consumer.close()
    return found


def kill_the_server(directory: Path, rounds: int, durability: str = "fsync") -> None:
    random = Random(rounds)
    settings = {"topics.segment_bytes": 100_000}
    with testing.broker(directory, durability=durability, settings=settings) as broker:
        topic = NewTopic(writer.TOPIC, writer.PARTITIONS, 1)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        admin.create_topics([topic])[writer.TOPIC].result(30)
        load = Load(broker.bootstrap)
        for _ in range(rounds):
            load.run(random.uniform(0.05, 0.6))
            broker.kill()
            broker.start()
        load.finish()
        found = consume_all(broker.bootstrap)
    for index, offset, value in load.answered:
        assert found[index][offset] == (offset, value)
    for rows in found.values():
        assert [offset for offset, _ in rows] == list(range(len(rows)))
        numbers = defaultdict(list)
        for _, value in rows:
            name, number = value.split()
            numbers[name].append(int(number))
        assert numbers[b"once"] == sorted(set(numbers[b"once"])), "reordered or repeated"
        first_times = list(dict.fromkeys(numbers[b"plain"]))
        assert first_times == sorted(first_times), "reordered"
    assert len(load.answered) > rounds
    reports = list(verify(FileDisk(directory)))
    assert {report.verdict for report in reports} == {Verdict.GOOD}


LESS_DURABLE = [pytest.param(each, marks=pytest.mark.slow) for each in ("interval", "os")]


@pytest.mark.slow
@pytest.mark.parametrize("durability", ["fsync", *LESS_DURABLE])
def test_a_server_killed_under_load(tmp_path: Path, durability: str) -> None:
    kill_the_server(tmp_path / "data", 2, durability)


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_a_server_killed_two_hundred_times_under_load(tmp_path: Path) -> None:
    kill_the_server(tmp_path / "data", 200)
