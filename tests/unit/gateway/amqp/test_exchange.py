"""Declaring, binding and deleting exchanges."""

import pytest

from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, exchange, queue
from tests.unit.gateway.amqp.node import Node, on_node


@on_node()
async def test_declaring_and_deleting(node: Node) -> None:
    client = await node.client()
    declare = exchange.Declare(exchange="logs", type="topic", durable=True)
    await client.ask(declare, exchange.DeclareOk)
    await client.ask(declare, exchange.DeclareOk)
    await client.ask(exchange.Declare(exchange="logs", passive=True), exchange.DeclareOk)
    await client.ask(exchange.Delete(exchange="logs"), exchange.DeleteOk)
    await client.ask(exchange.Delete(exchange="logs"), exchange.DeleteOk)
    client.say(
        exchange.Declare(exchange="quiet", nowait=True),
        exchange.Delete(exchange="quiet", nowait=True),
    )
    assert await client.told() == []


@on_node()
async def test_an_exchange_behind_another(node: Node) -> None:
    client = await node.client()
    await client.ask(exchange.Declare(exchange="front", type="fanout"), exchange.DeclareOk)
    await client.ask(exchange.Declare(exchange="back", type="direct"), exchange.DeclareOk)
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    await client.ask(queue.Bind(queue="work", exchange="back", routing_key="k"), queue.BindOk)
    ends = {"destination": "back", "source": "front"}
    await client.ask(exchange.Bind(**ends), exchange.BindOk)  # type: ignore[arg-type]
    client.publish("k", b"1", exchange="front")
    await client.ask(basic.Get(queue="work", no_ack=True), basic.GetOk)
    await client.ask(exchange.Unbind(**ends), exchange.UnbindOk)  # type: ignore[arg-type]
    client.publish("k", b"1", exchange="front")
    await client.ask(basic.Get(queue="work"), basic.GetEmpty)


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        (
            [exchange.Declare(exchange="x", type="odd")],
            "PRECONDITION_FAILED - unknown exchange type 'odd'",
        ),
        (
            [exchange.Declare(exchange="")],
            "ACCESS_REFUSED - operation not permitted on the default exchange",
        ),
        (
            [exchange.Declare(exchange="amq.own")],
            "ACCESS_REFUSED - exchange name 'amq.own' contains reserved prefix 'amq.*'",
        ),
        (
            [exchange.Declare(exchange="nosuch", passive=True)],
            "NOT_FOUND - no exchange 'nosuch' in vhost '/'",
        ),
        (
            [exchange.Declare(exchange="amq.topic", type="direct", durable=True)],
            "PRECONDITION_FAILED - inequivalent arg 'type' for exchange 'amq.topic' in vhost "
            "'/': received 'direct' but current is 'topic'",
        ),
        (
            [exchange.Delete(exchange="amq.topic")],
            "ACCESS_REFUSED - deletion of system exchange 'amq.topic' in vhost '/' not allowed",
        ),
        (
            [exchange.Delete(exchange="amq.nosuch")],
            "ACCESS_REFUSED - deletion of system exchange 'amq.nosuch' in vhost '/' not allowed",
        ),
        (
            [
                queue.Declare(queue="work"),
                exchange.Declare(exchange="x"),
                queue.Bind(queue="work", exchange="x"),
                exchange.Delete(exchange="x", if_unused=True),
            ],
            "PRECONDITION_FAILED - exchange 'x' in vhost '/' in use",
        ),
        (
            [exchange.Bind(destination="nosuch", source="amq.topic")],
            "NOT_FOUND - no exchange 'nosuch' in vhost '/'",
        ),
    ],
)
@on_node()
async def test_what_is_refused(node: Node, methods: list[Method], text: str) -> None:
    client = await node.client()
    assert await client.refused(*methods) == text
