"""Signs of life."""

import asyncio

from entrepot.core import limits
from entrepot.wire.amqp.frames import HEARTBEAT_FRAME
from entrepot.wire.amqp.methods import basic
from tests.unit.gateway.amqp.node import Node, on_node


@on_node()
async def test_the_server_speaks_twice_in_an_interval(node: Node) -> None:
    client = await node.client(heartbeat=10)
    for _ in range(10):
        await asyncio.sleep(5)
        client.send(HEARTBEAT_FRAME)
    client.heard()
    assert 9 <= client.heartbeats <= 10
    assert client.link.closed is None


@on_node()
async def test_what_else_is_said_is_a_sign_too(node: Node) -> None:
    client = await node.client(heartbeat=10)
    for _ in range(20):
        await asyncio.sleep(2)
        client.say(basic.Qos(0, 1))
    client.heard()
    assert client.heartbeats == 0


@on_node()
async def test_silence_is_the_end(node: Node) -> None:
    client = await node.client(heartbeat=10)
    await asyncio.sleep(19)
    assert client.link.closed is None
    await asyncio.sleep(7)
    assert client.link.closed == "missed heartbeats from client, timeout: 10s"


@on_node()
async def test_who_is_not_read_from_cannot_be_heard(node: Node) -> None:
    client = await node.client(heartbeat=10)
    client.publish("nowhere", b"x")
    memory = node.broker.vhosts.memory_use
    assert memory is not None
    memory.change(limits.TRANSIENT_BYTES_MAX + 1)
    assert client.link.is_paused
    await asyncio.sleep(100)
    assert client.link.closed is None


@on_node()
async def test_without_heartbeats_silence_is_fine(node: Node) -> None:
    client = await node.client()
    await asyncio.sleep(1_000)
    client.heard()
    assert (client.heartbeats, client.link.closed) == (0, None)


@on_node()
async def test_nothing_beats_after_the_end(node: Node) -> None:
    client = await node.client(heartbeat=10)
    client.adapter.closed("gone")
    await asyncio.sleep(100)
    client.heard()
    assert client.heartbeats == 0
