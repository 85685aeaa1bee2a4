"""What is damaged is refused with Kafka's codes, and never answered as if it were not there."""

import logging
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.types import GroupId
from kio.static.primitive import i8

from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.core.errors import DamagedBatch, StorageError
from entrepot.core.steps import finish
from entrepot.gateway.kafka import find_coordinator, list_groups
from entrepot.gateway.kafka.errors import code_of
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.test_offset_fetch import fetch

TRANSACTIONAL_ID = "pay"


async def restart(node: Node, *paths: str) -> None:
    """As after a clean stop, with a bit changed at the end of these files."""
    await node.stop()
    for path in paths:
        node.disk.open(path).node().content[-3] ^= 0x10
    await node.start()


def segment(partition: str) -> str:
    return f"partitions/{partition}/00000000000000000000.log"


async def commit(node: Node, *groups: str) -> None:
    await node.context.broker.create_topic("t")
    for group in groups:
        offsets = {TopicPartition("t", 0): CommittedOffset(5, -1, "", -1)}
        await node.context.broker.groups.commit_offsets(group, "", -1, offsets)


def coordinator(node: Node, key: str, kind: int = 0) -> Any:
    request = FindCoordinatorRequest(key_type=i8(kind), coordinator_keys=(key,))
    return find_coordinator.handle(node.context, request)


@on_node()
async def test_offsets_that_cannot_be_read_are_not_minus_one(
    node: Node, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the client's `auto.offset.reset` would decide where it goes on."""
    await commit(node, "g", "h")
    groups = node.context.broker.groups
    numbers = groups.partition_of("g"), groups.partition_of("h")
    assert numbers[0] != numbers[1]
    path = segment(f"__consumer_offsets-{numbers[0]}")
    with caplog.at_level(logging.ERROR):
        await restart(node, path)
    groups = node.context.broker.groups
    reason = f"{path}: the checksum does not match at byte 0, offset 0"
    assert f"partition refused: {reason}" in [each.getMessage() for each in caplog.records]
    answer = fetch(node, {"t": (0,)})
    assert (answer.error_code, answer.topics) == (ErrorCode.coordinator_not_available, ())
    assert fetch(node, None).error_code is ErrorCode.coordinator_not_available
    (row,) = fetch(node, {"t": (0,)}, "h").topics[0].partitions
    assert (row.error_code, row.committed_offset) == (ErrorCode.none, 5), "others have theirs"
    with pytest.raises(StorageError, match="checksum"):
        await groups.commit_offsets(
            "g", "", -1, {TopicPartition("t", 0): CommittedOffset(6, -1, "", -1)}
        )
    assert groups.heartbeat("g", "m", None, 1) is Fault.COORDINATOR_NOT_AVAILABLE
    (found,) = (await coordinator(node, "g")).coordinators
    assert (found.error_code, found.error_message) == (ErrorCode.coordinator_not_available, reason)
    (found,) = (await coordinator(node, "h")).coordinators
    assert found.error_code is ErrorCode.none
    listed = finish(
        list_groups.handle(node.context, ListGroupsRequest(states_filter=(), types_filter=()))
    )
    assert listed.error_code is ErrorCode.kafka_storage_error
    assert [each.group_id for each in listed.groups] == [GroupId("h")]


@on_node()
async def test_transactions_that_cannot_be_read(node: Node) -> None:
    transactions = node.context.broker.transactions
    await transactions.init_producer_id(TRANSACTIONAL_ID, 1_000)
    path = transactions._served_partition_of(TRANSACTIONAL_ID).partition.directory.rpartition("/")[
        2
    ]
    await restart(node, segment(path))
    transactions = node.context.broker.transactions
    assert not transactions.transactions
    with pytest.raises(StorageError, match="checksum"):
        await transactions.init_producer_id(TRANSACTIONAL_ID, 1_000)
    (found,) = (await coordinator(node, TRANSACTIONAL_ID, 1)).coordinators
    assert found.error_code is ErrorCode.coordinator_not_available
    other = next(f"id-{n}" for n in range(99) if not _is_refused(node, f"id-{n}"))
    await transactions.init_producer_id(other, 1_000)


def _is_refused(node: Node, transactional_id: str) -> bool:
    return node.context.broker.transactions._served_partition_of(transactional_id).partition.refused


@on_node()
async def test_a_batch_that_moved_is_not_passed_over(node: Node) -> None:
    """Its offset is in no checksum: clients would skip it, or all that follows."""
    await node.context.broker.create_topic("t")
    for _ in range(3):
        await node.append("t", [1, 2])
    await restart(node)
    content = node.disk.open(segment("t-0")).node().content
    content[len(content) // 3 + 6] ^= 0x01  # 256 later.
    partition = node.context.broker.served_partition(node.context.broker.topic("t"), 0).partition
    with pytest.raises(
        DamagedBatch, match=r"offset 258 at byte .*, where 2 should follow"
    ) as found:
        partition.read(0, 1 << 20)
    assert code_of(found.value) is ErrorCode.corrupt_message
    assert partition.damage == str(found.value)
    (fault,) = node.context.broker.partition_faults()
    assert fault == ("partitions/t-0", "damaged", str(found.value))
