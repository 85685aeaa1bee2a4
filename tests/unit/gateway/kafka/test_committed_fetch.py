"""Fetch and ListOffsets for who reads only what is committed. Proves N-04."""

import asyncio

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i64

from entrepot.broker.transaction import ProducerIdentity
from entrepot.core.steps import finish
from entrepot.gateway.kafka.context import NO_THROTTLE
from entrepot.gateway.kafka.list_offsets import NamedOffset, handle
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.serving import (
    Fetching,
    Produced,
    batch_of,
    fetch_request,
    to,
    values_in,
    wanted,
)
from tests.unit.gateway.kafka.transacting import (
    COMMITTED,
    TOPIC,
    add,
    end,
    producer_of,
    read,
    write,
)


async def started(node: Node) -> ProducerIdentity:
    """Offset 0 plain, 1 in an open transaction, 2 plain."""
    await node.context.broker.create_topic(TOPIC, 1, {"retention.ms": "-1"})
    producer = await producer_of(node)
    await add(node, producer, 0)
    await Produced(node, [to(TOPIC, batch_of(b"a"))]).done()
    await write(node, producer, b"b")
    await Produced(node, [to(TOPIC, batch_of(b"c"))]).done()
    return producer


@on_node()
async def test_nothing_from_an_open_transaction_on(node: Node) -> None:
    await started(node)
    found = await read(node)
    assert (found.high_watermark, found.last_stable_offset, found.aborted) == (3, 1, [])
    assert values_in(found.records) == [b"a"]
    assert (await read(node, 1)).records == b""
    assert (await read(node, 3)).records == b""
    found = await read(node, isolation=0)
    assert (found.high_watermark, found.last_stable_offset, found.aborted) == (3, 1, None)
    assert values_in(found.records) == [b"a", b"b", b"c"]


@on_node()
async def test_aborted_transactions_are_named(node: Node) -> None:
    producer = await started(node)
    await end(node, producer, commit=False)
    found = await read(node)
    assert values_in(found.records)[:3] == [b"a", b"b", b"c"]
    assert found.aborted == [(producer.id, 1)]
    assert (await read(node, 2)).aborted == [(producer.id, 1)]
    assert (await read(node, 4)).aborted == []


@on_node()
async def test_only_those_in_what_is_returned(node: Node) -> None:
    producer = await started(node)
    await end(node, producer, commit=False)
    large = 20_000  # More than an entry of the index covers.
    for sequence in range(1, 6):
        await add(node, producer, 0)
        await write(node, producer, bytes(large), sequence=sequence)
        await end(node, producer, commit=False)
    found = await read(node, max_bytes=large)
    assert 1 <= len(found.aborted or ()) <= 2
    found = await read(node)
    assert [first for _, first in found.aborted or ()] == [1, 4, 6, 8, 10, 12]


@on_node()
async def test_a_waiting_reader_wakes_when_the_transaction_ends(node: Node) -> None:
    producer = await started(node)
    request = fetch_request(TOPIC, wanted(1), isolation_level=COMMITTED, max_wait_ms=60_000)
    fetching = Fetching(node, request)
    await write(node, producer, b"d", sequence=1)
    await asyncio.sleep(1)
    assert not fetching.answer.is_over
    await end(node, producer)
    await asyncio.sleep(0.001)
    (found,) = fetching.response().topics[0].partitions
    assert values_in(found.records)[:3] == [b"b", b"c", b"d"]


@on_node()
async def test_a_waiting_reader_of_everything_does_not_wait_for_the_end(node: Node) -> None:
    producer = await started(node)
    fetching = Fetching(node, fetch_request(TOPIC, wanted(3), max_wait_ms=60_000))
    await write(node, producer, b"d", sequence=1)
    await asyncio.sleep(0.001)
    (found,) = fetching.response().topics[0].partitions
    assert values_in(found.records) == [b"d"]


@on_node()
async def test_in_a_session_a_moved_stable_offset_is_news(node: Node) -> None:
    producer = await started(node)
    opening = fetch_request(TOPIC, wanted(3), isolation_level=COMMITTED, session_epoch=0)
    session_id = Fetching(node, opening).response().session_id
    following = {"session_id": session_id, "isolation_level": COMMITTED}
    quiet = Fetching(node, fetch_request([], session_epoch=1, **following)).response()
    assert quiet.topics == []
    await end(node, producer)
    news = Fetching(node, fetch_request([], session_epoch=2, **following)).response()
    (found,) = news.topics[0].partitions
    assert found.last_stable_offset == 4


def ask(node: Node, timestamp: int, isolation: int) -> int:
    partition = ListOffsetsPartition(
        partition_index=i32(0), current_leader_epoch=i32(-1), timestamp=i64(timestamp)
    )
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation),
        topics=(ListOffsetsTopic(name=TopicName(TOPIC), partitions=(partition,)),),
        timeout=NO_THROTTLE,
    )
    (topic,) = finish(handle(node.context, request)).topics
    (found,) = topic.partitions
    assert found.error_code is ErrorCode.none
    return found.offset


@pytest.mark.parametrize(
    ("timestamp", "offsets"),
    [
        (NamedOffset.EARLIEST, (0, 0)),
        (NamedOffset.LATEST, (3, 1)),
        (NamedOffset.MAX_TIMESTAMP, (0, 0)),
        (1_000, (0, 0)),
        (1_001, (-1, -1)),
    ],
)
@on_node()
async def test_offsets_end_there_too(node: Node, timestamp: int, offsets: tuple[int, int]) -> None:
    producer = await started(node)
    assert (ask(node, timestamp, 0), ask(node, timestamp, COMMITTED)) == offsets
    await end(node, producer)
    if timestamp == NamedOffset.LATEST:
        assert ask(node, timestamp, COMMITTED) == 4


@on_node()
async def test_a_time_in_an_open_transaction_is_not_there_yet(node: Node) -> None:
    await node.context.broker.create_topic(TOPIC, 1)
    producer = await producer_of(node)
    await add(node, producer, 0)
    await write(node, producer, b"a")
    for timestamp in (1_000, NamedOffset.MAX_TIMESTAMP):
        assert (ask(node, timestamp, 0), ask(node, timestamp, COMMITTED)) == (0, -1)
