"""AddOffsetsToTxn and TxnOffsetCommit. Proves N-04."""

import asyncio

import pytest
from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.errors import ErrorCode
from kio.schema.txn_offset_commit.v5.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i64

from entrepot.broker import transaction
from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.served_partition import committed
from entrepot.broker.transaction import ProducerIdentity
from entrepot.gateway.kafka import add_offsets_to_txn, txn_offset_commit
from entrepot.wire.kafka.api import Api
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.transacting import ID, TOPIC, deny, end, header, init, producer_of

GROUP = "readers"
OK = ErrorCode.none


async def started(node: Node) -> ProducerIdentity:
    await node.context.broker.create_topic(TOPIC, 2)
    return await producer_of(node)


async def join(
    node: Node, producer: ProducerIdentity, *, version: int = 4, group: str = GROUP
) -> ErrorCode:
    request = AddOffsetsToTxnRequest(
        transactional_id=TransactionalId(ID),
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
        group_id=GroupId(group),
    )
    response = await add_offsets_to_txn.handle(
        node.context, header(Api.ADD_OFFSETS_TO_TXN, version), request
    )
    return response.error_code


async def commit(
    node: Node,
    producer: ProducerIdentity,
    offset: int,
    *,
    version: int = 3,
    topic: str = TOPIC,
    generation: int = -1,
    group: str = GROUP,
) -> ErrorCode:
    partition = TxnOffsetCommitRequestPartition(
        partition_index=i32(1), committed_offset=i64(offset), committed_metadata=None
    )
    request = TxnOffsetCommitRequest(
        transactional_id=TransactionalId(ID),
        group_id=GroupId(group),
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
        generation_id=i32(generation),
        topics=(TxnOffsetCommitRequestTopic(name=TopicName(topic), partitions=(partition,)),),
    )
    response = await txn_offset_commit.handle(
        node.context, header(Api.TXN_OFFSET_COMMIT, version), request
    )
    ((answer,),) = (each.partitions for each in response.topics)
    return answer.error_code


def offset_of(node: Node, group: str = GROUP) -> int | None:
    place = TopicPartition(TOPIC, 1)
    found = node.context.broker.groups.fetch_offsets(group, [place])[place]
    return getattr(found, "offset", None)


@pytest.mark.parametrize("version", [3, 5])
@on_node()
async def test_offsets_count_when_the_transaction_commits(node: Node, version: int) -> None:
    producer = await started(node)
    end_version = 5 if version == 5 else 4
    for offset, is_committed in ((10, True), (20, False), (30, True)):
        before = offset_of(node)
        if version < 5:
            assert await join(node, producer) is OK
        assert await commit(node, producer, offset, version=version) is OK
        assert offset_of(node) == before
        response = await end(node, producer, commit=is_committed, version=end_version)
        producer = ProducerIdentity(response.producer_id, response.producer_epoch)
        assert offset_of(node) == (offset if is_committed else before)


@pytest.mark.parametrize("is_committed", [True, False])
@on_node()
async def test_they_survive_a_crash_in_the_transaction(node: Node, is_committed: bool) -> None:
    producer = await started(node)
    await join(node, producer)
    await commit(node, producer, 10)
    await node.power_fails()
    assert offset_of(node) is None
    await end(node, producer, commit=is_committed)
    assert offset_of(node) == (10 if is_committed else None)
    await asyncio.sleep(0.1)  # Its end is recorded.
    await node.power_fails()
    assert offset_of(node) == (10 if is_committed else None)


@on_node()
async def test_a_crash_between_decision_and_marker(node: Node) -> None:
    producer = await started(node)
    await join(node, producer)
    await commit(node, producer, 10)
    transactions = node.context.broker.transactions
    decided = transaction.end(
        transactions.transactions[ID], producer, commit=True, version=0, spare_id=-1, now_ms=0
    )
    assert decided is not None
    await committed(*transactions._record(decided))
    await node.power_fails()
    assert offset_of(node) == 10


@on_node()
async def test_offsets_outside_of_a_transaction_are_refused(node: Node) -> None:
    producer = await started(node)
    assert await commit(node, producer, 10, version=3) is ErrorCode.invalid_txn_state
    assert await commit(node, producer, 10, version=4) is ErrorCode.transaction_abortable
    await join(node, producer)
    unknown = ErrorCode.unknown_topic_or_partition
    assert await commit(node, producer, 10, topic="nosuch") is unknown
    assert await commit(node, producer, 10, generation=7) is ErrorCode.illegal_generation
    await end(node, producer)
    assert await commit(node, producer, 10, version=3) is ErrorCode.invalid_txn_state


@on_node()
async def test_the_fenced(node: Node) -> None:
    old = await started(node)
    await init(node)
    assert await join(node, old, version=1) is ErrorCode.invalid_producer_epoch
    assert await join(node, old, version=2) is ErrorCode.producer_fenced
    for version in (3, 5):
        code = ErrorCode.invalid_producer_epoch
        assert await commit(node, old, 10, version=version) is code


@on_node()
async def test_while_the_end_is_under_way_offsets_are_to_be_sent_again(node: Node) -> None:
    producer = await started(node)
    await join(node, producer)
    ending = end(node, producer)
    ending.send(None)  # As far as its first wait.
    again = ErrorCode.coordinator_load_in_progress
    assert await commit(node, producer, 10, version=3) is again
    busy = ErrorCode.concurrent_transactions
    assert await commit(node, producer, 10, version=5) is busy
    assert await join(node, producer) is busy
    ending.close()


@pytest.mark.parametrize(
    ("operation", "kind", "code"),
    [
        (
            Operation.WRITE,
            ResourceKind.TRANSACTIONAL_ID,
            ErrorCode.transactional_id_authorization_failed,
        ),
        (Operation.READ, ResourceKind.GROUP, ErrorCode.group_authorization_failed),
        (Operation.READ, ResourceKind.TOPIC, ErrorCode.topic_authorization_failed),
    ],
)
@on_node()
async def test_who_may(
    node: Node, operation: Operation, kind: ResourceKind, code: ErrorCode
) -> None:
    producer = await started(node)
    await join(node, producer)
    deny(node, operation, kind)
    assert await commit(node, producer, 10) is code
    assert await join(node, producer) is (OK if kind is ResourceKind.TOPIC else code)


@on_node()
async def test_an_old_end_says_nothing_of_the_next_transaction(node: Node) -> None:
    """Two groups of one producer, kept in two partitions; a start reads one after the other."""
    producer = await started(node)
    groups = node.context.broker.groups
    await groups.prepare()
    early = next(f"g{n}" for n in range(99) if groups.partition_of(f"g{n}") == 0)
    late = next(f"g{n}" for n in range(99) if groups.partition_of(f"g{n}") == 7)
    for group in (early, late):
        assert await join(node, producer, group=group) is OK
        assert await commit(node, producer, 10, group=group) is OK
    await end(node, producer)
    assert await join(node, producer, group=early) is OK
    assert await commit(node, producer, 20, group=early) is OK
    await asyncio.sleep(0.1)
    await node.power_fails()
    assert offset_of(node, early) == offset_of(node, late) == 10
    await end(node, producer, commit=False)
    assert offset_of(node, early) == 10
