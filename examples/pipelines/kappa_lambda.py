"""Kappa and Lambda from one function: sales per customer and hour, out of orders.

    orders ──┬── sales_kappa ──> Delta view, by a stream alone; replayed when the code changes
             └── sales_lambda ─> batch view and speed view, merged when somebody asks

Lambda was invented when streams were quick but inexact, and computes everything twice: a
batch over all of history now and then, and a stream over what came since. Kappa keeps the
stream alone, and when the function changes, runs it over all of history again, into a fresh
view. Here both use the same function, and both are exact, so what is left of the choice is
cost: a batch needs no state and reads history faster; a replay needs no merging, and works
for any function, while Lambda needs one whose parts can be merged.

    python -m examples.pipelines.feed kappa_lambda
    entrepot pipeline run examples/pipelines/kappa_lambda.py --live
    entrepot pipeline run examples/pipelines/kappa_lambda.py sales_kappa --replay
    entrepot pipeline run examples/pipelines/kappa_lambda.py sales_lambda --batch
    entrepot pipeline show examples/pipelines/kappa_lambda.py sales_lambda

The last three may be run while the first one goes on, and again and again.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from entrepot.spark.pipelines import Delta, Topic, pipeline

ORDERS = Topic("orders", schema="id bigint, customer string, cents bigint, at timestamp")
KEYS = ("customer", "hour")


def sales(orders: DataFrame) -> DataFrame:
    """What each customer bought in each hour."""
    hour = F.date_trunc("hour", "at").alias("hour")
    return orders.groupBy("customer", hour).agg(
        F.count("*").alias("orders"),
        F.sum("cents").alias("cents"),
        F.max("cents").alias("largest"),
    )


@pipeline(reads=ORDERS, writes=Delta("sales_kappa", keys=KEYS), mode="update")
def sales_kappa(orders: DataFrame) -> DataFrame:
    return sales(orders)


@pipeline(
    reads=ORDERS,
    writes=Delta("sales_lambda", keys=KEYS),
    merge={"orders": "sum", "cents": "sum", "largest": "max"},
)
def sales_lambda(orders: DataFrame) -> DataFrame:
    return sales(orders)
