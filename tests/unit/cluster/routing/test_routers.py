"""Each strategy alone: where subscriptions and events go, and where they do not."""

import pytest

from entrepot.cluster.overlay.graph import tree
from entrepot.cluster.routing.matching import filter_of
from entrepot.cluster.routing.messages import Delivery, Publication, Subscription
from entrepot.cluster.routing.routers import (
    Filtering,
    Flat,
    Flooding,
    Hierarchical,
    Rendezvous,
    Router,
)
from entrepot.lab.world import Rounds

CHEAP = filter_of(("topic", "=", "t"), ("price", "<", 10.0))
WIDE = filter_of(("topic", "=", "t"))
OTHER = filter_of(("topic", "=", "u"))
EVENT = {"topic": "t", "price": 5.0}


class House:
    """Routers over a tree of seven: 0 is the root, 1 and 2 its children, then four leaves."""

    def __init__(self, *, by_advertisement: bool = False) -> None:
        self.got: list[int] = []
        graph = tree(7, 2)
        self.routers = [
            Filtering(n, self.told(n), graph[n], by_advertisement=by_advertisement)
            for n in range(7)
        ]
        self.world = Rounds(self.routers)

    def told(self, node: int):  # type: ignore[no-untyped-def]
        return lambda publication: self.got.append(node)

    def subscribe(self, node: int, filter) -> int:  # type: ignore[no-untyped-def]
        """Return how many messages it took."""
        before = self.world.sent[Subscription]
        self.world.send(node, self.routers[node].subscribe(filter))
        return self.world.sent[Subscription] - before

    def publish(self, node: int) -> int:
        before = self.world.sent[Publication]
        self.world.send(node, self.routers[node].publish(EVENT))
        return self.world.sent[Publication] - before


def test_flooding_asks_nobody() -> None:
    got: list[int] = []
    graph = [[1, 2], [0, 2], [0, 1]]
    routers = [Flooding(n, lambda _, n=n: got.append(n), graph[n]) for n in range(3)]
    assert routers[1].subscribe(CHEAP) == ()
    world = Rounds(routers)
    world.send(0, routers[0].publish(EVENT))
    assert got == [1]
    assert world.sent[Publication] == 4


def test_paths_that_nobody_wants_are_pruned() -> None:
    house = House()
    assert house.publish(3) == 0
    house.subscribe(6, CHEAP)
    assert house.publish(3) == 4  # 3, 1, 0, 2, 6, and nowhere else.
    assert house.got == [6]
    house.subscribe(4, OTHER)
    assert house.publish(3) == 4


def test_a_subscription_that_is_covered_goes_no_further() -> None:
    house = House()
    assert house.subscribe(6, WIDE) == 6
    assert house.subscribe(5, CHEAP) == 2  # To node 2, and from there towards 6 only.
    assert house.publish(3) == 5
    assert sorted(house.got) == [5, 6]
    wider = House()
    wider.subscribe(6, CHEAP)
    assert wider.subscribe(6, WIDE) == 6  # It takes the other one's place.
    assert all(len(filters) <= 1 for router in wider.routers for filters in router._sent.values())


@pytest.mark.parametrize("early", [True, False])
def test_with_advertisements_subscriptions_go_only_to_publishers(early: bool) -> None:
    house = House(by_advertisement=True)
    if early:
        house.world.send(3, house.routers[3].advertise(WIDE))
    house.subscribe(6, CHEAP)
    house.subscribe(4, OTHER)
    if not early:
        house.world.send(3, house.routers[3].advertise(WIDE))
    assert house.world.sent[Subscription] == 4  # The way from 6 to 3.
    assert house.publish(3) == 4
    assert house.got == [6]


def meet(placement: Flat | Hierarchical) -> tuple[list[Router], Rounds, list[int]]:
    got: list[int] = []
    routers = [Rendezvous(n, lambda _, n=n: got.append(n), placement) for n in range(5)]
    return list(routers), Rounds(routers), got


def test_a_hash_of_the_topic_picks_the_node() -> None:
    placement = Flat(range(5))
    routers, world, got = meet(placement)
    world.send(1, routers[1].subscribe(CHEAP))
    (where,) = [n for n in range(5) if placement.next(n, "t") is None]
    assert routers[where].state == 1 + (where == 1)
    world.send(2, routers[2].publish(EVENT))
    world.send(2, routers[2].publish(EVENT | {"price": 50.0}))  # Judged where the topic is.
    assert got == [1]
    assert world.sent[Delivery] <= 1


def test_a_master_distributes_to_workers() -> None:
    placement = Hierarchical(0, [3, 4])
    held = []
    for topic in ("t", "u", "v", "w"):
        routers, world, _ = meet(placement)
        world.send(1, routers[1].subscribe(filter_of(("topic", "=", topic))))
        held += [n for n in (0, 2, 3, 4) if routers[n].state]
    assert set(held) == {3, 4}  # Each has a part; the master has nothing.
    routers, world, got = meet(placement)
    world.send(1, routers[1].subscribe(CHEAP))
    world.send(2, routers[2].publish(EVENT))
    assert got == [1]
    assert world.sent[Publication] == 2  # To the master, to a worker.


def test_a_rendezvous_needs_a_topic() -> None:
    routers, _, _ = meet(Flat(range(5)))
    with pytest.raises(ValueError, match="names none"):
        routers[0].subscribe(filter_of(("price", "<", 10.0)))
