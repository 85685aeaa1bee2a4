"""From topic or queue to topic through Spark, exactly once, through kills of driver and broker.

Numbered records go into a topic, or into a queue; a streaming query, in a process of its own,
copies them to another topic. Meanwhile that process, Java and workers included, and the broker
are killed with kill -9. At the end a reader of committed records must find every number once.

The sources: a topic whose values are text, or Avro; one with a tier, of which the broker has only
the newest records; a queue. In the queue there is also a message that no query can read: it must
end up among the dead letters, and nothing else with it.

    python -m tests.spark.exactly_once --records 100000 --kills 20 --broker-kills 20
    python -m tests.spark.exactly_once --source queue --records 8000 --kills 20 --broker-kills 20

run it at full size and print the counts.
"""

import io
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pyarrow as pa
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from confluent_kafka.admin import AdminClient

from entrepot.client.client import LATEST, TopicPartition
from entrepot.client.queue_leases import Login, QueueLeases
from entrepot.spark.connecting import Connected
from entrepot.spark.decoding import Range
from entrepot.spark.fetching import RangeReader
from entrepot.spark.options import Address
from entrepot.testing import Broker, broker
from tests.spark.conftest import LEAN
from tests.spark.producing import create, produce, wait_for_copies
from tests.spark.queueing import SETTINGS, declare, drain, publish

SOURCE, TARGET = "numbers", "copies"
DEAD = "unreadable"  # Where the dead letters of the queue go.
POISON = "not a number"
PARTITIONS = 2
SOURCES = ("topic", "avro", "tier", "queue")
SCHEMA = {"type": "record", "name": "Numbered", "fields": [{"name": "number", "type": "int"}]}
ARCHIVE = "archive"  # The tier's directory, in the driver's.
SEGMENT_BYTES = 4_000  # Of the topic with a tier: many segments, most of them archived.
STEP_S = 0.1
PROGRESS_S_MAX = 1_200.0  # Until something is written: poison ends a query many times before.
IDLE_S_MAX = 60.0  # Without a new copy, when the queue is empty: what is missing then is lost.


@dataclass
class Outcome:
    records: int
    lost: int
    duplicated: int
    drivers_killed: int
    brokers_killed: int
    seconds: float
    unread: int | None = None  # Messages in the queue still: the query was too slow, or stuck.
    dead: tuple[str, ...] = ()


def drive(bootstrap: str, http: str, place: str, source: str) -> None:
    """The query, until killed. When it fails, whoever watches starts it anew."""
    from entrepot.spark import prepare

    prepare()
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", place)
    for name, value in LEAN.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    said = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("entrepot").options(**said)
    if source == "queue":
        leased = {"maxMessagesPerTrigger": "200", "leaseSeconds": "10"}
        reader = reader.options(**leased, **{"queue": SOURCE, "entrepot.http": http})
    else:
        more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
        reader = reader.options(**more, subscribe=SOURCE)
    if source == "tier":
        reader = reader.option("tier", (Path(place) / ARCHIVE).as_uri())
    number = F.expr("cast(cast(value as string) as int)")
    if source == "avro":
        from entrepot.spark.formats import from_avro

        number = from_avro("value", schema=SCHEMA).getField("number")
    writer = reader.load().select(number.cast("string").alias("value")).writeStream
    writer = writer.format("entrepot").options(**said, topic=TARGET)
    writer.option("checkpointLocation", f"{place}/checkpoint").start().awaitTermination()


class Driver:
    """A process that is started when it is not there: a module's `--drive`."""

    def __init__(self, place: Path, module: str, *arguments: str) -> None:
        self._command = [sys.executable, "-m", module, "--drive", *arguments]
        self._log = (place / "driver.log").open("ab")
        self._process: subprocess.Popen[bytes] | None = None

    def watch(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(
                self._command, stdout=self._log, stderr=self._log, start_new_session=True
            )

    def kill(self) -> None:
        """With its Java and its workers: they are its session."""
        if self._process is not None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    def close(self) -> None:
        self.kill()
        self._log.close()


def ends(server: Broker) -> dict[TopicPartition, int]:
    parts = [TopicPartition(TARGET, number) for number in range(PARTITIONS)]
    with Connected(Address(server.bootstrap)) as connected:
        found = connected.run(
            lambda client: client.list_offsets(dict.fromkeys(parts, LATEST), committed=True)
        )
    return {part: at.offset for part, at in found.items()}


def copies(server: Broker) -> Counter[int]:
    found: Counter[int] = Counter()
    schema = pa.schema([("value", pa.binary())])
    with Connected(Address(server.bootstrap)) as connected:
        for part, end in ends(server).items():
            for batch in RangeReader(connected, Range(*part, 0, end), schema).batches():
                found.update(int(value) for value in batch.column("value").to_pylist())
    return found


def fill(server: Broker, records: int, shares: int, share: int) -> None:
    """One share of the numbers, into the queue, while nobody is killed: confirmed means once."""
    numbers = range(records * share // shares, records * (share + 1) // shares)
    values = [str(number) for number in numbers]
    if share == shares // 2:
        values.insert(len(values) // 2, POISON)
    publish(server, SOURCE, values)


def encoded(source: str) -> Callable[[int], bytes]:
    """How a number is written in a value."""
    if source != "avro":
        return lambda number: str(number).encode()
    import fastavro

    schema = fastavro.parse_schema(SCHEMA)

    def write(number: int) -> bytes:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, schema, {"number": number})
        return buffer.getvalue()

    return write


def feed(
    server: Broker,
    records: int,
    shares: int,
    turns: threading.Semaphore,
    encode: Callable[[int], bytes],
) -> None:
    """A share of the records for each kill, so that there is work whenever one comes."""
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 300_000,
        }
    )
    for share in range(shares):
        turns.acquire()
        for number in range(records * share // shares, records * (share + 1) // shares):
            producer.produce(SOURCE, encode(number), partition=number % PARTITIONS)
            producer.poll(0)
            if number % 50 == 0:
                time.sleep(STEP_S)
    assert producer.flush(300) == 0


def archive(server: Broker, records: int, place: Path) -> None:
    """All records, most of them in the tier, where alone they are."""
    (place / ARCHIVE).mkdir()
    address = (place / ARCHIVE).as_uri()
    settings = {"entrepot.tier": address, "segment_bytes": str(SEGMENT_BYTES)}
    create(server, SOURCE, PARTITIONS, **settings)
    for number in range(PARTITIONS):
        values = map(str, range(number, records, PARTITIONS))
        produce(server, SOURCE, values, partition=number, batch_num_messages=50)
    places = []
    for number in range(PARTITIONS):
        end = wait_for_copies(server, address, SOURCE, partition=number)
        assert end > records // PARTITIONS * 0.9, f"only {end} records are archived"
        places.append(ConfluentPartition(SOURCE, number, end))
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    for answer in admin.delete_records(places).values():
        answer.result()


def wait_for_progress(server: Broker, driver: Driver) -> None:
    before, deadline = ends(server), time.monotonic() + PROGRESS_S_MAX
    while ends(server) == before:
        assert time.monotonic() < deadline, "the query makes no progress"
        driver.watch()
        time.sleep(STEP_S)


class Trial:
    """A broker, a query, and records that come while both are killed."""

    def __init__(self, server: Broker, place: Path, source: str, records: int, shares: int) -> None:
        self._server, self._source, self._records, self._shares = server, source, records, shares
        create(server, TARGET, PARTITIONS)
        if source == "queue":
            declare_queue(server)
        elif source == "tier":
            archive(server, records, place)
        else:
            create(server, SOURCE, PARTITIONS)
        http = server.http_address if source == "queue" else ""
        arguments = server.bootstrap, http, str(place), source
        self.driver = Driver(place, "tests.spark.exactly_once", *arguments)
        self._turns = threading.Semaphore(0)
        said = server, records, shares, self._turns, encoded(source)
        self._feeder = threading.Thread(target=feed, args=said)
        if source in ("topic", "avro"):
            self._feeder.start()

    def next_share(self, number: int) -> None:
        """Have more records to read."""
        if self._source == "queue":
            fill(self._server, self._records, self._shares, number)
        self._turns.release()

    def kill(self, victim: str) -> None:
        if victim == "driver":
            self.driver.kill()
        else:
            self._server.kill()
            self._server.start()

    def finish(self) -> Counter[int]:
        if self._feeder.ident is not None:
            self._feeder.join()
        return wait_for_the_end(self._server, self.driver, self._records, self.unread)

    def unread(self) -> int | None:
        """Messages that are in the queue, leased ones included; of a topic nobody can say."""
        if self._source != "queue":
            return None
        api = QueueLeases(self._server.http_address, Login(), SOURCE)
        try:
            return int(api.facts()["messages"])
        finally:
            api.close()

    def close(self) -> None:
        self._turns.release(self._shares)
        self.driver.close()
        if self._feeder.ident is not None:
            self._feeder.join()


def run(
    records: int, kills: int, broker_kills: int, seed: int = 0, *, source: str = "topic"
) -> Outcome:
    chance, started = random.Random(seed), time.monotonic()
    victims = ["driver"] * kills + ["broker"] * broker_kills
    chance.shuffle(victims)
    with TemporaryDirectory() as place, broker(settings=SETTINGS) as server:
        trial = Trial(server, Path(place), source, records, len(victims) + 1)
        try:
            for number, victim in enumerate(victims):
                trial.next_share(number)
                wait_for_progress(server, trial.driver)
                time.sleep(chance.uniform(0, 2))
                trial.kill(victim)
                click.echo(f"{number + 1} of {len(victims)}: {victim} killed", err=True)
            trial.next_share(len(victims))
            before = sum(copies(server).values())
            found = trial.finish()
            dead = drain(server, DEAD) if source == "queue" else []
            unread = trial.unread()
        finally:
            trial.close()
    assert before < records, "all was done before the last kill; take more records"
    lost = sum(number not in found for number in range(records))
    duplicated = sum(count - 1 for count in found.values())
    seconds = time.monotonic() - started
    return Outcome(records, lost, duplicated, kills, broker_kills, seconds, unread, tuple(dead))


def declare_queue(server: Broker) -> None:
    declare(server, DEAD)
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": DEAD}
    declare(server, SOURCE, queue_type="quorum", delivery_limit=1, **letters)


def wait_for_the_end(
    server: Broker, driver: Driver, records: int, unread: Callable[[], int | None]
) -> Counter[int]:
    """Until all is copied, or nothing has been for a long time."""
    found, grown = copies(server), time.monotonic()
    while len(found) < records:
        driver.watch()
        time.sleep(1)
        before, found = found, copies(server)
        if found.total() > before.total():
            grown = time.monotonic()
        elif time.monotonic() - grown > (IDLE_S_MAX if unread() == 0 else PROGRESS_S_MAX):
            break
    time.sleep(2)  # For a copy too many to come.
    return copies(server)


@click.command(help=__doc__)
@click.option("--records", default=100_000, show_default=True)
@click.option("--kills", default=20, show_default=True)
@click.option("--broker-kills", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--source", type=click.Choice(SOURCES), default="topic", show_default=True)
@click.option("--drive", nargs=4, hidden=True)
def main(
    records: int,
    kills: int,
    broker_kills: int,
    seed: int,
    source: str,
    drive: tuple[str, str, str, str] | None,
) -> None:
    if drive is not None:
        _drive(*drive)
    else:
        click.echo(f"{source}: {run(records, kills, broker_kills, seed, source=source)}")


_drive = drive

if __name__ == "__main__":
    main()
