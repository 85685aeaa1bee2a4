"""From topic or queue to topic through Spark, exactly once, through kills of driver and broker.

Numbered records go into a topic, or into a queue; a streaming query, in a process of its own,
copies them to another topic. Meanwhile that process, Java and workers included, and the broker
are killed with kill -9. At the end a reader of committed records must find every number once.
In the queue there is also a message that no query can read: it must end up among the dead
letters, and nothing else with it.

    python -m tests.spark.exactly_once --records 100000 --kills 20 --broker-kills 20
    python -m tests.spark.exactly_once --queue --records 8000 --kills 20 --broker-kills 20

run it at full size and print the counts.
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pyarrow as pa
from confluent_kafka import Producer

from entrepot.client.client import LATEST, TopicPartition
from entrepot.spark.connecting import Connected
from entrepot.spark.decoding import Range
from entrepot.spark.fetching import RangeReader
from entrepot.spark.options import Address
from entrepot.testing import Broker, broker
from tests.spark.conftest import LEAN
from tests.spark.producing import create
from tests.spark.queueing import SETTINGS, declare, drain, publish

SOURCE, TARGET = "numbers", "copies"
DEAD = "unreadable"  # Where the dead letters of the queue go.
POISON = "not a number"
PARTITIONS = 2
STEP_S = 0.1
PROGRESS_S_MAX = 400.0  # Until a query that was started has written something.


@dataclass
class Outcome:
    records: int
    lost: int
    duplicated: int
    drivers_killed: int
    brokers_killed: int
    seconds: float
    dead: tuple[str, ...] = ()


def drive(bootstrap: str, http: str, place: str) -> None:
    """The query, until killed. When it fails, whoever watches starts it anew.

    It reads from the queue if there is an address to lease messages at.
    """
    from entrepot.spark import prepare

    prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", place)
    for name, value in LEAN.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    said = {"kafka.bootstrap.servers": bootstrap}
    reader = spark.readStream.format("entrepot").options(**said)
    if http:
        leased = {"maxMessagesPerTrigger": "200", "leaseSeconds": "10"}
        reader = reader.options(**leased, **{"queue": SOURCE, "entrepot.http": http})
    else:
        more = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "200"}
        reader = reader.options(**more, subscribe=SOURCE)
    number = "cast(cast(cast(value as string) as int) as string) as value"
    writer = reader.load().selectExpr(number).writeStream.format("entrepot")
    writer = writer.options(**said, topic=TARGET, checkpointLocation=f"{place}/checkpoint")
    writer.start().awaitTermination()


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


def feed(server: Broker, records: int, shares: int, turns: threading.Semaphore) -> None:
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
            producer.produce(SOURCE, str(number).encode(), partition=number % PARTITIONS)
            producer.poll(0)
            if number % 50 == 0:
                time.sleep(STEP_S)
    assert producer.flush(300) == 0


def wait_for_progress(server: Broker, driver: Driver) -> None:
    before, deadline = ends(server), time.monotonic() + PROGRESS_S_MAX
    while ends(server) == before:
        assert time.monotonic() < deadline, "the query makes no progress"
        driver.watch()
        time.sleep(STEP_S)


def run(
    records: int, kills: int, broker_kills: int, seed: int = 0, *, from_queue: bool = False
) -> Outcome:
    chance, started = random.Random(seed), time.monotonic()
    victims = ["driver"] * kills + ["broker"] * broker_kills
    chance.shuffle(victims)
    shares = len(victims) + 1
    turns = threading.Semaphore(1)
    with TemporaryDirectory() as place, broker(settings=SETTINGS) as server:
        create(server, TARGET, PARTITIONS)
        if from_queue:
            declare_queue(server)
        else:
            create(server, SOURCE, PARTITIONS)
        feeder = threading.Thread(target=feed, args=(server, records, shares, turns))
        if not from_queue:
            feeder.start()
        http = server.http_address if from_queue else ""
        driver = Driver(Path(place), "tests.spark.exactly_once", server.bootstrap, http, str(place))
        try:
            for number, victim in enumerate(victims):
                if from_queue:
                    fill(server, records, shares, number)
                wait_for_progress(server, driver)
                time.sleep(chance.uniform(0, 2))
                if victim == "driver":
                    driver.kill()
                else:
                    server.kill()
                    server.start()
                click.echo(f"{number + 1} of {len(victims)}: {victim} killed", err=True)
                turns.release()
            if from_queue:
                fill(server, records, shares, shares - 1)
            else:
                feeder.join()
            found = wait_for_the_end(server, driver, records)
            dead = drain(server, DEAD) if from_queue else []
        finally:
            turns.release(shares)
            driver.close()
            if not from_queue:
                feeder.join()
    lost = sum(number not in found for number in range(records))
    duplicated = sum(count - 1 for count in found.values())
    seconds = time.monotonic() - started
    return Outcome(records, lost, duplicated, kills, broker_kills, seconds, tuple(dead))


def declare_queue(server: Broker) -> None:
    declare(server, DEAD)
    letters = {"dead_letter_exchange": "", "dead_letter_routing_key": DEAD}
    declare(server, SOURCE, queue_type="quorum", delivery_limit=1, **letters)


def wait_for_the_end(server: Broker, driver: Driver, records: int) -> Counter[int]:
    deadline = time.monotonic() + PROGRESS_S_MAX
    while len(copies(server)) < records and time.monotonic() < deadline:
        driver.watch()
        time.sleep(1)
    time.sleep(2)  # For a copy too many to come.
    return copies(server)


@click.command(help=__doc__)
@click.option("--records", default=100_000, show_default=True)
@click.option("--kills", default=20, show_default=True)
@click.option("--broker-kills", default=20, show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--queue", "from_queue", is_flag=True, help="From a queue instead of a topic.")
@click.option("--drive", nargs=3, hidden=True)
def main(
    records: int,
    kills: int,
    broker_kills: int,
    seed: int,
    from_queue: bool,
    drive: tuple[str, str, str] | None,
) -> None:
    if drive is not None:
        _drive(*drive)
    else:
        click.echo(run(records, kills, broker_kills, seed, from_queue=from_queue))


_drive = drive

if __name__ == "__main__":
    main()
