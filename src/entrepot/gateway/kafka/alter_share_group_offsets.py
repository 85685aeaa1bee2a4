"""AlterShareGroupOffsets (key 91), v0: set the start offsets of a share group without members.

Records from the offset on are delivered, also if they were settled before; records below it are
not delivered any more. A group that does not exist is created.
"""

from collections.abc import Iterator, Mapping

from kio.schema.alter_share_group_offsets.v0.request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
)
from kio.schema.alter_share_group_offsets.v0.response import (
    AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition,
    AlterShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from entrepot.broker.access import Operation
from entrepot.broker.catalog import Topic
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.topics import topic_of


async def handle(
    context: Context, request: AlterShareGroupOffsetsRequest
) -> AlterShareGroupOffsetsResponse:
    found = {each.topic_name: _find(context, each.topic_name) for each in request.topics}
    wanted: Iterator[tuple[Topic, Mapping[int, int]]] = (  # One topic at a time: it may be wide.
        (topic, {part.partition_index: part.start_offset for part in each.partitions})
        for each in request.topics
        if isinstance(topic := found[each.topic_name], Topic)
    )
    try:
        check_group(context, Operation.READ, request.group_id)
        faults = await context.broker.share_groups.alter_offsets(request.group_id, wanted)
    except KNOWN as error:
        code, text = group_reason(error)
        return AlterShareGroupOffsetsResponse(
            throttle_time=NO_THROTTLE, error_code=code, error_message=text, responses=()
        )
    return AlterShareGroupOffsetsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        responses=await context.broker.turns.run(_topics(request, found, faults)),
    )


def _find(context: Context, name: str) -> Topic | Exception:
    try:
        return topic_of(context, Operation.READ, name)
    except KNOWN as error:
        return error


def _topics(
    request: AlterShareGroupOffsetsRequest,
    found: Mapping[TopicName, Topic | Exception],
    faults: Mapping[tuple[str, int], Exception],
) -> Steps[tuple[AlterShareGroupOffsetsResponseTopic, ...]]:
    topics = []
    for asked in request.topics:
        topic = found[asked.topic_name]
        error = topic if isinstance(topic, Exception) else None
        rows = yield from listed(
            _partition(each, error or faults.get((asked.topic_name, each.partition_index)))
            for each in asked.partitions
        )
        told = AlterShareGroupOffsetsResponseTopic(
            topic_name=asked.topic_name,
            topic_id=topic.id if isinstance(topic, Topic) else None,
            partitions=tuple(rows),
        )
        topics.append(told)
        yield
    return tuple(topics)


def _partition(
    asked: AlterShareGroupOffsetsRequestPartition, error: Exception | None
) -> AlterShareGroupOffsetsResponsePartition:
    code, text = (ErrorCode.none, None) if error is None else reason_of(error)
    return AlterShareGroupOffsetsResponsePartition(
        partition_index=asked.partition_index, error_code=code, error_message=text
    )
