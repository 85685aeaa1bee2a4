"""Publishing: confirms, returns, and what is wrong with a message."""

import asyncio
import errno

import pytest

from entrepot.broker.queue.message import Publication, Run
from entrepot.core import limits
from entrepot.core.ports import Buffer
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.deliver import content
from entrepot.wire.amqp.methods import basic, channel, confirm, connection, exchange, queue
from entrepot.wire.amqp.properties import NONE, BasicProperties, encode
from tests.unit.gateway.amqp.node import FRAME_BYTES_MAX, Client, Heard, Node, on_node

PERSISTENT = encode(BasicProperties(delivery_mode=2))


async def confirming(node: Node, **options: bool) -> Client:
    client = await node.client()
    await client.ask(confirm.Select(), confirm.SelectOk)
    await client.ask(queue.Declare(queue="work", **options), queue.DeclareOk)  # type: ignore[arg-type]
    return client


@on_node()
async def test_a_run_is_confirmed_with_one_word(node: Node) -> None:
    client = await confirming(node, durable=True)
    client.publish("work", *[b"x"] * 50, properties=PERSISTENT)
    assert client.heard() == [], "not before it is permanent"
    assert await client.told() == [basic.Ack(50, multiple=True)]
    client.publish("work", b"x", properties=PERSISTENT)
    assert await client.told() == [basic.Ack(51)]


@on_node()
async def test_what_goes_nowhere_is_confirmed(node: Node) -> None:
    client = await confirming(node)
    client.publish("nowhere", b"x")
    assert client.heard() == [Heard(1, basic.Ack(1))]


@on_node()
async def test_what_is_returned_comes_before_its_confirmation(node: Node) -> None:
    client = await confirming(node)
    client.publish("nowhere", b"one", b"two", properties=PERSISTENT, mandatory=True)
    client.publish("work", b"three", mandatory=True)
    await asyncio.sleep(1)
    returned = basic.Return(312, "NO_ROUTE", "", "nowhere")
    assert client.heard() == [
        Heard(1, returned, PERSISTENT, b"one"),
        Heard(1, returned, PERSISTENT, b"two"),
        Heard(1, basic.Ack(2, multiple=True)),
        Heard(1, basic.Ack(3)),
    ]


@on_node()
async def test_a_full_queue_refuses(node: Node) -> None:
    client = await node.client()
    await client.ask(confirm.Select(), confirm.SelectOk)
    arguments = {"x-max-length": 2, "x-overflow": "reject-publish"}
    await client.ask(queue.Declare(queue="small", arguments=arguments), queue.DeclareOk)
    client.publish("small", b"1", b"2", b"3")
    assert await client.told() == [
        basic.Ack(1),
        basic.Ack(2),
        basic.Nack(3, requeue=False),
    ]


@on_node()
async def test_confirmed_when_it_is_consumed(node: Node) -> None:
    client = await confirming(node, durable=True)
    patient = encode(BasicProperties(headers={"x-confirm": "consumed"}, delivery_mode=2))
    client.publish("work", b"wait", properties=patient)
    client.publish("work", b"go", properties=PERSISTENT)
    assert await client.told() == [basic.Ack(2)]
    await client.ask(basic.Get(queue="work"), basic.GetOk)
    client.say(basic.Ack(1))
    assert await client.told() == [basic.Ack(1)]


@on_node()
async def test_transient_messages_need_no_disk(node: Node) -> None:
    client = await confirming(node)
    client.publish("work", b"x")
    await asyncio.sleep(0)
    await asyncio.sleep(0.000_001)
    assert [each.method for each in client.heard()] == [basic.Ack(1)]


@on_node()
async def test_immediate_is_not_there(node: Node) -> None:
    client = await node.client()
    client.send(
        b"".join(_content(basic.Publish(0, "", "work", immediate=True))),
    )
    close = (await client.told())[-1]
    assert isinstance(close, connection.Close)
    assert close.reply_text == "NOT_IMPLEMENTED - immediate=true"
    assert (close.class_id, close.method_id) == basic.Publish.ID


def _content(method: basic.Publish) -> list[bytes]:
    from entrepot.wire.amqp.deliver import content

    return [bytes(chunk) for chunk in content(1, method, NONE, b"x", 4_096)]


@pytest.mark.parametrize(
    ("key", "properties", "to", "text"),
    [
        ("k", BasicProperties(), "nosuch", "NOT_FOUND - no exchange 'nosuch' in vhost '/'"),
        (
            "k",
            BasicProperties(),
            "amq.rabbitmq.trace",
            "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' "
            "in vhost '/'",
        ),
        (
            "work",
            BasicProperties(expiration="soon"),
            "",
            "PRECONDITION_FAILED - invalid expiration 'soon': no_integer",
        ),
        (
            "work",
            BasicProperties(user_id="ana"),
            "",
            "PRECONDITION_FAILED - user_id property set to 'ana' "
            "but authenticated user was 'guest'",
        ),
        (
            "work",
            BasicProperties(reply_to="amq.rabbitmq.reply-to"),
            "",
            "PRECONDITION_FAILED - fast reply consumer does not exist",
        ),
        (
            "work",
            BasicProperties(headers={"CC": "not a list"}),
            "",
            'PRECONDITION_FAILED - invalid message: {unacceptable_type_in_header,"CC",longstr}',
        ),
    ],
)
@on_node()
async def test_what_closes_the_channel(
    node: Node, key: str, properties: BasicProperties, to: str, text: str
) -> None:
    client = await node.client()
    client.publish(key, b"x", exchange=to, properties=encode(properties))
    assert await client.closed() == text
    await client.ask(channel.Open(), channel.OpenOk)


@on_node()
async def test_those_before_a_wrong_one_are_published(node: Node) -> None:
    client = await confirming(node)
    wrong = encode(BasicProperties(expiration="soon"))
    client.publish("work", b"1", b"2")
    # In one run with those before it and after it.
    client.send(
        b"".join(
            b"".join(_message(properties, body))
            for properties, body in ((NONE, b"3"), (wrong, b"4"), (NONE, b"5"))
        )
    )
    assert "invalid expiration" in await client.closed()
    await client.ask(channel.Open(), channel.OpenOk)
    answer = await client.ask(queue.Declare(queue="work", passive=True), queue.DeclareOk)
    assert answer.message_count == 3


def _message(properties: bytes, body: bytes) -> list[bytes]:
    from entrepot.wire.amqp.deliver import content

    method = basic.Publish(0, "", "work")
    return [bytes(chunk) for chunk in content(1, method, properties, body, 4_096)]


@on_node()
async def test_a_user_may_say_who_it_is(node: Node) -> None:
    client = await confirming(node)
    client.publish("work", b"x", properties=encode(BasicProperties(user_id="guest")))
    assert await client.told() == [basic.Ack(1)]


@on_node()
async def test_what_was_published_is_found_by_who_asks_next(node: Node) -> None:
    client = await node.client()
    await client.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    client.publish("work", b"1", b"2", properties=PERSISTENT)
    client.say(basic.Get(queue="work"), queue.Declare(queue="work", passive=True))
    assert await client.told() == [
        basic.GetOk(1, False, "", "work", 1),
        queue.DeclareOk("work", 1, 0),
    ]
    client.publish("work", b"3", properties=PERSISTENT)
    client.say(queue.Purge(queue="work"))
    assert await client.told() == [queue.PurgeOk(2)]


@on_node()
async def test_who_publishes_too_fast_is_not_read_from(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(amqp_limits, "UNCOMMITTED_BYTES_MAX", 1_000)
    client = await confirming(node, durable=True)
    client.publish("work", bytes(600), properties=PERSISTENT)
    assert not client.link.is_paused
    client.publish("work", bytes(600), properties=PERSISTENT)
    assert client.link.is_paused
    assert await client.told() == [basic.Ack(2, multiple=True)]
    assert not client.link.is_paused


@on_node()
async def test_a_failing_disk(node: Node) -> None:
    client = await confirming(node, durable=True)
    node.disk.fail_next("sync", errno.EIO, "*", 5)
    client.publish("work", b"x", properties=PERSISTENT)
    assert await client.told() == [basic.Nack(1, requeue=False)]


@on_node()
async def test_confirms_of_channels_are_their_own(node: Node) -> None:
    client = await node.client(channels=2)
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    await client.ask(confirm.Select(), confirm.SelectOk)
    await client.ask(confirm.Select(), confirm.SelectOk, on=2)
    client.publish("work", b"1", on=1)
    client.publish("work", b"1", on=2)
    await asyncio.sleep(1)
    heard = sorted(client.heard(), key=lambda each: each.channel)
    assert heard == [Heard(1, basic.Ack(1)), Heard(2, basic.Ack(1))]


@on_node()
async def test_through_an_exchange(node: Node) -> None:
    client = await confirming(node)
    await client.ask(exchange.Declare(exchange="logs", type="fanout"), exchange.DeclareOk)
    await client.ask(queue.Bind(queue="work", exchange="logs"), queue.BindOk)
    client.publish("any", b"x", exchange="logs", mandatory=True)
    assert await client.told() == [basic.Ack(1)]
    answer = await client.ask(basic.Get(queue="work"), basic.GetOk)
    assert (answer.exchange, answer.routing_key) == ("logs", "any")


# Many keys.


def frames(
    *places: tuple[str, bytes],
    exchange: str = "",
    properties: bytes = NONE,
    mandatory: bool = False,
) -> list[Buffer]:
    """To be sent at once: one read."""
    found: list[Buffer] = []
    for key, body in places:
        method = basic.Publish(0, exchange, key, mandatory)
        found += content(1, method, properties, body, FRAME_BYTES_MAX)
    return found


@pytest.mark.parametrize("durable", [False, True])
@on_node()
async def test_a_run_of_many_keys_is_confirmed_with_one_word(node: Node, durable: bool) -> None:
    client = await confirming(node, durable=durable)
    await client.ask(queue.Bind(queue="work", exchange="amq.topic", routing_key="#"), queue.BindOk)
    places = [(f"k.{number % 7}", b"%d" % number) for number in range(50)]
    client.send(*frames(*places, exchange="amq.topic", properties=PERSISTENT))
    assert await client.told() == [basic.Ack(50, multiple=True)]


@on_node()
async def test_each_message_is_delivered_under_its_own_key(node: Node) -> None:
    client = await confirming(node)
    await client.ask(queue.Bind(queue="work", exchange="amq.topic", routing_key="#"), queue.BindOk)
    client.say(basic.Consume(queue="work", consumer_tag="c"))
    await client.told()
    places = [(f"k.{number % 3}", b"%d" % number) for number in range(9)]
    client.send(*frames(*places, exchange="amq.topic"))
    await asyncio.sleep(1)
    heard = [each for each in client.heard() if isinstance(each.method, basic.Deliver)]
    assert [(each.method, each.body) for each in heard] == [
        (basic.Deliver("c", tag, False, "amq.topic", key), body)
        for tag, (key, body) in enumerate(places, 1)
    ]
    client.say(basic.Nack(0, multiple=True, requeue=True))
    await asyncio.sleep(1)
    assert [(each.method, each.body) for each in client.heard()] == [
        (basic.Deliver("c", tag, True, "amq.topic", key), body)
        for tag, (key, body) in enumerate(places, 10)
    ]


@on_node()
async def test_those_that_went_nowhere_come_back_with_their_keys(node: Node) -> None:
    client = await confirming(node)
    client.send(*frames(("none", b"1"), ("work", b"2"), ("nobody", b"3"), mandatory=True))
    await asyncio.sleep(1)
    assert client.heard() == [
        Heard(1, basic.Return(312, "NO_ROUTE", "", "none"), NONE, b"1"),
        Heard(1, basic.Return(312, "NO_ROUTE", "", "nobody"), NONE, b"3"),
        Heard(1, basic.Ack(3, multiple=True)),
    ]


@on_node()
async def test_a_full_queue_refuses_its_own_of_many_keys(node: Node) -> None:
    client = await confirming(node)
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await client.ask(queue.Declare(queue="small", arguments=arguments), queue.DeclareOk)
    client.send(*frames(("small", b"1"), ("work", b"2"), ("small", b"3"), ("work", b"4")))
    assert await client.told() == [
        basic.Ack(1),
        basic.Ack(2),
        basic.Nack(3, requeue=False),
        basic.Ack(4),
    ]


@on_node()
async def test_what_comes_before_the_wrong_one_is_published_under_any_key(node: Node) -> None:
    client = await confirming(node)
    await client.ask(queue.Declare(queue="other"), queue.DeclareOk)
    wrong = encode(BasicProperties(expiration="soon"))
    client.send(
        *frames(("work", b"1"), ("other", b"2")),
        *frames(("work", b"3"), properties=wrong),
        *frames(("other", b"4"), ("work", b"5")),
    )
    assert "invalid expiration" in await client.closed()
    client.say(channel.Open())
    await client.told()
    for name in ("work", "other"):
        found = await client.ask(queue.Declare(queue=name, passive=True), queue.DeclareOk)
        assert found.message_count == 1


@pytest.mark.pure
@on_node()
async def test_a_large_message_between_others_is_a_run_of_its_own(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "LARGE_BYTES", 100)
    client = await confirming(node)
    runs: list[list[int]] = []
    work = node.broker.vhosts.default.queue("work")
    take = work.publish

    def noted(run: Run, publication: Publication | None, **options: bool) -> None:
        runs.append([len(body) for _, body in run.messages])
        take(run, publication, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(work, "publish", noted)
    client.publish("work", b"a", b"b", bytes(101), bytes(102), b"c")
    await asyncio.sleep(1)
    assert runs == [[1, 1], [101], [102], [1]]
    assert client.heard()[-1].method in (basic.Ack(5, multiple=True), basic.Ack(5))
    client.publish("work", bytes(90), bytes(90))
    assert runs[4:] == [[90, 90]]
