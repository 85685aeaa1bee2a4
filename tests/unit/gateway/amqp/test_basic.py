"""Consuming, getting and acknowledging, as a client hears of it."""

import asyncio

import pytest

from entrepot.wire.amqp.methods import basic, channel, connection, queue
from entrepot.wire.amqp.properties import BasicProperties, PropertyView, encode
from tests.unit.gateway.amqp.node import Client, Heard, Node, on_node


async def declared(node: Node, **options: object) -> Client:
    client = await node.client()
    await client.ask(queue.Declare(queue="work", **options), queue.DeclareOk)  # type: ignore[arg-type]
    return client


async def consuming(client: Client, tag: str = "c", **options: object) -> None:
    consume = basic.Consume(queue="work", consumer_tag=tag, nowait=True, **options)  # type: ignore[arg-type]
    client.say(consume)


@on_node()
async def test_what_is_published_is_delivered_in_order(node: Node) -> None:
    client = await declared(node)
    await consuming(client, no_ack=True)
    bodies = [str(number).encode() for number in range(1_000)]
    client.publish("work", *bodies)
    assert await client.deliveries() == list(enumerate(bodies, 1))


@on_node()
async def test_deliveries_come_after_the_consumer_is_told(node: Node) -> None:
    client = await declared(node)
    client.publish("work", b"early")
    await asyncio.sleep(1)
    client.say(basic.Consume(queue="work", consumer_tag="c"))
    await asyncio.sleep(1)
    kinds = [type(each.method) for each in client.heard()]
    assert kinds == [basic.ConsumeOk, basic.Deliver]


@on_node()
async def test_a_consumer_without_a_tag_gets_one(node: Node) -> None:
    client = await declared(node)
    answer = await client.ask(basic.Consume(queue="work"), basic.ConsumeOk)
    assert answer.consumer_tag.startswith("amq.ctag-")


@on_node()
async def test_prefetch_is_of_consumers_to_come(node: Node) -> None:
    client = await declared(node)
    await client.ask(basic.Qos(0, 2), basic.QosOk)
    await consuming(client)
    client.publish("work", b"1", b"2", b"3", b"4", b"5")
    assert await client.deliveries() == [(1, b"1"), (2, b"2")]
    client.say(basic.Ack(1))
    assert await client.deliveries() == [(3, b"3")]
    client.say(basic.Ack(3, multiple=True))
    assert await client.deliveries() == [(4, b"4"), (5, b"5")]


@on_node()
async def test_a_prefetch_for_all_consumers_of_the_channel(node: Node) -> None:
    client = await declared(node)
    await client.ask(basic.Qos(0, 3, is_global=True), basic.QosOk)
    await consuming(client, "a")
    await consuming(client, "b")
    client.publish("work", *[b"x"] * 10)
    assert len(await client.deliveries()) == 3
    client.say(basic.Ack(2, multiple=True))
    assert len(await client.deliveries()) == 2
    client.say(basic.Qos(0, 0))
    assert len(await client.told()) == 1 + 5, "without a bound again"


@on_node()
async def test_a_prefetch_of_the_channel_and_one_of_the_consumer(node: Node) -> None:
    client = await declared(node)
    client.publish("work", *[str(number).encode() for number in range(10)])
    client.say(basic.Qos(0, 3), basic.Qos(0, 5, is_global=True))
    await client.told()
    await consuming(client, "one")
    assert [body for _, body in await client.deliveries()] == [b"0", b"1", b"2"]
    await consuming(client, "two")
    assert [body for _, body in await client.deliveries()] == [b"3", b"4"]


@on_node()
async def test_consumers_of_two_queues_share_the_room(node: Node) -> None:
    client = await declared(node)
    await client.ask(queue.Declare(queue="idle"), queue.DeclareOk)
    client.say(basic.Qos(0, 2, is_global=True))
    client.say(basic.Consume(queue="idle", consumer_tag="idle", nowait=True))
    await client.told()
    await consuming(client)
    client.publish("work", b"1", b"2", b"3")
    assert len(await client.deliveries()) == 2, "who gets nothing keeps nothing from others"


@on_node()
async def test_auto_ack_knows_no_prefetch(node: Node) -> None:
    client = await declared(node)
    await client.ask(basic.Qos(0, 1), basic.QosOk)
    await consuming(client, no_ack=True)
    client.publish("work", b"1", b"2", b"3")
    assert len(await client.deliveries()) == 3
    assert "unknown delivery tag 1" in await client.refused(basic.Ack(1))


@on_node()
async def test_get(node: Node) -> None:
    client = await declared(node)
    await client.ask(basic.Get(queue="work"), basic.GetEmpty)
    client.publish("work", b"1", b"2")
    answer = await client.ask(basic.Get(queue="work"), basic.GetOk)
    assert answer == basic.GetOk(1, False, "", "work", 1)
    answer = await client.ask(basic.Get(queue="work", no_ack=True), basic.GetOk)
    assert answer == basic.GetOk(2, False, "", "work", 0)
    client.say(basic.Nack(1))
    answer = await client.ask(basic.Get(queue="work"), basic.GetOk)
    assert answer == basic.GetOk(3, True, "", "work", 0)
    client.say(basic.Reject(3, requeue=False))
    await client.ask(basic.Get(queue="work"), basic.GetEmpty)


@on_node()
async def test_what_comes_back_is_marked(node: Node) -> None:
    client = await declared(node)
    await consuming(client)
    client.publish("work", b"1", b"2")
    await client.deliveries()
    client.say(basic.Nack(2, multiple=True, requeue=True))
    await asyncio.sleep(1)
    assert [(each.method, each.body) for each in client.heard()] == [
        (basic.Deliver("c", 3, True, "", "work"), b"1"),
        (basic.Deliver("c", 4, True, "", "work"), b"2"),
    ]


@on_node()
async def test_recover(node: Node) -> None:
    client = await declared(node)
    await consuming(client)
    client.publish("work", b"1")
    await client.deliveries()
    client.say(basic.Recover(requeue=True))
    assert await client.told() == [
        basic.RecoverOk(),
        basic.Deliver("c", 2, True, "", "work"),
    ]
    client.say(basic.RecoverAsync(requeue=True))
    assert await client.deliveries() == [(3, b"1")]


@on_node()
async def test_everything_goes_back_with_the_channel(node: Node) -> None:
    client = await declared(node)
    await consuming(client)
    client.publish("work", b"1", b"2", b"3")
    await client.deliveries()
    client.say(basic.Ack(1))
    await client.ask(channel.Close(), channel.CloseOk)
    other = await node.client()
    await consuming(other)
    assert await other.deliveries() == [(1, b"2"), (2, b"3")]
    other.adapter.closed("gone")
    third = await node.client()
    answer = await third.ask(basic.Get(queue="work"), basic.GetOk)
    assert answer == basic.GetOk(1, True, "", "work", 1)


@on_node()
async def test_what_was_got_goes_back_with_the_channel(node: Node) -> None:
    client = await declared(node)
    client.publish("work", b"1")
    await client.ask(basic.Get(queue="work"), basic.GetOk)
    await client.ask(channel.Close(), channel.CloseOk)
    await client.ask(channel.Open(), channel.OpenOk)
    answer = await client.ask(basic.Get(queue="work"), basic.GetOk)
    assert answer.redelivered


@on_node()
async def test_cancelling(node: Node) -> None:
    client = await declared(node)
    await consuming(client)
    client.publish("work", b"1")
    await client.deliveries()
    assert await client.ask(basic.Cancel("c"), basic.CancelOk) == basic.CancelOk("c")
    client.publish("work", b"2")
    assert await client.told() == []
    client.say(basic.Ack(1))
    assert await client.told() == [], "what it had can still be acknowledged"
    assert await client.ask(basic.Cancel("nobody"), basic.CancelOk) == basic.CancelOk("nobody")
    client.say(basic.Cancel("nobody", nowait=True))
    assert await client.told() == []


@on_node()
async def test_a_consumer_is_told_that_its_queue_is_gone(node: Node) -> None:
    client, other = await declared(node), await node.client()
    await consuming(client)
    await other.ask(queue.Delete(queue="work"), queue.DeleteOk)
    assert await client.told() == [basic.Cancel("c", nowait=True)]
    client.say(basic.CancelOk("c"))
    assert await client.told() == []


@on_node()
async def test_what_came_from_a_queue_that_is_gone(node: Node) -> None:
    client, other = await declared(node), await node.client()
    await consuming(client)
    client.publish("work", *[b"x"] * 5)
    await client.deliveries()
    await other.ask(queue.Delete(queue="work"), queue.DeleteOk)
    await client.told()
    client.say(basic.Ack(1), basic.Nack(2), basic.Reject(3, requeue=False))
    assert await client.told() == []
    await client.ask(channel.Close(), channel.CloseOk)


@on_node()
async def test_one_who_does_not_know_of_that_is_not_told(node: Node) -> None:
    client = await node.client(properties={})
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    await consuming(client)
    await client.ask(queue.Delete(queue="work"), queue.DeleteOk)


@on_node()
async def test_acknowledging_out_of_order(node: Node) -> None:
    client = await declared(node)
    await consuming(client)
    client.publish("work", *[str(number).encode() for number in range(1, 11)])
    await client.deliveries()
    client.say(*map(basic.Ack, (5, 3, 9, 10, 1)))
    await client.ask(channel.Close(), channel.CloseOk)
    await client.ask(channel.Open(), channel.OpenOk)
    await consuming(client)
    assert [body for _, body in await client.deliveries()] == [b"2", b"4", b"6", b"7", b"8"]


@on_node()
async def test_those_before_an_unknown_tag_are_acknowledged(node: Node) -> None:
    client = await declared(node)
    await consuming(client)
    client.publish("work", b"1", b"2", b"3")
    await client.deliveries()
    client.say(basic.Ack(3))
    refusal = await client.refused(basic.Ack(1), basic.Ack(2), basic.Ack(3))
    assert refusal == "PRECONDITION_FAILED - unknown delivery tag 3"
    await client.ask(channel.Open(), channel.OpenOk)
    answer = await client.ask(queue.Declare(queue="work", passive=True), queue.DeclareOk)
    assert answer.message_count == 0


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (basic.Ack(7), "PRECONDITION_FAILED - unknown delivery tag 7"),
        (basic.Ack(0), "PRECONDITION_FAILED - unknown delivery tag 0"),
        (basic.Ack(7, multiple=True), "PRECONDITION_FAILED - unknown delivery tag 7"),
        (basic.Nack(7), "PRECONDITION_FAILED - unknown delivery tag 7"),
        (basic.Reject(7), "PRECONDITION_FAILED - unknown delivery tag 7"),
        (basic.Get(queue="nosuch"), "NOT_FOUND - no queue 'nosuch' in vhost '/'"),
        (basic.Consume(queue="nosuch"), "NOT_FOUND - no queue 'nosuch' in vhost '/'"),
        (basic.Consume(), "NOT_FOUND - no previously declared queue"),
        (
            basic.Consume(queue="work", arguments={"x-priority": "high"}),
            "PRECONDITION_FAILED - invalid arg 'x-priority' for queue 'work' in vhost '/': "
            '"expected integer, got longstr"',
        ),
    ],
)
@on_node()
async def test_what_closes_the_channel(node: Node, method: basic.Ack, text: str) -> None:
    await declared(node)
    client = await node.client()
    assert await client.refused(method) == text
    await client.ask(channel.Open(), channel.OpenOk)


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ([basic.Qos(prefetch_size=9)], "NOT_IMPLEMENTED - prefetch_size!=0 (9)"),
        ([basic.Recover(requeue=False)], "NOT_IMPLEMENTED - requeue=false"),
        (
            [basic.Consume(queue="work", consumer_tag="c")] * 2,
            "NOT_ALLOWED - attempt to reuse consumer tag 'c'",
        ),
        ([basic.QosOk()], "COMMAND_INVALID - unimplemented method"),
    ],
)
@on_node()
async def test_what_closes_the_connection(node: Node, methods: list[basic.Qos], text: str) -> None:
    client = await declared(node)
    client.say(*methods)
    close = (await client.told())[-1]
    assert isinstance(close, connection.Close)
    assert close.reply_text == text
    assert (close.class_id, close.method_id) == methods[0].ID
    assert client.link.closed == text


@on_node()
async def test_an_exclusive_consumer(node: Node) -> None:
    client, other = await declared(node), await node.client()
    await consuming(client, exclusive=True)
    assert (
        await other.refused(basic.Consume(queue="work"))
        == "ACCESS_REFUSED - queue 'work' in vhost '/' in exclusive use"
    )


@on_node()
async def test_ack_of_everything(node: Node) -> None:
    client = await declared(node)
    await consuming(client)
    client.publish("work", b"1", b"2", b"3")
    await client.deliveries()
    client.say(basic.Ack(0, multiple=True))
    await client.ask(channel.Close(), channel.CloseOk)
    await client.ask(channel.Open(), channel.OpenOk)
    await client.ask(basic.Get(queue="work"), basic.GetEmpty)


@on_node()
async def test_a_quorum_queue_counts(node: Node) -> None:
    client = await node.client()
    arguments = {"x-queue-type": "quorum"}
    declare = queue.Declare(queue="work", durable=True, arguments=arguments)
    await client.ask(declare, queue.DeclareOk)
    await consuming(client)
    client.publish("work", b"1")
    counts = []
    for tag in range(1, 4):
        await asyncio.sleep(1)
        (heard,) = client.heard()
        counts.append(PropertyView(heard.properties).header("x-delivery-count"))
        client.say(basic.Nack(tag))
    assert counts == [None, 1, 2]


@on_node()
async def test_a_consumer_selects_by_headers(node: Node) -> None:
    client = await declared(node)
    for price in (120, 90, 80):
        head = encode(BasicProperties(headers={"price": price}))
        client.publish("work", str(price).encode(), properties=head)
    await consuming(client, no_ack=True, arguments={"x-selector": "price < 100"})
    assert [body for _, body in await client.deliveries()] == [b"90", b"80"]
    client.say(basic.Get(queue="work", no_ack=True))
    assert [body for _, body in [(0, each.body) for each in await heard(client)]] == [b"120"]


async def heard(client: Client) -> list[Heard]:
    await asyncio.sleep(1)
    return client.heard()


@on_node()
async def test_a_selector_that_cannot_be_parsed_is_refused_with_its_place(node: Node) -> None:
    client = await declared(node)
    text = await client.refused(
        basic.Consume(queue="work", arguments={"x-selector": "price << 100"})
    )
    assert "at character 8 (< 100)" in text
    await client.ask(channel.Open(), channel.OpenOk)
    text = await client.refused(basic.Consume(queue="work", arguments={"x-selector": 5}))
    assert "expected a text" in text


@on_node()
async def test_who_browses_gets_copies_and_does_not_acknowledge(node: Node) -> None:
    client = await declared(node)
    client.publish("work", b"1", b"2", b"3")
    await consuming(client, no_ack=True, arguments={"x-browse": True, "x-until-end": True})
    kinds = [type(each.method) for each in await heard(client)]
    assert kinds == [basic.Deliver] * 3 + [basic.Cancel]
    found = await client.ask(queue.Declare(queue="work", passive=True), queue.DeclareOk)
    assert found.message_count == 3
    text = await client.refused(basic.Consume(queue="work", arguments={"x-browse": True}))
    assert "who browses cannot acknowledge" in text


@on_node()
async def test_a_consumer_until_the_end_is_cancelled_when_it_has_seen_all(node: Node) -> None:
    client = await declared(node)
    client.publish("work", b"1", b"2", b"3")
    arguments = {"x-selector": "TRUE", "x-until-end": True}
    await consuming(client, no_ack=True, arguments=arguments)
    kinds = [type(each.method) for each in await heard(client)]
    assert kinds == [basic.Deliver] * 3 + [basic.Cancel]
    await consuming(client, no_ack=True, arguments={"x-until-end": True})
    assert [type(each.method) for each in await heard(client)] == [basic.Cancel]
    client.publish("work", b"4")
    assert await client.deliveries() == []
