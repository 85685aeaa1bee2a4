"""The lab of event routing: one workload by every strategy, the same deliveries, other costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from entrepot.cluster.gossip.framework import Machine, Peer, Stack
from entrepot.cluster.gossip.peers import Others, Uniform
from entrepot.cluster.overlay.chord import Chord
from entrepot.cluster.overlay.graph import random_mesh, tree
from entrepot.cluster.routing.matching import Event, Filter, filter_of
from entrepot.cluster.routing.messages import Publication
from entrepot.cluster.routing.routers import (
    Deliver,
    Filtering,
    Flat,
    Flooding,
    Hierarchical,
    Informed,
    OnRing,
    Rendezvous,
    Router,
)
from entrepot.lab.table import Lab, Table
from entrepot.lab.ways import ring_of
from entrepot.lab.world import Rounds, SeededEntropy

TOPICS = ("stocks/eu", "stocks/us", "bonds", "news")
COMPANIES = ("Telco", "FooBar", "Acme")
PUBLISHERS = 4  # Each of its own topic: an advertisement says so.
SETTLING_ROUNDS = 12
EVENTS_PER_ROUND = 5
EVENT_KINDS = (
    "Publication",
    "Delivery",
    "Held",
    "Wanted",
    "Addressed",
    "GroupSend",
    "GroupMessage",
)
SET_UP_KINDS = ("Subscription", "Advertisement", "Interests", "GroupJoin")

Delivered = Counter[tuple[Peer, int]]  # Which node got which event, and how often.


@dataclass(frozen=True, slots=True)
class Workload:
    """A dealing room: dealers that each want quotations of some kind, and a few who publish."""

    subscriptions: list[tuple[Peer, Filter]]
    advertisements: list[tuple[Peer, Filter]]
    events: list[tuple[Peer, Event]]

    def expected(self) -> Delivered:
        wanted: dict[Peer, list[Filter]] = {}
        for peer, filter in self.subscriptions:
            wanted.setdefault(peer, []).append(filter)
        return Counter(
            (peer, number)
            for number, (_, event) in enumerate(self.events)
            for peer, filters in wanted.items()
            if any(filter.matches(event) for filter in filters)
        )


class Model(Enum):
    """What a subscription says."""

    TOPIC = "topic"
    SUBJECT = "topic, with wildcards"
    CONTENT = "content"
    BOTH = "topic and content"


def dealing_room(count: int, events: int, seed: int, model: Model = Model.BOTH) -> Workload:
    entropy = SeededEntropy(seed)
    subscriptions = []
    for node in range(count):
        if node % 2:  # Half of the nodes have subscribers.
            topic = TOPICS[entropy.below(len(TOPICS))]
            price = float(20 * (1 + entropy.below(5)))
            company = COMPANIES[entropy.below(len(COMPANIES))]
            subscriptions.append((node, _wish(model, topic, price, company)))
    publishers = [count * index // PUBLISHERS for index in range(PUBLISHERS)]
    advertisements = [
        (node, filter_of(("topic", "=", topic)))
        for node, topic in zip(publishers, TOPICS, strict=True)
    ]
    sent: list[tuple[Peer, Event]] = []
    for number in range(events):
        index = entropy.below(PUBLISHERS)
        event: Event = {
            "company": COMPANIES[entropy.below(len(COMPANIES))],
            "topic": TOPICS[index],
            "price": float(entropy.below(120)),
            "number": str(number),
        }
        sent.append((publishers[index], event))
    return Workload(subscriptions, advertisements, sent)


def _wish(model: Model, topic: str, price: float, company: str) -> Filter:
    match model:
        case Model.TOPIC:
            return filter_of(("topic", "=", topic))
        case Model.SUBJECT:
            return filter_of(("topic", "below", topic.partition("/")[0]))
        case Model.CONTENT:
            return filter_of(("company", "=", company), ("price", "<", price))
        case Model.BOTH:
            return filter_of(("topic", "=", topic), ("price", "<", price))


@dataclass(slots=True)
class Strategy:
    """Routers, and what runs them."""

    routers: Sequence[Router]
    world: Rounds


def flooding(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    mesh = random_mesh(count, 4, SeededEntropy(seed))
    return _plain([Flooding(node, told(node), mesh[node]) for node in range(count)])


def filtering(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    graph = tree(count, 3)
    return _plain([Filtering(node, told(node), graph[node]) for node in range(count)])


def advertising(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    graph = tree(count, 3)
    return _plain([Filtering(n, told(n), graph[n], by_advertisement=True) for n in range(count)])


def flat(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    placement = Flat(range(count))
    return _plain([Rendezvous(node, told(node), placement) for node in range(count)])


def hierarchical(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    placement = Hierarchical(0, range(1, 1 + min(8, count - 1)))
    return _plain([Rendezvous(node, told(node), placement) for node in range(count)])


def on_ring(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    chords = [Chord(node) for node in range(count)]
    routers = [Rendezvous(node, told(node), OnRing(chords[node])) for node in range(count)]
    ring_of(chords, Rounds(chords))
    stacks = [Stack(pair) for pair in zip(chords, routers, strict=True)]
    return Strategy(routers, Rounds(stacks))


def informed(count: int, seed: int, told: Callable[[Peer], Deliver]) -> Strategy:
    entropy = SeededEntropy(seed)
    return _plain(
        [
            Informed(node, told(node), Uniform(Others(count, node), entropy), entropy)
            for node in range(count)
        ]
    )


def _plain(routers: Sequence[Any]) -> Strategy:
    machines: Sequence[Machine] = routers
    return Strategy(routers, Rounds(machines))


Maker = Callable[[int, int, Callable[[Peer], Deliver]], Strategy]

STRATEGIES: dict[str, Maker] = {
    "flooding": flooding,
    "filtering": filtering,
    "advertisements": advertising,
    "hash of the topic, flat": flat,
    "hash of the topic, a master": hierarchical,
    "rendezvous on a ring": on_ring,
    "informed gossip": informed,
}


@dataclass(frozen=True, slots=True)
class Outcome:
    delivered: Delivered
    set_up: int  # Messages before the first event; of gossip, those about interests.
    messages: int  # With events, or about them.
    state: int  # Filters kept at all nodes together.
    state_max: int
    hops: float  # From publisher to subscriber, mean.


def run(make: Maker, load: Workload, count: int, seed: int) -> Outcome:
    delivered: Delivered = Counter()
    hops: list[int] = []

    def told(node: Peer) -> Deliver:
        def deliver(publication: Publication) -> None:
            delivered[node, int(publication.event["number"])] += 1
            hops.append(publication.hops)

        return deliver

    made = make(count, seed, told)
    for peer, filter in load.advertisements:
        made.world.send(peer, made.routers[peer].advertise(filter))
    for peer, filter in load.subscriptions:
        made.world.send(peer, made.routers[peer].subscribe(filter))
    for _ in range(SETTLING_ROUNDS):
        made.world.run_round()
    for number, (peer, event) in enumerate(load.events):
        made.world.send(peer, made.routers[peer].publish(event))
        if number % EVENTS_PER_ROUND == 0:
            made.world.run_round()
    for _ in range(2 * SETTLING_ROUNDS):
        made.world.run_round()
    sent = {kind.__name__: number for kind, number in made.world.sent.items()}
    states = [router.state for router in made.routers]
    return Outcome(
        delivered,
        sum(sent.get(name, 0) for name in SET_UP_KINDS),
        sum(sent.get(name, 0) for name in EVENT_KINDS),
        sum(states),
        max(states),
        sum(hops) / max(len(hops), 1),
    )


def strategies(count: int, events: int, seed: int) -> Table:
    load = dealing_room(count, events, seed)
    expected = load.expected()
    rows = []
    for name in STRATEGIES:
        found = run(STRATEGIES[name], load, count, seed)
        rows.append(
            (
                name,
                sum(found.delivered.values()),
                found.delivered == expected,
                found.set_up,
                found.messages,
                found.messages / events,
                found.state,
                found.state_max,
                found.hops,
            )
        )
    return Table(
        "strategies",
        f"A dealing room: {events} events of {PUBLISHERS} publishers to {len(load.subscriptions)} "
        f"subscribers on {count} nodes",
        (
            "strategy", "delivered", "as_expected", "set_up", "messages", "per_event", "filters",
            "filters_max", "hops",
        ),
        rows,
        (
            f"Expected: {sum(expected.values())} deliveries, each once. Set up: subscriptions,",
            "advertisements, and gossip about interests. Flooding goes over a mesh, filtering over",
            "a tree. Filters: kept at all nodes, and at the one that has most.",
        ),
    )  # fmt: skip


LABS = {
    "strategies": Lab(
        "one workload by every strategy: the same deliveries, and what each costs",
        lambda sizes: strategies(sizes.nodes_or(60), sizes.runs_or(200), sizes.seed),
    ),
}
