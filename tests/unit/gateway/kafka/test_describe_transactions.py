"""DescribeTransactions, ListTransactions and DescribeProducers."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import PartitionResponse
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import TransactionState
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i32, i64

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import ProducerIdentity
from entrepot.core.steps import finish
from entrepot.gateway.kafka import (
    describe_producers,
    describe_transactions,
    list_transactions,
)
from sim.clock import START_MS
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.transacting import (
    ID,
    TOPIC,
    add,
    deny,
    end,
    init,
    producer_of,
    write,
)


async def started(node: Node) -> ProducerIdentity:
    await node.context.broker.create_topic(TOPIC, 2)
    producer = await producer_of(node)
    await add(node, producer, 1, 0)
    await write(node, producer, b"x")
    return producer


def describe(node: Node, transactional_id: str = ID) -> TransactionState:
    request = DescribeTransactionsRequest(transactional_ids=(TransactionalId(transactional_id),))
    (state,) = finish(describe_transactions.handle(node.context, request)).transaction_states
    assert state.transactional_id == transactional_id
    return state


@on_node()
async def test_a_transaction_is_described(node: Node) -> None:
    producer = await started(node)
    state = describe(node)
    assert (state.error_code, state.transaction_state) == (ErrorCode.none, "Ongoing")
    assert (state.producer_id, state.producer_epoch) == producer
    assert state.transaction_timeout == timedelta(minutes=1)
    since = state.transaction_start_time - datetime.fromtimestamp(START_MS / 1_000, UTC)
    assert timedelta() <= since < timedelta(seconds=1)
    assert [(topic.topic, topic.partitions) for topic in state.topics] == [(TOPIC, (0, 1))]
    await end(node, producer)
    state = describe(node)
    assert (state.transaction_state, state.topics) == ("CompleteCommit", ())


@on_node()
async def test_what_cannot_be_described(node: Node) -> None:
    await started(node)
    assert describe(node, "nobody").error_code is ErrorCode.transactional_id_not_found
    assert describe(node, "").error_code is ErrorCode.invalid_request
    deny(node, Operation.DESCRIBE, ResourceKind.TOPIC)
    assert describe(node).topics == ()
    deny(node, Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
    assert describe(node).error_code is ErrorCode.transactional_id_authorization_failed


async def listed(node: Node, **filters: object) -> ListTransactionsResponse:
    return await list_transactions.handle(node.context, ListTransactionsRequest(**filters))


async def names(node: Node, **filters: object) -> list[str]:
    response = await listed(node, **filters)
    assert response.error_code is ErrorCode.none
    return [each.transactional_id for each in response.transaction_states]


@on_node()
async def test_transactions_are_listed(node: Node) -> None:
    producer = await started(node)
    other = await producer_of(node, "other")
    response = await listed(node)
    assert [
        (each.transactional_id, each.producer_id, each.transaction_state)
        for each in response.transaction_states
    ] == [(ID, producer.id, "Ongoing"), ("other", other.id, "Empty")]
    assert await names(node, state_filters=("Empty", "Nonsense")) == ["other"]
    response = await listed(node, state_filters=("Empty", "Nonsense"))
    assert response.unknown_state_filters == ("Nonsense",)
    assert await names(node, producer_id_filters=(ProducerId(producer.id),)) == [ID]
    assert await names(node, transactional_id_pattern="p.*|nobody") == [ID]
    assert await names(node, transactional_id_pattern="") == [ID, "other"]
    await asyncio.sleep(1)
    assert await names(node, duration_filter=i64(500)) == [ID]
    assert await names(node, duration_filter=i64(5_000)) == []
    deny(node, Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID)
    assert await names(node) == []


@pytest.mark.parametrize("pattern", ["(", r"(a)\1", "(?=a)b"])
@on_node()
async def test_not_every_pattern_is_one(node: Node, pattern: str) -> None:
    response = await listed(node, transactional_id_pattern=pattern)
    assert response.error_code is ErrorCode.invalid_regular_expression


@on_node()
async def test_a_long_list_lets_others_have_their_turn(node: Node) -> None:
    for number in range(450):
        await init(node, f"id{number}")
    turns = 0

    async def somebody_else() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.get_running_loop().create_task(somebody_else())
    assert len(await names(node)) == 450
    assert turns >= 2
    task.cancel()


def producers(node: Node, topic: str = TOPIC, index: int = 0) -> PartitionResponse:
    request = DescribeProducersRequest(
        topics=(TopicRequest(name=TopicName(topic), partition_indexes=(i32(index),)),)
    )
    ((found,),) = (
        each.partitions for each in finish(describe_producers.handle(node.context, request)).topics
    )
    assert found.partition_index == index
    return found


@on_node()
async def test_the_producers_of_a_partition(node: Node) -> None:
    producer = await started(node)
    (state,) = producers(node).active_producers
    assert (state.producer_id, state.producer_epoch) == producer
    assert (state.last_sequence, state.last_timestamp) == (0, 1_000)
    assert state.current_txn_start_offset == 0
    assert producers(node, index=1).active_producers == ()
    await end(node, producer)
    (state,) = producers(node).active_producers
    assert state.current_txn_start_offset == -1


@on_node()
async def test_what_has_no_producers_to_tell_of(node: Node) -> None:
    await started(node)
    assert producers(node, index=2).error_code is ErrorCode.unknown_topic_or_partition
    assert producers(node, "nosuch").error_code is ErrorCode.unknown_topic_or_partition
    assert producers(node, "no such").error_code is ErrorCode.invalid_topic_exception
    deny(node, Operation.READ, ResourceKind.TOPIC)
    assert producers(node).error_code is ErrorCode.topic_authorization_failed
