"""Spark reads and writes topics: the data source `entrepot`.

Spark finds it by itself where this package is installed. Nothing here is imported by the
broker, and pyspark by nobody before it is needed. Whoever imports it without its extra is told.
"""

from importlib.util import find_spec
from typing import TYPE_CHECKING

from entrepot.wire.kafka.kio_loading import load_kio

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_REMEDY = "in a checkout of entrepot, .venv/bin/pip install -e '.[spark]'"

for _name in ("pyarrow", "pyspark"):
    if find_spec(_name) is None:
        raise ModuleNotFoundError(f"{_name} is missing: {_REMEDY}", name=_name)

load_kio()  # Spark starts a dozen processes that import what is here.


def prepare() -> None:
    """Set up the environment for the first session: find a Java, have workers use this Python."""
    from entrepot.spark import java

    java.prepare()


def register(spark: "SparkSession") -> None:
    """Make the data source known to a session that does not find it by itself."""
    from entrepot.spark.source import EntrepotSource

    spark.dataSource.register(EntrepotSource)
