"""Produce, with transactional batches."""

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.metadata.v13.request import MetadataRequest

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import ProducerIdentity, TransactionStatus
from entrepot.gateway.kafka import metadata
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.serving import Produced, batch_of, to
from tests.unit.gateway.kafka.transacting import (
    ID,
    TOPIC,
    add,
    deny,
    end,
    init,
    producer_of,
    read,
    write,
)

V1, V2 = 11, 12  # The last version before a batch joins by itself, and the first.


async def started(node: Node) -> ProducerIdentity:
    await node.context.broker.create_topic(TOPIC, 2)
    return await producer_of(node)


@pytest.mark.parametrize("version", [3, 9, 10, 11])
@on_node()
async def test_before_version_12_a_partition_joins_first(node: Node, version: int) -> None:
    producer = await started(node)
    outside = ErrorCode.transaction_abortable if version >= 11 else ErrorCode.invalid_txn_state
    assert await write(node, producer, b"x", version=version) is outside
    await add(node, producer, 0)
    assert await write(node, producer, b"x", version=version) is ErrorCode.none
    assert await write(node, producer, b"x", 1, version=version) is outside
    await end(node, producer)
    assert await write(node, producer, b"y", sequence=1, version=version) is outside


@on_node()
async def test_from_version_12_on_a_partition_joins_with_its_batch(node: Node) -> None:
    producer = await started(node)
    for turn in range(3):
        for index in (0, 1):
            assert await write(node, producer, b"x", index, version=V2) is ErrorCode.none
        response = await end(node, producer, version=5, commit=turn != 1)
        producer = ProducerIdentity(response.producer_id, response.producer_epoch)
    found = await read(node)
    assert found.last_stable_offset == 6
    assert found.aborted == [(producer.id, 2)]


@on_node()
async def test_the_answer_waits_for_the_record_of_joining_too(node: Node) -> None:
    producer = await started(node)
    data = batch_of(
        b"x", producer_id=producer.id, producer_epoch=0, sequence_first=0, transactional=True
    )
    produced = Produced(node, [to(TOPIC, data)], version=V2, transactional_id=ID)
    assert node.context.broker.transactions.transactions[ID].state is TransactionStatus.ONGOING
    (result,) = await produced.done()
    assert result.error_code == 0
    await node.power_fails()
    assert node.context.broker.transactions.transactions[ID].state is TransactionStatus.ONGOING
    assert (await read(node)).last_stable_offset == 0


@pytest.mark.parametrize("version", [V1, V2])
@on_node()
async def test_the_fenced_the_unknown_and_the_nameless(node: Node, version: int) -> None:
    old = await started(node)
    await init(node)
    assert await write(node, old, b"x", version=version) is ErrorCode.invalid_producer_epoch
    other = ProducerIdentity(old.id + 1, 0)
    mapping = ErrorCode.invalid_producer_id_mapping
    assert await write(node, other, b"x", version=version) is mapping
    nameless = await write(node, old, b"x", version=version, transactional_id=None)
    assert nameless is ErrorCode.transaction_abortable
    empty = await write(node, old, b"x", version=version, transactional_id="")
    assert empty is ErrorCode.invalid_request


@pytest.mark.parametrize(
    ("version", "code"),
    [(V1, ErrorCode.not_enough_replicas), (V2, ErrorCode.concurrent_transactions)],
)
@on_node()
async def test_while_the_end_is_under_way_a_batch_is_to_be_sent_again(
    node: Node, version: int, code: ErrorCode
) -> None:
    producer = await started(node)
    await add(node, producer, 0)
    await write(node, producer, b"x")
    ending = end(node, producer)
    ending.send(None)  # As far as its first wait.
    assert await write(node, producer, b"y", sequence=1, version=version) is code
    ending.close()


@on_node()
async def test_a_plain_batch_does_not_fall_into_a_transaction(node: Node) -> None:
    producer = await started(node)
    await add(node, producer, 0)
    await write(node, producer, b"x")
    data = batch_of(b"y", producer_id=producer.id, producer_epoch=0, sequence_first=1)
    (result,) = await Produced(node, [to(TOPIC, data)], transactional_id=ID).done()
    assert result.error_code == ErrorCode.invalid_txn_state


@on_node()
async def test_control_batches_are_not_for_clients(node: Node) -> None:
    producer = await started(node)
    data = batch_of(
        b"x", producer_id=producer.id, producer_epoch=0, transactional=True, control=True
    )
    (result,) = await Produced(node, [to(TOPIC, data)], transactional_id=ID).done()
    assert result.error_code == ErrorCode.corrupt_message


@on_node()
async def test_the_brokers_own_topics_are_not_for_clients(node: Node) -> None:
    await producer_of(node)
    (result,) = await Produced(node, [to("__transaction_state", batch_of(b"x"))]).done()
    assert result.error_code == ErrorCode.invalid_topic_exception


@on_node()
async def test_who_may(node: Node) -> None:
    producer = await started(node)
    await add(node, producer, 0)
    deny(node, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
    code = ErrorCode.transactional_id_authorization_failed
    assert await write(node, producer, b"x") is code


@on_node()
async def test_the_brokers_own_topics_are_told_apart(node: Node) -> None:
    await started(node)
    request = MetadataRequest(
        topics=None,
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=False,
    )
    response = await metadata.handle(node.context, request)
    told = {topic.name: topic.is_internal for topic in response.topics}
    assert told == {TOPIC: False, "__transaction_state": True}
