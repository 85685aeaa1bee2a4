"""SyncGroup (key 14), v0 to v5: get the member's assignment from the group's leader.

The leader's request has the assignments of all members; the other members wait for it. v3: static
members. v5: the protocol, which must be the one that the group has chosen.
"""

from kio.schema.sync_group.v5.request import SyncGroupRequest
from kio.schema.sync_group.v5.response import SyncGroupResponse

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.messages import Sync
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, group_code


async def handle(context: Context, request: SyncGroupRequest) -> SyncGroupResponse:
    sync = Sync(
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        request.protocol_type,
        request.protocol_name,
        {each.member_id: each.assignment for each in request.assignments},
    )
    try:
        check_group(context, Operation.READ, request.group_id)
        answer = await context.broker.groups.sync(request.group_id, sync)
    except KNOWN as error:
        return SyncGroupResponse(
            throttle_time=NO_THROTTLE, error_code=group_code(error), assignment=b""
        )
    return SyncGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=code_of_fault(answer.fault),
        protocol_type=answer.protocol_type,
        protocol_name=answer.protocol,
        assignment=answer.assignment,
    )
