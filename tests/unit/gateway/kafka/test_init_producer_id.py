import asyncio
import errno

import pytest
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import ProducerIdentity
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.transacting import (
    ID,
    add,
    deny,
    end,
    init,
    producer_of,
    read,
    write,
)


@on_node()
async def test_everybody_gets_another_id(node: Node) -> None:
    responses = await asyncio.gather(*(init(node, None) for _ in range(2_500)))
    assert {response.error_code for response in responses} == {ErrorCode.none}
    assert {response.producer_epoch for response in responses} == {0}
    assert len({response.producer_id for response in responses}) == 2_500


@on_node()
async def test_an_id_is_not_given_again_after_a_crash(node: Node) -> None:
    before = await init(node, None)
    await node.power_fails()
    after = await init(node, None)
    assert after.producer_id > before.producer_id


@on_node()
async def test_a_producer_that_starts_anew_gets_a_new_id(node: Node) -> None:
    before = await init(node, None)
    after = await init(node, None, ProducerIdentity(before.producer_id, 5))
    assert after.producer_id != before.producer_id
    assert after.producer_epoch == 0


@on_node()
async def test_no_id_without_a_disk(node: Node) -> None:
    node.disk.fail_next("sync", errno.EIO, count=100)
    response = await init(node, None)
    assert response.error_code is ErrorCode.kafka_storage_error
    assert response.producer_id == -1


# --- with a transactional id


@on_node()
async def test_a_transactional_id_keeps_its_producer(node: Node) -> None:
    first, second, other = [await init(node, each) for each in (ID, ID, "another")]
    assert (first.producer_epoch, second.producer_epoch, other.producer_epoch) == (0, 1, 0)
    assert first.producer_id == second.producer_id != other.producer_id


@on_node()
async def test_an_open_transaction_is_aborted_before_the_answer(node: Node) -> None:
    await node.context.broker.create_topic("one", 1)
    old = await producer_of(node)
    await add(node, old, 0)
    await write(node, old, b"x")
    new = await producer_of(node)
    assert new > old
    assert (await read(node)).last_stable_offset == 2
    assert await write(node, old, b"y", sequence=1) is ErrorCode.invalid_producer_epoch
    assert (await end(node, old)).error_code is ErrorCode.producer_fenced


@pytest.mark.parametrize(
    ("version", "code"),
    [(3, ErrorCode.invalid_producer_epoch), (4, ErrorCode.producer_fenced)],
)
@on_node()
async def test_who_lost_the_id_is_told_in_its_words(
    node: Node, version: int, code: ErrorCode
) -> None:
    old = await producer_of(node)
    await producer_of(node)
    response = await init(node, ID, old, version=version)
    assert response.error_code is code
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


@on_node()
async def test_the_owner_gets_its_next_epoch(node: Node) -> None:
    producer = await producer_of(node)
    for _ in range(2):  # The answer may get lost.
        response = await init(node, ID, producer)
        assert (response.producer_id, response.producer_epoch) == (producer.id, 1)


@pytest.mark.parametrize(
    ("transactional_id", "known", "more", "code"),
    [
        ("", None, {}, ErrorCode.invalid_request),
        (ID, ProducerIdentity(5, -1), {}, ErrorCode.invalid_request),
        (ID, ProducerIdentity(-1, 5), {}, ErrorCode.invalid_request),
        (ID, None, {"timeout_ms": 900_001}, ErrorCode.invalid_transaction_timeout),
        (ID, None, {"timeout_ms": 0}, ErrorCode.invalid_transaction_timeout),
        (ID, None, {"timeout_ms": 2**31 - 1}, ErrorCode.invalid_transaction_timeout),
        (ID, None, {"keep_prepared_txn": True}, ErrorCode.unsupported_version),
    ],
)
@on_node()
async def test_what_is_refused(
    node: Node,
    transactional_id: str,
    known: ProducerIdentity | None,
    more: dict[str, object],
    code: ErrorCode,
) -> None:
    response = await init(node, transactional_id, known, **more)
    assert response.error_code is code
    assert (response.producer_id, response.producer_epoch) == (-1, -1)


@on_node()
async def test_two_phase_commit_has_no_timeout(node: Node) -> None:
    found = await init(node, ID, timeout_ms=0, enable2_pc=True)
    assert found.error_code is ErrorCode.none
    assert not node.context.broker.transactions.transactions[ID].has_timeout
    assert (await init(node, ID)).error_code is ErrorCode.none
    assert node.context.broker.transactions.transactions[ID].has_timeout


@on_node()
async def test_a_disk_that_fails_is_to_be_asked_again(node: Node) -> None:
    await producer_of(node)
    node.disk.fail_next("write", errno.ENOSPC, count=100)
    assert (await init(node)).error_code is ErrorCode.coordinator_not_available


@on_node()
async def test_who_may(node: Node) -> None:
    deny(node, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID)
    response = await init(node)
    assert response.error_code is ErrorCode.transactional_id_authorization_failed
    assert (await init(node, None)).error_code is ErrorCode.none
