"""ElectLeaders (key 43), v0 to v2: elect the leaders of partitions.

v1: the type of the election. The preferred replica, which is the first, leads as soon as it is in
sync, so it seldom has to be asked for; an unclean election lets a replica lead that is not in sync,
where nobody leads. Without a cluster there is one node, which leads all partitions, so each is
answered with ELECTION_NOT_NEEDED. Of all partitions (null) only those are listed that were elected,
or could not be.
"""

from kio.schema.elect_leaders.v2.request import ElectLeadersRequest
from kio.schema.elect_leaders.v2.response import (
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from entrepot.broker.access import Operation
from entrepot.broker.replication import Cluster
from entrepot.core.errors import NoLeaderToElect, PeerError
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of

_UNCLEAN = 1


async def handle(context: Context, request: ElectLeadersRequest) -> ElectLeadersResponse:
    cluster = context.broker.cluster
    if cluster is None:
        return await context.broker.turns.run(_alone(context, request))
    try:
        check_on_cluster(context, Operation.ALTER)
    except Refusal as refusal:
        return await context.broker.turns.run(_alone(context, request, refusal.code))
    is_unclean, topics = request.election_type == _UNCLEAN, []
    wanted = [(each.topic, each.partitions) for each in request.topic_partitions or ()]
    if request.topic_partitions is None:
        known = context.broker.topics.values()
        wanted = [
            (TopicName(each.name), tuple(map(i32, range(each.partition_count)))) for each in known
        ]
    for name, indexes in wanted:
        rows = []
        for index in indexes:
            await context.broker.turns.next()
            row = await _elect(context, cluster, name, index, is_unclean=is_unclean)
            is_news = row.error_code is not ErrorCode.election_not_needed
            if is_news or request.topic_partitions is not None:
                rows.append(row)
        if rows:
            topics.append(ReplicaElectionResult(topic=name, partition_result=tuple(rows)))
    return ElectLeadersResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        replica_election_results=tuple(topics),
    )


async def _elect(
    context: Context, cluster: Cluster, name: TopicName, index: i32, *, is_unclean: bool
) -> PartitionResult:
    code, text = ErrorCode.none, None
    try:
        served = context.broker.served_partition(context.broker.topic(name), index)
        await cluster.elect(served.partition.id, unclean=is_unclean)
    except NoLeaderToElect as error:
        code, text = reason_of(error)
        code = code if is_unclean else ErrorCode.preferred_leader_not_available
    except KNOWN as error:
        code, text = reason_of(error)
    return PartitionResult(partition_id=index, error_code=code, error_message=text)


def _alone(
    context: Context, request: ElectLeadersRequest, refused: ErrorCode = ErrorCode.none
) -> Steps[ElectLeadersResponse]:
    code = refused
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
