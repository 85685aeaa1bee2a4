"""ShareGroupDescribe (key 77), v1: share groups and their members.

A group that does not exist, or is not a share group, is answered with GROUP_ID_NOT_FOUND; a group
with topics that the client may not describe with TOPIC_AUTHORIZATION_FAILED, as in Kafka.
"""

from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import (
    Assignment,
    DescribedGroup,
    Member,
    ShareGroupDescribeResponse,
    TopicPartitions,
)
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.share_group.group import DescribedShareGroup, ShareMember
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.acl_codes import NOT_TOLD, operation_bits
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.gateway.kafka.topics import check_allowed

_ASSIGNOR = "simple"
_UNKNOWN = DescribedShareGroup("", 0, ())


def handle(
    context: Context, request: ShareGroupDescribeRequest
) -> Steps[ShareGroupDescribeResponse]:
    groups: list[DescribedGroup] = []
    for group_id in request.group_ids:
        yield
        group = yield from _describe(context, group_id, request.include_authorized_operations)
        groups.append(group)
    return ShareGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _describe(context: Context, group_id: GroupId, tells_operations: bool) -> Steps[DescribedGroup]:
    code: ErrorCode = ErrorCode.none
    text: str | None = None
    found = _UNKNOWN
    try:
        check_group(context, Operation.DESCRIBE, group_id)
        found = context.broker.share_groups.describe(group_id)
        for member in found.members:
            for name in member.topics:
                check_allowed(context, Operation.DESCRIBE, name)
                yield
    except KNOWN as error:
        found = _UNKNOWN
        code, text = group_reason(error)
    members: list[Member] = []
    for each in found.members:
        members.append((yield from _member(context, each)))
    return DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=group_id,
        group_state=found.state,
        group_epoch=i32(found.epoch),
        assignment_epoch=i32(found.epoch),
        assignor_name=_ASSIGNOR if code is ErrorCode.none else "",
        members=tuple(members),
        authorized_operations=operation_bits(context, ResourceKind.GROUP, group_id)
        if tells_operations and code is ErrorCode.none
        else NOT_TOLD,
    )


def _member(context: Context, member: ShareMember) -> Steps[Member]:
    topics = context.broker.catalog.by_id
    rows = yield from listed(
        TopicPartitions(
            topic_id=topic,
            topic_name=TopicName(topics[topic].name),
            partitions=tuple(map(i32, numbers)),
        )
        for topic, numbers in member.assignment.items()
        if topic in topics
    )
    return Member(
        member_id=member.id,
        rack_id=member.rack_id,
        member_epoch=i32(member.epoch),
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=tuple(map(TopicName, member.topics)),
        assignment=Assignment(topic_partitions=tuple(rows)),
    )
