"""What is measured: a topic read as a table and as a stream, and a row on its way through.

Rows a second are wall time, with Spark's planning; the cost is the processor time of all
that took part: the driver, Java, the Python workers and the broker.
"""

import itertools
import json
import os
import queue
import shutil
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from bench import librdkafka
from bench.brokers import Broker
from bench.meter import Sample, tree_cpu_s
from bench.scenarios import topic_of
from bench.spark.session import Contestant
from bench.table import Row
from bench.wire import Refused, create_topics

Measured = Iterator[tuple[Row, Sample]]

TOPIC, PARTITIONS, VALUE_BYTES = "bench", 4, 100
ROWS_PER_TRIGGER = 500_000
ROWS_BEFORE, ROWS_TIMED = 10, 30  # Of a stream that gets them one by one.
ROW_S_MAX = 60.0
TRIGGER_S = 0.1
# After the producer's first message to each partition: the rest comes out even.
BEGINNING = json.dumps({TOPIC: dict.fromkeys(map(str, range(PARTITIONS)), 1)})


class Arena:
    """The session, the broker, the topic, and directories to write to."""

    def __init__(self, spark: Any, broker: Broker, root: Path, records: int) -> None:
        self.spark = spark
        self.broker = broker
        self.rows = records
        self._root = root
        self._counter = itertools.count()

    def fill(self) -> None:
        with self.broker.connect() as connection:
            create_topics(connection, [TOPIC], PARTITIONS)
        arguments = VALUE_BYTES, "all", "none", PARTITIONS, self.rows
        librdkafka.produce(self.broker, TOPIC, *arguments)

    def directory(self) -> Path:
        return self._root / f"scratch {next(self._counter)}"


@dataclass(frozen=True, slots=True)
class Scenario:
    name: str
    measure: Callable[[Arena, Contestant], Measured]


def scenarios(records: int) -> list[Scenario]:
    measures = {"noop": to_noop, "parquet": to_parquet, "stream": stream_to_parquet}
    reads = [
        Scenario(name, partial(read, label(name, records), work)) for name, work in measures.items()
    ]
    return [
        *reads,
        Scenario("micro-batch", micro_batch),
        Scenario("micro-batch, triggered", triggered),
    ]


def label(name: str, records: int) -> str:
    texts = {
        "noop": "table to noop",
        "parquet": "table to Parquet",
        "stream": f"available now to Parquet, {ROWS_PER_TRIGGER:,} a batch",
    }
    return f"{records:,} rows, {texts[name]}"


def read(
    label: str, work: Callable[[Arena, Contestant], None], arena: Arena, contestant: Contestant
) -> Measured:
    cpu, start = tree_cpu_s(os.getpid()), time.perf_counter()
    work(arena, contestant)
    elapsed, cpu = time.perf_counter() - start, tree_cpu_s(os.getpid()) - cpu
    yield Row("spark", label, "rows/s"), Sample(arena.rows / elapsed)
    yield Row("spark cost", label, "s"), Sample(cpu / arena.rows * 1e6)


def to_noop(arena: Arena, contestant: Contestant) -> None:
    _table(arena, contestant).write.format("noop").mode("overwrite").save()


def to_parquet(arena: Arena, contestant: Contestant) -> None:
    output = arena.directory()
    _table(arena, contestant).write.parquet(str(output))
    _check_and_remove(arena, output)


def stream_to_parquet(arena: Arena, contestant: Contestant) -> None:
    output, checkpoint = arena.directory(), arena.directory()
    stream = _stream(arena, contestant, TOPIC).option("startingOffsets", BEGINNING)
    stream = stream.option("maxOffsetsPerTrigger", ROWS_PER_TRIGGER)
    writer = stream.load().writeStream.format("parquet").option("path", str(output))
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    writer.start().awaitTermination()
    _check_and_remove(arena, output)
    shutil.rmtree(checkpoint)


def micro_batch(arena: Arena, contestant: Contestant) -> Measured:
    """The next row is sent when the one before is seen, and its batch is over."""

    def idle(query: Any, _: int) -> None:
        while query.status["isTriggerActive"] and query.status["isDataAvailable"]:
            time.sleep(0.01)

    took_ms = _row_by_row(arena, contestant, {}, idle)
    yield Row("spark micro-batch", "one row", "ms"), Sample(took_ms)


def triggered(arena: Arena, contestant: Contestant) -> Measured:
    """A batch begins every 100 ms, and rows are sent at all moments between two beginnings."""

    def pause(_: Any, number: int) -> None:
        time.sleep(TRIGGER_S + TRIGGER_S * (number % 10) / 10)

    trigger = {"processingTime": f"{round(TRIGGER_S * 1_000)} milliseconds"}
    took_ms = _row_by_row(arena, contestant, trigger, pause)
    yield Row("spark micro-batch", "one row, a trigger of 100 ms", "ms"), Sample(took_ms)


def _row_by_row(
    arena: Arena,
    contestant: Contestant,
    trigger: dict[str, Any],
    wait: Callable[[Any, int], None],
) -> float:
    """Return the median time from `produce` to foreachBatch, in milliseconds.

    `wait` is called with the query after each row.
    """
    seen: queue.Queue[tuple[bytes, float]] = queue.Queue()

    def take(frame: Any, _: int) -> None:
        for row in frame.collect():
            seen.put((bytes(row.value), time.perf_counter()))

    producer = Producer({"bootstrap.servers": arena.broker.address, "linger.ms": 0})
    checkpoint = arena.directory()
    with topic_of(arena.broker, 1) as topic:
        stream = _stream(arena, contestant, topic).load().select("value")
        writer = stream.writeStream.foreachBatch(take)
        writer = writer.option("checkpointLocation", str(checkpoint))
        query = (writer.trigger(**trigger) if trigger else writer).start()
        times = []
        try:
            for number in range(ROWS_BEFORE + ROWS_TIMED):
                start = time.perf_counter()
                producer.produce(topic, str(number).encode())
                producer.flush()
                value, end = seen.get(timeout=ROW_S_MAX)
                if int(value) != number:
                    raise Refused(f"row {int(value)} came instead of {number}")
                times.append((end - start) * 1e3)
                wait(query, number)
        finally:
            query.stop()
    shutil.rmtree(checkpoint)
    return statistics.median(times[ROWS_BEFORE:])


def _table(arena: Arena, contestant: Contestant) -> Any:
    reader = arena.spark.read.format(contestant.format).options(**contestant.options)
    return reader.option("subscribe", TOPIC).option("startingOffsets", BEGINNING).load()


def _stream(arena: Arena, contestant: Contestant, topic: str) -> Any:
    reader = arena.spark.readStream.format(contestant.format).options(**contestant.options)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest")


def _check_and_remove(arena: Arena, output: Path) -> None:
    """Every row was written; only the files' footers are read for that."""
    found = arena.spark.read.parquet(str(output)).count()
    if found != arena.rows:
        raise Refused(f"{found} rows were written of {arena.rows}")
    shutil.rmtree(output)
