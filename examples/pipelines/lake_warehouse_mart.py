"""Data lake, warehouse and mart: one topic, three tables, each cleaner and slower.

    purchases ──┬── lake ──> Parquet                        all, as it came
                ├── warehouse ──> Parquet ── mart ──> Parquet    typed, each once; then hours
                ├── revenue ──> Delta view                  days, exact at any moment
                └── trending ──> trending                   what sells right now

| | Holds | Velocity | For |
|---|---|---|---|
| lake | every record, poison included | real time: each micro-batch | whatever comes up later |
| warehouse | what is a purchase, typed, once | medium: the same, checked | analysts |
| mart | hours by product and country | low: when an hour is over for good | reports |

The lake asks nothing of a record, so nothing is lost that a later question may need. The
warehouse drops what is sent again (the same id and time) and what makes no sense. The mart
closes an hour when the newest purchase is `LATE` past its end: what comes later than that is
not in a live mart, for a row of it is written once and then relied upon. `revenue` shows the
other choice: rows that change, and nothing left out. With `--batch` time does not pass, and
the mart has everything.

    python -m examples.pipelines.feed lake_warehouse_mart
    entrepot pipeline run examples/pipelines/lake_warehouse_mart.py --live
    entrepot pipeline run examples/pipelines/lake_warehouse_mart.py warehouse mart --batch
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from entrepot.spark.pipelines import Delta, Parquet, Table, Topic, pipeline

RECORDS = Topic("purchases")
PURCHASES = Topic(
    "purchases",
    schema="id string, product string, country string, cents bigint, at timestamp",
)
LATE = "10 minutes"
CENTS_MAX = 10**12  # More is a mistake, and sums of it would overflow.


@pipeline(reads=RECORDS, writes=Parquet("lake", partition_by=["day"]))
def lake(records: DataFrame) -> DataFrame:
    """Every record, with where it stood in the log."""
    return records.select(
        F.col("key").cast("string").alias("key"),
        F.col("value").cast("string").alias("value"),
        "topic",
        "partition",
        "offset",
        "timestamp",
        F.to_date("timestamp").alias("day"),
    )


@pipeline(reads=PURCHASES, writes=Parquet("warehouse", partition_by=["day"]))
def warehouse(purchases: DataFrame) -> DataFrame:
    """Purchases that make sense, each once.

    One that is sent again is recognised for as long as it could come late; the time in the
    key is what lets Spark forget it afterwards.
    """
    sensible = purchases.where(
        F.col("id").isNotNull() & F.col("at").isNotNull() & F.col("cents").between(1, CENTS_MAX)
    )
    return (
        sensible.withWatermark("at", LATE)
        .dropDuplicates(["id", "at"])
        .select(
            "id",
            F.trim("product").alias("product"),
            F.upper("country").alias("country"),
            "cents",
            "at",
            F.to_date("at").alias("day"),
        )
    )


@pipeline(reads=Table("warehouse"), writes=Parquet("mart"))
def mart(purchases: DataFrame) -> DataFrame:
    """Each hour of a product in a country, told when it is over."""
    hours = purchases.withWatermark("at", LATE).groupBy(
        F.window("at", "1 hour"), "product", "country"
    )
    return hours.agg(F.count("*").alias("purchases"), F.sum("cents").alias("cents")).select(
        F.col("window.start").alias("hour"), "product", "country", "purchases", "cents"
    )


@pipeline(reads=Table("warehouse"), writes=Delta("revenue", keys=["day"]), mode="update")
def revenue(purchases: DataFrame) -> DataFrame:
    """Each day as it is known by now, with all that came late."""
    return purchases.groupBy("day").agg(
        F.count("*").alias("purchases"), F.sum("cents").alias("cents")
    )


@pipeline(reads=PURCHASES, writes=Topic("trending", key="product"))
def trending(purchases: DataFrame) -> DataFrame:
    """What sold in the last five minutes, anew each minute."""
    windows = purchases.withWatermark("at", "10 seconds").groupBy(
        F.window("at", "5 minutes", "1 minute"), "product"
    )
    return windows.agg(F.count("*").alias("purchases")).select(
        "product",
        F.col("window.start").alias("since"),
        F.col("window.end").alias("until"),
        "purchases",
    )
