"""The adapter's manners: one write for a turn, and not more in memory than fits."""

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from entrepot.core import limits
from entrepot.core.faults import Faults
from entrepot.gateway import pump
from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.frames import method_frame
from entrepot.wire.amqp.methods import basic, channel, connection, exchange, queue
from tests.unit.gateway.amqp.node import Client, Node, on_node

HIGH = limits.BACKLOG_BYTES_HIGH


@on_node()
async def test_a_block_is_answered_with_one_write(node: Node) -> None:
    client = await node.client()
    client.say(*[basic.Qos(0, number) for number in range(1, 100)])
    assert len(client.link.writes) == 1
    assert len(client.heard()) == 99


@on_node()
async def test_what_a_commit_brings_is_one_write(node: Node) -> None:
    client, other = await node.client(), await node.client()
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    client.say(basic.Consume(queue="work", no_ack=True, nowait=True))
    for number in range(100):
        other.publish("work" if number % 2 else "nowhere", b"x")
    await asyncio.sleep(1)
    assert len(client.link.writes) == 1
    assert len(client.heard()) == 50


@on_node()
async def test_order_is_kept_while_something_takes_time(node: Node) -> None:
    client = await node.client()
    client.say(
        queue.Declare(queue="work", durable=True),
        basic.Qos(0, 5),
        exchange.Declare(exchange="x", durable=True),
        queue.Bind(queue="work", exchange="x"),
    )
    assert client.link.is_paused, "and nothing more is read meanwhile"
    assert [type(each) for each in await client.told()] == [
        queue.DeclareOk,
        basic.QosOk,
        exchange.DeclareOk,
        queue.BindOk,
    ]
    assert not client.link.is_paused


@on_node()
async def test_a_client_that_does_not_read_is_sent_no_more(node: Node) -> None:
    client, other = await node.client(), await node.client()
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    client.say(basic.Consume(queue="work", no_ack=True, nowait=True))
    client.link.is_stuck = True
    for _ in range(20):
        other.publish("work", *[bytes(10_000)] * 100)
        await asyncio.sleep(0.1)
    assert HIGH < client.link.backlog < 2 * HIGH
    assert not client.link.is_paused, "it may still speak"
    got = len(client.heard())
    assert got < 2_000
    client.link.is_stuck, client.link.backlog = False, 0
    client.adapter.drained()
    await asyncio.sleep(1)
    assert got + len(client.heard()) == 2_000


@on_node()
async def test_a_client_that_does_not_read_its_answers_is_not_heard(node: Node) -> None:
    client = await node.client()
    client.link.is_stuck = True
    for _ in range(100):
        if client.link.is_paused:
            break
        client.publish("nowhere", bytes(100_000), mandatory=True)
    assert client.link.backlog > 2 * HIGH
    assert client.link.is_paused
    client.link.backlog = 0
    client.adapter.drained()
    assert not client.link.is_paused


@on_node()
async def test_too_little_memory(node: Node) -> None:
    publisher, consumer = await node.client(), await node.client()
    plain = Client(node.context())
    await plain.open(properties={})
    await publisher.ask(queue.Declare(queue="work"), queue.DeclareOk)
    publisher.publish("work", bytes(100))
    plain.publish("work", bytes(100))
    await asyncio.sleep(1)
    memory = node.broker.vhosts.memory_use
    assert memory is not None
    memory.change(limits.TRANSIENT_BYTES_MAX)
    assert await publisher.told() == [connection.Blocked("low on memory")]
    assert await plain.told() == [], "one who does not know of that is not told"
    assert await consumer.told() == []
    states = [each.link.is_paused for each in (publisher, plain, consumer)]
    assert states == [True, True, False]
    memory.change(-limits.TRANSIENT_BYTES_MAX)
    assert await publisher.told() == [connection.Unblocked()]
    assert not publisher.link.is_paused


@on_node()
async def test_who_begins_to_publish_with_too_little_memory(node: Node) -> None:
    memory = node.broker.vhosts.memory_use
    assert memory is not None
    memory.change(limits.TRANSIENT_BYTES_MAX + 1)
    client = await node.client()
    assert await client.told() == []
    client.publish("nowhere", b"x")
    assert await client.told() == [connection.Blocked("low on memory")]
    client.adapter.closed("gone")
    memory.change(-limits.TRANSIENT_BYTES_MAX)
    assert await client.told() == []


@pytest.mark.pure
@on_node()
async def test_a_mistake_of_ours_ends_one_connection(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    node.broker.faults = faults = Faults()
    client, other = await node.client(), await node.client()

    async def broken(*_: object, **__: object) -> None:
        raise RuntimeError("ours")

    vhost = node.broker.vhosts.default
    monkeypatch.setattr(vhost, "declare_exchange", broken)
    client.say(exchange.Declare(exchange="x"))
    (close,) = await client.told()
    assert close == connection.Close(541, "INTERNAL_ERROR - internal error")
    assert client.link.closed
    assert faults.count == 1
    await other.ask(queue.Declare(queue="work"), queue.DeclareOk)


@pytest.mark.parametrize(
    "speak",
    [
        lambda client: client.say(queue.Declare(queue="work", durable=True)),
        lambda client: client.publish("work", b"x"),
        lambda client: client.say(basic.Consume(queue="work")),
        lambda client: client.say(channel.Close()),
    ],
)
@on_node()
async def test_a_client_may_go_at_any_time(node: Node, speak: Callable[[Client], None]) -> None:
    client, other = await node.client(), await node.client()
    await other.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    speak(client)
    client.adapter.closed("gone")
    await asyncio.sleep(1)
    other.publish("work", b"y")
    await other.ask(basic.Get(queue="work"), basic.GetOk)
    assert len(node.broker.sessions) == 1


@on_node()
async def test_nothing_is_served_after_the_end(node: Node) -> None:
    client = await node.client()
    client.send(method_frame(0, connection.Close()), method_frame(1, queue.Declare(queue="late")))
    assert await client.told() == [connection.CloseOk()]
    assert "late" not in node.broker.vhosts.default.queues


@on_node()
async def test_many_unacknowledged(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_limits, "UNACKED_MAX", 10)
    client = await node.client()
    await client.ask(queue.Declare(queue="work"), queue.DeclareOk)
    client.say(basic.Consume(queue="work", nowait=True))
    client.publish("work", *[b"x"] * 30)
    assert len(await client.deliveries()) == 10
    client.say(basic.Ack(5, multiple=True))
    assert len(await client.deliveries()) == 5
    client.say(basic.Get(queue="work"))
    (close,) = await client.told()
    assert isinstance(close, connection.Close)
    assert close.reply_text == "RESOURCE_ERROR - too many messages are not acknowledged"


@on_node()
async def test_much_is_served_in_turns(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pump, "TURN_EVENTS_MAX", 10)
    client = await node.client()
    client.say(*[basic.Qos(0, number) for number in range(25)])
    assert len(client.heard()) == 10
    assert client.link.is_paused
    assert await client.told() == [basic.QosOk()] * 15
    assert not client.link.is_paused


@on_node()
async def test_what_takes_long_is_served_in_turns(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A turn is over after a time, too: twenty thousand queues may be declared in a row."""
    client = await node.client()
    start_s = node.clock.monotonic()
    looks = count()  # Each takes a millisecond.
    monkeypatch.setattr(node.clock, "monotonic", lambda: start_s + next(looks) / 1_000)
    client.say(*[basic.Qos(0, number) for number in range(25)])
    assert len(client.heard()) == limits.TURN_MS
    assert await client.told() == [basic.QosOk()] * (25 - limits.TURN_MS)


@on_node()
async def test_nothing_is_delivered_after_the_end(node: Node) -> None:
    """Above all nothing that counts as acknowledged then."""
    client, other = await node.client(), await node.client()
    await client.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    client.say(basic.Consume(queue="work", no_ack=True, nowait=True))
    other.publish("work", b"x")  # It is committed after the client's end.
    client.say(basic.Qos(prefetch_size=1))
    assert client.link.closed
    await asyncio.sleep(1)
    assert node.broker.vhosts.default.queues["work"].ready_count == 1
