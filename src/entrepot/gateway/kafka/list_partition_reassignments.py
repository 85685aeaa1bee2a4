"""ListPartitionReassignments (key 46), v0: list the partitions that are being moved.

Without a cluster there is one node, and the list is empty.
"""

from collections.abc import Iterator

from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import (
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i32

from entrepot.broker.access import Operation
from entrepot.broker.replication import Cluster, Holders
from entrepot.core.names import PartitionId
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of


def handle(
    context: Context, request: ListPartitionReassignmentsRequest
) -> Steps[ListPartitionReassignmentsResponse]:
    code, text, topics = ErrorCode.none, None, []
    try:
        check_on_cluster(context, Operation.DESCRIBE)
        if context.broker.cluster is not None:
            topics = yield from listed(_topics(context, context.broker.cluster, request))
    except Refusal as refusal:
        code, text = reason_of(refusal)
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        error_message=text,
        topics=tuple(filter(None, topics)),
    )


def _topics(
    context: Context, cluster: Cluster, request: ListPartitionReassignmentsRequest
) -> Iterator[OngoingTopicReassignment | None]:
    """Yield the topics that were asked for, or all; None where nothing moves."""
    asked = None
    if request.topics is not None:
        asked = {str(each.name): each.partition_indexes for each in request.topics}
    for topic in list(context.broker.topics.values()):
        if asked is not None and topic.name not in asked:
            continue
        indexes = range(topic.partition_count) if asked is None else asked[topic.name]
        moving = [
            _moving(index, holders)
            for index in indexes
            if (holders := cluster.holders(PartitionId(topic.id, index))) is not None
            and holders.target
        ]
        found = OngoingTopicReassignment(name=TopicName(topic.name), partitions=tuple(moving))
        yield found if moving else None


def _moving(index: int, holders: Holders) -> OngoingPartitionReassignment:
    target, origin = holders.target, holders.origin
    return OngoingPartitionReassignment(
        partition_index=i32(index),
        replicas=tuple(map(BrokerId, holders.replicas)),
        adding_replicas=tuple(BrokerId(node) for node in target if node not in origin),
        removing_replicas=tuple(BrokerId(node) for node in origin if node not in target),
    )
