"""DescribeQuorum (key 55), v0 to v2: the voters of the metadata quorum, and their offsets.

There is one voter, this node, which is the leader; its metadata is the catalog. In a cluster the
voters are the nodes that are alive, and the leader is the controller: they agree by etcd, so none
of them is behind another. As in Kafka the only partition that can be asked for is the first of
`__cluster_metadata`, which cannot be read.

v1: when a node last caught up. v2: error messages, and the nodes' addresses.
"""

from kio.schema.describe_quorum.v2.request import DescribeQuorumRequest
from kio.schema.describe_quorum.v2.response import (
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionData,
    ReplicaState,
    TopicData,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32, i64, u16

from entrepot.broker.access import Operation
from entrepot.broker.replication import Peer
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.leadership import nodes_of
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of

_TOPIC_NAME = "__cluster_metadata"


def handle(context: Context, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
    try:
        check_on_cluster(context, Operation.DESCRIBE)
    except Refusal as refusal:
        code, text = reason_of(refusal)
        return DescribeQuorumResponse(error_code=code, error_message=text, topics=(), nodes=())
    return DescribeQuorumResponse(
        error_code=ErrorCode.none,
        error_message=None,
        topics=tuple(
            TopicData(
                topic_name=topic.topic_name,
                partitions=tuple(
                    _described(context, topic.topic_name, each.partition_index)
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
        nodes=tuple(map(_node, nodes_of(context))),
    )


def _node(peer: Peer) -> Node:
    listener = Listener(name="CONTROLLER", host=peer.host, port=u16(peer.port))
    return Node(node_id=BrokerId(peer.id), listeners=(listener,))


def _described(context: Context, name: str, index: i32) -> PartitionData:
    if (name, index) != (_TOPIC_NAME, 0):
        return PartitionData(
            partition_index=index,
            error_code=ErrorCode.unknown_topic_or_partition,
            error_message=f"only partition 0 of {_TOPIC_NAME} has a quorum",
            leader_id=BrokerId(-1),
            leader_epoch=i32(-1),
            high_watermark=i64(-1),
            current_voters=(),
            observers=(),
        )
    offset_end, high_watermark = context.broker.catalog_progress()
    voters = tuple(
        ReplicaState(
            replica_id=BrokerId(peer.id),
            replica_directory_id=None,
            log_end_offset=i64(offset_end),
            last_caught_up_timestamp=i64(context.clock.now_ms()),
        )
        for peer in nodes_of(context)
    )
    cluster = context.broker.cluster
    return PartitionData(
        partition_index=index,
        error_code=ErrorCode.none,
        error_message=None,
        leader_id=BrokerId(context.node_id if cluster is None else cluster.controller),
        leader_epoch=i32(0),
        high_watermark=i64(high_watermark),
        current_voters=voters,
        observers=(),
    )
