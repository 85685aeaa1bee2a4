"""One Spark session with its default settings, and who reads in it.

The session has the jars of Spark's own connector, when they could be fetched, so both
connectors run in the same Java, compiled by the same runs.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.brokers import Broker
from bench.table import PEER
from entrepot.spark import prepare

PEER_HOME = Path(__file__).parent.parent / "peers" / "spark-kafka"
OURS, TIER = "entrepot", "entrepot tier"
TOPIC, TIERED = "bench", "bench-tiered"  # The same records; the second one's are in its tier.

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}


@dataclass(frozen=True, slots=True)
class Contestant:
    """One column of the table: a source, and how it finds the broker."""

    name: str
    format: str
    options: dict[str, str]
    topic: str = TOPIC


def contestants(broker: Broker, data: Path, tier: str, jars: Path | str) -> list[Contestant]:
    address = {"kafka.bootstrap.servers": broker.address}
    files = address | {"dataDirectory": str(data)}
    found = [
        Contestant(OURS, "entrepot", address),
        Contestant(f"{OURS} files", "entrepot", files),
        Contestant(TIER, "entrepot", address | {"tier": tier}, TIERED),
    ]
    if isinstance(jars, Path):
        found.append(Contestant(PEER, "kafka", address))
    return found


@contextmanager
def session(root: Path, jars: Path | str, cores: int) -> Iterator[Any]:
    prepare()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    builder = builder.config("spark.local.dir", str(root))
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    if isinstance(jars, Path):
        builder = builder.config("spark.jars", ",".join(map(str, sorted(jars.glob("*.jar")))))
    spark = builder.getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()
