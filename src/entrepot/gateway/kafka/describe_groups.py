"""DescribeGroups (key 15), v0 to v6: the members of classic groups and what they have.

A group that there is not is in the state Dead; from v6 on it is GROUP_ID_NOT_FOUND, too.
So is a group of the modern protocol: ConsumerGroupDescribe is for those. v3 on, what the
client may do to a group is told when asked for.
"""

from dataclasses import replace

from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.consumer_group.messages import Described
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.acl_codes import operation_bits
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_NOT_FOUND = 6
_DEAD = Described("Dead", "", "", ())
_UNKNOWN = Described("", "", "", ())


def handle_versioned(
    context: Context, header: RequestHeader, request: DescribeGroupsRequest
) -> Steps[DescribeGroupsResponse]:
    groups = yield from listed(_describe(context, header.version, each) for each in request.groups)
    if request.include_authorized_operations:
        groups = yield from listed(_with_operations(context, each) for each in groups)
    return DescribeGroupsResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _with_operations(context: Context, group: DescribedGroup) -> DescribedGroup:
    if group.error_code is not ErrorCode.none:
        return group
    bits = operation_bits(context, ResourceKind.GROUP, group.group_id)
    return replace(group, authorized_operations=bits)


def _describe(context: Context, version: int, group_id: GroupId) -> DescribedGroup:
    code: ErrorCode = ErrorCode.none
    text: str | None = None
    try:
        check_group(context, Operation.DESCRIBE, group_id)
        found = context.broker.groups.describe(group_id)
    except KNOWN as error:
        code, text = group_reason(error)
        found = _UNKNOWN
        if code is ErrorCode.group_id_not_found:
            found = _DEAD
            if version < _VERSION_NOT_FOUND:
                code, text = ErrorCode.none, None
    return DescribedGroup(
        error_code=code,
        error_message=text,
        group_id=group_id,
        group_state=found.state,
        protocol_type=found.protocol_type,
        protocol_data=found.protocol,
        members=tuple(
            DescribedGroupMember(
                member_id=each.id,
                group_instance_id=each.instance_id,
                client_id=each.client_id,
                client_host=each.client_host,
                member_metadata=each.subscription,
                member_assignment=each.assignment,
            )
            for each in found.members
        ),
    )
