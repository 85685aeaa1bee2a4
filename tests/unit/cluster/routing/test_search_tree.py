"""The tree finds who asking every filter would find, and asks fewer."""

from __future__ import annotations

import random

from entrepot.cluster.routing.matching import Event, filter_of
from entrepot.cluster.routing.search_tree import SearchTree

COMPANIES = [f"company {number}" for number in range(50)]


def test_who_wants_an_event() -> None:
    chance = random.Random(1)
    tree: SearchTree[int] = SearchTree()
    filters = []
    for number in range(2_000):
        price = float(chance.randrange(100))
        wish = [
            ("company", "=", chance.choice(COMPANIES)),
            ("price", chance.choice("<>"), price),
            ("price", "<", price + 30),
            ("kind", "below", chance.choice(["stock", "stock/tech", "bond"])),
        ]
        filters.append(filter_of(*chance.sample(wish, chance.randrange(1, 4))))
        tree.add(filters[-1], number)
    for _ in range(100):
        event: Event = {
            "company": chance.choice(COMPANIES),
            "price": float(chance.randrange(100)),
            "kind": chance.choice(["stock", "stock/tech", "bond/state", "stocks"]),
        }
        expected = [number for number, each in enumerate(filters) if each.matches(event)]
        assert sorted(tree.match(event)) == expected
        assert expected
    assert tree.steps < 100 * len(filters) / 2


def test_a_filter_without_conditions_wants_everything() -> None:
    tree: SearchTree[str] = SearchTree()
    tree.add(filter_of(), "all")
    tree.add(filter_of(("a", "=", 1.0)), "some")
    assert [*tree.match({})] == ["all"]
    assert sorted(tree.match({"a": 1.0})) == ["all", "some"]
