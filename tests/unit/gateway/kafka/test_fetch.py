import asyncio
import errno
from typing import Any
from uuid import UUID

import pytest
from kio.schema.errors import ErrorCode

from entrepot.core import batch, limits
from entrepot.core.record import Record
from entrepot.gateway.kafka.fetch import WAIT_MS_MAX
from entrepot.log.partition import Partition
from entrepot.wire.kafka.fetch import FetchPartition, FetchTopic
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


async def topic(node: Node, partitions: int = 1, **settings: str) -> Any:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    return await node.context.broker.create_topic("one", partitions, named)


async def append(node: Node, *values: bytes, index: int = 0) -> None:
    await Produced(node, [to("one", batch_of(*values), index)]).done()


async def listeners(node: Node) -> int:
    """How many wait, a moment from now."""
    await asyncio.sleep(0.001)
    broker = node.context.broker
    return len(broker.served_partition(broker.topic("one"), 0).partition._listeners)


# --- what an answer holds


@on_node()
async def test_from_an_offset(node: Node) -> None:
    await topic(node)
    await append(node, b"a", b"b")
    await append(node, b"c")
    (found,) = Fetching(node, fetch_request("one")).response().topics[0].partitions
    assert values_in(found.records) == [b"a", b"b", b"c"]
    assert found[:5] == (0, 0, 3, 3, 0)
    (found,) = Fetching(node, fetch_request("one", wanted(2))).response().topics[0].partitions
    assert values_in(found.records) == [b"c"]
    (found,) = Fetching(node, fetch_request("one", wanted(3))).response().topics[0].partitions
    assert found.records == b""


@on_node()
async def test_the_batch_that_holds_the_offset_comes_whole(node: Node) -> None:
    await topic(node)
    await append(node, b"a", b"b", b"c")
    (found,) = Fetching(node, fetch_request("one", wanted(1))).response().topics[0].partitions
    assert values_in(found.records) == [b"a", b"b", b"c"]


@on_node()
async def test_a_partition_named_twice_is_answered_once(node: Node) -> None:
    await topic(node)
    await append(node, b"a")
    await append(node, b"b")
    twice = fetch_request("one", wanted(0), wanted(1))
    (found,) = Fetching(node, twice).response().topics[0].partitions
    assert values_in(found.records) == [b"b"]


@on_node()
async def test_only_what_is_committed(node: Node) -> None:
    await topic(node)
    await append(node, b"a")
    Produced(node, [to("one", batch_of(b"not yet"))])
    (found,) = Fetching(node, fetch_request("one")).response().topics[0].partitions
    assert (values_in(found.records), found.high_watermark) == ([b"a"], 1)


@on_node()
async def test_each_error_is_its_partitions(node: Node) -> None:
    made = await topic(node, 4)
    await append(node, b"a")
    parts = [
        wanted(0),
        wanted(2, 1),
        wanted(-1, 2),
        wanted(0, 7),
        FetchPartition(3, 5, 0, -1, -1, 100),
    ]
    both = [FetchTopic("one", None, parts), FetchTopic("two", None, [wanted()])]
    response = Fetching(node, fetch_request(both)).response()
    codes = [each.error_code for each in (*response.topics[0].partitions,)]
    assert codes == [
        0,
        ErrorCode.offset_out_of_range,
        ErrorCode.offset_out_of_range,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.unknown_leader_epoch,
    ]
    assert response.topics[1].partitions[0].error_code == ErrorCode.unknown_topic_or_partition
    by_id = [FetchTopic(None, made.id, [wanted()]), FetchTopic(None, UUID(int=5), [wanted()])]
    response = Fetching(node, fetch_request(by_id), version=13).response()
    codes = [each.partitions[0].error_code for each in response.topics]
    assert codes == [0, ErrorCode.unknown_topic_id]


@pytest.mark.parametrize("level", [0, 1])
@on_node()
async def test_isolation_level(node: Node, level: int) -> None:
    await topic(node)
    await append(node, b"a")
    response = Fetching(node, fetch_request("one", isolation_level=level)).response()
    (found,) = response.topics[0].partitions
    assert found.aborted == ([] if level else None)
    assert values_in(found.records) == [b"a"]


@on_node()
async def test_a_damaged_partition_says_so(node: Node) -> None:
    made = await topic(node)
    node.context.broker.served_partition(made, 0).partition.refuse("damaged")
    (found,) = Fetching(node, fetch_request("one")).response().topics[0].partitions
    assert found.error_code == ErrorCode.kafka_storage_error


# --- how much


@on_node()
async def test_the_first_batch_comes_whole_however_small_the_limit(node: Node) -> None:
    await topic(node, 2)
    for index in (0, 1):
        await append(node, b"x" * 1_000, index=index)
        await append(node, b"y" * 1_000, index=index)
    both = (wanted(0, 0), wanted(0, 1))
    response = Fetching(node, fetch_request("one", *both, max_bytes=1)).response()
    found = [values_in(each.records) for each in response.topics[0].partitions]
    assert found == [[b"x" * 1_000], []]
    small = (wanted(0, 0, 10), wanted(0, 1, 10))
    response = Fetching(node, fetch_request("one", *small)).response()
    found = [values_in(each.records) for each in response.topics[0].partitions]
    assert found == [[b"x" * 1_000], [b"x" * 1_000]]


@on_node()
async def test_never_more_than_the_house_gives(node: Node, monkeypatch: Any) -> None:
    await topic(node)
    for _ in range(4):
        await append(node, b"x" * 1_000)
    monkeypatch.setattr(limits, "FETCH_BYTES_MAX", 2_500)
    request = fetch_request("one", wanted(bytes_max=2**31 - 1), max_bytes=2**31 - 1)
    (found,) = Fetching(node, request).response().topics[0].partitions
    assert values_in(found.records) == [b"x" * 1_000] * 2
    assert len(found.records) == 2_500


# --- waiting


def waiting(max_wait_ms: int = 500, min_bytes: int = 1, offset: int = 0) -> Any:
    return fetch_request("one", wanted(offset), max_wait_ms=max_wait_ms, min_bytes=min_bytes)


@on_node()
async def test_an_append_ends_the_wait(node: Node) -> None:
    await topic(node)
    fetching = Fetching(node, waiting(max_wait_ms=3_600_000))
    assert not fetching.answer.is_over
    assert await listeners(node) == 1
    before = node.context.clock.monotonic()
    await append(node, b"a")
    (found,) = (await fetching.done()).topics[0].partitions
    assert values_in(found.records) == [b"a"]
    assert node.context.clock.monotonic() - before < 1
    assert await listeners(node) == 0


@on_node()
async def test_the_wait_ends_by_itself(node: Node) -> None:
    await topic(node)
    before = node.context.clock.monotonic()
    response = await Fetching(node, waiting(max_wait_ms=500)).done()
    assert node.context.clock.monotonic() - before == pytest.approx(0.5)
    assert response.topics[0].partitions[0].records == b""
    assert await listeners(node) == 0


@on_node()
async def test_nobody_waits_for_ever(node: Node) -> None:
    await topic(node)
    before = node.context.clock.monotonic()
    await Fetching(node, waiting(max_wait_ms=2**31 - 1)).done()
    assert node.context.clock.monotonic() - before == pytest.approx(WAIT_MS_MAX / 1_000)


@on_node()
async def test_until_there_is_enough(node: Node) -> None:
    await topic(node)
    fetching = Fetching(node, waiting(max_wait_ms=3_600_000, min_bytes=2_000))
    await append(node, b"x" * 1_000)
    assert not fetching.answer.is_over
    await append(node, b"y" * 1_000)
    (found,) = (await fetching.done()).topics[0].partitions
    assert values_in(found.records) == [b"x" * 1_000, b"y" * 1_000]


@on_node()
async def test_what_is_there_is_not_waited_for(node: Node) -> None:
    await topic(node)
    await append(node, b"a")
    assert Fetching(node, waiting()).answer.is_over
    assert Fetching(node, waiting(offset=9)).answer.is_over, "an error is told at once"
    assert Fetching(node, fetch_request([], max_wait_ms=500)).answer.is_over


@on_node()
async def test_a_cancelled_wait_leaves_nothing_behind(node: Node) -> None:
    await topic(node)
    fetching = Fetching(node, waiting())
    assert fetching.answer.held is not None
    fetching.answer.held.cancel()
    assert await listeners(node) == 0
    await append(node, b"a")
    await asyncio.sleep(1)
    assert not fetching.answer.is_over


@on_node()
async def test_a_topic_deleted_meanwhile(node: Node) -> None:
    made = await topic(node)
    fetching = Fetching(node, waiting())
    await node.context.broker.delete_topic(made)
    (found,) = (await fetching.done()).topics[0].partitions
    assert found.error_code == ErrorCode.unknown_topic_or_partition


@on_node()
async def test_a_disk_that_fails_is_told_at_once(node: Node) -> None:
    """After a clean stop, an index has to be read to know how much there is."""
    made = await topic(node)
    await append(node, b"a")
    partition = node.context.broker.served_partition(made, 0).partition
    partition.segments[-1].index = partition._last = None
    node.disk.fail_next("read", errno.EIO, "*.log", count=2)
    response = await Fetching(node, waiting(max_wait_ms=3_600_000)).done()
    (found,) = response.topics[0].partitions
    assert found.error_code == ErrorCode.kafka_storage_error


# --- many partitions

MANY = 600  # More than are looked at at once.


async def many(node: Node) -> None:
    await node.context.broker.create_topic("many", MANY)


def all_of() -> list[FetchPartition]:
    return [wanted(index=index) for index in range(MANY)]


@pytest.mark.pure
@on_node()
async def test_a_waiting_fetch_looks_only_at_what_has_moved(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.context.broker.create_topic("one", 100)
    partitions = [wanted(index=index) for index in range(100)]
    request = fetch_request("one", *partitions, max_wait_ms=1_000, min_bytes=1 << 20)
    fetching = Fetching(node, request)
    looks = 0
    check = Partition.check_readable

    def counting(self: Partition, offset: int) -> None:
        nonlocal looks
        looks += 1
        check(self, offset)

    monkeypatch.setattr(Partition, "check_readable", counting)
    for index in range(100):
        await node.append("one", [1_000], index)
    assert looks == 100
    assert fetching.answer.body is None
    assert len((await fetching.done()).topics[0].partitions) == 100


@on_node()
async def test_a_fetch_of_many_partitions_waits_for_bytes_in_all_of_them(node: Node) -> None:
    await many(node)
    size = len(batch.build([Record(b"key", b"value", (), 1_000)], now_ms=0))
    fetching = Fetching(
        node, fetch_request("many", *all_of(), max_wait_ms=60_000, min_bytes=3 * size)
    )
    pending = asyncio.ensure_future(fetching.done())
    for index in (0, 300, 599):
        await asyncio.sleep(1)
        assert not pending.done()
        await node.append("many", [1_000], index)
    response = await pending
    found = [each.partition_index for each in response.topics[0].partitions if each.records]
    assert found == [0, 300, 599]


@on_node()
async def test_a_long_fetch_of_few_partitions_is_answered_once(node: Node) -> None:
    await node.context.broker.create_topic("one")
    await node.append("one", [1_000])
    nowhere = [FetchTopic(f"{index:0200}", None, ()) for index in range(200)]
    topics = [*nowhere, FetchTopic("one", None, (wanted(),))]
    response = await Fetching(node, fetch_request(topics)).done()
    assert [len(each.partitions) for each in response.topics] == [1]


@on_node()
async def test_a_topic_deleted_under_a_long_fetch_is_told(node: Node) -> None:
    await many(node)
    broker = node.context.broker
    fetching = Fetching(node, fetch_request("many", *all_of(), max_wait_ms=1_000))
    pending = asyncio.ensure_future(fetching.done())
    await asyncio.sleep(0.1)
    await broker.delete_topic(broker.topic("many"))
    codes = {each.error_code for each in (await pending).topics[0].partitions}
    assert codes == {ErrorCode.unknown_topic_or_partition}


@on_node()
async def test_a_long_fetch_whose_client_is_gone_listens_no_more(node: Node) -> None:
    await many(node)
    broker = node.context.broker
    fetching = Fetching(node, fetch_request("many", *all_of(), max_wait_ms=60_000))
    assert fetching.pending is not None
    pending = asyncio.ensure_future(fetching.pending)
    await asyncio.sleep(0.1)
    pending.cancel()
    await asyncio.sleep(0.1)
    served_partitions = broker.served_partitions(broker.topic("many"))
    assert not any(served.partition._listeners for served in served_partitions)


@on_node()
async def test_what_comes_when_the_client_of_a_long_fetch_has_just_gone(node: Node) -> None:
    broker = node.context.broker
    made = await broker.create_topic("many", MANY, {"durability": "os"})
    fetching = Fetching(node, fetch_request("many", *all_of(), max_wait_ms=60_000))
    assert fetching.pending is not None
    pending = asyncio.ensure_future(fetching.pending)
    await asyncio.sleep(0.1)
    pending.cancel()
    broker.served_partition(made, 0).append(batch_of(b"value"))
    await asyncio.sleep(0.1)
    assert not fetching.answer.is_over
