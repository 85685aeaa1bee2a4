import asyncio
import errno

import pytest

from entrepot.broker.consumer_group.records import CommittedOffset, GroupRecordKind, Key
from entrepot.broker.consumer_group.store import PARTITIONS, TOPIC, GroupStore
from entrepot.core.errors import StorageError
from tests.unit.gateway.kafka.node import Node, on_node

ROW = (Key(GroupRecordKind.OFFSET, "g", "t", 0), CommittedOffset(5, -1, "", 77))


def store_of(node: Node) -> GroupStore:
    store = GroupStore(node.context.broker, node.context.clock)
    store.open()
    return store


@on_node()
async def test_the_topic_is_made_when_it_is_needed(node: Node) -> None:
    broker = node.context.broker
    assert TOPIC not in broker.topics
    store = store_of(node)
    assert not store.is_ready
    await asyncio.gather(*(store.prepare() for _ in range(3)))
    assert store.is_ready
    assert broker.topic(TOPIC).partition_count == PARTITIONS


@on_node()
async def test_who_asked_for_the_topic_may_go(node: Node) -> None:
    """A client that closes its connection does not keep others from their groups."""
    store = store_of(node)
    first = asyncio.ensure_future(store.prepare())
    await asyncio.sleep(0)
    second = asyncio.ensure_future(store.prepare())
    first.cancel()
    await second
    assert store.is_ready


@on_node()
async def test_no_topic_on_a_bad_disk_and_again_on_a_good_one(node: Node) -> None:
    store = store_of(node)
    node.disk.fail_next("write", errno.ENOSPC)
    with pytest.raises(StorageError):
        await store.prepare()
    await store.prepare()
    assert store.is_ready


@pytest.mark.parametrize(
    ("group", "partition"),
    [("g", 7), ("my-group", 2), ("grün", 5), ("console-consumer-79089", 6), ("", 0)],
)
def test_a_group_is_where_kafka_would_keep_it(group: str, partition: int) -> None:
    @on_node()
    async def check(node: Node) -> None:
        assert store_of(node).partition_of(group) == partition
        assert store_of(node).partition_of("polygenelubricants") == 0, "the smallest number"

    check()


@on_node()
async def test_kept_is_permanent(node: Node) -> None:
    await node.context.broker.create_topic("t")
    store = store_of(node)
    await store.prepare()
    assert store.append("g", [ROW, ROW]) == 0
    assert not store.is_kept("g")
    assert store.is_kept("another")
    waited: list[StorageError | None] = []
    store.when_kept("g", waited.append)
    assert waited == []
    await store.kept("g")
    assert waited == [None]
    assert store.is_kept("g")
    await node.power_fails()
    assert [kept.row for kept in store_of(node).read()] == [ROW, ROW]


@on_node()
async def test_what_cannot_be_kept(node: Node) -> None:
    store = store_of(node)
    await store.prepare()
    node.disk.fail_next("write", errno.ENOSPC, "partitions/__consumer_offsets*")
    with pytest.raises(StorageError):
        store.append("g", [ROW])
    assert store.is_kept("g"), "nothing was appended"
    store.append("g", [ROW])
    node.disk.fail_next("sync", errno.EIO, count=20)
    with pytest.raises(StorageError):
        await store.kept("g")
    assert not store.is_kept("g")


@on_node()
async def test_what_was_in_a_transaction_says_so(node: Node) -> None:
    store = store_of(node)
    await store.prepare()
    store.append("g", [ROW], producer=(9, 2))
    await store.kept("g")
    (kept,) = store_of(node).read()
    assert (kept.row, kept.producer_id, kept.offset) == (ROW, 9, 0)
