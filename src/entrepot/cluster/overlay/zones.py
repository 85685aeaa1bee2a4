"""A space of several dimensions, divided among nodes: a content-addressable network, as CAN has it.

Every node has a zone, a box of the space, and knows the zones that touch a face of its own. What is
for a point goes from neighbour to neighbour, each time to the one that is nearest to the point. All
coordinates are from 0 to 1; a zone has its lower faces, and its upper ones only at 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

Point = Sequence[float]


class Zone(NamedTuple):
    low: tuple[float, ...]
    high: tuple[float, ...]

    def distance(self, point: Point) -> tuple[float, int]:
        """Return the square of how far a point is from the zone, and on how many upper faces it is:
        these are of another zone, which is that little nearer. (0, 0) is inside."""
        square, faces = 0.0, 0
        for low, high, each in zip(self.low, self.high, point, strict=True):
            square += max(low - each, 0.0, each - high) ** 2
            faces += each == high != 1.0
        return square, faces

    def holds(self, point: Point) -> bool:
        return self.distance(point) == (0.0, 0)

    def touches(self, other: Zone) -> bool:
        """Return whether they have a face in common, or a part of one."""
        faces = 0
        for low, high, low_2, high_2 in zip(*self, *other, strict=True):
            if low == high_2 or high == low_2:
                faces += 1
            elif low >= high_2 or high <= low_2:
                return False
        return faces == 1


def zones_of(count: int, dimensions: int) -> list[Zone]:
    """Divide the space among so many nodes: halved again and again, in one dimension after another.

    It is what comes of nodes that join one by one, each where the zones are largest.
    """
    zones = [Zone((0.0,) * dimensions, (1.0,) * dimensions)]
    while len(zones) < count:
        depth = len(zones).bit_length() - 1
        zones.extend(_halve(zones, len(zones) - (1 << depth), depth % dimensions))
    return zones


def _halve(zones: list[Zone], index: int, dimension: int) -> list[Zone]:
    """Halve a zone in place; return its other half."""
    zone = zones[index]
    middle = (zone.low[dimension] + zone.high[dimension]) / 2
    low, high = [*zone.low], [*zone.high]
    low[dimension] = high[dimension] = middle
    zones[index] = Zone(zone.low, tuple(high))
    return [Zone(tuple(low), zone.high)]


class ZoneMap:
    """What one node knows: its own zone, and those of its neighbours.

    Zone `index` is its own; `nodes` are the numbers of the zones' nodes, by default the same.
    """

    def __init__(self, zones: Sequence[Zone], index: int, nodes: Sequence[int] = ()) -> None:
        self.mine = zones[index]
        self.neighbours = {
            nodes[number] if nodes else number: zone
            for number, zone in enumerate(zones)
            if number != index and zone.touches(self.mine)
        }

    def next(self, point: Point) -> int | None:
        """Return the neighbour that is nearest to a point; None if the point is ours."""
        if self.mine.holds(point):
            return None
        return min(self.neighbours, key=lambda peer: (self.neighbours[peer].distance(point), peer))
