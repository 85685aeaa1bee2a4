"""SEND: where messages go, receipts, limits."""

import asyncio

import pytest

from entrepot.broker.permissions import Permission, permission_record
from entrepot.core import limits
from entrepot.wire.amqp.methods import basic, exchange, queue
from entrepot.wire.amqp.properties import BasicProperties, decode
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import Frame
from tests.unit.gateway.amqp.node import Node, on_node
from tests.unit.gateway.stomp.peer import Peer, answer, connected, context_of


def hold_syncs(node: Node) -> asyncio.Event:
    """Let no sync of the disk end before the event is set."""
    held = asyncio.Event()
    synced = node.disk.sync

    async def sync(*arguments: object) -> object:
        await held.wait()
        return await synced(*arguments)  # type: ignore[arg-type]

    node.disk.sync = sync  # type: ignore[method-assign, assignment]
    return held


def receipts(frames: list[Frame]) -> list[str]:
    assert all(frame.command == "RECEIPT" for frame in frames), frames
    return [frame.headers["receipt-id"] for frame in frames]


@on_node()
async def test_a_queue_is_declared_when_it_is_first_used(node: Node) -> None:
    peer = await connected(node)
    peer.send("/queue/work", b"a", receipt=1)
    assert receipts(await peer.told()) == ["1"]
    spec = node.broker.vhosts.default.queue("work").spec
    assert (spec.durable, spec.exclusive, spec.auto_delete, spec.arguments) == (
        True,
        False,
        False,
        (),
    )
    amqp = await node.client()
    await amqp.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)  # The same queue.
    amqp.say(basic.Get(queue="work"))
    await asyncio.sleep(1)
    [(_, method, properties, body)] = amqp.heard()
    assert isinstance(method, basic.GetOk)
    assert (method.exchange, method.routing_key, body) == ("", "work", b"a")
    assert decode(properties) == BasicProperties(delivery_mode=2)


@pytest.mark.pure
@on_node()
async def test_sends_of_one_read_are_one_run_and_one_write(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SEND", destination="/queue/work")
    queue_ = node.broker.vhosts.default.queue("work")
    runs = []
    publish = queue_.publish
    queue_.publish = lambda run, *rest, **more: (  # type: ignore[method-assign]
        runs.append(len(run.messages)),
        publish(run, *rest, **more),
    )[1]
    writes = peer.adapter.writes
    peer.write(
        b"".join(
            b"SEND\ndestination:/queue/work\nreceipt:%d\n\nx\0" % number for number in range(50)
        )
    )
    assert receipts(await peer.told()) == [*map(str, range(50))]
    assert runs == [50]
    assert peer.adapter.writes == writes + 1


@pytest.mark.pure
@on_node()
async def test_the_receipt_comes_after_the_commit(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SEND", destination="/queue/work")
    synced = node.disk.sync
    held = asyncio.Event()

    async def sync(*arguments: object) -> object:
        await held.wait()
        return await synced(*arguments)  # type: ignore[arg-type]

    node.disk.sync = sync  # type: ignore[method-assign, assignment]
    peer.send("/queue/work", b"b", receipt="r")
    assert await peer.told() == []
    held.set()
    assert receipts(await peer.told()) == ["r"]


@on_node()
async def test_topics_and_exchanges(node: Node) -> None:
    amqp, peer = await node.client(), await connected(node)
    await amqp.ask(exchange.Declare(exchange="logs", type="direct"), exchange.DeclareOk)
    for name, source, key in (("t", "amq.topic", "a.*"), ("l", "logs", "info"), ("e", "logs", "")):
        await amqp.ask(queue.Declare(queue=name), queue.DeclareOk)
        await amqp.ask(queue.Bind(queue=name, exchange=source, routing_key=key), queue.BindOk)
    for number, destination in enumerate(
        ("/topic/a.b", "/topic/other", "/exchange/logs/info", "/exchange/logs")
    ):
        peer.send(destination, b"%d" % number, receipt=number)
    assert sorted(receipts(await peer.told())) == ["0", "1", "2", "3"]
    vhost = node.broker.vhosts.default
    assert {name: vhost.queue(name).ready_count for name in "tle"} == {"t": 1, "l": 1, "e": 1}


@on_node()
async def test_a_subscriber_that_leaves_is_nothing_to_senders(node: Node) -> None:
    """Its queue goes with it, and may go between the message and its commit."""
    reader, peer = await connected(node), await connected(node)
    await reader.ask("SUBSCRIBE", destination="/topic/a", id=1)
    peer.send("/topic/a", b"x", receipt=1)
    reader.adapter.closed("gone")
    assert receipts(await peer.told()) == ["1"]
    await peer.ask("SEND", destination="/topic/a")


@on_node()
async def test_existing_queues(node: Node) -> None:
    amqp, peer = await node.client(), await connected(node)
    await amqp.ask(queue.Declare(queue="there"), queue.DeclareOk)
    peer.send("/amq/queue/there", b"x", receipt=1)
    peer.send("/queue/there", b"y", receipt=2)  # Though it is not durable.
    assert receipts(await peer.told()) == ["1", "2"]
    peer.send("/amq/queue/nowhere", b"x", receipt=3)
    [error] = await peer.told()
    assert error.command == "ERROR"
    assert error.headers["message"] == "no queue 'nowhere' in vhost '/'"
    assert error.headers["receipt-id"] == "3"
    assert error.body == b"no queue 'nowhere' in vhost '/'\n"
    assert peer.link.closed


@pytest.mark.parametrize(
    ("destination", "headers", "text"),
    [
        ("/exchange/nowhere/k", {}, "no exchange 'nowhere' in vhost '/'"),
        ("/temp-queue/x", {}, "/temp-queue/… cannot be sent to, only replied to"),
        ("/queue/amq.mine", {}, "queue name 'amq.mine' is reserved"),
        ("/queue/a/b", {}, "'/queue/a/b' is not a valid destination"),
        ("/queue/a", {"message_id": 1}, "SEND must not have the header message-id: use"),
        ("/queue/a", {"user_id": "ana"}, "user-id:ana is not 'guest', who is logged in"),
        ("/queue/a", {"transaction": "t"}, "no transaction 't' is open"),
        ("/queue/a", {"x_message_ttl": "soon"}, "x-message-ttl:soon is not a number"),
        ("/queue/a", {"x_queue_type": "stream"}, "is a stream, which cannot be made"),
        ("/queue/a", {"durable": "maybe"}, "durable:maybe is neither true nor false"),
    ],
)
@on_node()
async def test_what_is_refused(
    node: Node, destination: str, headers: dict[str, object], text: str
) -> None:
    peer = await connected(node)
    peer.send(destination, b"x", **headers)
    assert text in await peer.refused()


@on_node()
async def test_messages_before_a_mistake_are_sent(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SEND", destination="/queue/a")
    peer.write(
        b"SEND\ndestination:/queue/a\nreceipt:1\n\nx\0"
        b"SEND\ndestination:nowhere\nreceipt:2\n\nx\0"
        b"SEND\ndestination:/queue/a\nreceipt:3\n\nx\0"
    )
    heard = await peer.told()
    assert [frame.headers.get("receipt-id") for frame in heard] == ["2"]  # It closes at once.
    assert node.broker.vhosts.default.queue("a").ready_count == 2


@on_node()
async def test_settings_of_a_queue(node: Node) -> None:
    peer = await connected(node)
    arguments = {"x_message_ttl": 5_000, "x_max_length": 2, "x_overflow": "reject-publish"}
    peer.send("/queue/a", b"1", b"2", receipt="r", **arguments)
    assert len(await peer.told()) == 2
    settings = node.broker.vhosts.default.queue("a").settings
    assert (settings.ttl_ms, settings.length_max) == (5_000, 2)
    peer.send("/queue/a", b"3")  # Without a receipt nobody hears of it.
    assert await peer.told() == []
    peer.send("/queue/a", b"4", receipt="full")
    [error] = await peer.told()
    assert error.headers["message"] == "not stored: the queue is full"
    assert error.headers["receipt-id"] == "full"
    other = await connected(node)
    other.say("SUBSCRIBE", destination="/queue/a", id=1, x_message_ttl=6_000)
    assert await other.refused() == "queue 'a' exists with another x-message-ttl"


@on_node()
async def test_disconnect_tells_of_what_was_lost(node: Node) -> None:
    peer = await connected(node)
    peer.send("/queue/a", b"1", b"2", x_max_length=1, x_overflow="reject-publish")
    peer.say("DISCONNECT", receipt="bye")
    [error] = await peer.told()
    assert error.headers["message"] == "not everything is stored: the queue is full"


@on_node()
async def test_a_receipt_of_disconnect_is_for_everything_before(node: Node) -> None:
    peer = await connected(node)
    peer.send("/queue/a", *[b"x"] * 100)
    peer.say("DISCONNECT", receipt="bye")
    assert receipts(await peer.told()) == ["bye"]
    assert peer.link.closed == "closed by the client"
    assert node.broker.vhosts.default.queue("a").ready_count == 100
    assert len(node.broker.sessions) == 0


@on_node()
async def test_a_receipt_of_disconnect_is_for_acknowledgements_before(node: Node) -> None:
    """Also for those of subscriptions that have ended."""
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client")
    peer.send("/queue/a", b"x")
    [message] = await peer.messages()
    held = hold_syncs(node)
    answer(peer, message)
    peer.say("UNSUBSCRIBE", id=1)
    peer.say("DISCONNECT", receipt="bye")
    assert await peer.told() == []
    held.set()
    assert receipts(await peer.told()) == ["bye"]


@on_node()
async def test_large_messages(node: Node) -> None:
    peer = await connected(node)
    body = b"x" * (limits.LARGE_BYTES + 1)
    peer.send("/queue/a", b"small", body, b"small", receipt="r")
    assert len(await peer.told()) == 3
    peer.say("SUBSCRIBE", destination="/queue/a", id=1)
    assert [len(each) for each in await peer.bodies()] == [5, len(body), 5]


@on_node()
async def test_a_message_has_a_size_limit(node: Node) -> None:
    peer = Peer(context_of(node, message_bytes_max=1_000))
    await peer.connect()
    await peer.ask("SEND", b"x" * 1_000, destination="/queue/a")
    peer.send("/queue/a", b"x" * 1_001)
    assert await peer.refused() == "a body of more than 1000 bytes"


# Flow.


@pytest.mark.pure
@on_node()
async def test_who_sends_faster_than_the_disk_is_not_read_from(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SEND", destination="/queue/a")
    held = hold_syncs(node)
    body = b"x" * limits.MIB
    for _ in range(stomp_limits.UNCOMMITTED_BYTES_MAX // limits.MIB - 1):
        peer.send("/queue/a", body)
    assert not peer.link.is_paused
    peer.send("/queue/a", body)
    assert peer.link.is_paused  # With their heads, they are more than allowed.
    held.set()
    await asyncio.sleep(5)
    assert not peer.link.is_paused


@pytest.mark.pure
@on_node()
async def test_receipts_that_have_to_wait_count_as_well(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SEND", destination="/queue/a")
    held = hold_syncs(node)
    receipt = "r" * 5_000
    for _ in range(stomp_limits.UNCOMMITTED_BYTES_MAX // 6_000):
        peer.send("/queue/a", b"", receipt=receipt)
    assert not peer.link.is_paused
    for _ in range(stomp_limits.UNCOMMITTED_BYTES_MAX // 24_000):
        peer.send("/queue/a", b"", receipt=receipt)
    assert peer.link.is_paused
    held.set()
    await asyncio.sleep(5)


@on_node()
async def test_while_memory_is_low_senders_are_not_read_from(node: Node) -> None:
    sender, reader = await connected(node), await connected(node)
    sender.send("/queue/a", b"x")
    await asyncio.sleep(1)
    memory = node.broker.vhosts.memory_use
    assert memory is not None
    memory.change(2 * limits.TRANSIENT_BYTES_MAX)
    await asyncio.sleep(1)
    assert (sender.link.is_paused, reader.link.is_paused) == (True, False)
    [facts, _] = [each.facts() for each in node.broker.sessions]
    assert facts.state == "blocked"
    memory.change(-2 * limits.TRANSIENT_BYTES_MAX)
    await asyncio.sleep(1)
    assert not sender.link.is_paused


# Replies.


@on_node()
async def test_replies_come_to_a_queue_of_the_connection(node: Node) -> None:
    asking, answering = await connected(node), await connected(node)
    await answering.ask("SUBSCRIBE", destination="/queue/service", id=1)
    asking.send("/queue/service", b"2+2", b"3+3", reply_to="/temp-queue/sums", receipt="r")
    assert receipts(await asking.told()) == ["r", "r"]
    for request in await answering.messages():
        assert request.headers["reply-to"].startswith("/reply-queue/amq.gen-")
        answering.send(request.headers["reply-to"], b"= " + request.body)
    answers = await asking.messages()
    assert [answer.body for answer in answers] == [b"= 2+2", b"= 3+3"]
    assert {answer.headers["subscription"] for answer in answers} == {"/temp-queue/sums"}
    amqp = await node.client()
    name = request.headers["reply-to"].removeprefix("/reply-queue/")
    amqp.publish(name, b"from amqp")
    assert await asking.bodies() == [b"from amqp"]
    asking.adapter.closed("gone")
    await asyncio.sleep(1)
    assert name not in node.broker.vhosts.default.queues


# Rights.


@on_node(authorizes=True)
async def test_rights_are_those_of_amqp(node: Node) -> None:
    async def allow(configure: str, write: str, read: str) -> None:
        rights = Permission(configure, write, read)
        await node.broker.change_security(permission_record("guest", "/", rights))

    async def refused(destination: str) -> str:
        peer = await connected(node)
        peer.send(destination, b"x", receipt="r")
        heard = await peer.told()
        return heard[-1].headers.get("message", "")

    await allow("", "", "")
    assert "write access to exchange '' in vhost '/' refused" in await refused("/queue/a")
    assert "write access to exchange 'amq.topic'" in await refused("/topic/a")
    await allow("", "amq.default", "")
    assert "create access to queue 'a'" in await refused("/queue/a")
    await allow("a", "amq.default", "")
    assert await refused("/queue/a") == ""
    assert "create access to queue 'b'" in await refused("/queue/b")
    await node.broker.create_topic("stream", 1, {})
    assert "write access to queue 'stream'" in await refused("/queue/stream")
    await allow("", "amq.default|stream", "")
    assert await refused("/queue/stream") == ""
