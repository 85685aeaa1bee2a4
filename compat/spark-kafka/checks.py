"""What Spark's own Kafka connector does with a broker, check by check, in one session.

checks.py BOOTSTRAP JARS DIRECTORY     PASS or FAIL and the check's name, line by line
checks.py --list                       the names
"""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CHECKS: dict[str, Callable[["Bed"], None]] = {}


def check(name: str) -> Callable[[Callable[["Bed"], None]], Callable[["Bed"], None]]:
    def note(work: Callable[["Bed"], None]) -> Callable[["Bed"], None]:
        CHECKS[name] = work
        return work

    return note


class Bed:
    """A session, a broker, and topics with records in them."""

    def __init__(self, bootstrap: str, jars: str, place: Path) -> None:
        from confluent_kafka.admin import AdminClient
        from pyspark.sql import SparkSession

        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        found = ",".join(str(path) for path in sorted(Path(jars).glob("*.jar")))
        builder = SparkSession.builder.master("local[2]").config("spark.jars", found)
        for name, value in {
            "spark.ui.enabled": "false",
            "spark.sql.shuffle.partitions": "2",
            "spark.driver.host": "127.0.0.1",
            "spark.log.level": "ERROR",
            "spark.local.dir": str(place),
        }.items():
            builder = builder.config(name, value)
        self.spark = builder.getOrCreate()
        self.place = place
        self.address = {"bootstrap.servers": bootstrap}
        self.admin = AdminClient(self.address)
        self._said = {"kafka.bootstrap.servers": bootstrap}

    def topic(self, name: str, partitions: int = 2) -> str:
        from confluent_kafka.admin import NewTopic

        topic = f"{name}-{os.getpid()}"
        self.admin.create_topics([NewTopic(topic, partitions)])[topic].result()
        return topic

    def produce(
        self, topic: str, count: int, first: int = 0, partitions: int = 2, **settings: Any
    ) -> None:
        from confluent_kafka import Producer

        producer = Producer(self.address)
        for number in range(first, first + count):
            text = str(number).encode()
            producer.produce(topic, text, text, number % partitions, **settings)
        assert producer.flush(30) == 0

    def table(self, **more: str) -> Any:
        return self.spark.read.format("kafka").options(**self._said, **more).load()

    def stream(self, **more: str) -> Any:
        options = self._said | {"startingOffsets": "earliest"} | more
        return self.spark.readStream.format("kafka").options(**options).load()

    def numbers(self, frame: Any) -> list[int]:
        return sorted(int(row.value) for row in frame.select("value").collect())

    def write(self, frame: Any, **more: str) -> None:
        frame.write.format("kafka").options(**self._said, **more).save()

    def copy(self, source: str, target: str) -> None:
        """What is new, from topic to topic, from where the checkpoint says."""
        frame = self.stream(subscribe=source, maxOffsetsPerTrigger="30").select("key", "value")
        place = str(self.place / f"checkpoint-{target}")
        writer = frame.writeStream.format("kafka").options(**self._said, topic=target)
        query = writer.option("checkpointLocation", place).trigger(availableNow=True).start()
        assert query.awaitTermination(120)


def refusal(work: Callable[[], object]) -> str:
    try:
        work()
    except Exception as error:
        return str(error)
    return ""


def equal(found: Any, wanted: Any) -> None:
    assert found == wanted, f"{found!r}, not {wanted!r}"


@check("a table of every column")
def every_column(bed: Bed) -> None:
    topic = bed.topic("columns", 1)
    time_ms = int(time.time() * 1_000) - 1_234
    bed.produce(topic, 1, timestamp=time_ms, headers=[("h", b"1"), ("h", None)])
    [row] = bed.table(subscribe=topic, includeHeaders="true").collect()
    equal((bytes(row.key), bytes(row.value), row.topic), (b"0", b"0", topic))
    equal((row.partition, row.offset, row.timestampType), (0, 0, 0))
    equal(round(row.timestamp.timestamp() * 1_000), time_ms)
    headers = [(pair.key, pair.value and bytes(pair.value)) for pair in row.headers]
    equal(headers, [("h", b"1"), ("h", None)])


@check("a pattern, and assigned partitions")
def which(bed: Bed) -> None:
    topic = bed.topic("which")
    bed.produce(topic, 10)
    equal(bed.numbers(bed.table(subscribePattern=f"whi.*{os.getpid()}")), list(range(10)))
    equal(bed.numbers(bed.table(assign=json.dumps({topic: [1]}))), [1, 3, 5, 7, 9])


@check("offsets to begin and to end at")
def offsets(bed: Bed) -> None:
    topic = bed.topic("offsets")
    bed.produce(topic, 20)
    starting = json.dumps({topic: {"0": 3, "1": -2}})
    ending = json.dumps({topic: {"0": 5, "1": 1}})
    frame = bed.table(subscribe=topic, startingOffsets=starting, endingOffsets=ending)
    equal(bed.numbers(frame), [1, 6, 8])


@check("offsets by time")
def by_time(bed: Bed) -> None:
    topic = bed.topic("times")
    bed.produce(topic, 10)
    time.sleep(0.1)
    between = str(int(time.time() * 1_000))
    time.sleep(0.1)
    bed.produce(topic, 10, 10)
    equal(bed.numbers(bed.table(subscribe=topic, startingTimestamp=between)), list(range(10, 20)))
    equal(bed.numbers(bed.table(subscribe=topic, endingTimestamp=between)), list(range(10)))


@check("minPartitions")
def many_tasks(bed: Bed) -> None:
    topic = bed.topic("tasks")
    bed.produce(topic, 100)
    frame = bed.table(subscribe=topic, minPartitions="8")
    assert frame.rdd.getNumPartitions() >= 8
    equal(bed.numbers(frame), list(range(100)))


@check("read_committed")
def committed(bed: Bed) -> None:
    from confluent_kafka import Producer

    topic = bed.topic("transactions", 1)
    for number, end in enumerate(("commit", "abort", "commit")):
        producer = Producer(bed.address | {"transactional.id": f"{topic}-{number}"})
        producer.init_transactions(30)
        producer.begin_transaction()
        producer.produce(topic, str(number).encode(), partition=0)
        producer.flush(30)
        getattr(producer, f"{end}_transaction")(30)
    said = {"subscribe": topic, "kafka.isolation.level": "read_committed"}
    equal(bed.numbers(bed.table(**said)), [0, 2])
    equal(bed.numbers(bed.table(subscribe=topic)), [0, 1, 2])


@check("a table written, with keys, headers, topics and partitions")
def table_written(bed: Bed) -> None:
    topic = bed.topic("written")
    frame = bed.spark.range(10).selectExpr(
        f"'{topic}' as topic",
        "cast(id as string) as key",
        "cast(id as string) as value",
        "cast(id % 2 as int) as partition",
        "array(named_struct('key', 'h', 'value', binary('1'))) as headers",
    )
    bed.write(frame)
    rows = bed.table(subscribe=topic, includeHeaders="true").collect()
    equal(sorted((int(row.value), row.partition) for row in rows), [(n, n % 2) for n in range(10)])
    assert all(row.key == row.value for row in rows)
    assert all([(h.key, bytes(h.value)) for h in row.headers] == [("h", b"1")] for row in rows)


@check("a compressed table written")
def compressed(bed: Bed) -> None:
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        topic = bed.topic(f"codec-{codec}")
        frame = bed.spark.range(1_000).selectExpr("cast(id as string) as value")
        bed.write(frame, topic=topic, **{"kafka.compression.type": codec})
        equal(bed.numbers(bed.table(subscribe=topic)), list(range(1_000)))


@check("a stream from topic to topic, stopped and started")
def stream_restarted(bed: Bed) -> None:
    source, target = bed.topic("source"), bed.topic("target")
    for first in (0, 100):
        bed.produce(source, 100, first)
        bed.copy(source, target)
    bed.copy(source, target)
    equal(bed.numbers(bed.table(subscribe=target)), list(range(200)))


@check("a stream that waits for records, and for a new partition")
def stream_live(bed: Bed) -> None:
    from confluent_kafka.admin import NewPartitions

    topic = bed.topic("live", 1)
    frame = bed.stream(subscribe=topic, **{"kafka.metadata.max.age.ms": "500"})
    query = frame.writeStream.format("memory").queryName("live").start()
    try:
        bed.produce(topic, 1, partitions=1)
        bed.admin.create_partitions([NewPartitions(topic, 2)])[topic].result()
        bed.produce(topic, 2, 1)
        deadline = time.monotonic() + 60
        while len(found := bed.numbers(bed.spark.table("live"))) < 3:
            assert time.monotonic() < deadline, f"only {found}"
            time.sleep(0.2)
        equal(found, [0, 1, 2])
    finally:
        query.stop()


@check("offsets that are gone end the query")
def gone(bed: Bed) -> None:
    from confluent_kafka import TopicPartition

    topic = bed.topic("gone", 1)
    bed.produce(topic, 10, partitions=1)
    place = TopicPartition(topic, 0, 5)
    bed.admin.delete_records([place])[place].result()
    starting = json.dumps({topic: {"0": 2}})
    said = refusal(lambda: bed.numbers(bed.table(subscribe=topic, startingOffsets=starting)))
    assert "may have been lost" in said, said or "no error"
    said = {"startingOffsets": starting, "failOnDataLoss": "false"}
    equal(bed.numbers(bed.table(subscribe=topic, **said)), list(range(5, 10)))


def main() -> None:
    if sys.argv[1:] == ["--list"]:
        print("\n".join(CHECKS))
        return
    bootstrap, jars, place = sys.argv[1:]
    bed = Bed(bootstrap, jars, Path(place))
    for name, work in CHECKS.items():
        try:
            work(bed)
        except Exception as error:
            print(f"FAIL {name}: {' '.join(str(error).split())[:400]}", flush=True)
        else:
            print(f"PASS {name}", flush=True)
    bed.spark.stop()


if __name__ == "__main__":
    main()
