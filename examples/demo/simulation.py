"""What the boxes and the customers of the demo do, and what must come of it.

One seed gives one story, to the last cent. Everything that the pipelines are to compute is
computed here, too, in plain Python from the plain list of what was sent, without a broker
and without Spark: two ways to the same numbers.

Reality is not tidy: one record in fifty is overtaken by others, by up to half a minute, and a
broken sensor sends what is not JSON at all.
"""

import json
import math
import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

START = datetime(2026, 3, 2, 8, tzinfo=UTC)
MINUTES = 20
BOXES = tuple(f"box {number}" for number in range(1, 7))
READING_EVERY_S = 10
ORDERS_PER_MINUTE = 60
POISON = 7
LATE_SHARE, LATE_S_MAX = 0.02, 30
CELSIUS_MAX = 8  # Above it the goods spoil.
# A lid that was left open: which box, from which minute, for how long.
OPEN_LIDS = (("box 2", 4, 5), ("box 5", 11, 6))


@dataclass(frozen=True, slots=True)
class Reading:
    box: str
    celsius: Decimal
    at: datetime


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    box: str
    cents: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Sent:
    """A record, and when it is sent, in seconds of the story."""

    second: float
    topic: str
    key: str
    value: bytes


@dataclass(frozen=True)
class Expected:
    readings: int
    orders: int
    cents: int
    warm: list[int]  # The orders that an alert must tell of, by their ids.
    sales: dict[tuple[str, datetime], tuple[int, int, int]]  # Orders, cents, warm ones.
    minutes: dict[tuple[str, datetime], tuple[int, Decimal]]  # Readings, mean temperature.


def temperature(box: str, second: float, chance: random.Random) -> Decimal:
    """Four degrees that swing a little, and a steep rise and slow fall around an open lid."""
    celsius = 4 + 0.8 * math.sin(second / 180 + BOXES.index(box)) + chance.gauss(0, 0.15)
    for open_box, minute, lasts in OPEN_LIDS:
        since = second / 60 - minute
        if box == open_box and since > 0:
            warmed = 1 - math.exp(-min(since, lasts) / 1.5)
            celsius += 8 * warmed * math.exp(-max(since - lasts, 0) / 1.5)
    return Decimal(celsius).quantize(Decimal("0.01"))


class Simulation:
    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        seconds = range(0, MINUTES * 60 + 1, READING_EVERY_S)
        self.readings = [
            Reading(box, temperature(box, second, chance), START + timedelta(seconds=second))
            for second in seconds
            for box in BOXES
        ]
        moments = sorted(
            chance.randrange(MINUTES * 60 * 1000) for _ in range(MINUTES * ORDERS_PER_MINUTE)
        )
        self.orders = [
            Order(number, chance.choice(BOXES), chance.randrange(500, 5000), at_ms(moment))
            for number, moment in enumerate(moments, 1)
        ]
        self._chance = chance

    def records(self) -> list[Sent]:
        """All there is to send, in the order in which it arrives."""
        chance = self._chance
        sent = [self._sent("readings", each, chance) for each in self.readings]
        sent += [self._sent("orders", each, chance) for each in self.orders]
        for number in range(POISON):
            second = (number + 0.5) * MINUTES * 60 / POISON
            sent.append(Sent(second, "readings", "box ?", f"%&/ {number}".encode()))
        return sorted(sent, key=lambda each: each.second)

    def _sent(self, topic: str, what: Reading | Order, chance: random.Random) -> Sent:
        second = (what.at - START).total_seconds()
        if chance.random() < LATE_SHARE:
            second += chance.uniform(0, LATE_S_MAX)
        return Sent(second, topic, what.box, json.dumps(dict(fields(what))).encode())

    def expected(self) -> Expected:
        said = {(each.box, each.at): each.celsius for each in self.readings}
        sales: dict[tuple[str, datetime], list[Order]] = defaultdict(list)
        temperatures: dict[tuple[str, datetime], list[Decimal]] = defaultdict(list)
        for order in self.orders:
            sales[order.box, to_minute(order.at)].append(order)
        for reading in self.readings:
            temperatures[reading.box, to_minute(reading.at)].append(reading.celsius)
        warm = [order.id for order in self.orders if said[next_reading(order)] > CELSIUS_MAX]
        is_warm = frozenset(warm)
        return Expected(
            readings=len(self.readings),
            orders=len(self.orders),
            cents=sum(order.cents for order in self.orders),
            warm=warm,
            sales={
                key: (
                    len(orders),
                    sum(order.cents for order in orders),
                    sum(order.id in is_warm for order in orders),
                )
                for key, orders in sales.items()
            },
            minutes={key: (len(found), mean(found)) for key, found in temperatures.items()},
        )


def at_ms(milliseconds: int) -> datetime:
    return START + timedelta(milliseconds=milliseconds)


def to_minute(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def next_reading(order: Order) -> tuple[str, datetime]:
    """Which one follows the order: boxes report every ten seconds."""
    passed = (order.at - START) // timedelta(seconds=READING_EVERY_S)
    return order.box, START + (passed + 1) * timedelta(seconds=READING_EVERY_S)


def mean(values: list[Decimal]) -> Decimal:
    """As SQL rounds it: four digits more than the values have."""
    exact = sum(values, Decimal(0)) / len(values)
    return exact.quantize(Decimal("0.000001"), ROUND_HALF_UP)


def fields(what: Reading | Order) -> Iterator[tuple[str, str | int | float]]:
    for name in what.__slots__:
        value = getattr(what, name)
        if isinstance(value, datetime):
            yield name, value.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        else:
            yield name, float(value) if isinstance(value, Decimal) else value
