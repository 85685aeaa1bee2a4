"""BEGIN, COMMIT and ABORT: all of it or nothing."""

import asyncio

import pytest

from entrepot.broker.queue.queue import Queue
from entrepot.broker.queue.settings import QueueSettings
from entrepot.core import limits
from entrepot.gateway.stomp.declaring import QueueDeclaration
from entrepot.gateway.stomp.transaction import TURN_MESSAGES_MAX
from entrepot.wire.amqp.methods import exchange, queue
from entrepot.wire.stomp import limits as stomp_limits
from entrepot.wire.stomp.frames import VERSIONS, Frame
from tests.unit.gateway.amqp.node import Node, on_node
from tests.unit.gateway.stomp.peer import Peer, answer, connected, counts


async def holding(node: Node, version: str = "1.2") -> tuple[Peer, list[Frame]]:
    """A client with a transaction: two messages sent, of three received one each is answered."""
    peer = await connected(node, version)
    await peer.ask("SUBSCRIBE", destination="/queue/in", id=1, ack="client-individual")
    peer.send("/queue/in", b"1", b"2", b"3")
    messages = await peer.messages()
    await peer.ask("BEGIN", transaction="t")
    peer.send("/queue/out", b"a", transaction="t", receipt="held")
    peer.send("/queue/other", b"b", transaction="t")
    answer(peer, messages[0], transaction="t")
    answer(peer, messages[1], "NACK", transaction="t")
    assert await peer.told() == [Frame("RECEIPT", {"receipt-id": "held"})]
    assert counts(node, "in") == (0, 3)
    assert counts(node, "out") == counts(node, "other") == (0, 0)
    return peer, messages


@pytest.mark.parametrize("version", VERSIONS)
@on_node()
async def test_a_commit_does_everything(node: Node, version: str) -> None:
    peer, _ = await holding(node, version)
    peer.say("COMMIT", transaction="t", receipt="done")
    again, receipt = sorted(await peer.told())
    assert (again.body, again.headers["redelivered"]) == (b"2", "true")
    assert receipt == Frame("RECEIPT", {"receipt-id": "done"})
    assert counts(node, "in") == (0, 2)
    assert counts(node, "out") == counts(node, "other") == (1, 0)


@on_node()
async def test_an_abort_does_nothing(node: Node) -> None:
    peer, messages = await holding(node)
    await peer.ask("ABORT", transaction="t")
    assert counts(node, "out") == counts(node, "other") == (0, 0)
    assert counts(node, "in") == (0, 3)
    for message in messages:  # They can be acknowledged again.
        answer(peer, message)
    await peer.ask("BEGIN", transaction="t")
    assert counts(node, "in") == (0, 0)


@on_node()
async def test_the_end_of_the_connection_is_an_abort(node: Node) -> None:
    peer, _ = await holding(node)
    peer.adapter.closed("gone")
    await asyncio.sleep(1)
    assert counts(node, "out") == counts(node, "other") == (0, 0)
    assert counts(node, "in") == (3, 0)


@on_node()
async def test_transactions_are_independent(node: Node) -> None:
    peer = await connected(node)
    for name in ("one", "two"):
        peer.say("BEGIN", transaction=name)
        peer.send(f"/queue/{name}", b"x", transaction=name)
    peer.send("/queue/one", b"outside")
    peer.say("ABORT", transaction="two")
    await peer.ask("COMMIT", transaction="one")
    assert counts(node, "one") == (2, 0)
    assert counts(node, "two") == (0, 0)


@on_node()
async def test_many_messages_of_one_transaction(node: Node) -> None:
    peer = await connected(node)
    peer.say("BEGIN", transaction="t")
    bodies = [b"%d" % number for number in range(5_000)]
    bodies += [b"y" * 3_000_000, b"z", *[b"w" * 500_000] * 5]
    peer.send("/queue/a", *bodies, transaction="t")
    await peer.ask("COMMIT", transaction="t")
    assert counts(node, "a") == (len(bodies), 0)
    peer.say("SUBSCRIBE", destination="/queue/a", id=1)
    assert await peer.bodies() == bodies


@on_node()
async def test_a_cumulative_acknowledgement_in_a_transaction(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client")
    peer.send("/queue/a", b"1", b"2", b"3")
    _, second, _ = await peer.messages()
    peer.say("BEGIN", transaction="t")
    answer(peer, second, transaction="t")
    peer.say("ABORT", transaction="t")
    await asyncio.sleep(1)
    assert counts(node, "a") == (0, 3)
    peer.say("BEGIN", transaction="t")
    answer(peer, second, transaction="t")
    await peer.ask("COMMIT", transaction="t")
    assert counts(node, "a") == (0, 1)


@on_node()
async def test_what_is_gone_is_noticed_before_anything_is_done(node: Node) -> None:
    amqp = await node.client()
    for name in ("ex", "queue"):
        peer = await connected(node)
        await amqp.ask(exchange.Declare(exchange="ex", type="fanout"), exchange.DeclareOk)
        peer.say("BEGIN", transaction="t")
        peer.send("/queue/kept", b"x", transaction="t")
        peer.send("/exchange/ex", b"x", transaction="t")
        peer.send("/queue/queue", b"x", transaction="t")
        await asyncio.sleep(1)
        if name == "ex":
            await amqp.ask(exchange.Delete(exchange="ex"), exchange.DeleteOk)
        else:
            await amqp.ask(queue.Delete(queue="queue"), queue.DeleteOk)
        peer.say("COMMIT", transaction="t", receipt="r")
        assert f"no {'exchange' if name == 'ex' else 'queue'} '{name}'" in await peer.refused()
        assert counts(node, "kept") == (0, 0)


@on_node()
async def test_a_full_queue_is_told(node: Node) -> None:
    peer = await connected(node)
    peer.say("BEGIN", transaction="t")
    for _ in range(2):
        peer.send("/queue/a", b"x", transaction="t", x_max_length=1, x_overflow="reject-publish")
    peer.say("COMMIT", transaction="t", receipt="r")
    assert await peer.refused() == "not everything is stored: the queue is full"


@pytest.mark.parametrize(
    ("frames", "text"),
    [
        ([("COMMIT", "t")], "no transaction 't' is open"),
        ([("ABORT", "t")], "no transaction 't' is open"),
        ([("BEGIN", "t"), ("BEGIN", "t")], "transaction 't' is open already"),
        ([("BEGIN", "t"), ("COMMIT", "t"), ("COMMIT", "t")], "no transaction 't' is open"),
    ],
)
@on_node()
async def test_what_is_refused(node: Node, frames: list[tuple[str, str]], text: str) -> None:
    peer = await connected(node)
    for command, name in frames:
        peer.say(command, transaction=name)
    assert await peer.refused() == text


@on_node()
async def test_what_is_answered_in_no_transaction_comes_back(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client")
    peer.send("/queue/a", b"1")
    [message] = await peer.messages()
    answer(peer, message, transaction="none")
    assert await peer.refused() == "no transaction 'none' is open"
    await asyncio.sleep(1)
    assert counts(node, "a") == (1, 0)


@on_node()
async def test_transactions_have_limits(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stomp_limits, "TRANSACTIONS_MAX", 2)
    monkeypatch.setattr(stomp_limits, "TRANSACTION_BYTES_MAX", 1_000)
    monkeypatch.setattr(stomp_limits, "TRANSACTION_ACTIONS_MAX", 5)
    peer = await connected(node)
    for name in "abc":
        peer.say("BEGIN", transaction=name)
    assert await peer.refused() == "more than 2 open transactions"
    peer = await connected(node)
    peer.say("BEGIN", transaction="t")
    peer.send("/queue/a", b"x" * 1_001, b"x", transaction="t")
    assert await peer.refused() == "transactions that are too large"
    peer = await connected(node)
    peer.say("BEGIN", transaction="t")
    peer.send("/queue/a", *[b"x"] * 6, transaction="t")
    assert await peer.refused() == "transactions with too many frames"


@on_node()
async def test_a_commit_that_has_begun_is_done_whole_although_the_client_goes(node: Node) -> None:
    """Otherwise what it has sent is there, and what it has answered comes again."""
    peer, _ = await holding(node)
    many = 2 * TURN_MESSAGES_MAX
    peer.send("/queue/out", *[b"x"] * many, transaction="t")  # More than are sent at once.
    await asyncio.sleep(1)
    peer.say("COMMIT", transaction="t")
    await asyncio.sleep(0)
    assert counts(node, "in") == (0, 3)  # The commit is under way.
    peer.adapter.closed("gone")
    await asyncio.sleep(1)
    assert counts(node, "out") == (1 + many, 0)
    assert counts(node, "in") == (2, 0)
    assert len(node.broker.sessions) == 0


@on_node()
async def test_while_memory_is_low_who_sends_in_transactions_is_not_read_from(node: Node) -> None:
    peer = await connected(node)
    peer.say("BEGIN", transaction="t")
    peer.send("/queue/a", b"x", transaction="t")
    await asyncio.sleep(1)
    memory = node.broker.vhosts.memory_use
    assert memory is not None
    memory.change(2 * limits.TRANSIENT_BYTES_MAX)
    assert peer.link.is_paused
    memory.change(-2 * limits.TRANSIENT_BYTES_MAX)
    assert not peer.link.is_paused
    await peer.ask("COMMIT", transaction="t")
    assert counts(node, "a") == (1, 0)


@on_node()
async def test_a_queue_that_delays_what_is_sent_to_it(node: Node) -> None:
    """As SQS makes them. The delay begins with the commit."""
    later = QueueDeclaration("later", QueueSettings(delay_ms=60_000))
    await node.broker.vhosts.default.declare_queue(later, None)
    peer = await connected(node)
    for name in ("kept", "dropped"):
        peer.say("BEGIN", transaction=name)
        peer.send("/queue/later", *[f"{name} {each}".encode() for each in "ab"], transaction=name)
    await asyncio.sleep(50)
    peer.say("ABORT", transaction="dropped")
    await peer.ask("COMMIT", transaction="kept")
    found = node.broker.vhosts.default.queue("later")
    assert (counts(node, "later"), found.deferred_count) == ((0, 0), 2)
    peer.say("SUBSCRIBE", destination="/queue/later", id=1, ack="client")
    await asyncio.sleep(55)
    assert peer.heard() == []
    await asyncio.sleep(5)
    assert await peer.bodies() == [b"kept a", b"kept b"]
    assert (counts(node, "later"), found.deferred_count) == ((0, 2), 0)


@on_node()
async def test_a_delay_begins_with_the_commit(node: Node) -> None:
    """What a transaction sends waits from when it is committed, not from when it was sent."""
    peer = await connected(node, "1.2")
    declaration = QueueDeclaration("late", QueueSettings(delay_ms=60_000), (), durable=True)
    made = await node.broker.vhosts.default.declare_queue(declaration, None)
    assert isinstance(made, Queue)
    await peer.ask("BEGIN", transaction="t")
    peer.send("/queue/late", b"a", b"b", transaction="t")
    await asyncio.sleep(90)
    assert made.deferred_count == 0
    await peer.ask("COMMIT", transaction="t")
    assert (made.ready_count, made.deferred_count) == (0, 2)
    await asyncio.sleep(30)
    assert made.deferred_count == 2
    await peer.ask("SUBSCRIBE", destination="/queue/late", id=1, ack="auto")
    await asyncio.sleep(60)
    assert [message.body for message in await peer.messages()] == [b"a", b"b"]
