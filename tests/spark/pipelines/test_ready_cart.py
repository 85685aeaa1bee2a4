"""The shopping cart: what is ordered, billed, mailed and suspected."""

from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from entrepot.testing import broker
from examples.pipelines import cart
from tests.spark.pipelines.ready import live, received, send

START = datetime(2026, 3, 1, 12, 0)
FACT_COLUMNS = f"{cart.FACTS.schema}, _offset bigint"


def facts(spark: Any, told: list[tuple[str, str, str | None, int | None, int | None]]) -> Any:
    """Each is cart, event, item, quantity, cents; a minute apart."""
    rows = [
        (name, f"customer of {name}", f"{name}@example.org", *rest, START + timedelta(minutes=n), n)
        for n, (name, *rest) in enumerate(told)
    ]
    return spark.createDataFrame(rows[::-1], FACT_COLUMNS)


def test_an_order_is_what_was_left_in_the_cart(spark: Any) -> None:
    told = [
        ("a", "added", "pen", 2, 150),
        ("b", "added", "ink", 1, 900),
        ("a", "added", "ink", 3, 900),
        ("a", "removed", "ink", 1, None),
        ("b", "removed", "ink", 1, None),
        ("a", "added", "pen", 1, 140),
        ("a", "removed", "paper", 1, None),
        ("a", "added", "paper", -1, 10),
        ("a", "added", "paper", None, 10),
        ("a", "added", None, 1, 10),
        ("a", "stolen", "pen", 1, 10),
        ("b", "checked out", None, None, None),
        ("a", "checked out", None, None, None),
        ("a", "added", "pen", 1, 140),
        ("a", "checked out", None, None, None),
        ("a", "checked out", None, None, None),
    ]
    first, second = cart.orders(facts(spark, told)).orderBy("id").collect()
    assert {tuple(line) for line in first.lines} == {("pen", 3, 140), ("ink", 2, 900)}
    assert (first.id, first.customer, first.cents) == ("a-1", "customer of a", 3 * 140 + 2 * 900)
    assert (second.id, second.cents) == ("a-2", 140)
    assert first.at == START + timedelta(minutes=12)


def order(customer: str, minute: int, cents: int, email: str | None = "x@example.org") -> Any:
    at = START + timedelta(minutes=minute)
    return (f"{customer}-{minute}", customer, email, [("pen", 2, cents // 2)], cents, at)


def test_fraud_is_much_at_once(spark: Any) -> None:
    often = [order("often", minute, 100) for minute in (4, 1, 8)]
    seldom = [order("seldom", minute, 100) for minute in (1, 8, 11)]
    rich = [order("rich", 15, 1_000_000)]
    told = [(*row, offset) for offset, row in enumerate(often + seldom + rich)]
    frame = spark.createDataFrame(told[::-1], f"{cart.ORDER}, _offset bigint")
    found = {row.customer: row for row in cart.fraud(frame).collect()}
    assert set(found) == {"often", "rich"}
    assert (found["often"].order, found["often"].orders, found["often"].cents) == (
        "often-8",
        3,
        300,
    )


@pytest.mark.slow
def test_an_order_is_billed_with_its_tax(spark: Any) -> None:
    frame = spark.createDataFrame([order("a", 0, 11_900), order("b", 0, 100)], cart.ORDER)
    found = {row.customer: (row.cents, row.tax_cents) for row in cart.invoices(frame).collect()}
    assert found == {"a": (11_900, 1_900), "b": (100, 16)}


def test_an_email_says_what_was_bought(spark: Any) -> None:
    told = [order("a", 0, 301), order("b", 1, 100, email=None)]
    (mail,) = cart.emails(spark.createDataFrame(told, cart.ORDER)).collect()
    assert mail.to == "x@example.org"
    assert mail.subject == "Your order a-0"
    assert mail.text == "2 x pen, 1.50 each\nTotal: 3.01"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_live_one_checkout_reaches_all_three_services(spark: Any, tmp_path: Path) -> None:
    def fact(event: str, number: int, **more: Any) -> dict[str, Any]:
        who = {"cart": "a", "customer": "ann", "email": "ann@example.org"}
        return {**who, "event": event, "at": START + timedelta(minutes=number), **more}

    pen = {"item": "pen", "quantity": 2, "cents": 600_000}
    with broker() as server:
        send(server, "cart", [fact("added", 0, **pen)], "cart")
        with live(
            spark, cart, tmp_path, server, "orders", "fraud", "invoices", "emails"
        ) as running:
            send(server, "cart", [fact("checked out", 1)], "cart")
            running.drain()
            (invoice,) = running.view("invoices")
        assert (invoice.id, invoice.cents, invoice.tax_cents) == ("a-1", 1_200_000, 191_597)
        (alert,) = received(server, "fraud-alerts")
        assert (alert["customer"], alert["cents"]) == ("ann", 1_200_000)
        (mail,) = received(server, "emails")
        assert (mail["to"], mail["subject"]) == ("ann@example.org", "Your order a-1")
