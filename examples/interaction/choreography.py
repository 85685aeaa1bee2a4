"""Choreography: services that react to events with events, and nobody who tells them what to do.

An order is placed; payment hears of it and says that it is paid, or refused; the warehouse hears
that it is paid and says that it is packed; shipping hears that it is packed. No service knows
another. Each keeps its subscription while it is away: shipping comes late here, and misses nothing.
In the end somebody adds a service that writes letters, and touches none of the others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import entrepot
from examples.interaction.room import Connect, eventually, room

LIMIT = 500
ORDERS = [("o-1", 90), ("o-2", 700), ("o-3", 120)]

React = Callable[[dict[str, Any]], str | None]


def service(client: entrepot.Client, name: str, hears: str, react: React) -> None:
    """Subscribe durably, and publish what the reaction says has happened."""

    def heard(_: object, event: Any) -> None:
        happened = react(event.value)
        if happened is not None:
            client.publish(happened, event.value)

    client.subscribe(hears, heard, durable=name)


def payment(order: dict[str, Any]) -> str:
    return "order.paid" if order["euros"] <= LIMIT else "order.refused"


def main() -> None:
    history: dict[str, list[str]] = {id: [] for id, _ in ORDERS}
    with room() as (_, connect):
        watch(connect, history)
        service(connect(), "payment", "order.placed", payment)
        service(connect(), "warehouse", "order.paid", lambda order: "order.packed")
        customer = connect()
        away = connect()
        service(away, "shipping", "order.packed", lambda order: "order.shipped")
        away.close()
        for id, euros in ORDERS:
            customer.publish("order.placed", {"id": id, "euros": euros})
        eventually(lambda: history["o-3"][-1:] == ["packed"])
        print("shipping is away: o-3 is", history["o-3"][-1])
        service(connect(), "shipping", "order.packed", lambda order: "order.shipped")
        eventually(lambda: history["o-3"][-1:] == ["shipped"])
        service(connect(), "letters", "order.shipped", lambda order: "letter.written")
        customer.publish("order.placed", {"id": "o-3", "euros": 20})
        eventually(lambda: history["o-3"][-1:] == ["written"])
    for id, events in history.items():
        print(f"{id}: {', '.join(events)}")


def watch(connect: Connect, history: dict[str, list[str]]) -> None:
    """Write down what happens to each order: a listener as any other."""

    def heard(_: object, event: Any) -> None:
        history[event.value["id"]].append(event.subject.partition(".")[2])

    listener = connect()
    for what in ("order.*", "letter.*"):
        listener.subscribe(what, heard)


if __name__ == "__main__":
    main()
