"""ShareAcknowledge (key 79), v1 and v2: what became of records, without fetching more.

An epoch of -1 ends the session: what is not acknowledged by then is ready for others.
Answered when what was said is permanent. v2: locks can be renewed.
"""

from itertools import groupby

from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kio.static.primitive import i32

from entrepot.broker.share_group.sessions import CLOSES, OPENS
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import milliseconds
from entrepot.gateway.kafka.refusal import Refusal, reason_of
from entrepot.gateway.kafka.share_requests import Acknowledging, end_session, session_of


async def handle(context: Context, request: ShareAcknowledgeRequest) -> ShareAcknowledgeResponse:
    epoch = request.share_session_epoch
    try:
        if epoch == OPENS:
            raise Refusal(
                ErrorCode.invalid_share_session_epoch, "nothing was fetched in a new session"
            )
        session = session_of(context, request.group_id, request.member_id, epoch)
    except KNOWN as error:
        code, text = reason_of(error)
        return ShareAcknowledgeResponse(
            throttle_time=NO_THROTTLE,
            error_code=code,
            error_message=text,
            acquisition_lock_timeout=NO_THROTTLE,
            responses=(),
            node_endpoints=(),
        )
    told = Acknowledging(context, session, may_renew=request.is_renew_ack)
    for topic in request.topics:
        for each in topic.partitions:
            told.tell(topic.topic_id, each.partition_index, each.acknowledgement_batches)
    if epoch == CLOSES:
        end_session(context, session)
    outcomes = sorted((await told.outcomes()).items(), key=lambda row: row[0])
    leader = LeaderIdAndEpoch(leader_id=i32(context.node_id), leader_epoch=i32(0))
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=milliseconds(
            context.broker.share_groups.settings.of(session.group).lock_ms
        ),
        responses=tuple(
            ShareAcknowledgeTopicResponse(
                topic_id=topic,
                partitions=tuple(
                    PartitionData(
                        partition_index=i32(place[1]),
                        error_code=outcome.error_code,
                        error_message=outcome.error_message,
                        current_leader=leader,
                    )
                    for place, outcome in rows
                ),
            )
            for topic, rows in groupby(outcomes, key=lambda row: row[0][0])
        ),
        node_endpoints=(),
    )
