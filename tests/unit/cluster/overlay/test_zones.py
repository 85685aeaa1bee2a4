"""The space is divided without gaps, and everything for a point gets there."""

from __future__ import annotations

import random

import pytest

from entrepot.cluster.overlay.zones import Zone, ZoneMap, zones_of


@pytest.mark.parametrize(("count", "dimensions"), [(1, 2), (2, 1), (7, 2), (60, 4), (100, 3)])
def test_every_point_is_in_one_zone_and_is_reached(count: int, dimensions: int) -> None:
    chance = random.Random(count)
    zones = zones_of(count, dimensions)
    maps = [ZoneMap(zones, node) for node in range(count)]
    corners = [0.0, 0.25, 0.5, 1.0]
    for _ in range(200):
        point = [chance.choice([chance.random(), *corners]) for _ in range(dimensions)]
        holders = [node for node, zone in enumerate(zones) if zone.holds(point)]
        assert len(holders) == 1
        here, hops = chance.randrange(count), 0
        while (following := maps[here].next(point)) is not None:
            here, hops = following, hops + 1
            assert hops <= count
        assert [here] == holders


def test_neighbours_have_a_face_in_common() -> None:
    left, right = Zone((0.0, 0.0), (0.5, 0.5)), Zone((0.5, 0.0), (1.0, 0.25))
    corner, far = Zone((0.5, 0.5), (1.0, 1.0)), Zone((0.75, 0.0), (1.0, 0.5))
    assert left.touches(right)
    assert right.touches(left)
    assert not left.touches(corner)
    assert not left.touches(far)
