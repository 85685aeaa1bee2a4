"""Questions and answers without a queue."""

import asyncio

import pytest

from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, channel, confirm, queue
from entrepot.wire.amqp.properties import NONE, BasicProperties, decode, encode
from tests.unit.gateway.amqp.node import FRAME_BYTES_MAX, Client, Heard, Node, on_node

REPLY_TO = "amq.rabbitmq.reply-to"
CONSUME = basic.Consume(queue=REPLY_TO, consumer_tag="answers", no_ack=True)
ASKING = encode(BasicProperties(reply_to=REPLY_TO, correlation_id="7"))


async def asking(node: Node) -> tuple[Client, Client, str]:
    """Who asks, who answers, and where to."""
    client, server = await node.client(), await node.client()
    await server.ask(queue.Declare(queue="questions"), queue.DeclareOk)
    await client.ask(CONSUME, basic.ConsumeOk)
    client.publish("questions", b"how many?", properties=ASKING)
    await asyncio.sleep(1)
    server.say(basic.Get(queue="questions", no_ack=True))
    (got,) = server.heard()
    properties = decode(got.properties)
    assert properties.correlation_id == "7"
    assert properties.reply_to is not None
    assert properties.reply_to.startswith(f"{REPLY_TO}.")
    return client, server, properties.reply_to


@on_node()
async def test_an_answer_comes_to_the_channel(node: Node) -> None:
    client, server, name = await asking(node)
    server.publish(name, b"seven", b"or eight", mandatory=True)
    await asyncio.sleep(1)
    assert server.heard() == []
    assert client.heard() == [
        Heard(1, basic.Deliver("answers", 1, False, "", name), NONE, b"seven"),
        Heard(1, basic.Deliver("answers", 2, False, "", name), NONE, b"or eight"),
    ]
    declared = await server.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk)
    assert declared == queue.DeclareOk(name, 0, 1)
    own = await server.ask(queue.Declare(queue=REPLY_TO, passive=True), queue.DeclareOk)
    assert own == queue.DeclareOk(REPLY_TO, 0, 1)


@pytest.mark.parametrize("ending", [basic.Cancel("answers"), channel.Close()])
@on_node()
async def test_an_answer_for_nobody_is_unroutable(node: Node, ending: Method) -> None:
    client, server, name = await asking(node)
    client.say(ending)
    await server.ask(confirm.Select(), confirm.SelectOk)
    server.publish(name, b"too late", mandatory=True)
    await asyncio.sleep(1)
    assert server.heard() == [
        Heard(1, basic.Return(312, "NO_ROUTE", "", name), NONE, b"too late"),
        Heard(1, basic.Ack(1)),
    ]
    refusal = await server.refused(queue.Declare(queue=name, passive=True))
    assert refusal == f"NOT_FOUND - no queue '{name}' in vhost '/'"


@on_node()
async def test_it_can_begin_again(node: Node) -> None:
    client, _, _ = await asking(node)
    await client.ask(basic.Cancel("answers"), basic.CancelOk)
    await client.ask(CONSUME, basic.ConsumeOk)


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ([basic.Consume(queue=REPLY_TO)], "reply consumer cannot acknowledge"),
        (
            [CONSUME, basic.Consume(queue=REPLY_TO, no_ack=True)],
            "reply consumer already set",
        ),
    ],
)
@on_node()
async def test_what_is_refused(node: Node, methods: list[Method], text: str) -> None:
    client = await node.client()
    assert await client.refused(*methods) == f"PRECONDITION_FAILED - {text}"


@on_node()
async def test_answers_among_other_messages(node: Node) -> None:
    """All of them in one read. A queue's first message of a turn has arrived at once, its second
    at the end of the turn."""
    client, server, name = await asking(node)
    await server.ask(confirm.Select(), confirm.SelectOk)
    gone = f"{REPLY_TO}.nobody"
    sent = [("questions", b"1"), (name, b"2"), (name, b"3"), (gone, b"4"), ("questions", b"5")]
    frames = [
        content(1, basic.Publish(0, "", key, True), NONE, body, FRAME_BYTES_MAX)
        for key, body in sent
    ]
    server.send(*[chunk for chunks in frames for chunk in chunks])
    await asyncio.sleep(1)
    assert [(each.method.routing_key, each.body) for each in client.heard()] == sent[1:3]  # type: ignore[attr-defined]
    returned, *confirmed = server.heard()
    assert returned == Heard(1, basic.Return(312, "NO_ROUTE", "", gone), NONE, b"4")
    acks = [basic.Ack(4, multiple=True), basic.Ack(5)]
    assert [each.method for each in confirmed] == acks
    for body in (b"1", b"5"):
        server.say(basic.Get(queue="questions", no_ack=True))
        assert [each.body for each in server.heard()] == [body]
