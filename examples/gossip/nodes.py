"""Nodes for the examples: on loopback, in one process, ten periods a second."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from entrepot.cluster.gossip.agent import Agent, Hooks
from entrepot.cluster.gossip.node import GossipNode
from entrepot.cluster.gossip.swim import MemberState, Settings
from entrepot.core.clock import SystemClock, SystemEntropy
from entrepot.core.faults import Faults
from entrepot.core.ports import Address
from entrepot.net.datagrams import SocketDatagramNet
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import MemberUpdate

HOST = "127.0.0.1"
PERIOD_S = 0.2


async def start(number: int, seeds: list[Address], hooks: Hooks | None = None) -> GossipNode:
    me = MemberUpdate(number, HOST, 0, 0, MemberState.ALIVE)
    agent = Agent(
        me, "example", SystemEntropy(), seeds=seeds, settings=Settings(PERIOD_S), hooks=hooks
    )
    node = GossipNode(agent, SystemClock(), Faults())
    await node.start(SocketDatagramNet(limits.DATAGRAM_BYTES_MAX), HOST, 0)
    return node


async def start_all(count: int, hooks: Callable[[int], Hooks] | None = None) -> list[GossipNode]:
    """Start nodes that know each other."""
    nodes: list[GossipNode] = []
    for number in range(count):
        seeds = [(HOST, each.members()[each.agent.swim.me.node].port) for each in nodes[:1]]
        nodes.append(await start(number, seeds, None if hooks is None else hooks(number)))
    await until(lambda: all(len(alive(node)) == count for node in nodes))
    return nodes


def alive(node: GossipNode) -> list[int]:
    """Return whom a node takes for alive; who is suspected is not asked for anything."""
    return [each.node for each in node.members() if each.state == MemberState.ALIVE]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # It looks at several nodes.
            await asyncio.sleep(PERIOD_S / 10)
