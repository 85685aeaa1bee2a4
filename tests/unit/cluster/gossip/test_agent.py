"""Agents on a net that loses, delays and repeats datagrams: the packets of real nodes."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from entrepot.cluster.gossip.agent import Agent, Hooks
from entrepot.cluster.gossip.node import GossipNode
from entrepot.cluster.gossip.swim import MemberState, Settings
from entrepot.core.faults import Uncaught
from entrepot.core.ports import Address
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Entry, Event, Join, MemberUpdate
from entrepot.wire.gossip.packet import ANYBODY, Codec, Reason
from sim.clock import START_MS, SimClock
from sim.datagrams import SimDatagramNetwork
from sim.entropy import SimEntropy
from sim.loop import SimLoop, run

SECRET = b"a secret of some length"
SEED_ADDRESS = ("n0", 49153)
World = Callable[["Nodes"], Coroutine[Any, Any, None]]


class Nodes:
    def __init__(self, loop: SimLoop, secret: bytes | None) -> None:
        self.clock = SimClock(loop)
        self.random = loop.random("gossip")
        self.net = SimDatagramNetwork(self.random, limits.DATAGRAM_BYTES_MAX)
        self.nodes: list[GossipNode] = []
        self.facts: list[Entry] = []
        self.events: list[Event] = []
        self._secret = secret

    async def start(self, count: int) -> None:
        for _ in range(count):
            number = len(self.nodes)
            agent = Agent(
                MemberUpdate(number, "", 0, 0, 0),
                "cluster",
                SimEntropy(self.random),
                secret=self._secret,
                seeds=[SEED_ADDRESS],
                settings=Settings(period_s=0.5),
                value=float(number),
                hooks=Hooks(fact=self.facts.append, event=self.events.append),
            )
            node = GossipNode(agent, self.clock, Uncaught())
            self.nodes.append(node)
            await node.start(self.net, f"n{number}", 0 if number else SEED_ADDRESS[1])

    def states(self, observer: int) -> dict[int, str]:
        return {each.node: each.state.name for each in self.nodes[observer].members()}


def simulated(body: World, *, secret: bytes | None = SECRET, seed: int = 1) -> None:
    async def start(loop: SimLoop) -> None:
        nodes = Nodes(loop, secret)
        await body(nodes)
        for node in nodes.nodes:
            node.stop()
            assert node.agent.packets.too_large == 0

    run(seed, start)


@pytest.mark.parametrize("secret", [None, SECRET])
def test_they_find_each_other_and_all_know_everything(secret: bytes | None) -> None:
    async def body(nodes: Nodes) -> None:
        nodes.net.loss, nodes.net.duplicates = 0.05, 0.05
        await nodes.start(12)
        await asyncio.sleep(15)
        for number, node in enumerate(nodes.nodes):
            assert nodes.states(number) == dict.fromkeys(range(12), "ALIVE")
            node.put("load", b"%d" % number)
        nodes.nodes[3].multicast(b"hello")
        await asyncio.sleep(12)
        expected = nodes.nodes[0].agent.store.entries()
        assert len(expected) == 12
        assert all(node.agent.store.entries() == expected for node in nodes.nodes)
        assert [event.body for event in nodes.events] == [b"hello"] * 12
        assert len(nodes.facts) == 12 * 11

    simulated(body, secret=secret)


def test_aggregates_of_all() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.start(8)
        await asyncio.sleep(40)
        for node in nodes.nodes:
            found = node.agent.aggregation.last
            assert found is not None
            assert found.average == pytest.approx(3.5, rel=0.01)
            assert found.nodes == pytest.approx(8, rel=0.01)
            assert (found.minimum, found.maximum) == (0, 7)

    simulated(body)


def test_who_falls_silent_is_dead_and_who_comes_back_is_alive() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.start(6)
        await asyncio.sleep(5)
        silent = nodes.net.sockets.pop(nodes.nodes[2]._datagrams.address)  # type: ignore[union-attr]
        await asyncio.sleep(1.7)
        assert nodes.states(0)[2] == "SUSPECT"
        await asyncio.sleep(12)
        assert {nodes.states(n)[2] for n in (0, 1, 3, 4, 5)} == {"DEAD"}
        nodes.net.sockets[silent.address] = silent
        await asyncio.sleep(20)
        for number in range(6):
            assert nodes.states(number) == dict.fromkeys(range(6), "ALIVE")

    simulated(body)


def test_hostile_packets_are_dropped_and_counted() -> None:
    async def body(nodes: Nodes) -> None:
        await nodes.start(2)
        await asyncio.sleep(5)
        seen: list[tuple[bytes, Address]] = []
        mallory = await nodes.net.bind("mallory", 0, lambda *got: seen.append(got))
        victim = nodes.nodes[0].agent
        taken: list[bytes] = []
        original = victim.receive
        victim.receive = lambda data, *rest: taken.append(data) or original(data, *rest)  # type: ignore[func-returns-value,method-assign]
        await asyncio.sleep(2)
        known = nodes.states(0)
        forger = Codec("cluster", 66, b"not the right secret")
        join = forger.body(Join(MemberUpdate(66, "mallory", 1, 0, 0)))
        for data in (
            forger.pack(0, [join], nodes.clock.now_ms()),
            forger.pack(ANYBODY, [join], nodes.clock.now_ms()),
            Codec("cluster", 66, None).pack(ANYBODY, [join], nodes.clock.now_ms()),
            b"x" * 1_401,
            b"eg",
            b"",
            taken[0],
            taken[-1],
        ):
            mallory.send(data, SEED_ADDRESS)
        await asyncio.sleep(2)
        assert victim.packets.refused == {
            Reason.FORGED: 3, Reason.OVERSIZE: 1, Reason.MALFORMED: 2, Reason.REPLAYED: 2
        }  # fmt: skip
        assert seen == []  # Nobody who cannot seal gets an answer.
        assert nodes.states(0) == known

    simulated(body)


def test_an_unknown_sender_can_only_join_and_gets_little() -> None:
    """Without a secret, a small packet must not bring a large answer to somebody else."""
    agent = Agent(MemberUpdate(0, "h", 1, 0, 0), "c", SimEntropy(Random(1)))
    agent.start(0.0)
    many = [MemberUpdate(n, "h" * 60, n, 0, MemberState.ALIVE) for n in range(1, 500)]
    for each in many:
        agent.swim.receive(each.node, Join(each), 0.0)
    codec = Codec("c", 9_999, None)
    body = codec.body(Join(MemberUpdate(9_999, "x", 1, 0, 0)))
    answers = agent.receive(codec.pack(ANYBODY, [body], START_MS), ("x", 1), 1.0, START_MS)
    assert len(answers) == limits.JOIN_PACKETS_MAX
    assert all(len(data) <= limits.DATAGRAM_BYTES_MAX for _, data in answers)
    assert agent.packets.too_large == 0
    ping = codec.body(Join(MemberUpdate(9_999, "x", 1, 0, 0)))
    assert agent.receive(codec.pack(5, [ping], START_MS), ("x", 1), 1.0, START_MS) == []
