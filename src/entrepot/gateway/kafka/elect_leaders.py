"""ElectLeaders (key 43), v0 to v2: elect the leaders of partitions.

There is one node, which leads all partitions, so each partition is answered with
ELECTION_NOT_NEEDED. A request for all partitions (null) gets an empty answer, because in that
case only elected partitions and errors are listed. v1: the type of the election, which is ignored.
"""

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from entrepot.broker.access import Operation
from entrepot.core.errors import PeerError
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of


def handle(context: Context, request: ElectLeadersRequest) -> Steps[ElectLeadersResponse]:
    code = ErrorCode.none
    try:
        check_on_cluster(context, Operation.ALTER)
    except Refusal as refusal:
        code = refusal.code
    topics = []
    for topic in request.topic_partitions or ():
        rows = yield from listed(_answer(context, topic.topic, i) for i in topic.partitions)
        topics.append(ReplicaElectionResult(topic=topic.topic, partition_result=tuple(rows)))
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE, error_code=code, replica_election_results=tuple(topics)
    )


def _answer(context: Context, name: str, index: i32) -> PartitionResult:
    try:
        check_on_cluster(context, Operation.ALTER)
        context.broker.served_partition(context.broker.topic(name), index)
        code, text = ErrorCode.election_not_needed, "the only node there is leads it"
    except PeerError as error:
        code, text = reason_of(error)
    return PartitionResult(partition_id=index, error_code=code, error_message=text)
