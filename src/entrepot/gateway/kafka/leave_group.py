"""LeaveGroup (key 13), v0 to v5: leave a classic group at once, without a session timeout.

v3: several members in a request, and static members by their instance id only, for tools.
"""

from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v2.request import LeaveGroupRequest as LeaveGroupRequestV2
from kio.schema.leave_group.v2.response import LeaveGroupResponse as LeaveGroupResponseV2
from kio.schema.leave_group.v5.request import LeaveGroupRequest
from kio.schema.leave_group.v5.response import LeaveGroupResponse, MemberResponse

from entrepot.broker.access import Operation
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, group_code


def handle(
    context: Context, request: LeaveGroupRequestV2 | LeaveGroupRequest
) -> LeaveGroupResponseV2 | LeaveGroupResponse:
    if isinstance(request, LeaveGroupRequestV2):
        try:
            (code,) = _leave(context, request.group_id, [(request.member_id, None)])
        except KNOWN as error:
            code = group_code(error)
        return LeaveGroupResponseV2(throttle_time=NO_THROTTLE, error_code=code)
    leaving = [(each.member_id, each.group_instance_id) for each in request.members]
    try:
        codes = _leave(context, request.group_id, leaving)
    except KNOWN as error:
        return LeaveGroupResponse(
            throttle_time=NO_THROTTLE, error_code=group_code(error), members=()
        )
    members = tuple(
        MemberResponse(member_id=member_id, group_instance_id=instance_id, error_code=code)
        for (member_id, instance_id), code in zip(leaving, codes, strict=True)
    )
    return LeaveGroupResponse(throttle_time=NO_THROTTLE, error_code=ErrorCode.none, members=members)


def _leave(
    context: Context, group_id: str, leaving: list[tuple[str, str | None]]
) -> list[ErrorCode]:
    check_group(context, Operation.READ, group_id)
    return [code_of_fault(fault) for fault in context.broker.groups.leave(group_id, leaving)]
