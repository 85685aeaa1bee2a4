"""Something for the pipelines of this directory to work on.

    python -m examples.pipelines.feed cart
    python -m examples.pipelines.feed cart -b 127.0.0.1:9092

makes the topics that `cart.py` reads and sends a handful of records; as often as you like, the
times in them being those of now.
"""

import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

Row = dict[str, Any]
Feed = dict[str, tuple[str, list[Row]]]  # By topic: the field that is the key, and the rows.

NOW = datetime.now(UTC)


def at(minute: float) -> str:
    """Return the time so many minutes after an hour ago."""
    return (NOW + timedelta(minutes=minute - 60)).isoformat()


def cart() -> Feed:
    told = [
        ("added", "pen", 2, 150),
        ("added", "ink", 1, 900),
        ("removed", "pen", 1, None),
        ("checked out", None, None, None),
    ]
    whose = {"cart": "c-1", "customer": "ana", "email": "ana@example.org"}
    facts = [
        whose | {"event": event, "item": item, "quantity": quantity, "cents": cents, "at": at(n)}
        for n, (event, item, quantity, cents) in enumerate(told)
    ]
    return {"cart": ("cart", facts), "orders": ("customer", [])}


def change_data_capture() -> Feed:
    """What the connector would send, had it followed a table through three changes."""
    poor = {"id": 1, "name": "Ana", "city": "Lisbon", "credit_cents": 0}
    rich = poor | {"credit_cents": 5_000}
    steps = [("insert", None, poor), ("update", poor, rich), ("delete", rich, None)]
    changes = [
        {"op": op, "table": "customers", "id": n, "at": at(n), "before": before, "after": after}
        for n, (op, before, after) in enumerate(steps)
    ]
    return {"customer-changes": ("table", changes)}


def event_sourcing() -> Feed:
    told = [("open", None), ("deposit", 5_000), ("withdraw", 1_200), ("withdraw", 9_000)]
    commands = [
        {"id": f"k-{n}", "account": "ana", "action": action, "cents": cents, "seen": None}
        | {"at": at(n)}
        for n, (action, cents) in enumerate(told)
    ]
    return {
        "account-commands": ("account", commands),
        "account-events": ("account", []),
        "account-snapshots": ("account", []),
    }


def kappa_lambda() -> Feed:
    bought = [("ana", 1_200, 0), ("bo", 900, 10), ("ana", 300, 59)]
    return {
        "orders": (
            "customer",
            [
                {"id": n, "customer": customer, "cents": cents, "at": at(minute)}
                for n, (customer, cents, minute) in enumerate(bought)
            ],
        )
    }


def lake_warehouse_mart() -> Feed:
    bought = [
        ("pen", "PT", 150, 0),
        ("ink", "PT", 900, 5),
        ("pen", "FR", 150, 59),
        ("ink", "FR", -1, 6),
    ]
    purchases = [
        {"id": f"p-{n}", "product": product, "country": country, "cents": cents, "at": at(minute)}
        for n, (product, country, cents, minute) in enumerate(bought)
    ]
    return {"purchases": ("id", [*purchases, purchases[0]])}  # The first is sent again.


def newspaper() -> Feed:
    nothing = dict.fromkeys(("name", "title", "text", "author", "tags", "images"))
    article = {"title": "Tides", "text": "…", "author": "a-1", "tags": ["t-1"], "images": []}
    facts = [
        nothing | {"kind": "author", "id": "a-1", "name": "Ada"},
        nothing | {"kind": "tag", "id": "t-1", "name": "sea"},
        nothing | {"kind": "article", "id": "n-1"} | article,
        nothing | {"kind": "author", "id": "a-1", "name": "Ada Lovelace"},
    ]
    return {"newspaper": ("id", facts)}


def sensors() -> Feed:
    """Two boxes for an hour, and at the end one that is too warm."""
    readings = [
        {"device": device, "celsius": level + math.sin(minute / 10) / 10, "at": at(minute)}
        for minute in range(60)
        for device, level in (("box 1", 4.0), ("box 2", 7.0))
    ]
    return {"readings": ("device", [*readings, {"device": "box 1", "celsius": 30.0, "at": at(60)}])}


def streams() -> Feed:
    orders = [
        {"id": f"o-{n}", "customer": customer, "cents": cents, "at": at(n)}
        for n, (customer, cents) in enumerate([("ana", 12_000), ("bo", 900), ("ana", 300)])
    ]
    return {
        "orders": ("id", orders),
        "shop-orders": ("id", [{"id": "s-1", "customer": "cy", "cents": 700, "at": at(9)}]),
        "payments": ("order_id", [{"order_id": "o-1", "paid_cents": 900, "paid_at": at(20)}]),
        "reviews": ("id", [{"id": "r-1", "text": "good pens good ink"}]),
        "customers": ("customer", [{"customer": "ana", "country": "PT"}]),
    }


FEEDS: dict[str, Callable[[], Feed]] = {
    each.__name__: each
    for each in (
        cart,
        change_data_capture,
        event_sourcing,
        kappa_lambda,
        lake_warehouse_mart,
        newspaper,
        sensors,
        streams,
    )
}


def entrepot(*arguments: str, lines: Iterable[str] = ()) -> None:
    command = [sys.executable, "-m", "entrepot.cli", *arguments]
    subprocess.run(command, input="".join(f"{line}\n" for line in lines), text=True, check=True)


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in FEEDS:
        sys.exit(f"python -m examples.pipelines.feed {'|'.join(FEEDS)} [-b HOST:PORT]")
    where = arguments[1:]
    for topic, (key, rows) in FEEDS[arguments[0]]().items():
        policy = ("--set", "cleanup.policy=compact") if topic == "account-snapshots" else ()
        entrepot("topics", "create", topic, "--if-not-exists", *policy, *where)
        lines = [f"{row[key]}\t{json.dumps(row, ensure_ascii=False)}" for row in rows]
        if lines:
            entrepot("produce", topic, "--key-separator", "\t", *where, lines=lines)


if __name__ == "__main__":
    main(sys.argv[1:])
