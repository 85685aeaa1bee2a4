import asyncio
import errno
from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.types import ProducerId, TransactionalId
from kio.static.primitive import i16, i32Timedelta

from entrepot.gateway.kafka.init_producer_id import handle
from tests.unit.gateway.kafka.node import Node, on_node


def request(
    transactional_id: str | None = None, producer_id: int = -1, epoch: int = -1
) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        transaction_timeout=i32Timedelta.parse(timedelta(minutes=1)),
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(epoch),
    )


@on_node()
async def test_everybody_gets_another_id(node: Node) -> None:
    responses = await asyncio.gather(*(handle(node.context, request()) for _ in range(2_500)))
    assert {response.error_code for response in responses} == {ErrorCode.none}
    assert {response.producer_epoch for response in responses} == {0}
    assert len({response.producer_id for response in responses}) == 2_500


@on_node()
async def test_an_id_is_not_given_again_after_a_crash(node: Node) -> None:
    before = await handle(node.context, request())
    await node.power_fails()
    after = await handle(node.context, request())
    assert after.producer_id > before.producer_id


@on_node()
async def test_a_producer_that_starts_anew_gets_a_new_id(node: Node) -> None:
    before = await handle(node.context, request())
    after = await handle(node.context, request(None, before.producer_id, 5))
    assert after.producer_id != before.producer_id
    assert after.producer_epoch == 0


@on_node()
async def test_transactions_are_refused(node: Node) -> None:
    for transactional_id, code in (
        ("payments", ErrorCode.unsupported_version),
        ("", ErrorCode.invalid_request),
    ):
        response = await handle(node.context, request(transactional_id))
        assert response.error_code is code
        assert (response.producer_id, response.producer_epoch) == (-1, -1)


@on_node()
async def test_no_id_without_a_disk(node: Node) -> None:
    node.disk.fail_next("sync", errno.EIO, count=100)
    response = await handle(node.context, request())
    assert response.error_code is ErrorCode.kafka_storage_error
    assert response.producer_id == -1
