"""A mistake of ours on one client's behalf, made when nobody is reading from it."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from entrepot.core.faults import Faults
from entrepot.wire.amqp.methods import basic, confirm, queue
from tests.unit.gateway.amqp.node import Client, FakeLink, Node, on_node


class GuardedLink(FakeLink):
    """Ends as a real one does when something fails under its guard."""

    def __init__(self, faults: Faults) -> None:
        super().__init__()
        self._faults = faults
        self.client: Client | None = None

    def guard(self, call: Callable[..., object], *arguments: object) -> None:
        try:
            call(*arguments)
        except Exception as error:
            self._faults.caught("a connection", error)
            assert self.client is not None
            self.close("internal error")
            asyncio.get_running_loop().call_soon(self.client.adapter.closed, "internal error")


async def connected(node: Node) -> tuple[Client, Faults]:
    faults = Faults()
    link = GuardedLink(faults)
    link.client = client = Client(node.context(), link)
    await client.open()
    return client, faults


def failing(*_: object) -> Any:
    raise RuntimeError("ours")


@pytest.mark.pure
@on_node()
async def test_a_delivery_that_fails_ends_one_consumer_and_the_next_gets_it(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    (client, faults), other = await connected(node), await node.client()
    await client.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    await client.ask(basic.Consume(queue="work", consumer_tag="c"), basic.ConsumeOk)
    connection = client.adapter._connection
    assert connection is not None
    monkeypatch.setattr(connection.channels[1].consumers["c"], "send", failing)
    other.publish("work", b"a")
    await asyncio.sleep(1)
    assert (faults.count, client.link.closed) == (1, "internal error")
    await other.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    other.say(basic.Consume(queue="work", no_ack=True))
    await asyncio.sleep(1)
    *_, delivered = other.heard()
    assert delivered.body == b"a"


@pytest.mark.pure
@on_node()
async def test_a_confirm_that_fails_ends_one_publisher(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs when the commit is through, which is for the messages of others, too."""
    (client, faults), other = await connected(node), await node.client()
    for each in (client, other):
        await each.ask(confirm.Select(), confirm.SelectOk)
    await client.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    connection = client.adapter._connection
    assert connection is not None
    monkeypatch.setattr(connection, "publish_ended", failing)
    client.publish("work", b"a")
    other.publish("work", b"b")
    assert await other.told() == [basic.Ack(1, multiple=False)]
    assert (faults.count, client.link.closed) == (1, "internal error")


@on_node()
async def test_a_method_of_a_server_with_content_is_refused(node: Node) -> None:
    client = await node.client()
    header = bytes.fromhex("02 0001 0000000e 003c 0000 0000000000000000 0000 ce")
    client.say(queue.Declare(queue="work"), basic.Return(312, "NO_ROUTE", "", "k"))
    client.send(header)
    *_, close = await client.told()
    assert (close.reply_code, close.class_id, close.method_id) == (503, 60, 50)  # type: ignore[attr-defined]
