import errno

import pytest
from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import ProducerIdentity, TransactionStatus
from entrepot.gateway.kafka.add_partitions_to_txn import handle
from entrepot.wire.kafka.api import Api
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.transacting import ID, TOPIC, add, deny, header, init, producer_of

OK, FENCED = ErrorCode.none, ErrorCode.producer_fenced
NOT_ATTEMPTED = ErrorCode.operation_not_attempted


async def started(node: Node) -> ProducerIdentity:
    await node.context.broker.create_topic(TOPIC, 3)
    return await producer_of(node)


def partitions(node: Node) -> list[int]:
    found = node.context.broker.transactions.transactions[ID]
    return [place.partition for place in found.partitions]


@on_node()
async def test_partitions_join(node: Node) -> None:
    producer = await started(node)
    assert await add(node, producer, 0, 2) == [OK, OK]
    assert await add(node, producer, 2, 1) == [OK, OK]
    assert partitions(node) == [0, 2, 1]
    await node.power_fails()
    assert sorted(partitions(node)) == [0, 1, 2]


@on_node()
async def test_all_or_none(node: Node) -> None:
    producer = await started(node)
    unknown = ErrorCode.unknown_topic_or_partition
    assert await add(node, producer, 0, 3) == [NOT_ATTEMPTED, unknown]
    assert await add(node, producer, 0, topic="two") == [unknown]
    invalid = ErrorCode.invalid_topic_exception
    assert await add(node, producer, 0, topic="__transaction_state") == [invalid]
    assert node.context.broker.transactions.transactions[ID].state is TransactionStatus.EMPTY


@pytest.mark.parametrize(("version", "code"), [(1, ErrorCode.invalid_producer_epoch), (2, FENCED)])
@on_node()
async def test_the_fenced_and_the_unknown(node: Node, version: int, code: ErrorCode) -> None:
    old = await started(node)
    await producer_of(node)
    assert await add(node, old, 0, version=version) == [code]
    mapping = ErrorCode.invalid_producer_id_mapping
    assert await add(node, old, 0, transactional_id="nobody") == [mapping]
    assert await add(node, ProducerIdentity(old.id + 1, 0), 0) == [mapping]
    assert await add(node, old, 0, transactional_id="") == [ErrorCode.invalid_request]


@on_node()
async def test_a_disk_that_fails_is_to_be_asked_again(node: Node) -> None:
    producer = await started(node)
    node.disk.fail_next("write", errno.ENOSPC)
    assert await add(node, producer, 0) == [ErrorCode.coordinator_not_available]
    assert await add(node, producer, 0) == [OK]


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (ResourceKind.TRANSACTIONAL_ID, ErrorCode.transactional_id_authorization_failed),
        (ResourceKind.TOPIC, ErrorCode.topic_authorization_failed),
    ],
)
@on_node()
async def test_who_may(node: Node, kind: ResourceKind, code: ErrorCode) -> None:
    producer = await started(node)
    deny(node, Operation.WRITE, kind)
    assert await add(node, producer, 0) == [code]


# --- many at once


async def ask(
    node: Node,
    producer: ProducerIdentity,
    *indexes: int,
    verify_only: bool,
    transactional_id: str = ID,
) -> AddPartitionsToTxnResponse:
    topic = AddPartitionsToTxnTopic(
        name=TopicName(TOPIC), partitions=tuple(i32(index) for index in indexes)
    )
    request = AddPartitionsToTxnRequest(
        transactions=(
            AddPartitionsToTxnTransaction(
                transactional_id=TransactionalId(transactional_id),
                producer_id=ProducerId(producer.id),
                producer_epoch=i16(producer.epoch),
                verify_only=verify_only,
                topics=(topic,),
            ),
        )
    )
    api = header(Api.ADD_PARTITIONS_TO_TXN)
    response = await handle(node.context, api, request)
    assert isinstance(response, AddPartitionsToTxnResponse)
    return response


def codes(response: AddPartitionsToTxnResponse) -> list[ErrorCode]:
    assert response.error_code is OK
    (result,) = response.results_by_transaction
    (topic,) = result.topic_results
    return [each.partition_error_code for each in topic.results_by_partition]


@on_node()
async def test_the_cluster_adds_and_verifies(node: Node) -> None:
    producer = await started(node)
    abortable = ErrorCode.transaction_abortable
    assert codes(await ask(node, producer, 0, verify_only=True)) == [abortable]
    assert codes(await ask(node, producer, 0, verify_only=False)) == [OK]
    assert codes(await ask(node, producer, 0, 1, verify_only=True)) == [OK, abortable]
    assert partitions(node) == [0]
    await init(node)
    for verify_only in (True, False):
        assert codes(await ask(node, producer, 0, verify_only=verify_only)) == [FENCED]
    unknown = ErrorCode.unknown_topic_or_partition
    assert codes(await ask(node, producer, 0, 9, verify_only=True)) == [NOT_ATTEMPTED, unknown]


@on_node()
async def test_only_who_may_act_for_the_cluster(node: Node) -> None:
    producer = await started(node)
    deny(node, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER)
    response = await ask(node, producer, 0, verify_only=False)
    assert response.error_code is ErrorCode.cluster_authorization_failed
    assert response.results_by_transaction == ()
    assert node.context.broker.transactions.transactions[ID].state is TransactionStatus.EMPTY
