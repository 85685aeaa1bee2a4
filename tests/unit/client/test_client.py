"""Reading and writing against a broker that refuses in every way."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.response import FetchableTopicResponse, FetchResponse, PartitionData
from kio.schema.produce.v12.response import (
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from kio.schema.types import TopicName
from kio.static.primitive import Records, i32, i64

from entrepot.client.client import Client, TopicPartition, milliseconds
from entrepot.client.errors import Refused, Unreachable
from entrepot.core.batch import build
from entrepot.core.record import Record
from entrepot.net.sockets import SocketNet
from entrepot.wire.kafka.api import Api
from tests.unit.client.fake_broker import FakeBroker, Hangup

BATCH = build([Record(b"k", b"v")], now_ms=1)


def with_client(
    broker: FakeBroker, test: Callable[[Client], Coroutine[Any, Any, None]], **options: Any
) -> None:
    async def run() -> None:
        async with (
            broker.running(),
            Client(SocketNet(), broker.bootstrap, timeout_s=5, **options) as client,
        ):
            await test(client)

    asyncio.run(run())


def producing(*codes: ErrorCode) -> FakeBroker:
    """A broker with one partition, whose answers to Produce are these, in turn."""
    broker = FakeBroker()
    broker.topics = {"t": [1]}
    left = list(codes)

    def produce(request: Any, version: int) -> Any:
        (data,) = request.topic_data[0].partition_data
        assert bytes(data.records) == BATCH
        if request.acks == 0:
            return None
        result = PartitionProduceResponse(
            index=i32(0),
            error_code=left.pop(0),
            base_offset=i64(42),
            record_errors=(),
            error_message="because",
        )
        topic = TopicProduceResponse(name=TopicName("t"), partition_responses=(result,))
        return ProduceResponse(responses=(topic,))

    broker.handlers[Api.PRODUCE] = produce
    return broker


def produces(broker: FakeBroker) -> int:
    return sum(api is Api.PRODUCE for api, _ in broker.asked)


def test_produce_gives_the_offset() -> None:
    async def test(client: Client) -> None:
        assert await client.produce("t", 0, BATCH) == 42

    with_client(producing(ErrorCode.none), test)


def test_produce_goes_on_after_the_leader_moved() -> None:
    broker = producing(ErrorCode.not_leader_or_follower, ErrorCode.none)

    async def test(client: Client) -> None:
        assert await client.produce("t", 0, BATCH) == 42
        assert produces(broker) == 2
        assert broker.asked.count((Api.METADATA, 12)) == 2

    with_client(broker, test)


def test_produce_says_why_not() -> None:
    broker = producing(ErrorCode.message_too_large)

    async def test(client: Client) -> None:
        with pytest.raises(Refused) as caught:
            await client.produce("t", 0, BATCH)
        text = "partition 0 of topic t: because (MESSAGE_TOO_LARGE)"
        assert str(caught.value) == text
        assert produces(broker) == 1

    with_client(broker, test)


def test_produce_without_an_answer() -> None:
    broker = producing()

    async def test(client: Client) -> None:
        assert await client.produce("t", 0, BATCH, acks=0) == -1
        await client.cluster.describe(["t"])  # Answered after what was sent before it.
        assert produces(broker) == 1

    with_client(broker, test)


def test_one_attempt_repeats_nothing() -> None:
    broker = producing(ErrorCode.not_leader_or_follower)

    async def test(client: Client) -> None:
        with pytest.raises(Refused, match="NOT_LEADER_OR_FOLLOWER"):
            await client.produce("t", 0, BATCH)
        assert produces(broker) == 1

    with_client(broker, test, attempts=1)


def test_a_lost_answer_leaves_the_outcome_unknown() -> None:
    broker = producing()

    def hang_up(request: Any, version: int) -> Any:
        raise Hangup

    broker.handlers[Api.PRODUCE] = hang_up

    async def test(client: Client) -> None:
        with pytest.raises(Unreachable, match="lost"):
            await client.produce("t", 0, BATCH)

    with_client(broker, test, attempts=1)


@pytest.mark.parametrize("version", [4, 7, 12, 18])
def test_fetch_names_topics_in_every_version(version: int) -> None:
    broker = FakeBroker()
    broker.topics = {"t": [1, 1]}
    broker.versions[Api.FETCH] = (4, version)

    def fetch(request: Any, version: int) -> Any:
        ((topic, partitions),) = [(each.topic, each.partitions) for each in request.topics]
        data = tuple(
            PartitionData(
                partition_index=each.partition,
                error_code=ErrorCode.none,
                high_watermark=i64(each.fetch_offset + 1),
                log_start_offset=i64(0),
                aborted_transactions=None,
                records=Records(BATCH),
            )
            for each in partitions
        )
        return FetchResponse(
            throttle_time=milliseconds(0),
            error_code=ErrorCode.none,
            responses=(FetchableTopicResponse(topic=topic, partitions=data),),
        )

    broker.handlers[Api.FETCH] = fetch

    async def test(client: Client) -> None:
        wanted = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
        found = await client.fetch(wanted)
        assert {part: data.high_watermark for part, data in found.items()} == {
            TopicPartition("t", 0): 6,
            TopicPartition("t", 1): 7,
        }
        assert {bytes(data.batches) for data in found.values()} == {BATCH}

    with_client(broker, test)


def test_a_topic_that_is_missing_is_said_at_once() -> None:
    broker = FakeBroker()

    async def test(client: Client) -> None:
        with pytest.raises(Refused, match=r"topic nosuch: .* \(UNKNOWN_TOPIC_OR_PARTITION\)"):
            await client.topic("nosuch")
        assert broker.asked.count((Api.METADATA, 12)) == 1

    with_client(broker, test)
