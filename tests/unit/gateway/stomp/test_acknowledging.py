"""ACK and NACK: for one message or all before it, in the words of every version."""

import asyncio

import pytest

from entrepot.wire.stomp.frames import VERSIONS, Frame
from tests.unit.gateway.amqp.node import Node, on_node
from tests.unit.gateway.stomp.peer import answer, connected, counts


@pytest.mark.parametrize("version", VERSIONS)
@on_node()
async def test_an_acknowledgement_of_a_client_is_for_all_before_it(
    node: Node, version: str
) -> None:
    peer = await connected(node, version)
    for name in "ab":
        await peer.ask("SUBSCRIBE", destination=f"/queue/{name}", id=name, ack="client")
    for name in "ab":
        peer.send(f"/queue/{name}", b"1", b"2", b"3")
    messages = await peer.messages()
    assert counts(node, "a") == (0, 3)
    of_a = [each for each in messages if each.headers["subscription"] == "a"]
    answer(peer, of_a[1])
    assert await peer.messages() == []
    assert counts(node, "a") == (0, 1)
    assert counts(node, "b") == (0, 3)  # Of the same subscription only.
    peer.adapter.closed("gone")
    await asyncio.sleep(1)
    assert counts(node, "a") == (1, 0)
    assert counts(node, "b") == (3, 0)


@pytest.mark.parametrize("version", VERSIONS)
@on_node()
async def test_an_individual_acknowledgement_is_for_one(node: Node, version: str) -> None:
    peer = await connected(node, version)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client-individual")
    peer.send("/queue/a", b"1", b"2", b"3")
    first, second, _ = await peer.messages()
    answer(peer, second)
    answer(peer, first, "NACK", requeue="false")
    await asyncio.sleep(1)
    assert counts(node, "a") == (0, 1)


@pytest.mark.parametrize("version", VERSIONS)
@on_node()
async def test_what_is_refused_comes_again(node: Node, version: str) -> None:
    peer = await connected(node, version)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client-individual")
    peer.send("/queue/a", b"1")
    [message] = await peer.messages()
    assert "redelivered" not in message.headers
    answer(peer, message, "NACK")
    [again] = await peer.messages()
    assert again.body == b"1"
    assert again.headers["redelivered"] == "true"
    assert again.headers["message-id"] != message.headers["message-id"]


@on_node()
async def test_what_is_refused_for_good_is_a_dead_letter(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/dead", id="dead")
    await peer.ask(
        "SUBSCRIBE",
        destination="/queue/a",
        id=1,
        ack="client-individual",
        x_dead_letter_exchange="",
        x_dead_letter_routing_key="dead",
    )
    peer.send("/queue/a", b"1", mine="x")
    [message] = await peer.messages()
    answer(peer, message, "NACK", requeue="false")
    [letter] = await peer.messages()
    assert letter.headers["destination"] == "/queue/dead"
    assert letter.headers["mine"] == "x"
    assert letter.headers["x-last-death-reason"] == "rejected"
    assert letter.headers["x-last-death-queue"] == "a"


@on_node()
async def test_a_receipt_of_an_acknowledgement_comes_when_it_is_committed(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client")
    peer.send("/queue/a", b"1")
    [message] = await peer.messages()
    answer(peer, message, receipt="r")
    assert peer.heard() == []
    assert await peer.told() == [Frame("RECEIPT", {"receipt-id": "r"})]


@pytest.mark.parametrize("version", VERSIONS)
@on_node()
async def test_an_unknown_message(node: Node, version: str) -> None:
    for change in (
        lambda text: text + "9",
        lambda text: "x" + text,
        lambda text: "nothing",
        lambda text: text[:-1] + "0",
        lambda text: text.replace("-1-", "-2-"),
    ):
        peer = await connected(node, version)
        await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client")
        peer.send("/queue/a", b"1")
        [message] = await peer.messages()
        headers = {name: change(message.headers["message-id"]) for name in ("ack", "message-id")}
        answer(peer, Frame("MESSAGE", {**message.headers, **headers}))
        assert "is no message that waits for an acknowledgement" in await peer.refused()
        await asyncio.sleep(1)
        cleaner = await connected(node)
        cleaner.say("SUBSCRIBE", destination="/queue/a", id=1)
        assert await cleaner.bodies() == [b"1"]
        cleaner.adapter.closed("gone")


@on_node()
async def test_twice_is_once_too_often(node: Node) -> None:
    peer = await connected(node)
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client-individual")
    peer.send("/queue/a", b"1")
    [message] = await peer.messages()
    answer(peer, message)
    answer(peer, message)
    assert "is no message that waits" in await peer.refused()


@on_node()
async def test_the_subscription_must_be_the_one_of_the_message(node: Node) -> None:
    peer = await connected(node, "1.1")
    await peer.ask("SUBSCRIBE", destination="/queue/a", id=1, ack="client")
    peer.send("/queue/a", b"1")
    [message] = await peer.messages()
    peer.say("ACK", message_id=message.headers["message-id"], subscription=2)
    assert "is no message that waits" in await peer.refused()
