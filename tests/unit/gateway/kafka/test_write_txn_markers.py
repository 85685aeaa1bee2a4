"""WriteTxnMarkers: a transaction that nobody ends is aborted by an operator."""

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TopicName
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.static.primitive import i16, i32

from entrepot.broker.access import Access, AccessSettings, Answers, Operation, Question
from entrepot.broker.transaction import ProducerIdentity, TransactionStatus
from entrepot.gateway.kafka import write_txn_markers
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.transacting import ID, TOPIC, add, end, init, producer_of, write


async def abort(
    node: Node, producer: ProducerIdentity, *indexes: int, topic: str = TOPIC, commit: bool = False
) -> list[ErrorCode]:
    named = WritableTxnMarkerTopic(
        name=TopicName(topic), partition_indexes=tuple(map(i32, indexes))
    )
    marker = WritableTxnMarker(
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
        transaction_result=commit,
        topics=(named,),
        coordinator_epoch=i32(0),
    )
    request = WriteTxnMarkersRequest(markers=(marker,))
    (answered,) = (await write_txn_markers.handle(node.context, request)).markers
    (of_topic,) = answered.topics
    assert (answered.producer_id, of_topic.name) == (producer.id, topic)
    assert [each.partition_index for each in of_topic.partitions] == list(indexes)
    return [each.error_code for each in of_topic.partitions]


async def started(node: Node) -> ProducerIdentity:
    """A transaction without a timeout, open in both partitions."""
    await node.context.broker.create_topic(TOPIC, 2)
    answer = await init(node, enable2_pc=True)
    producer = ProducerIdentity(answer.producer_id, answer.producer_epoch)
    await add(node, producer, 0, 1)
    assert await write(node, producer, b"a", 0) is ErrorCode.none
    assert await write(node, producer, b"b", 1) is ErrorCode.none
    return producer


def open_in(node: Node) -> list[bool]:
    broker = node.context.broker
    partitions = [broker.served_partition(broker.topic(TOPIC), index) for index in range(2)]
    return [bool(each.isolation.open) for each in partitions]


@on_node()
async def test_the_whole_transaction_is_aborted_and_its_owner_fenced(node: Node) -> None:
    """Also in the partition that is not named: it must not be committed there."""
    producer = await started(node)
    assert await abort(node, producer, 0) == [ErrorCode.none]
    assert open_in(node) == [False, False]
    found = node.context.broker.transactions.get(ID)
    assert found is not None
    assert found.state is TransactionStatus.COMPLETE_ABORT
    assert (await end(node, producer)).error_code is ErrorCode.producer_fenced
    assert await abort(node, producer, 0, 1) == [ErrorCode.none, ErrorCode.none]


@on_node()
async def test_what_was_not_recorded_is_aborted_where_it_is(node: Node) -> None:
    await node.context.broker.create_topic(TOPIC, 2)
    broker = node.context.broker
    served = broker.served_partition(broker.topic(TOPIC), 0)
    known = await producer_of(node)
    await add(node, known, 0)
    assert await write(node, known, b"a") is ErrorCode.none
    broker.transactions._transactions.clear()  # As if its partition could not be read.
    assert await abort(node, known, 0) == [ErrorCode.none]
    assert not served.isolation.open


@on_node()
async def test_another_epoch_and_a_commit_are_refused(node: Node) -> None:
    producer = await started(node)
    newer = (await init(node, enable2_pc=True)).producer_epoch
    producer = ProducerIdentity(producer.id, newer)
    await add(node, producer, 0)
    assert await write(node, producer, b"c", 0) is ErrorCode.none
    old = ProducerIdentity(producer.id, newer - 1)
    assert await abort(node, old, 0) == [ErrorCode.invalid_producer_epoch]
    assert await abort(node, producer, 0, commit=True) == [ErrorCode.invalid_request]
    assert await abort(node, producer, 7) == [ErrorCode.unknown_topic_or_partition]
    assert await abort(node, producer, 0, topic="nosuch") == [ErrorCode.unknown_topic_or_partition]
    assert open_in(node) == [True, False]


class Allowing:
    """Rules that allow one operation."""

    asks_clients = False

    def __init__(self, operation: Operation) -> None:
        self.answers: Answers = {}
        self._operation = operation

    def allows(self, question: Question) -> bool:
        return question.operation is self._operation


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (Operation.ALTER, ErrorCode.none),
        (Operation.CLUSTER_ACTION, ErrorCode.none),
        (Operation.WRITE, ErrorCode.cluster_authorization_failed),
    ],
)
@on_node()
async def test_an_operator_may(node: Node, operation: Operation, code: ErrorCode) -> None:
    producer = await started(node)
    rules = Allowing(operation)
    access = Access(AccessSettings(is_enforced=True), rules, rules)
    node.context.principal = access.principal("ana", "")
    assert await abort(node, producer, 0) == [code]
    assert open_in(node) == [code is not ErrorCode.none] * 2
