"""A small live pipeline, on a broker of its own, for the classes that it makes Java load.

It does what a pipeline does at its first batch: a topic is read and parsed, sums are kept in
RocksDB and merged into a Delta table, and dead letters have their query. Java writes down what it
has loaded when it ends (`class_archive`).
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from entrepot.client.client import Client
from entrepot.core.batch import build
from entrepot.core.clock import SystemClock
from entrepot.core.record import Record
from entrepot.spark import class_archive
from entrepot.spark.connecting import Connected
from entrepot.spark.java import prepare
from entrepot.spark.options import Address
from entrepot.spark.session import JAVA_OPTIONS, Interrupts, Session, settings_for
from entrepot.testing import broker

MASTER = "local[2]"
WRITE_S_MAX = 300.0  # For Java, to write the file.
TOPIC = "warm-up"


def warm_up(tell: Callable[[str], None]) -> Path:
    """Make the file for this Java and this Spark; return where it is. Raises NoArchive."""
    prepare()
    with class_archive.making() as option:
        settings = settings_for(MASTER)
        settings[JAVA_OPTIONS] += option
        session = Session(MASTER, settings, name="entrepot warm-up", end_s_max=WRITE_S_MAX)
        interrupts = Interrupts(session)
        interrupts.listen()
        with interrupts.ending(), session:
            tell("starting Spark, and a pipeline to try")
            _run(session)
            tell("Java writes down what it has loaded")
    return class_archive.archive_path()


def _run(session: Session) -> None:
    spark = session.start()
    from entrepot.spark.pipelines import Delta, Runner, Topic, pipeline

    @pipeline(
        reads=Topic(TOPIC, schema="name string, count bigint"),
        writes=Delta("sums", keys=["name"]),
        mode="update",
    )
    def sums(rows):  # type: ignore[no-untyped-def]
        return rows.groupBy("name").sum("count")

    with broker() as server, tempfile.TemporaryDirectory(prefix="entrepot-warm-up-") as place:
        with Connected(Address(server.bootstrap)) as connected:
            connected.run(_fill)
        with Runner(spark, [sums], place, server.bootstrap).start() as running:
            running.drain()


async def _fill(client: Client) -> None:
    await client.topic(TOPIC, create=True)
    values = (b'{"name": "a", "count": 1}', b"poison")
    batch = build([Record(None, value) for value in values], now_ms=SystemClock().now_ms())
    await client.produce(TOPIC, 0, batch)
