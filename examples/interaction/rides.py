"""Cars and riders are matched, as Uber does it: by where they are, while that is new.

Cars write where they are into a space, for as long as a position is worth something; riders write
that they wait. Several matchers make rides of them: each takes a rider and a car of the same cell
and writes the ride, at once or not at all. So no car gets two riders, however many matchers there
are and whoever of them dies.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import Any

import entrepot
from examples.interaction.room import WAIT_S, eventually, room

CELLS, RIDERS, MATCHERS = 4, 24, 3
FRESH_S, STALE_S = 60.0, 0.01


def match(space: Any, cell: int) -> bool:
    """Make a ride of a rider and a car of a cell. False means: there are not both."""
    while True:
        try:
            with space.transaction() as transaction:
                _, _, rider = transaction.take("rider", cell, str, timeout_s=0)
                _, _, car = transaction.take("car", cell, str, timeout_s=0)
                transaction.write("ride", rider, car)
                return True
        except entrepot.Conflict:
            continue  # Another matcher was faster.
        except TimeoutError:
            return False


def match_all(space: Any) -> None:
    for cell in range(CELLS):
        while match(space, cell):
            pass


def main() -> None:
    with room() as (_, connect):
        space = connect().space("city")
        for number in range(CELLS):
            space.write("car", number, f"gone {number}", lease_s=STALE_S)
        for number in range(RIDERS + CELLS):
            space.write("car", number % CELLS, f"car {number}", lease_s=FRESH_S)
        for number in range(RIDERS):
            space.write("rider", number % CELLS, f"rider {number}")
        spaces = [connect().space("city") for _ in range(MATCHERS)]
        matchers = [threading.Thread(target=match_all, args=(each,)) for each in spaces]
        for each in matchers:
            each.start()
        for each in matchers:
            each.join(WAIT_S)
        rides = [space.take("ride", str, str, timeout_s=WAIT_S) for _ in range(RIDERS)]
        eventually(lambda: len(space) == CELLS)
        cars = Counter(car for _, _, car in rides)
        print(len({rider for _, rider, _ in rides}), "riders have a car each")
        print("cars with two riders:", sum(count > 1 for count in cars.values()))
        print("cars that are not there any more:", sum("gone" in car for car in cars))
        print("cars that are free:", len(space))


if __name__ == "__main__":
    main()
