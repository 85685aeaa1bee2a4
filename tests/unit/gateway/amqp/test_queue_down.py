"""A queue that cannot be read says so, and does not look empty."""

import asyncio
import errno
import logging

import pytest

from entrepot.broker.broker import Broker
from entrepot.core import limits
from entrepot.gateway.rabbitmq.dialect import RabbitDialect
from entrepot.gateway.rabbitmq.exchange_arguments import PREDECLARED
from entrepot.wire.amqp.method import Method
from entrepot.wire.amqp.methods import basic, confirm, queue
from entrepot.wire.amqp.properties import BasicProperties, encode
from sim.disk import SimDisk
from tests.unit.gateway.amqp.node import FORMATS, Client, Node, on_node

SEGMENT = "partitions/work-0/00000000000000000000.log"
PERSISTENT = encode(BasicProperties(delivery_mode=2))
DOWN = "NOT_FOUND - queue 'work' in vhost '/' is down: "
CHECKSUM = f"{SEGMENT}: the checksum does not match"


async def restart(node: Node) -> None:
    """As after a clean stop."""
    await node.broker.close()
    node.disk = node.disk.kill()
    node.broker = Broker(
        node.disk,
        node.clock,
        node.entropy,
        formats=FORMATS,
        dialect=RabbitDialect(),
        predeclared=PREDECLARED,
    )
    await node.broker.open()


def flip(disk: SimDisk, path: str, position: int) -> None:
    content = disk.open(path).node().content
    content[position % len(content)] ^= 0x10


async def filled(node: Node) -> Client:
    """A durable queue with three messages, each in a batch of its own."""
    client = await node.client()
    await client.ask(queue.Declare(queue="work", durable=True), queue.DeclareOk)
    for _ in range(3):
        client.publish("work", b"x" * 100, properties=PERSISTENT)
        await asyncio.sleep(1)
    return client


@pytest.fixture(autouse=True)
def one_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "QUEUE_READ_BYTES", 1)


async def damaged(node: Node) -> Client:
    """The last message."""
    await filled(node)
    await restart(node)
    flip(node.disk, SEGMENT, -30)
    return await node.client()


async def found_out(node: Node) -> None:
    client = await damaged(node)
    await client.refused(*[basic.Get(queue="work")] * 3)


@on_node()
async def test_a_get_is_not_empty(node: Node, caplog: pytest.LogCaptureFixture) -> None:
    client = await damaged(node)
    answer = await client.ask(queue.Declare(queue="work", passive=True), queue.DeclareOk)
    assert answer.message_count == 3, "nobody has looked that far"
    for _ in range(2):
        await client.ask(basic.Get(queue="work"), basic.GetOk)
    with caplog.at_level(logging.ERROR):
        assert (await client.refused(basic.Get(queue="work"))).startswith(DOWN + CHECKSUM)
    errors = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert [each.partition(" at byte")[0] for each in errors] == [
        f"cannot be read: {CHECKSUM}",
        f"partition refused: {CHECKSUM}",
    ]
    assert errors[0].endswith(", offset 2")


@pytest.mark.parametrize(
    "method",
    [
        basic.Get(queue="work"),
        basic.Consume(queue="work"),
        queue.Declare(queue="work", durable=True),
        queue.Declare(queue="work", passive=True),
        queue.Purge(queue="work"),
        queue.Delete(queue="work", if_empty=True),
    ],
    ids=lambda method: type(method).__name__,
)
@on_node()
async def test_every_word_is_refused_from_then_on(node: Node, method: Method) -> None:
    await found_out(node)
    client = await node.client()
    assert (await client.refused(method)).startswith(DOWN + CHECKSUM)


@on_node()
async def test_publishers_are_told_and_others_go_on(node: Node) -> None:
    await found_out(node)
    client = await node.client()
    await client.ask(confirm.Select(), confirm.SelectOk)
    client.publish("work", b"more")
    assert [type(each) for each in await client.told()] == [basic.Nack]
    await client.ask(queue.Declare(queue="other", durable=True), queue.DeclareOk)
    client.publish("other", b"1")
    await client.told()
    await client.ask(basic.Get(queue="other"), basic.GetOk)
    deleted = await client.ask(queue.Delete(queue="work"), queue.DeleteOk)
    assert deleted is not None, "whoever wants to be rid of it may be"


@on_node()
async def test_consumers_are_cancelled(node: Node) -> None:
    client = await damaged(node)
    client.say(basic.Qos(0, 1), basic.Consume(queue="work", consumer_tag="c"))
    assert [type(each) for each in await client.told()][-1] is basic.Deliver
    client.say(basic.Ack(1))
    *delivered, cancel = await client.told()
    assert [type(each) for each in delivered] == [basic.Deliver]
    assert cancel == basic.Cancel("c", nowait=True), "it has looked ahead"


@on_node()
async def test_what_the_disk_cannot_read_is_damage(node: Node) -> None:
    await filled(node)
    await restart(node)
    client = await node.client()
    await client.ask(basic.Get(queue="work"), basic.GetOk)
    node.disk.fail_next("read", errno.EIO, "partitions/work*.log")
    await client.ask(basic.Get(queue="work"), basic.GetOk)  # It looks ahead.
    assert await client.refused(basic.Get(queue="work")) == f"{DOWN}{SEGMENT}: Input/output error"
    await restart(node)
    client = await node.client()
    for _ in range(3):
        await client.ask(basic.Get(queue="work"), basic.GetOk)


@on_node()
async def test_a_ledger_that_is_damaged_takes_its_queues_down(node: Node) -> None:
    client = await filled(node)
    await client.ask(basic.Get(queue="work", no_ack=True), basic.GetOk)
    await restart(node)
    await node.broker.close()
    node.disk = node.disk.kill()
    flip(node.disk, "partitions/__queue_ledgers-0/00000000000000000000.log", -3)
    node.broker = Broker(
        node.disk,
        node.clock,
        node.entropy,
        formats=FORMATS,
        dialect=RabbitDialect(),
        predeclared=PREDECLARED,
    )
    await node.broker.open()
    client = await node.client()
    ledgers = "partitions/__queue_ledgers-0/00000000000000000000.log: the checksum does not match"
    said = await client.refused(queue.Declare(queue="work", durable=True))
    assert said.startswith(f"{DOWN}what queues settled is damaged: {ledgers}")
    client = await node.client()
    client.say(queue.Declare(queue="new", durable=True))
    assert "what queues settled is damaged" in str(await client.told())
    client = await node.client()
    await client.ask(queue.Declare(queue="in-memory"), queue.DeclareOk)


@on_node()
async def test_a_stream_that_is_refused(node: Node) -> None:
    client = await node.client()
    stream = queue.Declare(queue="s", durable=True, arguments={"x-queue-type": "stream"})
    await client.ask(stream, queue.DeclareOk)
    node.broker.served_partition(node.broker.topic("s"), 0).partition.refuse("a bad batch")
    down = "NOT_FOUND - queue 's' in vhost '/' is down: a bad batch"
    assert await client.refused(stream) == down
    client = await node.client()
    await client.ask(basic.Qos(0, 1), basic.QosOk)
    assert await client.refused(basic.Consume(queue="s")) == down
