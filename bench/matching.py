"""What it costs to find who wants an event, with few subscriptions and with very many.

    python -m bench.matching

Each subscription is a conjunction of three predicates on an event's headers, as in the lectures:
a company, a price below something, a volume above something. Events are of companies at random.
The broker's own index is asked, in this process. The last column divides by the first row.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable

from entrepot.broker.selector import Selector
from entrepot.broker.selector_index import SelectorIndex
from entrepot.core.properties import Properties

COUNTS = (100, 1_000, 10_000, 100_000)
COMPANIES = 10_000
EVENTS = 2_000
ROUNDS = 3

Make = Callable[[random.Random], str]


def triples(chance: random.Random) -> str:
    company, price = chance.randrange(COMPANIES), chance.randrange(1, 1_000)
    return f'{{(company,=,"c{company}"),(price,<,{price}),(volume,>,{chance.randrange(10_000)})}}'


def intervals(chance: random.Random) -> str:
    """Return predicates without any equality: narrow intervals of a price."""
    price = chance.randrange(1_000_000)
    return (
        f"price BETWEEN {price} AND {price + 100} AND volume > {chance.randrange(10_000)}"
        f" AND region <> 'r{chance.randrange(10)}'"
    )


def event(chance: random.Random) -> Properties:
    return Properties(
        headers={
            "company": f"c{chance.randrange(COMPANIES)}",
            "price": chance.randrange(1_000_000 if chance.random() < 0.5 else 1_000),
            "volume": chance.randrange(20_000),
            "region": f"r{chance.randrange(10)}",
        }
    )


def main() -> None:
    print(f"{EVENTS} events, the best of {ROUNDS} rounds\n")
    for name, make in (("company =, price <, volume >", triples), ("intervals only", intervals)):
        print(f"{name}\n{'subscriptions':>14} {'us an event':>12} {'matches':>9} {'ratio':>7}")
        first = 0.0
        for count in COUNTS:
            took, matches = measure(make, count)
            first = first or took
            print(f"{count:>14,} {took * 1e6:>12.2f} {matches:>9.2f} {took / first:>7.1f}")
        print()


def measure(make: Make, count: int) -> tuple[float, float]:
    """Return the seconds and the matches of one event, on average."""
    chance = random.Random(count)
    index = SelectorIndex[int]()
    for number in range(count):
        index.get_or_add(Selector(make(chance)), lambda number=number: number)  # type: ignore[misc]
    events = [event(chance) for _ in range(EVENTS)]
    best, matches = float("inf"), 0
    for _ in range(ROUNDS):
        started = time.perf_counter()
        matches = sum(len(index.match(each)) for each in events)
        best = min(best, time.perf_counter() - started)
    return best / EVENTS, matches / EVENTS


if __name__ == "__main__":
    main()
