"""The demo's pipelines: cool boxes report their temperature, and orders are packed into them.

orders ───┐
          ├── packed ──> packed ──┬── alerts ──> alerts ──> queue of alarms
readings ─┤                       └── sales ───> Delta view
          └── minutes ──> Delta view
"""

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StreamingQuery

from entrepot.spark.pipelines import Delta, Topic, pipeline
from examples.demo.simulation import CELSIUS_MAX

READINGS = Topic("readings", schema="box string, celsius decimal(5,2), at timestamp")
ORDERS = Topic("orders", schema="id bigint, box string, cents bigint, at timestamp")
PACKED = Topic(
    "packed",
    schema="id bigint, box string, cents bigint, celsius decimal(5,2), at timestamp",
    dead_letters=None,  # We write it ourselves.
)
ALERTS = "alerts"
ALARMS = "alarms"  # A queue: each alert is for one of those who look after boxes.
LATE = "1 minute"  # How far behind a record may be.


@pipeline(reads=(ORDERS, READINGS), writes=Topic(PACKED.name, key="box"))
def packed(orders: DataFrame, readings: DataFrame) -> DataFrame:
    """Each order with what its box said next: a join of two streams."""
    order = orders.withWatermark("at", LATE).alias("order")
    reading = readings.withWatermark("at", LATE).alias("reading")
    next_reading = F.expr(
        "order.box = reading.box and reading.at > order.at"
        " and reading.at <= order.at + interval 10 seconds"
    )
    return order.join(reading, next_reading).select(
        "order.id", "order.box", "order.cents", "reading.celsius", "order.at"
    )


@pipeline(reads=PACKED, writes=Topic(ALERTS, key="box"))
def alerts(packed: DataFrame) -> DataFrame:
    """Orders that lie in a box that is too warm."""
    return packed.where(F.col("celsius") > CELSIUS_MAX).select(
        "id", "box", "cents", "celsius", "at"
    )


@pipeline(reads=PACKED, writes=Delta("sales", keys=["box", "minute"]), mode="update")
def sales(packed: DataFrame) -> DataFrame:
    """What each box earned in each minute, and how much of it is at risk."""
    minute = F.date_trunc("minute", "at").alias("minute")
    return packed.groupBy("box", minute).agg(
        F.count("*").alias("orders"),
        F.sum("cents").alias("cents"),
        F.count_if(F.col("celsius") > CELSIUS_MAX).alias("warm"),
    )


@pipeline(reads=READINGS, writes=Delta("minutes", keys=["box", "minute"]), mode="update")
def minutes(readings: DataFrame) -> DataFrame:
    """The mean temperature of each box in each minute."""
    minute = F.date_trunc("minute", "at").alias("minute")
    return readings.groupBy("box", minute).agg(
        F.count("*").alias("readings"), F.avg("celsius").alias("celsius")
    )


def start_alarms(
    spark: SparkSession, bootstrap: str, amqp: str, checkpoint: Path
) -> StreamingQuery:
    """Alerts from their topic into the queue, each at least once."""
    said = {"kafka.bootstrap.servers": bootstrap, "subscribe": ALERTS}
    reader = spark.readStream.format("entrepot").options(**said, startingOffsets="earliest")
    writer = reader.load().select("value").writeStream.format("entrepot").queryName(ALARMS)
    writer = writer.options(**{"entrepot.amqp": amqp, "queue": ALARMS})
    return writer.option("checkpointLocation", str(checkpoint)).start()
