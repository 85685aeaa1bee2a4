import pytest
from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.list_offsets.v11.response import ListOffsetsPartitionResponse
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i32, i32Timedelta, i64

from entrepot.core.steps import finish
from entrepot.gateway.kafka.context import NO_THROTTLE
from entrepot.gateway.kafka.list_offsets import NamedOffset, handle
from tests.unit.gateway.kafka.node import Node, on_node

NONE = -1


def ask(
    node: Node,
    timestamp: int,
    *,
    topic: str = "one",
    index: int = 0,
    epoch: int = -1,
    isolation: int = 0,
) -> ListOffsetsPartitionResponse:
    partition = ListOffsetsPartition(
        partition_index=i32(index), current_leader_epoch=i32(epoch), timestamp=i64(timestamp)
    )
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(isolation),
        topics=(ListOffsetsTopic(name=TopicName(topic), partitions=(partition,)),),
        timeout=i32Timedelta.parse(NO_THROTTLE),
    )
    (answered,) = finish(handle(node.context, request)).topics
    assert answered.name == topic
    (answer,) = answered.partitions
    assert answer.partition_index == index
    return answer


async def with_records(node: Node) -> None:
    """Offsets 0 to 4, of which 0 is deleted."""
    topic = await node.context.broker.create_topic("one")
    await node.append("one", [1_000, 3_000])
    await node.append("one", [2_000, 5_000, 4_000])
    await node.context.broker.delete_records(node.context.broker.served_partition(topic, 0), 1)


@pytest.mark.parametrize(
    ("timestamp", "offset", "timestamp_found"),
    [
        (NamedOffset.EARLIEST, 1, NONE),
        (NamedOffset.EARLIEST_LOCAL, 1, NONE),
        (NamedOffset.LATEST, 5, NONE),
        (NamedOffset.MAX_TIMESTAMP, 3, 5_000),
        (NamedOffset.LATEST_TIERED, NONE, NONE),
        (NamedOffset.EARLIEST_PENDING_UPLOAD, NONE, NONE),
        (0, 1, 3_000),  # Offset 0 is deleted.
        (3_000, 1, 3_000),
        (3_001, 3, 5_000),
        (5_001, NONE, NONE),
    ],
)
@on_node()
async def test_finds(node: Node, timestamp: int, offset: int, timestamp_found: int) -> None:
    await with_records(node)
    answer = ask(node, timestamp)
    assert answer.error_code is ErrorCode.none
    assert (answer.offset, answer.timestamp) == (offset, timestamp_found)
    assert answer.leader_epoch == (NONE if offset == NONE else 0)


@pytest.mark.parametrize(
    ("timestamp", "offset"),
    [
        (NamedOffset.EARLIEST, 0),
        (NamedOffset.LATEST, 0),
        (NamedOffset.MAX_TIMESTAMP, NONE),
        (1_000, NONE),
    ],
)
@on_node()
async def test_an_empty_partition(node: Node, timestamp: int, offset: int) -> None:
    await node.context.broker.create_topic("one")
    answer = ask(node, timestamp)
    assert (answer.error_code, answer.offset) == (ErrorCode.none, offset)


@on_node()
async def test_what_is_not_committed_is_not_there(node: Node) -> None:
    await with_records(node)
    served = node.context.broker.served_partition(node.context.broker.topic("one"), 0)
    appending = node.append("one", [9_000])
    appending.send(None)  # As far as the wait for the commit.
    assert served.partition.offset_end == 6
    for isolation in (0, 1):
        assert ask(node, NamedOffset.LATEST, isolation=isolation).offset == 5
    assert ask(node, 9_000).offset == NONE
    appending.close()


@on_node()
async def test_leader_epochs(node: Node) -> None:
    await with_records(node)
    partition = node.context.broker.served_partition(node.context.broker.topic("one"), 0).partition
    partition.leader_epoch = 3
    assert ask(node, NamedOffset.LATEST, epoch=3).error_code is ErrorCode.none
    assert ask(node, NamedOffset.LATEST, epoch=2).error_code is ErrorCode.fenced_leader_epoch
    assert ask(node, NamedOffset.LATEST, epoch=4).error_code is ErrorCode.unknown_leader_epoch


@on_node()
async def test_errors(node: Node) -> None:
    await with_records(node)
    unknown = ErrorCode.unknown_topic_or_partition
    assert ask(node, NamedOffset.LATEST, topic="two").error_code is unknown
    assert ask(node, NamedOffset.LATEST, index=1).error_code is unknown
    assert ask(node, -7).error_code is ErrorCode.unsupported_version
    partition = node.context.broker.served_partition(node.context.broker.topic("one"), 0).partition
    partition.refuse("damaged")
    answer = ask(node, NamedOffset.LATEST)
    assert answer.error_code is ErrorCode.kafka_storage_error
    assert (answer.offset, answer.timestamp) == (NONE, NONE)


@on_node()
async def test_a_partition_is_asked_for_once(node: Node) -> None:
    await node.context.broker.create_topic("orders", 2)
    wanted = [
        ListOffsetsPartition(partition_index=i32(index), timestamp=i64(-1)) for index in (0, 1, 0)
    ]
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName("orders"), partitions=tuple(wanted)),),
        timeout=i32Timedelta.parse(NO_THROTTLE),
    )
    answers = finish(handle(node.context, request)).topics[0].partitions
    codes = [ErrorCode.invalid_request, ErrorCode.none, ErrorCode.invalid_request]
    assert [each.error_code for each in answers] == codes
