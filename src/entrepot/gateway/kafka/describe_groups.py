"""DescribeGroups (key 15), v0 to v6: the members of classic groups and their assignments.

A group that does not exist, or that uses the modern protocol (see ConsumerGroupDescribe), is
answered with the state Dead and, from v6 on, with GROUP_ID_NOT_FOUND. v3: on request, the
operations that the client may do on each group.
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
from entrepot.core.steps import listed
from entrepot.gateway.kafka.acl_codes import operation_bits
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_NOT_FOUND = 6
_DEAD = Described("Dead", "", "", ())
_UNKNOWN = Described("", "", "", ())


async def handle(
    context: Context, header: RequestHeader, request: DescribeGroupsRequest
) -> DescribeGroupsResponse:
    described = (_describe(context, header.version, each) for each in request.groups)
    groups = await context.broker.turns.run(listed(described))
    if request.include_authorized_operations:
        with_operations = (_with_operations(context, each) for each in groups)
        groups = await context.broker.turns.run(listed(with_operations))
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
