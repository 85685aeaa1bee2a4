import pytest
from kio.schema.create_partitions.v3.request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kio.schema.create_partitions.v3.response import CreatePartitionsTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from entrepot.gateway.kafka.context import NO_THROTTLE
from entrepot.gateway.kafka.create_partitions import handle
from tests.unit.gateway.kafka.node import NODE_ID, Node, on_node

Nodes = list[tuple[int, ...]]


def wanted(name: str, count: int, nodes: Nodes | None = None) -> CreatePartitionsTopic:
    assignments = nodes and tuple(
        CreatePartitionsAssignment(broker_ids=tuple(map(BrokerId, each))) for each in nodes
    )
    return CreatePartitionsTopic(
        name=TopicName(name), count=i32(count), assignments=assignments or None
    )


async def create(
    node: Node, *topics: CreatePartitionsTopic, validate_only: bool = False
) -> list[CreatePartitionsTopicResult]:
    request = CreatePartitionsRequest(
        topics=topics, timeout=NO_THROTTLE, validate_only=validate_only
    )
    return list((await handle(node.context, request)).results)


@on_node()
async def test_more_partitions_for_good(node: Node) -> None:
    await node.context.broker.create_topic("one", 2)
    await node.context.broker.create_topic("two", 2)
    await node.append("one", [1_000])
    results = await create(node, wanted("one", 4), wanted("two", 3, [(NODE_ID,)]))
    assert [each.error_code for each in results] == [ErrorCode.none] * 2
    await node.append("one", [1_000], 3)
    await node.power_fails()
    topics = node.context.broker.topics
    assert [(topic.name, topic.partition_count) for topic in topics.values()] == [
        ("one", 4),
        ("two", 3),
    ]
    ends = [
        node.context.broker.served_partition(topics["one"], n).partition.offset_end
        for n in range(4)
    ]
    assert ends == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("two", 3), ErrorCode.unknown_topic_or_partition),
        (wanted("one", 2), ErrorCode.invalid_partitions),
        (wanted("one", 1), ErrorCode.invalid_partitions),
        (wanted("one", 0), ErrorCode.invalid_partitions),
        (wanted("one", 2**31 - 1), ErrorCode.invalid_partitions),
        (wanted("one", 4, [(NODE_ID,)]), ErrorCode.invalid_replica_assignment),
        (wanted("one", 3, [(NODE_ID + 1,)]), ErrorCode.invalid_replica_assignment),
        (wanted("one", 3, [(NODE_ID, 1)]), ErrorCode.invalid_replica_assignment),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
@on_node()
async def test_refuses(
    node: Node, topic: CreatePartitionsTopic, code: ErrorCode, validate_only: bool
) -> None:
    await node.context.broker.create_topic("one", 2)
    (result,) = await create(node, topic, validate_only=validate_only)
    assert (result.name, result.error_code) == (topic.name, code)
    assert result.error_message
    assert node.context.broker.topic("one").partition_count == 2


@on_node()
async def test_validation_changes_nothing(node: Node) -> None:
    await node.context.broker.create_topic("one", 2)
    (result,) = await create(node, wanted("one", 3), validate_only=True)
    assert result.error_code is ErrorCode.none
    assert node.context.broker.topic("one").partition_count == 2


@on_node()
async def test_a_topic_that_comes_twice_is_refused(node: Node) -> None:
    await node.context.broker.create_topic("one", 2)
    (result,) = await create(node, wanted("one", 3), wanted("one", 4))
    assert result.error_code is ErrorCode.invalid_request
    assert node.context.broker.topic("one").partition_count == 2
