"""Topics, read as streams."""

import asyncio

import pytest

from entrepot.core import batch
from entrepot.core.compression import compress
from entrepot.core.record import Record
from entrepot.wire.amqp.methods import basic, channel, connection, queue
from entrepot.wire.amqp.properties import PropertyView
from entrepot.wire.amqp.table import Timestamp
from tests.unit.gateway.amqp.node import FRAME_BYTES_MAX, Client, Heard, Node, on_node

OFFSET = "x-stream-offset"


async def streaming(node: Node, count: int = 5) -> Client:
    client = await node.client()
    arguments = {"x-queue-type": "stream"}
    declare = queue.Declare(queue="log", durable=True, arguments=arguments)
    await client.ask(declare, queue.DeclareOk)
    for number in range(count):
        client.publish("log", str(number).encode())
        await asyncio.sleep(1)
    return client


def consume(offset: object = None, **options: object) -> basic.Consume:
    arguments = {} if offset is None else {OFFSET: offset}
    return basic.Consume(
        queue="log",
        consumer_tag="c",
        arguments=arguments,
        **options,  # type: ignore[arg-type]
    )


def offsets(heard: list[Heard]) -> list[tuple[int, bytes]]:
    """And bodies."""
    return [
        (PropertyView(each.properties).header(OFFSET), each.body)
        for each in heard
        if isinstance(each.method, basic.Deliver)
    ]


async def started(client: Client, offset: object = None, prefetch: int = 100) -> list[Heard]:
    client.say(basic.Qos(0, prefetch), consume(offset))
    await asyncio.sleep(1)
    heard = client.heard()
    assert [type(each.method) for each in heard[:2]] == [basic.QosOk, basic.ConsumeOk]
    return heard[2:]


@pytest.mark.parametrize(
    ("offset", "first"), [("first", 0), ("last", 4), ("next", 5), (None, 5), (2, 2), ("1h", 0)]
)
@on_node()
async def test_where_to_begin(node: Node, offset: object, first: int) -> None:
    client = await streaming(node)
    heard = await started(client, offset)
    assert offsets(heard) == [(at, str(at).encode()) for at in range(first, 5)]
    client.publish("log", b"5")
    await asyncio.sleep(1)
    assert offsets(client.heard()) == [(5, b"5")]


@on_node()
async def test_a_time_to_begin_at(node: Node) -> None:
    client = await streaming(node)
    seconds = node.clock.now_ms() // 1_000 - 2
    found = offsets(await started(client, Timestamp(seconds)))
    assert found
    assert found[-1] == (4, b"4")
    assert len(found) < 5


@on_node()
async def test_nothing_is_taken_away(node: Node) -> None:
    client, other = await streaming(node), await node.client()
    for each in (client, other):
        heard = await started(each, "first")
        assert len(heard) == 5
        each.say(basic.Ack(5, multiple=True))
    answer = await client.ask(queue.Declare(queue="log", passive=True), queue.DeclareOk)
    assert answer.message_count == 5


@on_node()
async def test_an_acknowledgement_makes_room(node: Node) -> None:
    client = await streaming(node)
    assert len(offsets(await started(client, "first", prefetch=2))) == 2
    client.say(basic.Ack(1))
    await asyncio.sleep(1)
    assert offsets(client.heard()) == [(2, b"2")]
    client.say(basic.Ack(3, multiple=True))
    await asyncio.sleep(1)
    assert offsets(client.heard()) == [(3, b"3"), (4, b"4")]


@on_node()
async def test_what_kafka_has_written(node: Node) -> None:
    client = await node.client()
    topic = await node.broker.create_topic("log", 2)
    for index in range(2):
        record = Record(b"key", b"value %d" % index, (("colour", b"blue"),))
        data = batch.build([record], now_ms=node.clock.now_ms())
        node.broker.served_partition(topic, index).append(data)
    heard = await started(client, "first")
    assert sorted(offsets(heard)) == [(0, b"value 0"), (0, b"value 1")]
    view = PropertyView(heard[0].properties)
    assert (view.header("colour"), view.header(OFFSET)) == ("blue", 0)
    assert isinstance(heard[0].method, basic.Deliver)
    assert heard[0].method.routing_key == "key"


@on_node()
async def test_cancelling(node: Node) -> None:
    client = await streaming(node)
    await started(client)
    await client.ask(basic.Cancel("c"), basic.CancelOk)
    client.publish("log", b"5")
    assert await client.told() == []
    client.adapter.closed("gone")
    await asyncio.sleep(1)


@on_node()
async def test_a_stream_without_prefetch(node: Node) -> None:
    client = await streaming(node)
    assert await client.refused(consume()) == (
        "PRECONDITION_FAILED - consumer prefetch count is not set for stream "
        "queue 'log' in vhost '/'"
    )


@pytest.mark.parametrize("offset", ["tomorrow", True, 1.5])
@on_node()
async def test_no_place_to_begin(node: Node, offset: object) -> None:
    client = await streaming(node)
    await client.ask(basic.Qos(0, 1), basic.QosOk)
    refusal = await client.refused(consume(offset))
    assert "failed consuming from stream queue 'log' in vhost '/'" in refusal
    await client.ask(channel.Open(), channel.OpenOk)


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (
            consume(no_ack=True),
            "automatic acknowledgement not supported by stream queue 'log' in vhost '/'",
        ),
        (
            basic.Get(queue="log"),
            "basic.get not supported by stream queues queue 'log' in vhost '/'",
        ),
        (
            queue.Purge(queue="log"),
            "queue.purge not supported by stream queues queue 'log' in vhost '/'",
        ),
    ],
)
@on_node()
async def test_what_streams_do_not_do(node: Node, method: basic.Get, text: str) -> None:
    client = await streaming(node)
    await client.ask(basic.Qos(0, 1), basic.QosOk)
    client.say(method)
    (close,) = await client.told()
    assert isinstance(close, connection.Close)
    assert close.reply_text == f"NOT_IMPLEMENTED - {text}"


@on_node()
async def test_nothing_can_be_given_back(node: Node) -> None:
    client = await streaming(node)
    await started(client, "first")
    client.say(basic.Nack(1))
    (close,) = await client.told()
    assert isinstance(close, connection.Close)
    assert close.reply_text == (
        "NOT_IMPLEMENTED - basic.nack and basic.reject not supported by stream queues "
        "queue 'log' in vhost '/'"
    )


def nonsense(codec: batch.Codec, now_ms: int = 1) -> bytes:
    """A batch that is whole by its length and checksum, and whose records cannot be read."""
    good = batch.build([Record(b"k", b"bad"), Record(b"k", b"bad")], now_ms=now_ms, codec=codec)
    inside = b"\xff" * 40 if codec is batch.Codec.NONE else compress(codec, b"\xff" * 40)
    return batch._assemble(batch.read_header(good), inside)


@pytest.mark.parametrize("codec", [batch.Codec.NONE, batch.Codec.GZIP])
@pytest.mark.parametrize("offset", ["first", 2, Timestamp(0)])
@on_node()
async def test_records_that_cannot_be_read_are_passed_over(
    node: Node, caplog: pytest.LogCaptureFixture, codec: batch.Codec, offset: object
) -> None:
    client = await streaming(node, 2)
    served = node.broker.served_partition(node.broker.topic("log"), 0)
    served.append(nonsense(codec))
    client.publish("log", b"after")
    await asyncio.sleep(1)
    bodies = [body for _, body in offsets(await started(client, offset))]
    assert bodies == ([b"after"] if offset == 2 else [b"0", b"1", b"after"])
    other = await node.client()
    await started(other, "first")
    assert caplog.text.count("passed over") == 1
    assert served.unreadable_count == 2


@on_node()
async def test_a_time_within_records_that_cannot_be_read_is_the_first_one(node: Node) -> None:
    client = await streaming(node, 2)
    late_ms = node.clock.now_ms() + 600_000
    node.broker.served_partition(node.broker.topic("log"), 0).append(
        nonsense(batch.Codec.NONE, late_ms)
    )
    await asyncio.sleep(1)
    heard = await started(client, Timestamp(late_ms // 1_000))
    assert [body for _, body in offsets(heard)] == [b"0", b"1"]


@pytest.mark.parametrize(
    "headers",
    [
        (("amqp", b"\0\0" + b"\x20\0" + (200_000).to_bytes(4, "big") + b"\1xx" + bytes(199_997)),),
        (("large", bytes(200_000)),),
        tuple((f"h{number}", b"x" * 100) for number in range(2_000)),
    ],
)
@on_node()
async def test_headers_of_others_that_no_frame_has_room_for_are_left_out(
    node: Node, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    """A frame that is larger than agreed ends the connection of who gets it."""
    client = await streaming(node, 0)
    served = node.broker.served_partition(node.broker.topic("log"), 0)
    served.append(batch.build([Record(b"k" * 200_000, b"a", headers)], now_ms=1))
    await asyncio.sleep(1)
    [heard] = await started(client, "first")
    assert heard.body == b"a"
    assert len(heard.properties) < FRAME_BYTES_MAX - 100
