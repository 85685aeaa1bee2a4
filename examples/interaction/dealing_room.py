"""A dealing room: information providers publish quotations, dealers get those that they deal in.

Providers know no dealer, and dealers no provider. Each dealer says what it wants, by name or by
content, and may change its mind; what nobody wants is sent to nobody.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from examples.interaction.room import eventually, room

QUOTATIONS: dict[str, list[tuple[str, str, float]]] = {
    "Reuters": [("tech", "IBM", 170.0), ("tech", "Telco", 120.0), ("energy", "Oil", 80.0)],
    "Nasdaq": [("tech", "Telco", 90.0), ("tech", "IBM", 165.0), ("food", "Pasta", 3.0)],
}
DEALERS: dict[str, tuple[str, str | None]] = {
    "ana": ("quotations.tech.#", None),
    "bert": ("quotations.#", '{(company, =, "Telco"), (price, <, 100)}'),
    "carla": ("quotations.energy.*", None),
    "dora": ("quotations.#", "price < 100"),
}


def main() -> None:
    screens: dict[str, list[str]] = {dealer: [] for dealer in DEALERS}

    def showing(dealer: str) -> Callable[[Any, Any], None]:
        def show(_: Any, event: Any) -> None:
            screens[dealer].append(f"{event.headers['company']} {event.headers['price']:g}")

        return show

    with room() as (_, connect):
        handles = {
            dealer: connect().subscribe(name, showing(dealer), where=where)
            for dealer, (name, where) in DEALERS.items()
        }
        providers = {provider: connect() for provider in QUOTATIONS}
        for provider, quotations in QUOTATIONS.items():
            for sector, company, price in quotations:
                subject = f"quotations.{sector}.{company}"
                headers = {"company": company, "price": price}
                providers[provider].publish(subject, price, headers=headers)
        eventually(lambda: len(screens["dora"]) == 3)
        eventually(lambda: len(screens["ana"]) == 4)
        handles["dora"].unsubscribe()
        headers = {"company": "Telco", "price": 70.0}
        providers["Reuters"].publish("quotations.tech.Telco", 70.0, headers=headers)
        eventually(lambda: len(screens["ana"]) == 5)
        eventually(lambda: len(screens["bert"]) == 2)
    for dealer, shown in screens.items():
        print(f"{dealer}: {', '.join(sorted(shown))}")


if __name__ == "__main__":
    main()
