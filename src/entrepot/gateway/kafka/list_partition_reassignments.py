"""ListPartitionReassignments (key 46), v0: list the partitions that are being moved.

There is one node, so the list is always empty.
"""

from kio.schema.errors import ErrorCode
from kio.schema.list_partition_reassignments.v0.request import ListPartitionReassignmentsRequest
from kio.schema.list_partition_reassignments.v0.response import ListPartitionReassignmentsResponse

from entrepot.broker.access import Operation
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of


def handle(
    context: Context, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    code, text = ErrorCode.none, None
    try:
        check_on_cluster(context, Operation.DESCRIBE)
    except Refusal as refusal:
        code, text = reason_of(refusal)
    return ListPartitionReassignmentsResponse(
        throttle_time=NO_THROTTLE, error_code=code, error_message=text, topics=()
    )
