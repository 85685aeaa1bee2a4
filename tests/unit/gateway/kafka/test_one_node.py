"""What administrators ask of a cluster: the one node keeps, leads and holds everything."""

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kio.schema.alter_replica_log_dirs.v2.request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest, PartitionData, TopicData
from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from entrepot.core.steps import finish
from entrepot.gateway.kafka import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    describe_quorum,
    list_partition_reassignments,
)
from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import HOST, NODE_ID, PORT, Node, on_node

DENIED = ErrorCode.cluster_authorization_failed


def moved(node: Node, *wanted: tuple[str, str, int]) -> list[tuple[str, int, ErrorCode]]:
    """Partitions to directories: path, topic, index."""
    dirs = tuple(
        AlterReplicaLogDir(
            path=path,
            topics=(AlterReplicaLogDirTopic(name=TopicName(name), partitions=(i32(index),)),),
        )
        for path, name, index in wanted
    )
    answer = alter_replica_log_dirs.handle(node.context, AlterReplicaLogDirsRequest(dirs=dirs))
    return [
        (str(topic.topic_name), int(each.partition_index), each.error_code)
        for topic in answer.results
        for each in topic.partitions
    ]


@on_node()
async def test_there_is_one_directory(node: Node) -> None:
    await node.context.broker.create_topic("one", 2)
    wanted = [("/", "one", 0), ("/elsewhere", "one", 1), ("/", "one", 2), ("/", "two", 0)]
    assert moved(node, *wanted) == [
        ("one", 0, ErrorCode.none),
        ("one", 1, ErrorCode.log_dir_not_found),
        ("one", 2, ErrorCode.replica_not_available),
        ("two", 0, ErrorCode.replica_not_available),
    ]
    deny_everything(node)
    assert moved(node, ("/", "one", 0)) == [("one", 0, DENIED)]


@on_node()
async def test_the_quorum_is_one_node(node: Node) -> None:
    await node.context.broker.create_topic("one", 1)
    topics = tuple(
        TopicData(
            topic_name=TopicName(name), partitions=(PartitionData(partition_index=i32(index)),)
        )
        for name, index in (("__cluster_metadata", 0), ("__cluster_metadata", 1), ("one", 0))
    )
    request = DescribeQuorumRequest(topics=topics)
    answer = describe_quorum.handle(node.context, request)
    assert answer.error_code is ErrorCode.none
    ours, *others = [partition for topic in answer.topics for partition in topic.partitions]
    assert (ours.error_code, ours.leader_id) == (ErrorCode.none, NODE_ID)
    (voter,) = ours.current_voters
    assert voter.replica_id == NODE_ID
    assert voter.log_end_offset == ours.high_watermark > 0
    assert ours.observers == ()
    assert [each.error_code for each in others] == [ErrorCode.unknown_topic_or_partition] * 2
    (described,) = answer.nodes
    (listener,) = described.listeners
    assert (described.node_id, listener.host, listener.port) == (NODE_ID, HOST, PORT)
    deny_everything(node)
    refused = describe_quorum.handle(node.context, request)
    assert (refused.error_code, refused.topics, refused.nodes) == (DENIED, (), ())


@on_node()
async def test_nothing_is_being_reassigned(node: Node) -> None:
    request = ListPartitionReassignmentsRequest(topics=None)
    answer = finish(list_partition_reassignments.handle(node.context, request))
    assert (answer.error_code, answer.topics) == (ErrorCode.none, ())
    deny_everything(node)
    refused = finish(list_partition_reassignments.handle(node.context, request))
    assert (refused.error_code, refused.topics) == (DENIED, ())


async def reassigned(
    node: Node, name: str, index: int, replicas: tuple[int, ...] | None
) -> tuple[ErrorCode, ErrorCode, str | None]:
    placed = None if replicas is None else tuple(map(BrokerId, replicas))
    partition = ReassignablePartition(partition_index=i32(index), replicas=placed)
    topic = ReassignableTopic(name=TopicName(name), partitions=(partition,))
    request = AlterPartitionReassignmentsRequest(topics=(topic,))
    answer = await alter_partition_reassignments.handle(node.context, request)
    ((result,),) = (each.partitions for each in answer.responses)
    return answer.error_code, result.error_code, result.error_message


@on_node()
async def test_a_partition_can_be_placed_here_only(node: Node) -> None:
    await node.context.broker.create_topic("one", 1)
    assert await reassigned(node, "one", 0, (NODE_ID,)) == (ErrorCode.none, ErrorCode.none, None)
    invalid = ErrorCode.invalid_replica_assignment
    for name, index, replicas, code in (
        ("one", 0, (NODE_ID, 8), invalid),
        ("one", 0, (NODE_ID, NODE_ID), invalid),
        ("one", 0, (), invalid),
        ("one", 0, None, ErrorCode.no_reassignment_in_progress),
        ("one", 1, (NODE_ID,), ErrorCode.unknown_topic_or_partition),
        ("two", 0, (NODE_ID,), ErrorCode.unknown_topic_or_partition),
    ):
        first, result, text = await reassigned(node, name, index, replicas)
        assert (first, result) == (ErrorCode.none, code)
        assert text
    deny_everything(node)
    assert await reassigned(node, "one", 0, (NODE_ID,))[:2] == (DENIED, DENIED)
