"""What one does with Kafka Streams, as pipelines: each function is one operation.

The guide docs/guides/streams.md lists them beside their names there. A KStream is a topic
that is read; a KTable is a pipeline that writes Delta with keys, the newest row of each;
a topology is several pipelines, joined by the topics and tables they write.

What waits for something to be over (a window, a partner that did not come) goes by the times
in the records, and is told when the newest is so much later: `withWatermark` says how much.

    python -m examples.pipelines.feed streams
    entrepot pipeline run examples/pipelines/streams.py filtered joined --live
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor

from entrepot.spark.pipelines import Delta, Table, Topic, pipeline

ORDERS = Topic("orders", schema="id string, customer string, cents bigint, at timestamp")
SHOP_ORDERS = Topic("shop-orders", schema="id string, customer string, cents bigint, at timestamp")
PAYMENTS = Topic("payments", schema="order_id string, paid_cents bigint, paid_at timestamp")
REVIEWS = Topic("reviews", schema="id string, text string")
CUSTOMERS = Topic("customers", schema="customer string, country string")


# --- one record at a time


@pipeline(reads=ORDERS, writes=Topic("orders-in-euros", key="id"))
def mapped(orders: DataFrame) -> DataFrame:
    return orders.select("id", (F.col("cents") / 100).alias("euros"))


@pipeline(reads=ORDERS, writes=Topic("large-orders", key="id"))
def filtered(orders: DataFrame) -> DataFrame:
    return orders.where("cents >= 10000").select("id", "cents")


@pipeline(reads=REVIEWS, writes=Topic("review-words", key="word"))
def flat_mapped(reviews: DataFrame) -> DataFrame:
    return reviews.select("id", F.explode(F.split("text", " ")).alias("word"))


@pipeline(reads=ORDERS, writes=Topic("orders-by-customer", key="customer"))
def rekeyed(orders: DataFrame) -> DataFrame:
    return orders.select("customer", "id")


@pipeline(reads=ORDERS, writes=Topic("domestic-orders"))
def branched(orders: DataFrame) -> DataFrame:
    return orders.select(
        F.when(F.col("cents") < 10000, "small").otherwise("large").alias("topic"),
        F.col("id").alias("key"),
        F.to_json(F.struct("id", "cents")).alias("value"),
    )


@pipeline(reads=(ORDERS, SHOP_ORDERS), writes=Topic("all-orders", key="id"))
def merged(orders: DataFrame, shop_orders: DataFrame) -> DataFrame:
    return orders.unionByName(shop_orders).select("id", "customer", "cents")


# --- many records of one key


@pipeline(reads=ORDERS, writes=Delta("counted", keys=["customer"]), mode="update")
def counted(orders: DataFrame) -> DataFrame:
    return orders.groupBy("customer").count()


@pipeline(reads=ORDERS, writes=Delta("aggregated", keys=["customer"]), mode="update")
def aggregated(orders: DataFrame) -> DataFrame:
    return orders.groupBy("customer").agg(
        F.sum("cents").alias("cents"), F.avg("cents").alias("mean")
    )


@pipeline(reads=ORDERS, writes=Delta("reduced", keys=["customer"]), mode="update")
def reduced(orders: DataFrame) -> DataFrame:
    return orders.groupBy("customer").agg(F.max_by("id", "cents").alias("largest"))


@pipeline(reads=CUSTOMERS, writes=Delta("table", keys=["customer"]), mode="update")
def table(customers: DataFrame) -> DataFrame:
    return customers.groupBy("customer").agg(F.max_by("country", "_offset").alias("country"))


# --- windows


@pipeline(reads=ORDERS, writes=Delta("tumbling", keys=["since", "customer"]), mode="update")
def tumbling(orders: DataFrame) -> DataFrame:
    windows = orders.groupBy(F.window("at", "1 hour"), "customer").count()
    return windows.select(F.col("window.start").alias("since"), "customer", "count")


@pipeline(reads=ORDERS, writes=Delta("hopping", keys=["since", "customer"]), mode="update")
def hopping(orders: DataFrame) -> DataFrame:
    windows = orders.groupBy(F.window("at", "1 hour", "30 minutes"), "customer").count()
    return windows.select(F.col("window.start").alias("since"), "customer", "count")


@pipeline(reads=ORDERS, writes=Topic("visits", key="customer"))
def sessions(orders: DataFrame) -> DataFrame:
    told = orders.withWatermark("at", "10 minutes")
    windows = told.groupBy(F.session_window("at", "20 minutes"), "customer").count()
    return windows.select(
        "customer",
        F.col("session_window.start").alias("since"),
        F.col("session_window.end").alias("until"),
        "count",
    )


@pipeline(reads=ORDERS, writes=Topic("hours", key="customer"))
def suppressed(orders: DataFrame) -> DataFrame:
    told = orders.withWatermark("at", "10 minutes")
    windows = told.groupBy(F.window("at", "1 hour"), "customer").count()
    return windows.select("customer", F.col("window.start").alias("since"), "count")


# --- joins


@pipeline(reads=(ORDERS, PAYMENTS), writes=Topic("paid-orders", key="id"))
def joined(orders: DataFrame, payments: DataFrame) -> DataFrame:
    ordered = orders.withWatermark("at", "10 minutes")
    paid = payments.withWatermark("paid_at", "10 minutes")
    within = F.expr("id = order_id and paid_at between at and at + interval 1 hour")
    return ordered.join(paid, within).select("id", "cents", "paid_cents")


@pipeline(reads=(ORDERS, PAYMENTS), writes=Topic("unpaid-orders", key="id"))
def left_joined(orders: DataFrame, payments: DataFrame) -> DataFrame:
    ordered = orders.withWatermark("at", "10 minutes")
    paid = payments.withWatermark("paid_at", "10 minutes")
    within = F.expr("id = order_id and paid_at between at and at + interval 1 hour")
    unpaid = ordered.join(paid, within, "left").where("order_id is null")
    return unpaid.select("id", "customer", "cents")


@pipeline(reads=(ORDERS, Table("table", static=True)), writes=Topic("orders-abroad", key="id"))
def enriched(orders: DataFrame, customers: DataFrame) -> DataFrame:
    return orders.join(customers, "customer").select("id", "customer", "country")


# --- a state of one's own


class EveryThird(StatefulProcessor):
    """Each customer's third, sixth, … order wins."""

    def init(self, handle: Any) -> None:
        self._count = handle.getValueState("count", "orders bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        count = (self._count.get() or (0,))[0]
        for row in sorted(rows, key=lambda row: row._offset):
            count += 1
            if count % 3 == 0:
                yield Row(customer=key[0], id=row.id, count=count)
        self._count.update((count,))

    def close(self) -> None:
        """Nothing to give back."""


@pipeline(reads=ORDERS, writes=Topic("winners", key="customer"))
def processed(orders: DataFrame) -> DataFrame:
    return orders.groupBy("customer").transformWithState(
        EveryThird(), "customer string, id string, count bigint", "append", "none"
    )
