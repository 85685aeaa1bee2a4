import pytest
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import ProducerIdentity
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.serving import values_in
from tests.unit.gateway.kafka.transacting import (
    TOPIC,
    add,
    deny,
    end,
    init,
    producer_of,
    read,
    write,
)


async def started(node: Node) -> ProducerIdentity:
    await node.context.broker.create_topic(TOPIC, 1)
    producer = await producer_of(node)
    await add(node, producer, 0)
    assert await write(node, producer, b"x") is ErrorCode.none
    return producer


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 4, 5])
@on_node()
async def test_answered_when_it_can_be_seen(node: Node, version: int, commit: bool) -> None:
    producer = await started(node)
    assert (await read(node)).records == b""
    response = await end(node, producer, commit=commit, version=version)
    assert response.error_code is ErrorCode.none
    following = ProducerIdentity(response.producer_id, response.producer_epoch)
    assert following == (producer.id, producer.epoch + (version == 5))
    found = await read(node)
    assert found.last_stable_offset == found.high_watermark == 2
    assert values_in(found.records)[0] == b"x"
    assert found.aborted == ([] if commit else [(producer.id, 0)])
    again = await end(node, producer, commit=commit, version=version)
    assert again.error_code is ErrorCode.none
    assert ProducerIdentity(again.producer_id, again.producer_epoch) == following
    other = await end(node, producer, commit=not commit, version=version)
    assert other.error_code is ErrorCode.invalid_txn_state
    assert (other.producer_id, other.producer_epoch) == (-1, -1)


@on_node()
async def test_nothing_to_end(node: Node) -> None:
    producer = await producer_of(node)
    for commit in (True, False):
        response = await end(node, producer, commit=commit)
        assert response.error_code is ErrorCode.invalid_txn_state
    assert (await end(node, producer, commit=False, version=5)).producer_epoch == 1


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)],
)
@on_node()
async def test_the_fenced_and_the_unknown(node: Node, version: int, code: ErrorCode) -> None:
    old = await started(node)
    await init(node)
    assert (await end(node, old, version=version)).error_code is code
    unknown = await end(node, old, transactional_id="nobody")
    assert unknown.error_code is ErrorCode.invalid_producer_id_mapping
    empty = await end(node, old, transactional_id="")
    assert empty.error_code is ErrorCode.invalid_request


@on_node()
async def test_who_may(node: Node) -> None:
    producer = await started(node)
    deny(node, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
    response = await end(node, producer)
    assert response.error_code is ErrorCode.transactional_id_authorization_failed
