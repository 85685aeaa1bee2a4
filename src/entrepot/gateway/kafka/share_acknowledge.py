"""ShareAcknowledge (key 79), v1 and v2: acknowledge records of a share group, without fetching.

An epoch of -1 ends the session, and its records that are not acknowledged become available to
other consumers. Answered when the acknowledgements are permanent. v2: locks can be renewed.
"""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from kio.schema.share_acknowledge.v2.request import ShareAcknowledgeRequest
from kio.schema.share_acknowledge.v2.response import (
    LeaderIdAndEpoch,
    PartitionData,
    ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
)
from kio.static.primitive import i32

from entrepot.broker.share_group.sessions import CLOSES, OPENS, TopicIdPartition
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import milliseconds
from entrepot.gateway.kafka.refusal import Refusal, reason_of
from entrepot.gateway.kafka.share_requests import (
    Acknowledging,
    ShareOutcome,
    by_topic,
    end_session,
    session_of,
)


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
    told, turns = (
        Acknowledging(context, session, may_renew=request.is_renew_ack),
        context.broker.turns,
    )
    await turns.run(told.tell_all(request.topics))
    if epoch == CLOSES:
        end_session(context, session)
    responses = await turns.run(_responses(context, await told.outcomes()))
    return ShareAcknowledgeResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        acquisition_lock_timeout=milliseconds(
            context.broker.share_groups.settings.of(session.group).lock_ms
        ),
        responses=tuple(responses),
        node_endpoints=(),
    )


def _responses(
    context: Context, outcomes: Mapping[TopicIdPartition, ShareOutcome]
) -> Steps[list[ShareAcknowledgeTopicResponse]]:
    leader = LeaderIdAndEpoch(leader_id=i32(context.node_id), leader_epoch=i32(0))
    responses: list[ShareAcknowledgeTopicResponse] = []
    for topic, numbers in (yield from by_topic(outcomes)).items():
        partitions = yield from listed(
            PartitionData(
                partition_index=i32(number),
                error_code=outcomes[topic, number].error_code,
                error_message=outcomes[topic, number].error_message,
                current_leader=leader,
            )
            for number in numbers
        )
        responses.append(
            ShareAcknowledgeTopicResponse(topic_id=topic, partitions=tuple(partitions))
        )
    return responses
