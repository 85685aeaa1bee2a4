"""AlterShareGroupOffsets (key 91), v0: set the start offsets of a share group without members.

Records from the offset on are delivered, also if they were settled before; records below it are
not delivered any more. A group that does not exist is created.
"""

from collections.abc import Mapping

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestTopic,
)
from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.catalog import Topic
from entrepot.core.steps import listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.topics import topic_of


async def handle(
    context: Context, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    found = {each.topic_name: _find(context, each.topic_name) for each in request.topics}
    wanted: list[tuple[Topic, Mapping[int, int]]] = [
        (topic, {part.partition_index: part.start_offset for part in each.partitions})
        for each in request.topics
        if isinstance(topic := found[each.topic_name], Topic)
    ]
    try:
        check_group(context, Operation.READ, request.group_id)
        faults = await context.broker.share_groups.alter_offsets(request.group_id, wanted)
    except KNOWN as error:
        code, text = group_reason(error)
        return AlterShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE, error_code=code, error_message=text, responses=()
        )
    rows = (_topic(each, found[each.topic_name], faults) for each in request.topics)
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=tuple(await context.broker.turns.run(listed(rows))),
    )


def _find(context: Context, name: str) -> Topic | Exception:
    try:
        return topic_of(context, Operation.READ, name)
    except KNOWN as error:
        return error


def _topic(
    asked: AlterShareGroupOffsetsRequestTopic,
    found: Topic | Exception,
    faults: Mapping[tuple[str, int], Exception],
) -> AlterShareGroupOffsetsResponseTopic:
    rows = []
    for each in asked.partitions:
        code, text = ErrorCode.none, None
        error = found if isinstance(found, Exception) else None
        error = error or faults.get((asked.topic_name, each.partition_index))
        if error is not None:
            code, text = reason_of(error)
        rows.append(
            AlterShareGroupOffsetsResponsePartition(
                partition_index=each.partition_index, error_code=code, error_message=text
            )
        )
    return AlterShareGroupOffsetsResponseTopic(
        topic_name=asked.topic_name,
        topic_id=found.id if isinstance(found, Topic) else None,
        partitions=tuple(rows),
    )
