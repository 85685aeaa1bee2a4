"""Declaring, binding, purging and deleting queues."""

import asyncio

import pytest

from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, connection, exchange, queue
from tests.unit.gateway.amqp.node import Node, on_node


@on_node()
async def test_declaring(node: Node) -> None:
    client = await node.client()
    answer = await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    assert answer == queue.DeclareOk("work", 0, 0)
    client.publish("work", b"1", b"2")
    client.say(basic.Consume(queue="work", consumer_tag="c", nowait=True))
    await client.deliveries()
    client.publish("work", b"3")
    client.say(basic.Qos(0, 1))
    await asyncio.sleep(1)
    client.heard()
    other = await node.client()
    answer = await other.ask(queue.Declare(queue="work", passive=True), queue.DeclareOk)
    assert answer == queue.DeclareOk("work", 0, 1)
    other.say(queue.Declare(queue="quiet", nowait=True))
    assert await other.told() == []
    await other.ask(queue.Declare(queue="quiet", passive=True), queue.DeclareOk)


@on_node()
async def test_a_name_is_made_up(node: Node) -> None:
    client = await node.client()
    answer = await client.ask(queue.Declare(exclusive=True), queue.DeclareOk)
    assert answer.queue.startswith("amq.gen-")
    another = await client.ask(queue.Declare(exclusive=True), queue.DeclareOk)
    assert another.queue not in ("", answer.queue)
    answer = another
    await client.ask(basic.Get(), basic.GetEmpty)
    await client.ask(queue.Bind(exchange="amq.direct"), queue.BindOk)
    client.publish(answer.queue, b"by its name", exchange="amq.direct")
    got = await client.ask(basic.Get(), basic.GetOk)
    assert got.routing_key == answer.queue


@on_node()
async def test_line_breaks_are_no_part_of_a_name(node: Node) -> None:
    client = await node.client()
    answer = await client.ask(queue.Declare(queue="wo\r\nrk"), queue.DeclareOk)
    assert answer.queue == "work"


@on_node()
async def test_exclusive(node: Node) -> None:
    client, other = await node.client(), await node.client()
    await client.ask(queue.Declare(queue="mine", exclusive=True), queue.DeclareOk)
    locked = (
        "RESOURCE_LOCKED - cannot obtain exclusive access to locked queue 'mine' in vhost '/'. "
        "It could be originally declared on another connection or the exclusive property value "
        "does not match that of the original declaration."
    )
    for method in (
        queue.Declare(queue="mine", passive=True),
        queue.Declare(queue="mine", exclusive=True),
        queue.Purge(queue="mine"),
        queue.Delete(queue="mine"),
        queue.Bind(queue="mine", exchange="amq.direct"),
        basic.Get(queue="mine"),
        basic.Consume(queue="mine"),
    ):
        assert await other.refused(method) == locked
        await other.ask(channel.Open(), channel.OpenOk)
    client.adapter.closed("gone")
    await asyncio.sleep(1)
    assert "no queue 'mine'" in await other.refused(queue.Declare(queue="mine", passive=True))


@on_node()
async def test_exclusive_queues_are_gone_when_the_client_hears_of_it(node: Node) -> None:
    client = await node.client()
    await client.ask(queue.Declare(queue="mine", exclusive=True), queue.DeclareOk)
    client.say(connection.Close(), on=0)
    assert [each.method for each in client.heard()] == [connection.CloseOk()]
    assert "mine" not in node.broker.vhosts.default.queues
    assert client.link.closed == "closed by the client"


@on_node()
async def test_an_exclusive_queue_of_a_client_that_is_gone(node: Node) -> None:
    client = await node.client()
    client.say(queue.Declare(queue="mine", exclusive=True))
    client.adapter.closed("gone")
    await asyncio.sleep(1)
    assert "mine" not in node.broker.vhosts.default.queues


@on_node()
async def test_purging_and_deleting(node: Node) -> None:
    client = await node.client()
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    client.publish("work", b"1", b"2")
    assert await client.ask(queue.Purge(), queue.PurgeOk) == queue.PurgeOk(2)
    client.publish("work", b"3")
    refusal = await client.refused(queue.Delete(queue="work", if_empty=True))
    assert refusal == "PRECONDITION_FAILED - queue 'work' in vhost '/' not empty"
    await client.ask(channel.Open(), channel.OpenOk)
    client.say(basic.Consume(queue="work", nowait=True))
    refusal = await client.refused(queue.Delete(queue="work", if_unused=True))
    assert refusal == "PRECONDITION_FAILED - queue 'work' in vhost '/' in use"
    await client.ask(channel.Open(), channel.OpenOk)
    answer = await client.ask(queue.Delete(queue="work"), queue.DeleteOk)
    assert answer == queue.DeleteOk(1)
    answer = await client.ask(queue.Delete(queue="work"), queue.DeleteOk)
    assert answer == queue.DeleteOk(0)


@on_node()
async def test_binding_and_unbinding(node: Node) -> None:
    client = await node.client()
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    bind = queue.Bind(queue="work", exchange="amq.topic", routing_key="a.*")
    await client.ask(bind, queue.BindOk)
    client.publish("a.b", b"1", exchange="amq.topic")
    await client.ask(basic.Get(queue="work", no_ack=True), basic.GetOk)
    unbind = queue.Unbind(queue="work", exchange="amq.topic", routing_key="a.*")
    await client.ask(unbind, queue.UnbindOk)
    client.publish("a.b", b"1", exchange="amq.topic")
    await client.ask(basic.Get(queue="work"), basic.GetEmpty)


@on_node()
async def test_a_durable_queue_is_answered_when_it_is_permanent(node: Node) -> None:
    client = await node.client()
    client.say(queue.Declare(queue="work", durable=True), exchange.Declare(exchange="next"))
    assert client.heard() == []
    assert [type(each) for each in await client.told()] == [
        queue.DeclareOk,
        exchange.DeclareOk,
    ], "in their order"


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        (
            [queue.Declare(queue="amq.mine")],
            "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'",
        ),
        (
            [queue.Declare(queue="work"), queue.Declare(queue="work", durable=True)],
            "PRECONDITION_FAILED - inequivalent arg 'durable' for queue 'work' in vhost '/': "
            "received 'true' but current is 'false'",
        ),
        (
            [queue.Declare(queue="work", arguments={"x-message-ttl": -1})],
            "PRECONDITION_FAILED - invalid arg 'x-message-ttl' for queue 'work' in vhost '/': "
            "{value_negative,-1}",
        ),
        ([queue.Purge(queue="nosuch")], "NOT_FOUND - no queue 'nosuch' in vhost '/'"),
        ([queue.Purge()], "NOT_FOUND - no previously declared queue"),
        (
            [queue.Bind(queue="nosuch", exchange="amq.topic")],
            "NOT_FOUND - no queue 'nosuch' in vhost '/'",
        ),
        (
            [queue.Declare(queue="work"), queue.Bind(queue="work", exchange="nosuch")],
            "NOT_FOUND - no exchange 'nosuch' in vhost '/'",
        ),
        (
            [queue.Declare(queue="work"), queue.Bind(queue="work")],
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            [queue.Declare(queue="amq.rabbitmq.reply-to.abc")],
            "NOT_FOUND - no queue 'amq.rabbitmq.reply-to.abc' in vhost '/'",
        ),
        (
            [queue.Bind(queue="amq.rabbitmq.reply-to.abc", exchange="amq.topic")],
            "ACCESS_REFUSED - cannot bind or unbind to a volatile (direct reply-to) queue",
        ),
    ],
)
@on_node()
async def test_what_is_refused(node: Node, methods: list[Method], text: str) -> None:
    client = await node.client()
    assert await client.refused(*methods) == text
