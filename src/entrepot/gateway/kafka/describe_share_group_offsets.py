"""DescribeShareGroupOffsets (key 90), v0 and v1: the start offsets of share groups.

A partition's start offset is its oldest offset that is not settled; -1 means: the group does not
read the partition. A request without topics asks for all that the group reads. v1: the lag, the
number of records that are not settled.
"""

from collections.abc import Iterable

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.catalog import Topic
from entrepot.core.errors import UnknownTopic
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.topics import topic_of

_UNKNOWN = i64(-1)


def handle(
    context: Context, request: DescribeShareGroupOffsetsRequest
) -> Steps[DescribeShareGroupOffsetsResponse]:
    groups = []
    for group in request.groups:
        groups.append((yield from _describe(context, group)))
    return DescribeShareGroupOffsetsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _describe(
    context: Context, asked: DescribeShareGroupOffsetsRequestGroup
) -> Steps[DescribeShareGroupOffsetsResponseGroup]:
    group_id = asked.group_id
    try:
        check_group(context, Operation.DESCRIBE, group_id)
        known = context.broker.share_groups.topics(group_id)
    except KNOWN as error:
        code, text = group_reason(error)
        return DescribeShareGroupOffsetsResponseGroup(
            group_id=group_id, topics=(), error_code=code, error_message=text
        )
    if asked.topics is None:
        rows = yield from listed(
            _topic(context, group_id, topic.name, range(topic.partition_count))
            for topic in known
            if context.allows(Operation.DESCRIBE, ResourceKind.TOPIC, topic.name)
        )
    else:
        rows = yield from listed(
            _topic(context, group_id, each.topic_name, each.partitions) for each in asked.topics
        )
    return DescribeShareGroupOffsetsResponseGroup(
        group_id=group_id, topics=tuple(rows), error_code=ErrorCode.none
    )


def _topic(
    context: Context, group_id: GroupId, name: str, numbers: Iterable[int]
) -> DescribeShareGroupOffsetsResponseTopic:
    code, text, topic = ErrorCode.none, None, None
    try:
        topic = topic_of(context, Operation.DESCRIBE, name)
    except KNOWN as error:
        code, text = reason_of(error)
    return DescribeShareGroupOffsetsResponseTopic(
        topic_name=TopicName(name),
        topic_id=None if topic is None else topic.id,
        partitions=tuple(
            DescribeShareGroupOffsetsResponsePartition(
                partition_index=i32(number),
                start_offset=_UNKNOWN,
                leader_epoch=i32(0),
                error_code=code,
                error_message=text,
            )
            if topic is None
            else _partition(context, group_id, topic, number)
            for number in numbers
        ),
    )


def _partition(
    context: Context, group_id: GroupId, topic: Topic, number: int
) -> DescribeShareGroupOffsetsResponsePartition:
    offset = lag = _UNKNOWN
    code, text = ErrorCode.none, None
    try:
        share = context.broker.share_groups.partition(group_id, topic, number)
        offset, lag = i64(share.ledger.offset_low), i64(share.lag)
    except UnknownTopic:
        pass
    except KNOWN as error:
        code, text = reason_of(error)
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=i32(number),
        start_offset=offset,
        leader_epoch=i32(0),
        lag=lag,
        error_code=code,
        error_message=text,
    )
