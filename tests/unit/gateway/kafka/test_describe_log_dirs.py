from kio.schema.describe_log_dirs.v5.request import DescribableLogDirTopic, DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import DescribeLogDirsResult
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from entrepot.core.steps import finish
from entrepot.gateway.kafka.describe_log_dirs import handle
from tests.unit.gateway.kafka.node import Node, on_node


def describe(node: Node, wanted: dict[str, tuple[int, ...]] | None) -> list[DescribeLogDirsResult]:
    topics = wanted and tuple(
        DescribableLogDirTopic(topic=TopicName(name), partitions=tuple(map(i32, indexes)))
        for name, indexes in wanted.items()
    )
    response = finish(handle(node.context, DescribeLogDirsRequest(topics=topics or None)))
    assert response.error_code is ErrorCode.none
    return list(response.results)


def sizes(directory: DescribeLogDirsResult) -> dict[tuple[str, int], int]:
    return {
        (topic.name, partition.partition_index): partition.partition_size
        for topic in directory.topics
        for partition in topic.partitions
    }


@on_node()
async def test_sizes(node: Node) -> None:
    await node.context.broker.create_topic("one", 2)
    await node.context.broker.create_topic("two")
    await node.append("one", [1_000], 1)
    (directory,) = describe(node, None)
    assert (directory.error_code, directory.log_dir) == (ErrorCode.none, "/")
    assert (directory.total_bytes, directory.usable_bytes) == (-1, -1)
    partition = node.context.broker.served_partition(node.context.broker.topic("one"), 1).partition
    assert partition.size > 0
    assert sizes(directory) == {("one", 0): 0, ("one", 1): partition.size, ("two", 0): 0}
    assert all(part.offset_lag == 0 for topic in directory.topics for part in topic.partitions)


@on_node()
async def test_only_what_is_asked_for_and_there(node: Node) -> None:
    await node.context.broker.create_topic("one", 3)
    await node.context.broker.create_topic("two")
    (directory,) = describe(node, {"one": (2, 0, 2, 3), "three": (0,)})
    assert list(sizes(directory)) == [("one", 0), ("one", 2)]


@on_node()
async def test_a_stopped_partition_is_a_directory_in_error(node: Node) -> None:
    topic = await node.context.broker.create_topic("one", 2)
    node.context.broker.served_partition(topic, 0).partition.stop("the disk failed")
    healthy, stopped = describe(node, None)
    assert (healthy.error_code, list(sizes(healthy))) == (ErrorCode.none, [("one", 1)])
    assert (stopped.error_code, stopped.log_dir) == (
        ErrorCode.kafka_storage_error,
        "/partitions/one-0",
    )
    assert list(sizes(stopped)) == [("one", 0)]
