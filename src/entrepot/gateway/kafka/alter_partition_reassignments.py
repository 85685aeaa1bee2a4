"""AlterPartitionReassignments (key 45), v0 and v1: place partitions on other nodes.

A partition is copied to its new nodes, and leaves the old ones once all of the new are in sync; it
is served all the time. Null ends a move: the partition stays where it was. v1: whether the number
of replicas may change.

Without a cluster there is one node, which has all partitions. To place a partition on it has no
effect; any other node is answered with INVALID_REPLICA_ASSIGNMENT. To cancel a move is refused,
because none is ever in progress.
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
from entrepot.broker.replication import Cluster
from entrepot.core.names import PartitionId
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of

_ASSIGNMENT = "The manual partition assignment includes"  # Kafka's words.


async def handle(
    context: Context, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    code, text = ErrorCode.none, None
    try:
        check_on_cluster(context, Operation.ALTER)
    except Refusal as refusal:
        code, text = reason_of(refusal)
    may_grow, responses = request.allow_replication_factor_change, []
    for topic in request.topics:
        rows = []
        for each in topic.partitions:
            await context.broker.turns.next()
            rows.append(await _answer(context, topic.name, each, may_grow=may_grow))
        responses.append(ReassignableTopicResponse(name=topic.name, partitions=tuple(rows)))
    return AlterPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE,
        allow_replication_factor_change=request.allow_replication_factor_change,
        error_code=code,
        error_message=text,
        responses=tuple(responses),
    )


async def _answer(
    context: Context, name: str, wanted: ReassignablePartition, *, may_grow: bool
) -> ReassignablePartitionResponse:
    code, text = ErrorCode.none, None
    try:
        check_on_cluster(context, Operation.ALTER)
        topic = context.broker.topic(name)
        served = context.broker.served_partition(topic, wanted.partition_index)
        if context.broker.cluster is None:
            _check_replicas(context, wanted)
        else:
            await _move(context.broker.cluster, served.partition.id, wanted, may_grow=may_grow)
    except KNOWN as error:
        code, text = reason_of(error)
    return ReassignablePartitionResponse(
        partition_index=wanted.partition_index, error_code=code, error_message=text
    )


async def _move(
    cluster: Cluster, partition: PartitionId, wanted: ReassignablePartition, *, may_grow: bool
) -> None:
    holders, nodes = cluster.holders(partition), wanted.replicas
    if nodes is not None:
        problem = None
        if not nodes:
            problem = "an empty replica list."
        elif len(set(nodes)) < len(nodes):
            problem = "a broker more than once."
        if problem is not None:
            raise Refusal(ErrorCode.invalid_replica_assignment, f"{_ASSIGNMENT} {problem}")
        count = 0 if holders is None else len(holders.origin or holders.replicas)
        if not may_grow and len(nodes) != count:
            raise Refusal(
                ErrorCode.invalid_replication_factor,
                f"The replication factor is changed from {count} to {len(nodes)}",
            )
    await cluster.reassign(partition, None if nodes is None else [int(node) for node in nodes])


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
