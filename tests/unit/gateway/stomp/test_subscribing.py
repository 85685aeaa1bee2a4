"""SUBSCRIBE and UNSUBSCRIBE, and what is delivered."""

import asyncio

import pytest

from entrepot.broker.permissions import Permission, permission_record
from entrepot.core import limits
from entrepot.wire.amqp.methods import basic, exchange, queue
from entrepot.wire.amqp.properties import BasicProperties, encode
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import VERSIONS
from tests.unit.gateway.amqp.node import Node, on_node
from tests.unit.gateway.stomp.peer import answer, connected, counts


@pytest.mark.parametrize("version", VERSIONS)
@on_node()
async def test_messages_are_delivered_in_order(node: Node, version: str) -> None:
    peer = await connected(node, version)
    peer.send("/queue/a", b"1", b"2", b"with\0nul", foo="bar")
    peer.say("SUBSCRIBE", destination="/queue/a", id="my sub")
    first, *others = await peer.messages()
    assert first.body == b"1"
    assert [each.body for each in others] == [b"2", b"with\0nul"]
    assert first.headers.keys() == {
        *("subscription", "message-id", "destination", "persistent", "foo", "content-length"),
    }
    assert first.headers["subscription"] == "my sub"
    assert first.headers["destination"] == "/queue/a"
    assert first.headers["foo"] == "bar"
    assert len({each.headers["message-id"] for each in (first, *others)}) == 3
    assert counts(node, "a") == (0, 0)  # The mode is auto.


@on_node()
async def test_a_subscription_without_an_id_is_its_destination(node: Node) -> None:
    peer = await connected(node, "1.0")
    await peer.ask("SUBSCRIBE", destination="/queue/a", ack="client")
    peer.send("/queue/a", b"x")
    [message] = await peer.messages()
    assert "subscription" not in message.headers
    await peer.ask("ACK", message_id=message.headers["message-id"])
    await peer.ask("UNSUBSCRIBE", destination="/queue/a")
    peer.send("/queue/a", b"y")
    assert await peer.messages() == []


# Prefetch, and those who do not read.


@on_node()
async def test_a_prefetch_is_a_limit(node: Node) -> None:
    peer = await connected(node)
    await peer.ask(
        "SUBSCRIBE", destination="/queue/a", id=1, ack="client-individual", prefetch_count=2
    )
    peer.send("/queue/a", *[b"%d" % number for number in range(5)])
    first, second = await peer.messages()
    answer(peer, second)
    [third] = await peer.messages()
    peer.say("BEGIN", transaction="t")
    answer(peer, third, transaction="t")
    assert await peer.messages() == []  # Not before it is committed.
    peer.say("COMMIT", transaction="t")
    assert await peer.bodies() == [b"3"]
    answer(peer, first)
    assert await peer.bodies() == [b"4"]


@pytest.mark.parametrize("ack", ["auto", "client"])
@on_node()
async def test_a_reader_that_stops_gets_no_more(node: Node, ack: str) -> None:
    sender, reader = await connected(node), await connected(node)
    await reader.ask("SUBSCRIBE", destination="/queue/a", id=1, ack=ack)
    reader.link.is_stuck = True
    body = b"x" * (64 * limits.KIB)
    for _ in range(8):
        sender.send("/queue/a", *[body] * 25)
        await asyncio.sleep(1)
    assert 0 < reader.link.backlog <= limits.BACKLOG_BYTES_HIGH + limits.QUEUE_TURN_BYTES_MAX
    ready, _ = counts(node, "a")
    assert ready > 0
    reader.link.is_stuck, reader.link.backlog = False, 0
    reader.adapter.drained()
    bodies = await reader.bodies()
    await asyncio.sleep(5)
    bodies += await reader.bodies()
    assert len(bodies) == 200


@on_node()
async def test_others_go_on_while_one_does_not_read(node: Node) -> None:
    stuck, reader = await connected(node), await connected(node)
    for peer in (stuck, reader):
        await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client", prefetch_count=1)
    stuck.link.is_stuck = True
    reader.send("/queue/a", *[b"x"] * 10)
    seen = 0
    for _ in range(9):
        [message] = await reader.messages()
        answer(reader, message)
        seen += 1
    assert seen == 9


@on_node()
async def test_what_is_not_acknowledged_has_a_limit(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stomp_limits, "UNACKED_MAX", 3)
    peer = await connected(node)
    for name in "ab":
        await peer.ask("SUBSCRIBE", destination=f"/queue/{name}", id=name, ack="client")
    peer.send("/queue/a", b"1", b"2")
    assert len(await peer.messages()) == 2
    peer.send("/queue/b", b"3", b"4")
    [third] = await peer.messages()
    answer(peer, third)
    assert await peer.bodies() == [b"4"]


@on_node()
async def test_competing_subscriptions_share(node: Node) -> None:
    one, other = await connected(node), await connected(node)
    for peer in (one, other):
        await peer.ask("SUBSCRIBE", destination="/queue/a", id=1)
    one.send("/queue/a", *[b"%d" % number for number in range(10)])
    first, second = await one.bodies(), await other.bodies()
    assert sorted([*first, *second]) == [b"%d" % number for number in range(10)]
    assert len(first) == len(second)


@on_node()
async def test_a_priority(node: Node) -> None:
    low, high = await connected(node), await connected(node)
    await low.ask("SUBSCRIBE", destination="/queue/a", id=1, x_priority=-1)
    await high.ask("SUBSCRIBE", destination="/queue/a", id=1, x_priority=10)
    low.send("/queue/a", b"1", b"2")
    assert await high.bodies() == [b"1", b"2"]


# Topics and exchanges.


@on_node()
async def test_everybody_who_listens_gets_a_message_of_a_topic(node: Node) -> None:
    one, other = await connected(node), await connected(node, "1.0")
    await one.ask("SUBSCRIBE", destination="/topic/news.*", id=1)
    await other.ask("SUBSCRIBE", destination="/topic/#", id=1)
    one.send("/topic/news.sport", b"goal")
    one.send("/topic/weather", b"rain")
    [message] = await one.messages()
    assert message.headers["destination"] == "/topic/news.sport"
    assert await other.bodies() == [b"goal", b"rain"]
    names = [*node.broker.vhosts.default.queues]
    assert len(names) == 2
    assert all(name.startswith("stomp-subscription-") for name in names)
    await one.ask("UNSUBSCRIBE", id=1)
    other.adapter.closed("gone")
    await asyncio.sleep(1)
    assert not node.broker.vhosts.default.queues


@on_node()
async def test_messages_of_exchanges(node: Node) -> None:
    amqp, peer = await node.client(), await connected(node)
    await amqp.ask(exchange.Declare(exchange="logs", type="direct"), exchange.DeclareOk)
    await peer.ask("SUBSCRIBE", destination="/exchange/logs/error", id=1)
    await peer.ask("SUBSCRIBE", destination="/exchange/amq.fanout", id=2)
    head = encode(BasicProperties(headers={"code": 5}))
    amqp.publish("error", b"a", exchange="logs", properties=head)
    amqp.publish("info", b"b", exchange="logs")
    amqp.publish("", b"c", exchange="amq.fanout")
    first, second = sorted(await peer.messages(), key=lambda message: message.body)
    assert (first.body, second.body) == (b"a", b"c")
    assert first.headers["destination"] == "/exchange/logs/error"
    assert first.headers["code"] == "5"
    assert second.headers["destination"] == "/exchange/amq.fanout"


@on_node()
async def test_a_durable_subscription_keeps_what_comes_meanwhile(node: Node) -> None:
    durable = {"destination": "/topic/news", "id": "mine", "durable": "true"}
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", **durable, auto_delete="false", ack="client")
    peer.say("DISCONNECT")
    await asyncio.sleep(1)
    peer = await connected(node)
    peer.send("/topic/news", b"missed")
    peer.say("SUBSCRIBE", **durable, auto_delete="false")
    assert await peer.bodies() == [b"missed"]
    [found] = node.broker.vhosts.default.queues.values()
    assert (found.spec.durable, found.spec.auto_delete) == (True, False)
    peer.say("UNSUBSCRIBE", id="mine")
    await asyncio.sleep(1)
    peer.send("/topic/news", b"again")
    peer.say("SUBSCRIBE", **durable)
    assert await peer.bodies() == [b"again"]
    await peer.ask("UNSUBSCRIBE", id="mine", durable="true")
    assert not node.broker.vhosts.default.queues


@on_node()
async def test_a_queue_of_a_subscription_can_have_a_name(node: Node) -> None:
    peer = await connected(node)
    await peer.ask(
        "SUBSCRIBE", destination="/topic/news", id=1, x_queue_name="audit", durable="true"
    )
    assert [*node.broker.vhosts.default.queues] == ["audit"]


@pytest.mark.parametrize(
    ("headers", "text"),
    [
        ({"destination": "/queue/a", "selector": "x ="}, "invalid selector, at character 4"),
        ({"destination": "/queue/a", "ack": "never"}, "ack:never is none of auto, client"),
        ({"destination": "/queue/a", "prefetch_count": "few"}, "prefetch-count:few is not a"),
        ({"destination": "/queue/a", "x_priority": "high"}, "x-priority:high is not a number"),
        ({"destination": "/queue/a", "id": "/temp-queue/x"}, "id must not begin with"),
        ({"destination": "/queue/a", "x_max_priority": "999"}, "x-max-priority"),
        ({"destination": "/queue/amq.x"}, "queue name 'amq.x' is reserved"),
        ({"destination": "/topic/a", "x_queue_name": "amq.x"}, "queue name 'amq.x' is reserved"),
        ({"destination": "/amq/queue/none"}, "no queue 'none' in vhost '/'"),
        ({"destination": "/temp-queue/x"}, "/temp-queue/… cannot be subscribed to"),
        ({"destination": "/exchange/none/k"}, "no exchange 'none' in vhost '/'"),
        ({"destination": "/queue/orders"}, "'orders' is a topic, which cannot be subscribed to"),
        ({"destination": "/queue/__consumer_offsets"}, "is the broker's own"),
        ({"destination": "/exchange/hash/many"}, "needs a weight from 1 to"),
        ({"destination": "/elsewhere"}, "'/elsewhere' is not a valid destination"),
        ({}, "SUBSCRIBE needs the header destination"),
    ],
)
@on_node()
async def test_what_is_refused(node: Node, headers: dict[str, str], text: str) -> None:
    await node.broker.create_topic("orders")
    amqp = await node.client()
    declare = exchange.Declare(exchange="hash", type="x-consistent-hash")
    await amqp.ask(declare, exchange.DeclareOk)
    peer = await connected(node)
    peer.say("SUBSCRIBE", **{"id": "1", **headers})
    assert text in await peer.refused()


@on_node()
async def test_a_durable_subscription_needs_an_id(node: Node) -> None:
    peer = await connected(node, "1.0")
    peer.say("SUBSCRIBE", destination="/topic/a", durable="true")
    assert await peer.refused() == "a durable subscription needs the header id"


@on_node()
async def test_ids_are_unique(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1)
    peer.say("SUBSCRIBE", destination="/queue/b", id=1)
    assert await peer.refused() == "subscription '1' exists already"


@on_node()
async def test_subscriptions_have_a_limit(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_limits, "SUBSCRIPTIONS_MAX", 2)
    peer = await connected(node)
    for number in range(2):
        await peer.ask("SUBSCRIBE", destination="/queue/a", id=number)
    peer.say("SUBSCRIBE", destination="/queue/a", id=3)
    assert await peer.refused() == "more than 2 subscriptions"


# Ending.


@on_node()
async def test_only_queues_of_subscriptions_are_deleted_with_them(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1)
    await peer.ask("UNSUBSCRIBE", id=1, durable="true")
    assert "a" in node.broker.vhosts.default.queues


@on_node()
async def test_after_unsubscribing_a_delivery_can_be_acknowledged(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client-individual")
    peer.send("/queue/a", b"1", b"2")
    first, second = await peer.messages()
    await peer.ask("UNSUBSCRIBE", id=1)
    answer(peer, first)
    answer(peer, second, "NACK")
    await asyncio.sleep(1)
    assert counts(node, "a") == (1, 0)
    connection = peer.adapter._connection
    assert connection is not None
    assert not connection.numbered
    await peer.ask("SUBSCRIBE", destination="/queue/b", id=1)  # The id is free again.
    peer.say("UNSUBSCRIBE", id=2)
    assert await peer.refused() == "no subscription '2'"


@on_node()
async def test_a_queue_that_is_deleted_ends_the_connection(node: Node) -> None:
    amqp, peer = await node.client(), await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1)
    await amqp.ask(queue.Delete(queue="a"), queue.DeleteOk)
    assert await peer.refused() == "subscription '1' has ended: its queue is gone"


@on_node()
async def test_an_administrator_closes_a_connection(node: Node) -> None:
    peer = await connected(node)
    [session] = node.broker.sessions
    session.close("maintenance")
    assert await peer.refused() == "maintenance"
    assert len(node.broker.sessions) == 0


@on_node()
async def test_a_client_that_goes_while_it_subscribes_leaves_nothing(node: Node) -> None:
    peer = await connected(node)
    peer.say("SUBSCRIBE", destination="/queue/a", id=1)
    peer.adapter.closed("gone")
    await asyncio.sleep(1)
    assert node.broker.vhosts.default.queue("a").consumer_count == 0


@on_node()
async def test_facts(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id="s", ack="client", prefetch_count=7)
    peer.send("/queue/a", b"1")
    peer.say("BEGIN", transaction="t")
    peer.send("/queue/b", b"2", transaction="t")
    await peer.messages()
    [session] = node.broker.sessions
    facts = session.facts()
    [channel] = facts.channels
    assert (channel.unacked, channel.uncommitted, channel.is_transactional) == (1, 1, True)
    [consumer] = channel.consumers
    assert (consumer.tag, consumer.queue, consumer.prefetch) == ("s", "a", 7)


# Rights.


@on_node(authorizes=True)
async def test_rights_are_those_of_amqp(node: Node) -> None:
    async def refused(destination: str, rights: Permission, **headers: str) -> str:
        await node.broker.change_security(permission_record("guest", "/", rights))
        peer = await connected(node)
        peer.say("SUBSCRIBE", destination=destination, id=1, receipt="r", **headers)
        heard = await peer.told()
        peer.adapter.closed("gone")
        return heard[-1].headers.get("message", "")

    assert "create access to queue 'a'" in await refused("/queue/a", Permission("", "", ""))
    assert "read access to queue 'a'" in await refused("/queue/a", Permission("a", "", ""))
    assert await refused("/queue/a", Permission("", "", "a")) == ""
    topic, own = "/topic/news", "stomp-.*"
    assert "create access to queue 'stomp-" in await refused(topic, Permission("", "", ""))
    assert "write access to queue 'stomp-" in await refused(topic, Permission(own, "", ""))
    assert "read access to exchange 'amq.topic'" in await refused(topic, Permission(own, own, own))
    assert await refused(topic, Permission(own, own, f"{own}|amq.topic")) == ""
    dead = {"x_dead_letter_exchange": "amq.fanout"}
    assert "read access to queue 'd'" in await refused("/queue/d", Permission("d", "", ""), **dead)
    assert "write access to exchange 'amq.fanout'" in await refused(
        "/queue/d", Permission("d", "", "d"), **dead
    )


@on_node()
async def test_amqp_reads_what_stomp_wrote_and_the_other_way(node: Node) -> None:
    amqp, peer = await node.client(), await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client")
    amqp.publish("a", b"from amqp", properties=encode(BasicProperties(app_id="x")))
    [message] = await peer.messages()
    assert (message.body, message.headers["app-id"]) == (b"from amqp", "x")
    answer(peer, message)
    await peer.ask("UNSUBSCRIBE", id=1)
    peer.send("/queue/a", b"from stomp", app_id="y", other="z")
    await asyncio.sleep(1)
    amqp.say(basic.Get(queue="a", no_ack=True))
    await asyncio.sleep(1)
    [got] = amqp.heard()
    assert got.body == b"from stomp"
    assert got.properties == encode(
        BasicProperties(app_id="y", delivery_mode=2, headers={"other": "z"})
    )
