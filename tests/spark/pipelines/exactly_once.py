"""Through a pipeline, exactly once, through kills of the driver and of the broker.

Numbered records go into a topic, poison among them; a pipeline, live in a process of its
own, reads them, computes something and writes it to a topic, to Parquet or to Delta, added
or merged by key. Meanwhile that process, Java and workers included, and the broker are
killed with kill -9. At the end every number must be there once, and all poison in the
dead-letter topic, once.

    python -m tests.spark.pipelines.exactly_once --records 50000 --output delta

runs it and prints the counts.
"""

import json
import random
import threading
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import click
import pyarrow as pa
import pyarrow.dataset as ds
from confluent_kafka import Producer

from entrepot.client.client import LATEST, TopicPartition
from entrepot.spark.connecting import Connected
from entrepot.spark.fetching import Range, RangeReader
from entrepot.spark.options import Address
from entrepot.testing import Broker, broker
from tests.spark.conftest import LEAN
from tests.spark.exactly_once import PARTITIONS, PROGRESS_S_MAX, STEP_S, Driver, Outcome
from tests.spark.producing import create

SOURCE, TARGET, DEAD = "numbers", "squares", "numbers.dead-letters"
OUTPUTS = ("topic", "parquet", "delta", "upsert")
POISON_EVERY = 100  # One record in so many is poison.
BATCH_ROWS = 200
GROUPS = 50  # Of the sums that are merged by key.


def drive(bootstrap: str, place: str, output: str) -> None:
    """The pipeline, until killed. When it fails, whoever watches starts it anew."""
    from entrepot.spark import prepare

    prepare()
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import functions as F  # noqa: N812

    from entrepot.spark.pipelines import Delta, Parquet, Runner, Topic, pipeline

    def squares(numbers: DataFrame) -> DataFrame:
        return numbers.selectExpr("number", "number * number as square")

    def sums(numbers: DataFrame) -> DataFrame:
        grouped = numbers.groupBy((F.col("number") % GROUPS).alias("group"))
        return grouped.agg(F.sum("number").alias("total"), F.count("*").alias("count"))

    writes, mode, function = {
        "topic": (Topic(TARGET, key="number"), "append", squares),
        "parquet": (Parquet(TARGET), "append", squares),
        "delta": (Delta(TARGET), "append", squares),
        "upsert": (Delta(TARGET, keys=["group"]), "update", sums),
    }[output]
    made = pipeline(reads=Topic(SOURCE, "number bigint"), writes=writes, mode=mode)(function)
    builder = SparkSession.builder.master("local[2]").config("spark.local.dir", place)
    for name, value in LEAN.items():
        builder = builder.config(name, value)
    runner = Runner(
        builder.getOrCreate(),
        [made],
        f"{place}/views",
        bootstrap,
        trigger_s=STEP_S,
        rows_max=BATCH_ROWS,
    )
    runner.live()


# --- what has been written


def records_of(server: Broker, topic: str) -> list[bytes]:
    """All that a reader of committed records sees."""
    parts = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    schema = pa.schema([("value", pa.binary())])
    found: list[bytes] = []
    with Connected(Address(server.bootstrap)) as connected:
        ends = connected.run(
            lambda client: client.list_offsets(dict.fromkeys(parts, LATEST), committed=True)
        )
        for part, end in ends.items():
            for batch in RangeReader(connected, Range(*part, 0, end.offset), schema).batches():
                found += batch.column("value").to_pylist()
    return found


def rows_of(place: Path) -> list[dict[str, int]]:
    from entrepot.spark.pipelines import views
    from entrepot.spark.pipelines.versions import Directory

    for pipeline in ("squares", "sums"):
        version = Directory(place / "views").place(pipeline).current()
        if version is not None:
            break
    else:
        return []
    description = version.description
    assert description is not None
    files = [path for each in views.files(version, description["kind"]).values() for path in each]
    rows: list[dict[str, int]] = ds.dataset(files).to_table().to_pylist() if files else []
    return rows


def written(server: Broker, place: Path, output: str) -> Counter[int]:
    """How often each number is there; of sums, how many have gone into each."""
    if output == "topic":
        rows = [json.loads(value) for value in records_of(server, TARGET)]
    else:
        rows = rows_of(place)
    if output == "upsert":
        return Counter({row["group"]: row["count"] for row in rows})
    assert all(row["square"] == row["number"] ** 2 for row in rows)
    return Counter(row["number"] for row in rows)


def expected(records: int, output: str) -> Counter[int]:
    numbers = (number for number in range(records) if number % POISON_EVERY)
    return Counter(number % GROUPS if output == "upsert" else number for number in numbers)


# --- the run


def feed(server: Broker, records: int, shares: int, turns: threading.Semaphore) -> None:
    """A share of the records for each kill, so that there is work whenever one comes."""
    settings = {"enable.idempotence": True, "message.timeout.ms": 300_000}
    producer = Producer({"bootstrap.servers": server.bootstrap, **settings})
    for share in range(shares):
        turns.acquire()
        for number in range(records * share // shares, records * (share + 1) // shares):
            text = json.dumps({"number": number}) if number % POISON_EVERY else f"poison {number}"
            producer.produce(SOURCE, text.encode(), partition=number % PARTITIONS)
            producer.poll(0)
            if number % 50 == 0:
                time.sleep(STEP_S)
    assert producer.flush(300) == 0


class Trial:
    def __init__(self, server: Broker, place: Path, output: str) -> None:
        self._server, self._place, self._output = server, place, output
        self.driver = Driver(
            place, "tests.spark.pipelines.exactly_once", server.bootstrap, str(place), output
        )

    def counts(self) -> tuple[Counter[int], Counter[bytes]]:
        dead = Counter(records_of(self._server, DEAD))
        return written(self._server, self._place, self._output), dead

    def wait_for_progress(self) -> None:
        before, deadline = self.counts(), time.monotonic() + PROGRESS_S_MAX
        while self.counts()[0] == before[0]:
            assert time.monotonic() < deadline, "the pipeline makes no progress"
            self.driver.watch()
            time.sleep(STEP_S)

    def finish(self, records: int) -> tuple[Counter[int], Counter[bytes]]:
        poison = -(-records // POISON_EVERY)
        wanted = expected(records, self._output).total(), poison
        deadline = time.monotonic() + PROGRESS_S_MAX
        while time.monotonic() < deadline:
            found, dead = self.counts()
            if (found.total(), dead.total()) >= wanted and dead.total() >= poison:
                break
            self.driver.watch()
            time.sleep(1)
        time.sleep(2)  # For one too many to come.
        return self.counts()


def run(records: int, kills: int, broker_kills: int, output: str, seed: int = 0) -> Outcome:
    chance, started = random.Random(seed), time.monotonic()
    victims = ["driver"] * kills + ["broker"] * broker_kills
    chance.shuffle(victims)
    turns = threading.Semaphore(1)
    with TemporaryDirectory() as place, broker() as server:
        for topic in (SOURCE, TARGET, DEAD):
            create(server, topic, PARTITIONS)
        feeder = threading.Thread(target=feed, args=(server, records, len(victims) + 1, turns))
        feeder.start()
        trial = Trial(server, Path(place), output)
        try:
            for victim in victims:
                trial.wait_for_progress()
                time.sleep(chance.uniform(0, 2))
                if victim == "driver":
                    trial.driver.kill()
                else:
                    server.kill()
                    server.start()
                turns.release()
            feeder.join()
            found, dead = trial.finish(records)
        finally:
            turns.release(len(victims) + 1)
            trial.driver.close()
            feeder.join()
    good = expected(records, output)
    poison = Counter(f"poison {number}".encode() for number in range(0, records, POISON_EVERY))
    lost = (good - found).total() + (poison - dead).total()
    duplicated = (found - good).total() + (dead - poison).total()
    return Outcome(
        records, lost, duplicated, kills, broker_kills, round(time.monotonic() - started, 1)
    )


@click.command(help=__doc__)
@click.option("--records", default=50_000, show_default=True)
@click.option("--kills", default=20, show_default=True)
@click.option("--broker-kills", default=20, show_default=True)
@click.option("--output", type=click.Choice(OUTPUTS), default="delta", show_default=True)
@click.option("--seed", default=0, show_default=True)
@click.option("--drive", nargs=3, hidden=True)
def main(
    records: int,
    kills: int,
    broker_kills: int,
    output: str,
    seed: int,
    drive: tuple[str, str, str] | None,
) -> None:
    if drive is not None:
        _drive(*drive)
    else:
        click.echo(f"{output}: {run(records, kills, broker_kills, output, seed)}")


_drive = drive

if __name__ == "__main__":
    main()
