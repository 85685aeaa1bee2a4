"""Over its quota: the answer says how long to wait, and the connection is not served meanwhile."""

import asyncio
from typing import Any

import pytest
from kio.schema.api_versions.v3.request import ApiVersionsRequest
from kio.schema.fetch.v4.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.metadata.v4.request import MetadataRequest
from kio.schema.produce.v3.request import PartitionProduceData, ProduceRequest, TopicProduceData
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import Records, i8, i16, i32, i64

from entrepot.broker.quotas import DEFAULT, Entity, Limit, quota_record
from entrepot.client.client import milliseconds
from entrepot.core import batch, limits
from entrepot.core.record import Record
from entrepot.gateway.kafka.throttle import Cost
from entrepot.server import Server
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.test_login import CONFIG, on_server

OPEN = {**CONFIG, "security": {}}
RATE = 1_000.0
BURST = RATE * limits.QUOTA_BURST_SECONDS
EVERYBODY = Entity(None, DEFAULT)


def produce(size: int, acks: int = 1) -> ProduceRequest:
    data = batch.build([Record(None, bytes(size))], now_ms=0)
    partition = PartitionProduceData(index=i32(0), records=Records(data))
    return ProduceRequest(
        transactional_id=None,
        acks=i16(acks),
        timeout=milliseconds(1_000),
        topic_data=(TopicProduceData(name=TopicName("t"), partition_data=(partition,)),),
    )


def fetch() -> FetchRequest:
    partition = FetchPartition(
        partition=i32(0), fetch_offset=i64(0), partition_max_bytes=i32(limits.MIB)
    )
    return FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=milliseconds(100),
        min_bytes=i32(1),
        max_bytes=i32(limits.MIB),
        isolation_level=i8(0),
        topics=(FetchTopic(topic=TopicName("t"), partitions=(partition,)),),
    )


async def limit(server: Server, which: Limit, rate: float = RATE) -> None:
    await server.broker.change_security(quota_record(EVERYBODY, {which: rate}))


def ms(answer: Any) -> float:
    return float(answer.throttle_time.total_seconds() * 1_000)


def test_a_producer_over_its_quota_waits() -> None:
    async def body(server: Server, connect: Any) -> None:
        loop = asyncio.get_running_loop()
        await server.broker.create_topic("t", 1)
        await limit(server, Limit.PRODUCER_BYTE_RATE)
        peer, other = await connect(), await connect()
        assert ms(await peer.ask(produce(int(BURST) - 1_000))) == 0
        answer = await peer.ask(produce(2_000))
        assert 1_000 < ms(answer) < 1_500
        before = loop.time()
        await peer.ask(ApiVersionsRequest(client_software_name="x", client_software_version="1"))
        assert ms(answer) - 50 < (loop.time() - before) * 1_000 < ms(answer) + 100
        # A connection of its own, with the same client id: the quota is shared, the wait is not.
        before = loop.time()
        assert ms(await other.ask(produce(1_000))) > 500
        assert loop.time() - before < 0.2

    on_server(body, OPEN)


def test_a_producer_without_answers_waits_too() -> None:
    async def body(server: Server, connect: Any) -> None:
        loop = asyncio.get_running_loop()
        await server.broker.create_topic("t", 1)
        await limit(server, Limit.PRODUCER_BYTE_RATE)
        peer = await connect()
        peer.send(produce(int(BURST) + 2_000, acks=0))
        before = loop.time()
        await peer.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False))
        assert 2 < loop.time() - before < 2.5

    on_server(body, OPEN)


def test_a_consumer_over_its_quota_waits() -> None:
    async def body(server: Server, connect: Any) -> None:
        loop = asyncio.get_running_loop()
        await server.broker.create_topic("t", 1)
        peer = await connect()
        await peer.ask(produce(int(BURST)))
        await limit(server, Limit.CONSUMER_BYTE_RATE)
        first = await peer.ask(fetch())
        assert len(first.responses[0].partitions[0].records) > BURST
        before = loop.time()
        second = await peer.ask(fetch())
        assert loop.time() - before > ms(first) / 1_000 - 0.01 > 0.05
        assert ms(second) > 9_000

    on_server(body, OPEN)


def test_one_wait_is_bounded_and_who_owes_more_waits_again() -> None:
    async def body(server: Server, connect: Any) -> None:
        await server.broker.create_topic("t", 1)
        await limit(server, Limit.PRODUCER_BYTE_RATE, rate=1.0)
        peer = await connect()
        for _ in range(3):
            assert ms(await peer.ask(produce(1_000))) == limits.THROTTLE_MS_MAX

    on_server(body, OPEN)


def test_a_connection_that_goes_while_it_waits() -> None:
    async def body(server: Server, connect: Any) -> None:
        await server.broker.create_topic("t", 1)
        await limit(server, Limit.PRODUCER_BYTE_RATE, rate=1.0)
        peer = await connect()
        await peer.ask(produce(1_000))
        peer.send(produce(1_000))
        await asyncio.sleep(0.1)
        peer.link.abort("enough")
        await asyncio.sleep(30)
        served = server.broker.served_partition(server.broker.topic("t"), 0)
        assert served.partition.offset_end == 1

    on_server(body, OPEN)


class Ticking:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return 0


@on_node()
async def test_time_is_counted_while_it_works_and_not_while_it_waits(node: Node) -> None:
    clock = Ticking()
    node.context.clock = clock
    await node.context.broker.change_security(
        quota_record(EVERYBODY, {Limit.REQUEST_PERCENTAGE: 10.0})
    )

    async def work() -> str:
        clock.now_s += 0.6
        await asyncio.sleep(0)
        clock.now_s += 0.6
        return "done"

    async def world() -> None:
        clock.now_s += 0.01

    cost = Cost(node.context, "app")
    watched = asyncio.ensure_future(_awaited(cost.watch(work())))
    moves = asyncio.ensure_future(world())
    assert await watched == "done"
    await moves
    # 1.2 seconds of work, where a second is what ten seconds' worth of a tenth allow.
    assert cost.throttle_ms() == pytest.approx(2_000, abs=10)
    assert node.context.muted_until_s == pytest.approx(clock.now_s + 2, abs=0.01)


async def _awaited(work: Any) -> Any:
    return await work


@on_node()
async def test_what_fails_or_is_cancelled_does_so_under_the_watch(node: Node) -> None:
    await node.context.broker.change_security(
        quota_record(EVERYBODY, {Limit.REQUEST_PERCENTAGE: 10.0})
    )
    seen: list[str] = []

    async def fails() -> None:
        await asyncio.sleep(0)
        raise LookupError

    async def waits() -> None:
        try:
            await asyncio.sleep(1_000)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    with pytest.raises(LookupError):
        await _awaited(Cost(node.context, None).watch(fails()))
    task = asyncio.ensure_future(_awaited(Cost(node.context, None).watch(waits())))
    await asyncio.sleep(0.1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert seen == ["cancelled"]


@on_node()
async def test_without_quotas_nothing_is_counted(node: Node) -> None:
    cost = Cost(node.context, "app")
    assert cost.throttle_ms(Limit.PRODUCER_BYTE_RATE, 10**12) == 0
    assert node.context.muted_until_s == 0
