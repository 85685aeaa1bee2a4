"""Transactions of a channel."""

import asyncio
import errno

import pytest

from entrepot.wire.amqp import limits as amqp_limits
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import (
    basic,
    channel,
    confirm,
    connection,
    exchange,
    queue,
    tx,
)
from entrepot.wire.amqp.properties import BasicProperties, encode
from tests.unit.gateway.amqp.node import Client, Node, on_node

PERSISTENT = encode(BasicProperties(delivery_mode=2))


async def transacting(node: Node) -> Client:
    client = await node.client()
    await client.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    await client.ask(tx.Select(), tx.SelectOk)
    await client.ask(tx.Select(), tx.SelectOk)
    return client


async def count(client: Client) -> int:
    answer = await client.ask(queue.Declare(queue="work", passive=True), queue.DeclareOk)
    return answer.message_count


@on_node()
async def test_nothing_is_published_before_the_commit(node: Node) -> None:
    client = await transacting(node)
    client.publish("work", b"1", b"2", properties=PERSISTENT)
    assert await count(client) == 0
    client.say(tx.Commit())
    assert client.heard() == [], "not before it is permanent"
    assert await client.told() == [tx.CommitOk()]
    assert await count(client) == 2


@on_node()
async def test_a_rollback(node: Node) -> None:
    client = await transacting(node)
    client.publish("work", b"1")
    await client.ask(tx.Rollback(), tx.RollbackOk)
    await client.ask(tx.Commit(), tx.CommitOk)
    assert await count(client) == 0


@on_node()
async def test_acknowledgements_wait_too(node: Node) -> None:
    client = await transacting(node)
    client.publish("work", b"1", b"2", b"3")
    await client.ask(tx.Commit(), tx.CommitOk)
    client.say(basic.Qos(0, 2), basic.Consume(queue="work", consumer_tag="c"))
    assert len(await client.told()) == 4
    client.say(basic.Ack(1))
    assert await client.told() == [], "there is room when it is committed"
    await client.ask(tx.Rollback(), tx.RollbackOk)
    client.say(basic.Ack(1), tx.Commit())
    assert await client.told() == [basic.Deliver("c", 3, False, "", "work"), tx.CommitOk()]
    client.say(basic.Nack(2, requeue=True), basic.Nack(3, requeue=False), tx.Commit())
    assert await client.told() == [basic.Deliver("c", 4, True, "", "work"), tx.CommitOk()]


@on_node()
async def test_what_was_acknowledged_and_not_committed_goes_back(node: Node) -> None:
    client = await transacting(node)
    client.publish("work", b"1")
    await client.ask(tx.Commit(), tx.CommitOk)
    await client.ask(basic.Get(queue="work"), basic.GetOk)
    client.say(basic.Ack(1))
    await client.ask(channel.Close(), channel.CloseOk)
    await client.ask(channel.Open(), channel.OpenOk)
    assert await count(client) == 1


@on_node()
async def test_a_full_queue(node: Node) -> None:
    client = await transacting(node)
    arguments = {"x-max-length": 1, "x-overflow": "reject-publish"}
    await client.ask(queue.Declare(queue="small", arguments=arguments), queue.DeclareOk)
    client.publish("small", b"1", b"2")
    refusal = await client.refused(tx.Commit())
    assert refusal == "PRECONDITION_FAILED - partial tx completion"


@on_node()
async def test_a_failing_disk(node: Node) -> None:
    client = await transacting(node)
    client.publish("work", b"1", properties=PERSISTENT)
    node.disk.fail_next("sync", errno.EIO, "*", 5)
    client.say(tx.Commit())
    close = (await client.told())[-1]
    assert isinstance(close, connection.Close)
    assert close.reply_code == 541


@on_node()
async def test_what_is_returned_comes_with_the_commit(node: Node) -> None:
    client = await transacting(node)
    client.publish("nowhere", b"1", mandatory=True)
    assert await client.told() == []
    client.say(tx.Commit())
    kinds = [type(each) for each in await client.told()]
    assert kinds == [basic.Return, tx.CommitOk]


@on_node()
async def test_a_missing_exchange_is_found_at_once(node: Node) -> None:
    client = await transacting(node)
    client.publish("k", b"1", exchange="nosuch")
    assert await client.closed() == "NOT_FOUND - no exchange 'nosuch' in vhost '/'"


@pytest.mark.parametrize(
    ("methods", "text"),
    [
        ([tx.Commit()], "PRECONDITION_FAILED - channel is not transactional"),
        ([tx.Rollback()], "PRECONDITION_FAILED - channel is not transactional"),
        (
            [tx.Select(), confirm.Select()],
            "PRECONDITION_FAILED - cannot switch from tx to confirm mode",
        ),
        (
            [confirm.Select(), tx.Select()],
            "PRECONDITION_FAILED - cannot switch from confirm to tx mode",
        ),
    ],
)
@on_node()
async def test_what_is_refused(node: Node, methods: list[Method], text: str) -> None:
    client = await node.client()
    assert await client.refused(*methods) == text


@on_node()
async def test_a_transaction_has_a_bound(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amqp_limits, "TRANSACTION_MESSAGES_MAX", 2)
    client = await transacting(node)
    client.publish("work", b"1", b"2", b"3")
    close = (await client.told())[-1]
    assert isinstance(close, connection.Close)
    assert close.reply_text == "RESOURCE_ERROR - a transaction that is too large"


@on_node()
async def test_the_client_goes_while_it_commits(node: Node) -> None:
    client = await transacting(node)
    client.publish("work", b"1", properties=PERSISTENT)
    client.say(tx.Commit())
    client.adapter.closed("gone")
    await asyncio.sleep(1)
    assert node.broker.vhosts.default.queues["work"].ready_count == 1


@on_node()
async def test_a_commit_that_cannot_publish_returns_what_was_acknowledged(node: Node) -> None:
    client, other = await transacting(node), await node.client()
    await client.ask(exchange.Declare(exchange="e", type="direct"), exchange.DeclareOk)
    client.publish("work", b"1")
    await client.ask(tx.Commit(), tx.CommitOk)
    await client.ask(basic.Get(queue="work"), basic.GetOk)
    client.publish("k", b"2", exchange="e")
    client.say(basic.Ack(1))
    await other.ask(exchange.Delete(exchange="e"), exchange.DeleteOk)
    assert "no exchange 'e'" in await client.refused(tx.Commit())
    assert await count(other) == 1
