"""Nodes that route events over a net that loses datagrams, by every strategy; nodes that die."""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from entrepot.cluster.gossip.swim import MemberState, Settings
from entrepot.cluster.routing.agent import RoutingAgent
from entrepot.cluster.routing.matching import Filter, filter_of, parse_filter
from entrepot.cluster.routing.messages import Publication
from entrepot.cluster.routing.node import RoutingNode
from entrepot.cluster.routing.strategies import STRATEGIES
from entrepot.core.faults import Uncaught
from entrepot.core.ports import Address
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import MemberUpdate
from entrepot.wire.gossip.packet import Reason
from sim.clock import SimClock
from sim.datagrams import SimDatagramNetwork
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run

SECRET = b"a secret of some length"
PERIOD_S = 0.5
TOPICS = ("bonds", "stocks", "news")
World = Callable[["Nodes"], Coroutine[Any, Any, None]]


class Nodes:
    def __init__(self, loop: SimLoop, strategy: str) -> None:
        self.clock = SimClock(loop)
        self.random = loop.random("routing")
        self.net = SimDatagramNetwork(self.random, limits.DATAGRAM_BYTES_MAX)
        self.nodes: dict[int, RoutingNode] = {}
        self.got: Counter[tuple[int, float]] = Counter()  # Which node got which event.
        self.strategy = strategy
        self.seeds: list[Address] = []

    async def start(
        self, number: int, strategy: str | None = None, secret: bytes = SECRET
    ) -> RoutingNode:
        def deliver(publication: Publication) -> None:
            number_ = publication.event["number"]
            assert isinstance(number_, float)
            self.got[number, number_] += 1

        agent = RoutingAgent(
            MemberUpdate(number, "", 0, self.clock.now_ms(), MemberState.ALIVE),
            "cluster",
            strategy or self.strategy,
            SimEntropy(self.random),
            deliver,
            secret=secret,
            seeds=self.seeds,
            settings=Settings(period_s=PERIOD_S),
            attributes=("topic", "price") if self.strategy == "meghdoot" else (),
        )
        node = self.nodes[number] = RoutingNode(agent, self.clock, Uncaught())
        self.seeds.append(await node.start(self.net, f"n{number}", 0))
        return node

    async def trade(self, number: int) -> None:
        """Start a node that wants one topic and may publish any."""
        node = await self.start(number)
        for topic in TOPICS:
            node.advertise(wish(self.strategy, topic))
        node.subscribe(wish(self.strategy, TOPICS[number % 3]))

    async def settled(self, *members: int) -> None:
        """Wait until these are in one view, and what they say to each other there is said."""
        while not self._is_settled(members):  # noqa: ASYNC110  # Nothing says when.
            await asyncio.sleep(PERIOD_S)
        await asyncio.sleep(8 * PERIOD_S)

    def _is_settled(self, members: tuple[int, ...]) -> bool:
        agents = [self.nodes[number].agent for number in members]
        return (
            len({agent.view for agent in agents}) == 1
            and [peer for peer, _ in agents[0].view] == [*members]
            and not any(agent.streams.waiting for agent in agents)
        )

    def publish(self, node: int, topic: str, number: int) -> None:
        self.nodes[node].publish({"topic": topic, "price": 5.0, "number": float(number)})


def wish(strategy: str, topic: str) -> Filter:
    if strategy == "scribe":
        return filter_of(("topic", "=", topic))
    return filter_of(("topic", "=", topic), ("price", "<", 10.0))


def simulated(body: World, strategy: str, seed: int = 1) -> None:
    async def start(loop: SimLoop) -> None:
        nodes = Nodes(loop, strategy)
        await body(nodes)
        for node in nodes.nodes.values():
            assert not node.agent.malformed
            assert not node.agent.packets.too_large
            assert not node.agent.streams.dropped
            node.stop()

    run(seed, start)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("victim", [0, 3])
def test_each_event_once_though_datagrams_are_lost_and_a_node_dies(
    strategy: str, victim: int
) -> None:
    """Node n wants topic n mod 3. Every event of a node that lives comes once to all who live and
    want it: those before a death, those published at once after it, and those after its return."""

    async def body(nodes: Nodes) -> None:
        nodes.net.loss, nodes.net.duplicates = 0.05, 0.05
        for number in range(7):
            await nodes.trade(number)
        await nodes.settled(*range(7))
        for number in range(30):
            nodes.publish(number % 7, TOPICS[number % 3], number)
        await nodes.settled(*range(7))
        nodes.nodes.pop(victim).crash()
        alive = [number for number in range(7) if number != victim]
        for number in range(30, 60):
            nodes.publish(alive[number % 6], TOPICS[number % 3], number)
        await nodes.settled(*alive)
        assert nodes.got == {
            (node, float(number)): 1
            for number in range(60)
            for node in (range(7) if number < 30 else alive)
            if node % 3 == number % 3
        }
        await nodes.trade(victim)
        await nodes.settled(*range(7))
        nodes.got.clear()  # Who comes back is a new subscriber: what is published again is new.
        for number in range(60, 80):
            nodes.publish(number % 7, TOPICS[number % 3], number)
        await nodes.settled(*range(7))
        assert nodes.got == {
            (node, float(number)): 1
            for number in range(60, 80)
            for node in range(7)
            if node % 3 == number % 3
        }

    simulated(body, strategy)


def test_who_unsubscribes_gets_nothing_more() -> None:
    async def body(nodes: Nodes) -> None:
        for number in range(3):
            await nodes.start(number)
        wanted = wish("filtering", "bonds")
        nodes.nodes[1].subscribe(wanted)
        await nodes.settled(0, 1, 2)
        nodes.publish(2, "bonds", 1)
        await nodes.settled(0, 1, 2)
        nodes.nodes[1].unsubscribe(wanted)
        nodes.publish(2, "bonds", 2)
        await nodes.settled(0, 1, 2)
        assert nodes.got == {(1, 1.0): 1}
        with pytest.raises(ValueError, match="no such"):
            nodes.nodes[1].unsubscribe(wanted)

    simulated(body, "filtering")


def test_other_strategies_and_other_secrets_are_not_heard() -> None:
    async def body(nodes: Nodes) -> None:
        first = await nodes.start(0)
        await nodes.start(1, strategy="flooding")
        await nodes.start(2, secret=b"another secret of some length")
        await asyncio.sleep(20 * PERIOD_S)
        assert [each.node for each in first.members()] == [0]
        refused = first.agent.packets.refused
        assert refused[Reason.CLUSTER] > 0
        assert refused[Reason.FORGED] > 0

    simulated(body, "filtering")


@pytest.mark.parametrize("strategy", [n for n, each in STRATEGIES.items() if each.needs_topic])
def test_a_filter_must_name_a_topic_where_the_strategy_needs_one(strategy: str) -> None:
    async def body(nodes: Nodes) -> None:
        node = await nodes.start(0)
        with pytest.raises(ValueError, match="topic"):
            node.subscribe(filter_of(("price", "<", 10.0)))

    simulated(body, strategy)


@pytest.mark.parametrize("strategy", ["hash", "scribe", "meghdoot"])
def test_what_was_refused_is_not_delivered(strategy: str) -> None:
    async def body(nodes: Nodes) -> None:
        node = await nodes.start(0)
        with pytest.raises(ValueError, match=r"topic|attribute"):
            node.subscribe(filter_of(("number", "<", 10.0)))
        nodes.publish(0, "bonds", 1)
        await nodes.settled(0)
        node.subscribe(wish(strategy, "bonds"))
        nodes.publish(0, "bonds", 2)
        await nodes.settled(0)
        assert (0, 2.0) in nodes.got
        assert (0, 1.0) not in nodes.got

    simulated(body, strategy)


def test_filters_are_read() -> None:
    text = '{(topic, =, "bonds"), (price,<,80), (kind, below, sport)}'
    with pytest.raises(ValueError, match="sport, at 50, is no number: a text is in quotes"):
        parse_filter(text)
    text = """{(topic, =, "bonds"), (price,<,-8.5), (kind, below, 'sport/ball')}"""
    found = filter_of(
        ("topic", "=", "bonds"), ("price", "<", -8.5), ("kind", "below", "sport/ball")
    )
    assert parse_filter(text) == parse_filter(text[1:-1]) == found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "at 0"),
        ("{}", "at 1"),
        ("{(a, =, 1)", "at 0"),
        ("(a, =, 1) (b, =, 2)", "comma is missing at 10"),
        ("(a, =, 1),", "at 10"),
        ("(a, ~, 1)", "at 0"),
        ("(a, <, nan)", "no number"),
        ("(" + "a" * 65 + ", =, 1)", "length <= 64"),
        (", ".join(["(a, =, 1)"] * 17), "at most 16"),
        (json.dumps(["(a, =, 1)"]), "at 0"),
    ],
)
def test_what_is_no_filter_is_refused_with_the_place(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        parse_filter(text)
