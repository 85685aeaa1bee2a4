"""A real broker on a disk that is full or fails: errors for producers, no loss, a reason told.

A small library between the broker and the system fails the calls it is told to
(`faulty_disk.c`). The tests share a broker, each with topics of its own, and say what must
be there afterwards; at the end the broker is killed, started again, and it is.
"""

import errno
import os
import resource
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from kio.schema.describe_log_dirs.v4.request import DescribeLogDirsRequest
from kio.schema.errors import ErrorCode

from entrepot.testing import Broker
from tests.end_to_end.bare import BareClient, batch_of, values_of

STORAGE_ERROR = ErrorCode.kafka_storage_error


class FaultyDisk:
    """A broker and what its disk does to it."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.server = Broker(directory / "data")
        self._faults = directory / "faults"
        self._trace = directory / "trace"
        self._environment = {
            "LD_PRELOAD": str(library),
            "FAULTY_DISK": str(self._faults),
            "FAULTY_DISK_TRACE": str(self._trace),
        }
        # By topic and partition: what is there at the end, or one of several such.
        self._promised: dict[tuple[str, int], tuple[list[bytes], ...]] = {}

    def start(self) -> None:
        before = dict(os.environ)
        os.environ.update(self._environment)
        try:
            self.server.start()
        finally:
            os.environ.clear()
            os.environ.update(before)

    def fails(self, call: str, error: int, part: str) -> None:
        """From now on `sync`, `write` or `truncate` fails on paths like that."""
        with self._faults.open("a") as faults:
            faults.write(f"{call} {error} {part}\n")

    def mends(self) -> None:
        self._faults.unlink(missing_ok=True)

    def syncs(self, part: str) -> int:
        """How many there were so far, of paths like that."""
        return sum(part in line for line in self._trace.read_text().splitlines())

    def said(self) -> str:
        return self.server.log_path.read_text()

    def promise(self, topic: str, *possible: list[bytes], partition: int = 0) -> None:
        self._promised[topic, partition] = possible

    def keeps_its_promises(self) -> None:
        self.mends()
        self.server.kill()
        self.start()
        with BareClient(self.server) as client:
            for (topic, index), possible in self._promised.items():
                values = values_of(client.read(topic, partition=index))
                assert values in possible, topic
                appended = client.produce(topic, batch_of(b"after"), partition=index)
                assert (appended.error_code, appended.offset_first) == (0, len(values)), topic


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc")
    if compiler is None or not sys.platform.startswith("linux"):
        pytest.skip("a disk can be made to fail only on Linux with a C compiler")
    built = tmp_path_factory.mktemp("library") / "faulty_disk.so"
    source = Path(__file__).with_name("faulty_disk.c")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", built, source, "-ldl"], check=True)
    return built


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory, library: Path) -> Iterator[FaultyDisk]:
    faulty = FaultyDisk(tmp_path_factory.mktemp("disk"), library)
    faulty.start()
    try:
        yield faulty
        faulty.keeps_its_promises()
    finally:
        faulty.server.kill()


@pytest.fixture
def disk(shared: FaultyDisk) -> Iterator[FaultyDisk]:
    yield shared
    shared.mends()


@pytest.fixture
def client(disk: FaultyDisk) -> Iterator[BareClient]:
    with BareClient(disk.server) as connected:
        yield connected


def broken_directories(client: BareClient) -> list[str]:
    answer = client.ask(DescribeLogDirsRequest(topics=None))
    return [each.log_dir for each in answer.results if each.error_code is STORAGE_ERROR]


# --- no room


def test_no_room_is_the_producers_to_know_and_passes(disk: FaultyDisk, client: BareClient) -> None:
    client.create("full")
    client.create("other")
    assert client.produce("full", batch_of(b"before")).error_code == 0
    disk.fails("write", errno.ENOSPC, "partitions/full-0/")
    for _ in range(2):
        refused = client.produce("full", batch_of(b"refused"))
        assert refused.error_code == STORAGE_ERROR
        assert "No space left on device" in (refused.error_message or "")
    assert client.produce("other", batch_of(b"fine")).error_code == 0
    assert values_of(client.read("full")) == [b"before"]
    disk.mends()
    assert client.produce("full", batch_of(b"and on")).offset_first == 1
    assert "/partitions/full-0" not in broken_directories(client)
    disk.promise("full", [b"before", b"and on"])
    disk.promise("other", [b"fine"])


def test_no_room_in_the_middle_of_a_batch(disk: FaultyDisk, client: BareClient) -> None:
    """The system takes a part of the write, then none: the part is cut off again."""
    client.create("middle")
    client.produce("middle", batch_of(b"x" * 50_000))
    unlimited = resource.prlimit(disk.server.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(disk.server.pid, resource.RLIMIT_FSIZE, (80_000, unlimited[1]))
    refused = client.produce("middle", batch_of(b"y" * 50_000))
    assert refused.error_code == STORAGE_ERROR
    assert "File too large" in (refused.error_message or "")
    (segment,) = disk.server.data_dir.glob("partitions/middle-0/*.log")
    assert segment.stat().st_size < 51_000
    assert client.produce("middle", batch_of(b"small")).offset_first == 1
    resource.prlimit(disk.server.pid, resource.RLIMIT_FSIZE, unlimited)
    disk.promise("middle", [b"x" * 50_000, b"small"])


def test_a_system_that_takes_a_byte_at_a_time(disk: FaultyDisk, client: BareClient) -> None:
    disk.fails("write", 0, "partitions/slow-0/")
    client.create("slow")
    sent = [b"%d" % number * 50 for number in range(10)]
    for value in sent:
        assert client.produce("slow", batch_of(value)).error_code == 0
    assert values_of(client.read("slow")) == sent
    disk.promise("slow", sent)


def test_a_write_that_cannot_be_undone_stops_the_partition(
    disk: FaultyDisk, client: BareClient
) -> None:
    client.create("stuck")
    client.produce("stuck", batch_of(b"before"))
    disk.fails("write", errno.ENOSPC, "partitions/stuck-0/")
    disk.fails("truncate", errno.EIO, "partitions/stuck-0/")
    assert client.produce("stuck", batch_of(b"x")).error_code == STORAGE_ERROR
    disk.mends()
    stopped = client.produce("stuck", batch_of(b"x"))
    assert stopped.error_code == STORAGE_ERROR
    assert "could not be cut off" in (stopped.error_message or "")
    assert "/partitions/stuck-0" in broken_directories(client)
    disk.promise("stuck", [b"before"])


# --- a failed sync


def test_a_failed_sync_stops_one_partition(disk: FaultyDisk, client: BareClient) -> None:
    """It says why; what was answered stays readable, and the others go on."""
    client.create("failed", 2)
    assert client.produce("failed", batch_of(b"before")).error_code == 0
    disk.fails("sync", errno.EIO, "partitions/failed-0/")
    refused = client.produce("failed", batch_of(b"unknown"))
    assert refused.error_code == STORAGE_ERROR
    disk.mends()
    again = client.produce("failed", batch_of(b"never"))
    assert again.error_message == "partitions/failed-0: sync failed: Input/output error"
    assert values_of(client.read("failed")) == [b"before"]
    assert "/partitions/failed-0" in broken_directories(client)
    assert client.produce("failed", batch_of(b"fine"), partition=1).error_code == 0
    (line,) = [line for line in disk.said().splitlines() if "failed-0" in line]
    assert "ERROR" in line
    assert "stopped: partitions/failed-0: sync failed: Input/output error" in line
    disk.promise("failed", [b"before"], [b"before", b"unknown"])
    disk.promise("failed", [b"fine"], partition=1)


def test_a_real_producer_is_told(disk: FaultyDisk, client: BareClient) -> None:
    client.create("told")
    outcomes: list[str | None] = []
    settings = {"bootstrap.servers": disk.server.bootstrap, "message.timeout.ms": 1_000}
    producer = confluent_kafka.Producer(settings)

    def note(error: confluent_kafka.KafkaError | None, _: object) -> None:
        outcomes.append(error and error.name())

    producer.produce("told", b"before", on_delivery=note)
    producer.flush()
    disk.fails("sync", errno.EIO, "partitions/told-0/")
    producer.produce("told", b"unknown", on_delivery=note)
    producer.flush()
    assert outcomes[0] is None
    assert outcomes[1] in ("KAFKA_STORAGE_ERROR", "_MSG_TIMED_OUT"), "it retries until then"
    disk.promise("told", [b"before"], [b"before", b"unknown"])


def test_a_journal_that_fails_is_done_without(disk: FaultyDisk, client: BareClient) -> None:
    """A request for many partitions is committed through the journal, or without it."""
    client.create("many", 20)
    results = client.produce_to_all("many", [batch_of(b"1")] * 20)
    assert [result.error_code for result in results] == [0] * 20
    assert disk.syncs("/journal/") > 0
    disk.fails("sync", errno.EIO, "/journal")
    for number in (2, 3):
        results = client.produce_to_all("many", [batch_of(b"%d" % number)] * 20)
        assert [result.error_code for result in results] == [0] * 20
    assert "journal" in disk.said()
    for index in range(20):
        disk.promise("many", [b"1", b"2", b"3"], partition=index)


@pytest.mark.slow
def test_a_catalog_that_fails_does_not_stop_the_topics_there_are(
    tmp_path: Path, library: Path
) -> None:
    disk = FaultyDisk(tmp_path, library)
    disk.start()
    with BareClient(disk.server) as client:
        client.create("old")
        disk.fails("sync", errno.EIO, "__catalog")
        assert client.try_create("new") is STORAGE_ERROR
        disk.mends()
        assert client.try_create("newer") is STORAGE_ERROR
        assert client.produce("old", batch_of(b"a")).error_code == 0
        disk.fails("write", errno.ENOSPC, "/data/")
    disk.server.stop()
    assert "not a clean stop" in disk.said()
    disk.promise("old", [b"a"])
    disk.keeps_its_promises()
    with BareClient(disk.server) as client:
        assert client.try_create("newer") is ErrorCode.none
    disk.server.kill()


# --- when to sync


def test_when_a_topic_is_flushed(disk: FaultyDisk, client: BareClient) -> None:
    """By number and by time, when an acknowledgement does not mean a sync. Proves L-04."""

    def syncs(topic: str) -> int:
        return disk.syncs(f"partitions/{topic}-0/")

    topics = {
        "never": {"durability": "os"},
        "by-number": {"durability": "os", "flush.messages": "3"},
        "by-time": {"durability": "os", "flush.ms": "50"},
        "always": {},
    }
    for topic, settings in topics.items():
        client.create(topic, settings=settings)
        for number in range(9):
            assert client.produce(topic, batch_of(b"%d" % number)).error_code == 0
    # Housekeeping may sync a file once that has just been made; time does so again and again.
    for number in range(9, 12):
        before = syncs("by-time")
        for topic in ("never", "by-time"):
            assert client.produce(topic, batch_of(b"%d" % number)).error_code == 0
        while syncs("by-time") == before:
            client.read("by-time")
    counts = [syncs(topic) for topic in ("never", "by-number", "always")]
    assert counts[0] in (0, 1)
    assert counts[1] in (3, 4)
    assert counts[2] >= 9
