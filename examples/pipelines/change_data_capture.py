"""Change data capture: a table of a database, kept up elsewhere, row for row.

    SQLite, PostgreSQL, MySQL ── entrepot connect ──> customer-changes ──┬── customers ──> Delta
                                                                         └── customer_history

The connector writes every change of the table as a record, under the row's primary key:
which operation it was, the row before and the row after. The newest change of a key is what
the row is now, so the fold is small, and it does not matter how often a row has changed. All
of them together are what the database itself has forgotten: how its rows came about.

A connector for SQLite is this file, run by `entrepot connect run customers.toml`:

    name = "customers"
    connector = "sqlite-changes"
    topic = "customer-changes"
    [options]
    path = "shop.db"
    tables = ["customers"]
    install = true
    snapshot = true

With another `connector` and its options, `postgresql-changes` or `mysql-changes`, the
pipelines stay as they are.

    python -m examples.pipelines.feed change_data_capture
    entrepot pipeline run examples/pipelines/change_data_capture.py --live
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from entrepot.spark.pipelines import Delta, Parquet, Topic, pipeline

COLUMNS = "id bigint, name string, city string, credit_cents bigint"
ROW = f"struct<{COLUMNS}>"
CHANGES = Topic(
    "customer-changes",
    schema=f"op string, table string, id bigint, at timestamp, before {ROW}, after {ROW}",
)


def key() -> Column:
    return F.coalesce("after.id", "before.id")


@pipeline(reads=CHANGES, writes=Delta("customers", keys=["id"]), mode="update")
def customers(changes: DataFrame) -> DataFrame:
    """The table as it is now; `present` leaves out the rows that are gone."""
    change = F.struct("op", "after", "at")
    known = changes.where(key().isNotNull()).groupBy(key().alias("key"))
    newest = known.agg(F.max_by(change, "_offset").alias("newest"))
    columns = [F.col(f"newest.after.{name}") for name in names() if name != "id"]
    return newest.select(
        F.col("key").alias("id"),
        *columns,
        (F.col("newest.op") == "delete").alias("is_deleted"),
        F.col("newest.at").alias("changed_at"),
    )


def names() -> list[str]:
    return [column.split()[0] for column in COLUMNS.split(",")]


def present(customers: DataFrame) -> DataFrame:
    """The rows that are in the source table, with its columns."""
    return customers.where("not is_deleted").select(names())


@pipeline(reads=CHANGES, writes=Parquet("customer_history"))
def customer_history(changes: DataFrame) -> DataFrame:
    """Every state that a row ever had, and when it began."""
    known = changes.where(key().isNotNull())
    return known.select(key().alias("id"), "op", "at", "after", "_partition", "_offset")
