from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from entrepot.core import limits
from entrepot.linking.table import Announcement, RoutingTable

LATE_S = limits.LINK_ROUTES_KEPT_MS / 1_000


def table(own: str = "paris", *neighbours: str, **routes: str) -> RoutingTable:
    return RoutingTable(own, neighbours, routes, {})


def test_own_queues_neighbours_and_strangers() -> None:
    found = table("paris", "london")
    assert found.queue_for("orders@paris") == "orders"
    assert found.queue_for("orders@london") == "link.london"
    assert found.queue_for("orders@tokyo") is None
    assert found.queue_for("orders") is None
    assert found.queue_for("@london") is None
    assert found.queue_for("a@b@london") == "link.london"


def test_routes_by_hand() -> None:
    found = RoutingTable("paris", ["london"], {"tokyo": "london"}, {"stock": "tokyo"})
    assert found.queue_for("orders@tokyo") == "link.london"
    assert found.queue_for("stock") == "link.london"
    assert found.target("stock") == ("stock", "tokyo")
    assert [(row.manager, row.via, row.source) for row in found.rows()] == [
        ("paris", "", "own"),
        ("london", "london", "link"),
        ("tokyo", "london", "set"),
    ]


def test_routes_are_learned_and_forgotten() -> None:
    found = table("paris", "london", "rome")
    told = Announcement("london", {"london": 0, "tokyo": 1, "paris": 1}, {"stock": "tokyo"})
    assert found.hear(told, 0.0)
    assert found.next_hop("tokyo") == "london"
    assert found.queue_for("stock") == "link.london"
    shorter = Announcement("rome", {"rome": 0, "tokyo": 0}, {})
    assert found.hear(shorter, 10.0)
    assert found.next_hop("tokyo") == "rome"
    found.expire(LATE_S + 1)
    assert found.queue_for("stock") is None
    assert found.next_hop("tokyo") == "rome"
    found.expire(LATE_S + 11)
    assert found.next_hop("tokyo") is None
    assert found.next_hop("rome") == "rome"


def test_strangers_are_not_listened_to() -> None:
    found = table("paris", "london")
    assert not found.hear(Announcement("moscow", {"tokyo": 0}), 0.0)
    assert not found.hear(Announcement("paris", {"tokyo": 0}), 0.0)
    assert found.next_hop("tokyo") is None


def test_a_neighbour_is_not_told_what_it_told_us() -> None:
    found = table("paris", "london", "rome")
    found.announce_queues(["orders"])
    found.hear(Announcement("london", {"london": 0, "tokyo": 1}, {"stock": "tokyo"}), 0.0)
    told = found.announcement("rome")
    assert told.distances == {"paris": 0, "london": 1, "tokyo": 2}
    assert told.queues == {"orders": "paris", "stock": "tokyo"}
    told = found.announcement("london")
    assert told.distances == {"paris": 0, "rome": 1}
    assert told.queues == {"orders": "paris"}


def test_what_is_too_much_or_cannot_be_is_left_out() -> None:
    found = table("paris", "london")
    queues = {f"q{number}": "london" for number in range(limits.LINK_QUEUES_ANNOUNCED_MAX + 5)}
    found.hear(Announcement("london", {"x": -1, "": 1, "far": 99}, {"a@b": "x", **queues}), 0.0)
    assert [row.manager for row in found.rows()] == ["paris", "london"]
    assert found.target("a@b") == ("a", "b")
    assert found.queue_for(f"q{limits.LINK_QUEUES_ANNOUNCED_MAX}") is None


PAIRS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=12)


@given(PAIRS)
def test_everybody_learns_the_shortest_ways(pairs: list[tuple[int, int]]) -> None:
    """Links in both directions. When all have told each other, every message arrives."""
    edges = {frozenset(pair) for pair in pairs if pair[0] != pair[1]}
    names = [f"m{number}" for number in range(7)]
    near = {
        name: [other for other in names if frozenset((int(name[1]), int(other[1]))) in edges]
        for name in names
    }
    tables = {name: RoutingTable(name, near[name], {}, {}) for name in names}
    for _ in names:
        told = [
            (name, other, tables[name].announcement(other))
            for name in names
            for other in near[name]
        ]
        for _, other, announcement in told:
            tables[other].hear(announcement, 0.0)
    for start in names:
        distances = _distances(near, start)
        for goal in names:
            steps, here = 0, start
            while here != goal:
                hop = tables[here].next_hop(goal)
                if hop is None:
                    break
                here, steps = hop, steps + 1
                assert steps < len(names), "it goes round"
            assert (here == goal) == (goal in distances)
            assert here != goal or steps == distances[goal]


def _distances(near: dict[str, list[str]], start: str) -> dict[str, int]:
    found, pending = {start: 0}, [start]
    for name in pending:
        for other in near[name]:
            if other not in found:
                found[other] = found[name] + 1
                pending.append(other)
    return found
