"""AlterPartitionReassignments (key 45), v0 and v1: place partitions on other nodes.

There is one node, which has all partitions. To place a partition on it has no effect; any other
node is answered with INVALID_REPLICA_ASSIGNMENT. To cancel a move (null) is refused, because none
is ever in progress. v1: whether the number of replicas may change, which is ignored.
"""

from kio.schema.alter_partition_reassignments.v1.request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
)
from kio.schema.alter_partition_reassignments.v1.response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of

_ASSIGNMENT = "The manual partition assignment includes"  # Kafka's words.


def handle(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    code, text = ErrorCode.none, None
    try:
        check_on_cluster(context, Operation.ALTER)
    except Refusal as refusal:
        code, text = reason_of(refusal)
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=text,
        responses=tuple(
            ReassignableTopicResponse(
                name=topic.name,
                partitions=tuple(_answer(context, topic.name, each) for each in topic.partitions),
            )
            for topic in request.topics
        ),
    )


def _answer(
    context: Context, name: str, wanted: ReassignablePartition
) -> ReassignablePartitionResponse:
    code, text = ErrorCode.none, None
    try:
        check_on_cluster(context, Operation.ALTER)
        context.broker.served_partition(context.broker.topic(name), wanted.partition_index)
        _check_replicas(context, wanted)
    except PeerError as error:
        code, text = reason_of(error)
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=text
    )


def _check_replicas(context: Context, wanted: ReassignablePartition) -> None:
    if wanted.replicas is None:
        raise Refusal(
            ErrorCode.no_reassignment_in_progress, "No partition reassignment is in progress."
        )
    problem = None
    others = [node for node in wanted.replicas if node != context.node_id]
    if others:
        problem = f"broker {min(others)}, but no such broker is registered."
    elif not wanted.replicas:
        problem = "an empty replica list."
    elif len(wanted.replicas) > 1:
        problem = f"the broker {context.node_id} more than once."
    if problem is not None:
        raise Refusal(ErrorCode.invalid_replica_assignment, f"{_ASSIGNMENT} {problem}")
