"""A shopping cart: what is put in and taken out is a fact, and three services live on it.

    cart ── orders ──> orders ──┬── fraud ────> fraud-alerts
                                ├── invoices ─> Delta view
                                └── emails ───> emails

A cart is not a row that is overwritten but the sum of what was done to it, so what was taken
out again is known, too. Checking out makes an order of it. Fraud, billing and e-mail each
read the orders at their own pace; none knows of the others, and a fourth would be one more
function. Facts have their cart as the key, orders their customer.

    python -m examples.pipelines.feed cart
    entrepot pipeline run examples/pipelines/cart.py orders --live
    entrepot pipeline run examples/pipelines/cart.py fraud invoices emails --live
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor

from entrepot.spark.pipelines import Delta, Topic, pipeline

LINES = "array<struct<item: string, quantity: bigint, cents: bigint>>"
FACTS = Topic(
    "cart",
    schema="cart string, customer string, email string, event string, item string,"
    " quantity bigint, cents bigint, at timestamp",
)
ORDER_BUT_TIME = f"id string, customer string, email string, lines {LINES}, cents bigint"
ORDER = f"{ORDER_BUT_TIME}, at timestamp"
ORDERS = Topic("orders", schema=ORDER)

FRAUD_WINDOW_MICROS = 10 * 60 * 1_000_000
FRAUD_ORDERS = 3  # So many within the window are suspicious,
FRAUD_CENTS = 1_000_000  # and so is so much money.
TAX_PERCENT = 19  # Contained in the prices.
QUANTITY_MAX, CENTS_MAX = 10_000, 10**9  # Of one fact. More is a mistake of the shop.


class Collecting(StatefulProcessor):
    """One cart: its lines, from the first item to the checkout."""

    def init(self, handle: Any) -> None:
        self._lines = handle.getValueState("lines", f"lines {LINES}, checkouts bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        kept, checkouts = self._lines.get() or ([], 0)
        lines = {item: (quantity, cents) for item, quantity, cents in kept}
        for fact in sorted(rows, key=lambda row: row._offset):
            if fact.event == "added":
                lines[fact.item] = (lines.get(fact.item, (0,))[0] + fact.quantity, fact.cents)
            elif fact.event == "removed" and fact.item in lines:
                quantity, cents = lines.pop(fact.item)
                if quantity > fact.quantity:
                    lines[fact.item] = (quantity - fact.quantity, cents)
            elif fact.event == "checked out" and lines:
                checkouts += 1
                yield order(key[0], checkouts, fact, lines)
                lines = {}
        self._lines.update(([(item, *rest) for item, rest in lines.items()], checkouts))

    def close(self) -> None:
        """Nothing to give back."""


def order(cart: str, checkouts: int, checkout: Any, lines: dict[str, tuple[int, int]]) -> Row:
    return Row(
        id=f"{cart}-{checkouts}",
        customer=checkout.customer,
        email=checkout.email,
        lines=[Row(item=item, quantity=n, cents=cents) for item, (n, cents) in lines.items()],
        cents=sum(quantity * cents for quantity, cents in lines.values()),
        at=checkout.at,
    )


@pipeline(reads=FACTS, writes=Topic(ORDERS.name, key="customer"))
def orders(facts: DataFrame) -> DataFrame:
    """What was in the cart when it was checked out. An empty cart gives no order.

    A fact that makes no sense, like one of minus two pens, is passed over.
    """
    named = F.col("item").isNotNull() & F.col("quantity").between(1, QUANTITY_MAX)
    event = F.col("event")
    sensible = (
        ((event == "added") & named & F.col("cents").between(0, CENTS_MAX))
        | ((event == "removed") & named)
        | (event == "checked out")
    )
    carts = with_micros(facts.where(sensible)).groupBy("cart")
    found = carts.transformWithState(
        Collecting(), f"{ORDER_BUT_TIME}, at bigint", outputMode="append", timeMode="none"
    )
    return found.withColumn("at", F.timestamp_micros("at"))


def with_micros(frame: DataFrame) -> DataFrame:
    """Its time as a number: in Python a time without a zone would depend on the machine."""
    return frame.withColumn("at", F.unix_micros("at"))


class Watching(StatefulProcessor):
    """One customer's orders of the last minutes, by the times that the orders bear."""

    def init(self, handle: Any) -> None:
        self._recent = handle.getValueState(
            "recent", "orders array<struct<at: bigint, cents: bigint>>"
        )

    def handleInputRows(self, key: Any, rows: Iterator[Row], timerValues: Any) -> Iterator[Row]:  # noqa: N802, N803
        recent = [(at, cents) for at, cents in (self._recent.get() or ([],))[0]]
        for order in sorted(rows, key=lambda row: row._offset):
            recent.append((order.at, order.cents))
            since = max(at for at, _ in recent) - FRAUD_WINDOW_MICROS
            recent = [(at, cents) for at, cents in recent if at > since]
            cents = sum(cents for _, cents in recent)
            if len(recent) >= FRAUD_ORDERS or cents >= FRAUD_CENTS:
                yield Row(customer=key[0], order=order.id, orders=len(recent), cents=cents)
        self._recent.update((recent,))

    def close(self) -> None:
        """Nothing to give back."""


@pipeline(reads=ORDERS, writes=Topic("fraud-alerts", key="customer"))
def fraud(orders: DataFrame) -> DataFrame:
    """Too many orders, or too much money, of one customer in too short a time.

    Told of the order that is too much, and of every further one.
    """
    timed = orders.where("at is not null and cents is not null")
    return (
        with_micros(timed)
        .groupBy("customer")
        .transformWithState(
            Watching(),
            "customer string, order string, orders bigint, cents bigint",
            outputMode="append",
            timeMode="none",
        )
    )


@pipeline(reads=ORDERS, writes=Delta("invoices", keys=["id"]))
def invoices(orders: DataFrame) -> DataFrame:
    """One per order, under its id: an order that came twice would be billed once."""
    tax = F.round(F.col("cents") * TAX_PERCENT / (100 + TAX_PERCENT)).cast("bigint")
    return orders.select("id", "customer", "lines", "cents", tax.alias("tax_cents"), "at")


@pipeline(reads=ORDERS, writes=Topic("emails", key="to"))
def emails(orders: DataFrame) -> DataFrame:
    """What a mailer has to send."""
    line = F.transform(
        "lines",
        lambda line: F.format_string(
            "%d x %s, %.2f each", line["quantity"], line["item"], line["cents"] / 100
        ),
    )
    total = F.format_string("Total: %.2f", F.col("cents") / 100)
    return orders.where(F.col("email").isNotNull()).select(
        F.col("email").alias("to"),
        F.concat(F.lit("Your order "), "id").alias("subject"),
        F.concat_ws("\n", line, total).alias("text"),
    )
