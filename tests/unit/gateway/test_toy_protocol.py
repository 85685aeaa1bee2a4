"""A protocol of three verbs works like the others, and beside them on the same queues."""

import asyncio

import pytest

from entrepot.core.errors import PeerError
from entrepot.wire.amqp.methods import basic, queue
from entrepot.wire.amqp.properties import BasicProperties, decode, encode
from tests.unit.gateway.amqp.node import FakeLink, Node, on_node
from tests.unit.gateway.toy_protocol import LINE_BYTES_MAX, ToyAdapter

pytestmark = pytest.mark.pure  # Of a compiled pump only compiled classes inherit.


class ToyClient:
    def __init__(self, node: Node) -> None:
        self.link = FakeLink()
        self.adapter = ToyAdapter(self.link, node.broker, node.clock)

    async def say(self, *lines: str) -> list[str]:
        """The answers."""
        data = "".join(f"{line}\n" for line in lines).encode()
        self.adapter.writable()[: len(data)] = data
        self.adapter.received(len(data))
        await asyncio.sleep(1)
        answers = b"".join(self.link.writes).decode().splitlines()
        self.link.writes.clear()
        return answers


@on_node()
async def test_three_verbs(node: Node) -> None:
    amqp, toy = await node.client(), ToyClient(node)
    await amqp.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    assert await toy.say("GET work", "PUT work hello you", "PUT work again") == ["NONE", "OK", "OK"]
    assert await toy.say("GET work", "GET work", "ACK 1") == [
        "MSG 1 hello you",
        "MSG 2 again",
        "OK",
    ]
    assert len(toy.link.writes) == 0
    assert await toy.say("ACK 7", "HELP", "PUT nowhere x", "GET nowhere") == [
        "NO not understood: ACK 7",
        "NO not understood: HELP",
        "NO such queue",
        "NO no queue 'nowhere' in vhost '/'",
    ]
    toy.adapter.closed("gone")  # What it did not acknowledge comes back.
    await asyncio.sleep(1)
    amqp.say(basic.Get(queue="work"))
    await asyncio.sleep(1)
    [(_, method, properties, body)] = amqp.heard()
    assert isinstance(method, basic.GetOk)
    assert (method.redelivered, method.routing_key, body) == (True, "work", b"again")
    assert decode(properties) == BasicProperties(delivery_mode=2)


@on_node()
async def test_it_reads_what_amqp_wrote(node: Node) -> None:
    amqp, toy = await node.client(), ToyClient(node)
    await amqp.ask(queue.Declare(queue="work"), queue.DeclareOk)
    amqp.publish("work", b"a task", properties=encode(BasicProperties(message_id="m")))
    await asyncio.sleep(1)
    assert await toy.say("GET work", "ACK 1", "GET work") == ["MSG 1 a task", "OK", "NONE"]
    assert node.broker.vhosts.default.queue("work").account().wrong == []


@on_node()
async def test_a_line_without_end_ends_the_connection(node: Node) -> None:
    toy = ToyClient(node)
    toy.adapter.writable()[:] = b"x" * LINE_BYTES_MAX
    with pytest.raises(PeerError, match="too long"):  # The link's guard closes it for that.
        toy.adapter.received(LINE_BYTES_MAX)
