"""A consumer that would rather have many messages together."""

import asyncio

import pytest

from entrepot.wire.amqp.methods import basic, queue
from tests.unit.gateway.amqp.node import Client, Node, on_node


async def patient(node: Node, **arguments: int) -> Client:
    client = await node.client()
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    dashed = {name.replace("_", "-"): value for name, value in arguments.items()}
    client.say(basic.Consume(queue="work", consumer_tag="c", nowait=True, arguments=dashed))
    return client


@on_node()
async def test_many_or_after_a_while(node: Node) -> None:
    client = await patient(node, x_batch_count=3, x_batch_ms=10_000)
    client.publish("work", b"1", b"2")
    assert await client.deliveries() == []
    client.publish("work", b"3", b"4")
    assert await client.deliveries() == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]
    client.publish("work", b"5")
    assert await client.deliveries() == []
    await asyncio.sleep(10)
    assert await client.deliveries() == [(5, b"5")]
    client.publish("work", b"6")
    assert await client.deliveries() == [], "the wait begins anew"


@on_node()
async def test_what_it_waits_for_is_free_for_others(node: Node) -> None:
    client = await patient(node, x_batch_count=100, x_batch_ms=10_000)
    client.publish("work", b"1")
    await asyncio.sleep(1)
    client.say(basic.Consume(queue="work", consumer_tag="other", nowait=True))
    assert await client.deliveries() == [(1, b"1")]


@on_node()
async def test_who_is_gone_is_not_waited_for(node: Node) -> None:
    client = await patient(node, x_batch_count=100, x_batch_ms=10_000)
    client.publish("work", b"1")
    await client.ask(basic.Cancel("c"), basic.CancelOk)
    await asyncio.sleep(20)
    assert await client.deliveries() == []


@pytest.mark.parametrize(
    "arguments",
    [{"x-batch-count": 10}, {"x-batch-count": 0, "x-batch-ms": 5}, {"x-batch-ms": True}],
)
@on_node()
async def test_half_a_wish(node: Node, arguments: dict[str, int]) -> None:
    client = await node.client()
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    consume = basic.Consume(queue="work", consumer_tag="c", arguments=arguments)
    assert "x-batch-count and x-batch-ms go together" in await client.refused(consume)
