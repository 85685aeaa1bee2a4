"""DeleteShareGroupOffsets (key 92), v0: remove topics from a share group without members."""

from kio.schema.delete_share_group_offsets.v0.request import DeleteShareGroupOffsetsRequest
from kio.schema.delete_share_group_offsets.v0.response import (
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from entrepot.broker.access import Operation
from entrepot.broker.catalog import Topic
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.topics import topic_of


async def handle(
    context: Context, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    topics: list[Topic] = []
    rows = []
    for each in request.topics:
        try:
            topics.append(topic_of(context, Operation.READ, each.topic_name))
            rows.append(_row(each.topic_name, topics[-1], None))
        except KNOWN as error:
            rows.append(_row(each.topic_name, None, error))
    try:
        check_group(context, Operation.DELETE, request.group_id)
        await context.broker.share_groups.delete_offsets(request.group_id, topics)
    except KNOWN as error:
        code, text = group_reason(error)
        return DeleteShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE, error_code=code, error_message=text, responses=()
        )
    return DeleteShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE, error_code=ErrorCode.none, responses=tuple(rows)
    )


def _row(
    name: TopicName, topic: Topic | None, error: Exception | None
) -> DeleteShareGroupOffsetsResponseTopic:
    code, text = (ErrorCode.none, None) if error is None else reason_of(error)
    return DeleteShareGroupOffsetsResponseTopic(
        topic_name=name,
        topic_id=None if topic is None else topic.id,
        error_code=code,
        error_message=text,
    )
