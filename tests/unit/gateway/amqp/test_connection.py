"""Channels and connections: opened, closed, misused, described."""

import asyncio

import pytest

from entrepot.broker.permissions import Permission, permission_record
from entrepot.core import limits
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.frames import frame, method_frame
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import access, basic, channel, confirm, connection, exchange, queue
from entrepot.wire.amqp.properties import NONE
from entrepot.wire.amqp.scan import HEADER, METHOD
from tests.unit.gateway.amqp.node import Client, Node, on_node


async def ended(client: Client) -> connection.Close:
    heard = await client.told()
    assert heard, "nothing was said"
    close = heard[-1]
    assert isinstance(close, connection.Close), heard
    assert client.link.closed
    return close


@on_node()
async def test_channels_are_opened_and_closed(node: Node) -> None:
    client = await node.client(channels=0)
    await client.ask(channel.Open(), channel.OpenOk, on=7)
    await client.ask(channel.Flow(active=True), channel.FlowOk, on=7)
    await client.ask(access.Request(), access.RequestOk, on=7)
    await client.ask(channel.Close(), channel.CloseOk, on=7)
    await client.ask(channel.Open(), channel.OpenOk, on=7)


@pytest.mark.parametrize(
    ("number", "methods", "text"),
    [
        (2, [queue.Declare()], "CHANNEL_ERROR - expected 'channel.open'"),
        (2, [basic.Ack(1)], "CHANNEL_ERROR - expected 'channel.open'"),
        (2, [channel.Close()], "CHANNEL_ERROR - expected 'channel.open'"),
        (1, [channel.Open()], "CHANNEL_ERROR - second 'channel.open' seen"),
        (1, [channel.Flow(active=False)], "NOT_IMPLEMENTED - active=false"),
        (0, [connection.Open()], "CHANNEL_ERROR - unexpected method in connection state running"),
        (0, [queue.Declare()], "CHANNEL_ERROR - unexpected method in connection state running"),
        (1, [connection.Close()], "COMMAND_INVALID - unimplemented method"),
        (1, [queue.DeclareOk()], "COMMAND_INVALID - unimplemented method"),
    ],
)
@on_node()
async def test_what_ends_the_connection(
    node: Node, number: int, methods: list[Method], text: str
) -> None:
    client = await node.client()
    client.say(*methods, on=number)
    assert (await ended(client)).reply_text == text


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(9, 1, b""), 501),
        (frame(METHOD, 1, b"\0\x32"), 501),
        (frame(METHOD, 1, b"\0\x32\0\x63"), 540),
        (frame(METHOD, 1, b"\0\x63\0\x0a"), 540),
        (frame(METHOD, 1, b"\0\x32\0\x0a"), 501),
        (method_frame(1, queue.Declare(queue="q"))[:-1] + b"x", 501),
        (frame(HEADER, 1, b"\0\x3c\0\0" + bytes(8) + NONE), 505),
        (frame(METHOD, 1, bytes(200_000)), 501),
    ],
)
@on_node()
async def test_bytes_that_are_wrong(node: Node, data: bytes, code: int) -> None:
    client, other = await node.client(), await node.client()
    client.send(data)
    assert (await ended(client)).reply_code == code
    await other.ask(queue.Declare(queue="work"), queue.DeclareOk)


@on_node()
async def test_a_message_that_is_too_large(node: Node) -> None:
    client = await node.client()
    size = limits.MESSAGE_BYTES + 1
    client.say(basic.Publish(0, "", "work"))
    client.send(frame(HEADER, 1, b"\0\x3c\0\0" + size.to_bytes(8, "big") + NONE))
    text = f"PRECONDITION_FAILED - message size {size} is larger than max size {size - 1}"
    assert await client.closed() == text
    await client.ask(channel.Open(), channel.OpenOk)


@on_node()
async def test_there_is_a_bound_to_channels(node: Node) -> None:
    client = Client(node.context())
    await client.open(channels=2)
    assert client.adapter._connection is not None
    terms = client.adapter._connection.terms
    assert terms.channels_max == amqp_limits.CHANNELS_MAX
    for number in range(3, amqp_limits.CHANNELS_MAX + 2):
        client.say(channel.Open(), on=number)
    close = await ended(client)
    assert close.reply_text == (
        "NOT_ALLOWED - number of channels opened (2047) has reached the negotiated "
        "channel_max (2047)"
    )


@on_node()
async def test_nothing_is_heard_from_a_channel_that_is_closing(node: Node) -> None:
    client = await node.client()
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    wrong, right = basic.Ack(9), queue.Declare(queue="never")
    client.send(
        method_frame(1, wrong),
        method_frame(1, right),
        *content(1, basic.Publish(0, "", "work"), NONE, b"x", 4_096),
        method_frame(1, channel.Open()),
    )
    assert [type(each) for each in await client.told()] == [channel.Close]
    client.say(right)
    assert await client.told() == []
    assert node.broker.vhosts.default.queues.keys() == {"work"}
    assert node.broker.vhosts.default.queues["work"].ready_count == 0
    client.say(channel.CloseOk(), channel.Open())
    assert await client.told() == [channel.OpenOk()]


@on_node()
async def test_both_sides_close_a_channel(node: Node) -> None:
    client = await node.client()
    client.say(basic.Ack(9), channel.Close())
    assert [type(each) for each in await client.told()] == [channel.Close, channel.CloseOk]
    client.say(channel.CloseOk(), channel.Open())
    assert await client.told() == [channel.OpenOk()]


@on_node()
async def test_another_channel_is_not_harmed(node: Node) -> None:
    client = await node.client(channels=2)
    client.say(basic.Ack(9), on=1)
    client.say(queue.Declare(queue="work"), on=2)
    assert [type(each) for each in await client.told()] == [channel.Close, queue.DeclareOk]


@on_node()
async def test_a_secret_may_be_updated(node: Node) -> None:
    client = await node.client()
    update = connection.UpdateSecret(b"new", "because")
    await client.ask(update, connection.UpdateSecretOk, on=0)


@on_node()
async def test_what_others_see_of_it(node: Node) -> None:
    client = await node.client(heartbeat=30)
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    await client.ask(confirm.Select(), confirm.SelectOk)
    client.say(basic.Qos(0, 5), basic.Consume(queue="work", consumer_tag="c"))
    client.publish("work", b"x")
    await client.told()
    (session,) = node.broker.sessions
    facts = session.facts()
    assert (facts.user, facts.vhost, facts.state) == ("guest", "/", "running")
    assert facts.name == "127.0.0.1:40000 -> node:5672"
    assert facts.heartbeat_s == 30
    (one,) = facts.channels
    assert (one.number, one.unacked, one.unconfirmed, one.is_confirming) == (1, 1, 0, True)
    (consumer,) = one.consumers
    assert (consumer.tag, consumer.queue, consumer.prefetch) == ("c", "work", 5)
    session.close("maintenance")
    close = await ended(client)
    assert close.reply_text == "CONNECTION_FORCED - maintenance"
    client.adapter.closed("closed")
    assert len(node.broker.sessions) == 0


@on_node(authorizes=True)
async def test_who_may_do_what(node: Node) -> None:
    refused = await client_refused_to_enter(node)
    assert refused == "NOT_ALLOWED - access to vhost '/' refused for user 'guest'"
    rights = Permission(configure="^mine", write="^mine|^amq.direct$", read="^mine")
    await node.broker.change_security(permission_record("guest", "/", rights))
    client = await node.client()
    await client.ask(queue.Declare(queue="mine"), queue.DeclareOk)
    client.publish("mine", b"x", exchange="amq.direct")
    assert await client.told() == []
    for method, right, kind, name in (
        (queue.Declare(queue="yours"), "configure", "queue", "yours"),
        (queue.Declare(queue="yours", passive=True), "configure", "queue", "yours"),
        (queue.Delete(queue="yours"), "configure", "queue", "yours"),
        (queue.Purge(queue="yours"), "read", "queue", "yours"),
        (basic.Get(queue="yours"), "read", "queue", "yours"),
        (basic.Consume(queue="yours"), "read", "queue", "yours"),
        (queue.Bind(queue="yours", exchange="mine"), "write", "queue", "yours"),
        (queue.Bind(queue="mine", exchange="amq.topic"), "read", "exchange", "amq.topic"),
        (exchange.Declare(exchange="yours"), "configure", "exchange", "yours"),
        (exchange.Delete(exchange="yours"), "configure", "exchange", "yours"),
        (
            exchange.Declare(exchange="mine", arguments={"alternate-exchange": "yours"}),
            "write",
            "exchange",
            "yours",
        ),
        (
            queue.Declare(queue="mine2", arguments={"x-dead-letter-exchange": "yours"}),
            "write",
            "exchange",
            "yours",
        ),
    ):
        assert await client.refused(method) == (
            f"ACCESS_REFUSED - {right} access to {kind} '{name}' in vhost '/' "
            "refused for user 'guest'"
        )
        await client.ask(channel.Open(), channel.OpenOk)
    client.publish("mine", b"x")
    assert await client.closed() == (
        "ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' "
        "refused for user 'guest'"
    )


async def client_refused_to_enter(node: Node) -> str:
    client = Client(node.context())
    with pytest.raises(AssertionError):
        await client.open()
    client.heard()
    again = Client(node.context())
    again.send(b"AMQP\0\0\x09\x01")
    again.say(connection.StartOk({}, "PLAIN", b"\0guest\0guest"), on=0)
    await asyncio.sleep(0.5)
    again.say(connection.TuneOk(10, 4_096, 0), connection.Open("/"), on=0)
    close = again.heard()[-1].method
    assert isinstance(close, connection.Close)
    return close.reply_text
