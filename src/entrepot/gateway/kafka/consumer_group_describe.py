"""ConsumerGroupDescribe (key 69), v0 and v1: the members of modern groups, with their present
and their target assignments.

A group that does not exist, or uses the classic protocol, is answered with GROUP_ID_NOT_FOUND; a
group with topics that the client may not describe with TOPIC_AUTHORIZATION_FAILED, as in Kafka.
v1: the protocol of each member, which is always the modern one here.
"""

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import (
    Assignment,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.consumer_group.messages import DescribedModern, DescribedModernMember
from entrepot.broker.consumer_group.records import Assignment as Partitions
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.acl_codes import NOT_TOLD, operation_bits
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.gateway.kafka.topics import check_allowed

_MODERN = i8(1)
_UNKNOWN = DescribedModern("", 0, 0, "", ())


def handle(
    context: Context, request: ConsumerGroupDescribeRequest
) -> Steps[ConsumerGroupDescribeResponse]:
    groups: list[DescribedGroup] = []
    for group_id in request.group_ids:
        yield
        group = yield from _describe(context, group_id, request.include_authorized_operations)
        groups.append(group)
    return ConsumerGroupDescribeResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _describe(context: Context, group_id: GroupId, tells_operations: bool) -> Steps[DescribedGroup]:
    code: ErrorCode = ErrorCode.none
    text: str | None = None
    found = _UNKNOWN
    try:
        check_group(context, Operation.DESCRIBE, group_id)
        found = context.broker.groups.describe_modern(group_id)
        yield from _check_topics(context, found)
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
        assignment_epoch=i32(found.target_epoch),
        assignor_name=found.assignor,
        members=tuple(members),
        authorized_operations=operation_bits(context, ResourceKind.GROUP, group_id)
        if tells_operations and code is ErrorCode.none
        else NOT_TOLD,
    )


def _check_topics(context: Context, found: DescribedModern) -> Steps[None]:
    """Check that the client may describe the topics of a group. Raises TopicDenied."""
    topics = context.broker.catalog.by_id
    for member in found.members:
        for topic in (*member.current.assigned, *member.target):
            if topic in topics:
                check_allowed(context, Operation.DESCRIBE, topics[topic].name)
            yield


def _member(context: Context, member: DescribedModernMember) -> Steps[Member]:
    subscription = member.subscription
    assignment = yield from _assignment(context, member.current.assigned)
    target = yield from _assignment(context, member.target)
    return Member(
        member_id=member.id,
        instance_id=subscription.instance_id,
        rack_id=subscription.rack_id,
        member_epoch=i32(member.current.epoch),
        client_id=subscription.client_id,
        client_host=subscription.client_host,
        subscribed_topic_names=tuple(map(TopicName, subscription.topics)),
        subscribed_topic_regex=subscription.regex,
        assignment=assignment,
        target_assignment=target,
        member_type=_MODERN,
    )


def _assignment(context: Context, partitions: Partitions) -> Steps[Assignment]:
    """Return the partitions of topics that still exist."""
    topics = context.broker.catalog.by_id
    rows = yield from listed(
        TopicPartitions(
            topic_id=topic,
            topic_name=TopicName(topics[topic].name),
            partitions=tuple(map(i32, numbers)),
        )
        for topic, numbers in partitions.items()
        if topic in topics
    )
    return Assignment(topic_partitions=tuple(rows))
