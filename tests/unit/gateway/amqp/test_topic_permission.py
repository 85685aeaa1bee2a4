"""Topics by their names: the default exchange leads to all of them, and each asks for itself."""

import asyncio

import pytest

from entrepot.broker.permissions import Permission, permission_record
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.methods import basic, queue, tx
from entrepot.wire.amqp.properties import NONE, BasicProperties, encode
from tests.unit.gateway.amqp.node import Client, Node, on_node

REFUSED = "write access to queue 'orders' in vhost '/' refused for user 'guest'"


async def limited(node: Node) -> Client:
    """Writes to exchanges and to its own queues and topics."""
    rights = Permission("^own", "^amq\\.|^own", "^own|^amq\\.")
    await node.broker.change_security(permission_record("guest", "/", rights))
    for name in ("orders", "own-topic"):
        await node.broker.create_topic(name)
    client = await node.client()
    await client.ask(queue.Declare(queue="own"), queue.DeclareOk)
    return client


def count(node: Node, topic: str) -> int:
    return node.broker.served_partition(node.broker.topic(topic), 0).partition.high_watermark


@on_node(authorizes=True)
async def test_a_topic_by_its_name_needs_write_on_it(node: Node) -> None:
    client = await limited(node)
    client.publish("own-topic", b"a")
    client.publish("own", b"b")
    await asyncio.sleep(1)
    assert count(node, "own-topic") == 1
    client.publish("orders", b"c")
    assert REFUSED in await client.closed()
    assert count(node, "orders") == 0


@on_node(authorizes=True)
async def test_what_came_before_is_published(node: Node) -> None:
    client = await limited(node)
    run = [("own-topic", b"a"), ("own", b"b"), ("orders", b"c"), ("own", b"d")]
    frames = [content_of(key, body) for key, body in run]
    client.send(*frames)
    assert REFUSED in await client.closed()
    assert (count(node, "own-topic"), count(node, "orders")) == (1, 0)
    assert node.broker.vhosts.default.queue("own").ready_count == 1


def content_of(key: str, body: bytes) -> bytes:
    return b"".join(bytes(each) for each in content(1, basic.Publish(0, "", key), NONE, body, 4096))


@pytest.mark.parametrize("header", ["CC", "BCC"])
@on_node(authorizes=True)
async def test_copies_are_no_way_around(node: Node, header: str) -> None:
    client = await limited(node)
    properties = encode(BasicProperties(headers={header: ["orders"]}))
    client.publish("own", b"a", properties=properties)
    assert REFUSED in await client.closed()
    assert count(node, "orders") == 0


@on_node(authorizes=True)
async def test_a_transaction_is_refused_when_it_is_published_to(node: Node) -> None:
    client = await limited(node)
    await client.ask(tx.Select(), tx.SelectOk)
    client.publish("orders", b"a")
    assert REFUSED in await client.closed()


@on_node(authorizes=True)
async def test_dead_letters_are_no_way_around(node: Node) -> None:
    client = await limited(node)
    dead = {"x-message-ttl": 1, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "orders"}
    assert REFUSED in await client.refused(queue.Declare(queue="own-2", arguments=dead))
    client = await node.client()
    dead["x-dead-letter-routing-key"] = "own-topic"
    await client.ask(queue.Declare(queue="own-2", arguments=dead), queue.DeclareOk)
    client.publish("own-2", b"a")
    del dead["x-dead-letter-routing-key"]
    await client.ask(queue.Declare(queue="own-3", arguments=dead), queue.DeclareOk)
    await client.ask(queue.Bind(queue="own-3", exchange="amq.fanout"), queue.BindOk)
    client.publish("orders", b"b", exchange="amq.fanout")
    client.publish("own", b"c", exchange="amq.fanout")
    await asyncio.sleep(1)
    assert (count(node, "own-topic"), count(node, "orders")) == (1, 0)
    assert node.broker.vhosts.default.queue("own").ready_count == 1


@on_node(authorizes=True)
async def test_a_binding_was_allowed_when_it_was_made(node: Node) -> None:
    client = await limited(node)
    bind = queue.Bind(queue="orders", exchange="amq.fanout")
    assert REFUSED in await client.refused(bind)


@on_node()
async def test_nobody_is_asked_without_authorisation(node: Node) -> None:
    client = await node.client()
    await node.broker.create_topic("orders")
    client.publish("orders", b"a")
    await asyncio.sleep(1)
    assert count(node, "orders") == 1
