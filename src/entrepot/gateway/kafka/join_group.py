"""JoinGroup (key 11), v0 to v9: become a member of the group's next generation.

Answered when all members have joined, or the rebalance timeout is over; members that have not
joined by then are removed. The leader gets the list of members, assigns the partitions, and sends
the assignment in its SyncGroup.

v1: a rebalance timeout; before that the session timeout is used. v4: a new member gets its id in
an error (MEMBER_ID_REQUIRED) and sends the request again with it. v5: static members. v9: a
static leader that comes back is told to keep the present assignment.
"""

from datetime import timedelta

from kio.schema.join_group.v9.request import JoinGroupRequest
from kio.schema.join_group.v9.response import JoinGroupResponse, JoinGroupResponseMember
from kio.static.primitive import i32

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.messages import Join, JoinAnswer
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, group_code
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_ID_REQUIRED = 4
_VERSION_PROTOCOL_NULLABLE = 7
_VERSION_SKIP_ASSIGNMENT = 9
_MILLISECOND = timedelta(milliseconds=1)


async def handle(
    context: Context, header: RequestHeader, request: JoinGroupRequest
) -> JoinGroupResponse:
    version = header.version
    try:
        check_group(context, Operation.READ, request.group_id)
        answer = await context.broker.groups.join(request.group_id, _join(context, header, request))
    except KNOWN as error:
        no_name = None if version >= _VERSION_PROTOCOL_NULLABLE else ""
        return JoinGroupResponse(
            throttle_time=NO_THROTTLE,
            error_code=group_code(error),
            protocol_name=no_name,
            leader="",
            member_id=request.member_id,
            members=(),
        )
    return _response(answer, version)


def _join(context: Context, header: RequestHeader, request: JoinGroupRequest) -> Join:
    session_ms = request.session_timeout // _MILLISECOND
    rebalance_ms = request.rebalance_timeout // _MILLISECOND
    client_id = header.client_id or ""
    return Join(
        member_id=request.member_id,
        fresh_id=context.broker.groups.fresh_id(request.group_instance_id or client_id),
        instance_id=request.group_instance_id,
        client_id=client_id,
        client_host=f"/{context.peer_host}",
        session_ms=session_ms,
        rebalance_ms=session_ms if rebalance_ms < 0 else rebalance_ms,
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, each.metadata) for each in request.protocols),
        id_required=header.version >= _VERSION_ID_REQUIRED,
        can_skip_assignment=header.version >= _VERSION_SKIP_ASSIGNMENT,
    )


def _response(answer: JoinAnswer, version: int) -> JoinGroupResponse:
    protocol = answer.protocol
    if protocol is None and version < _VERSION_PROTOCOL_NULLABLE:
        protocol = ""
    return JoinGroupResponse(
        throttle_time=NO_THROTTLE,
        error_code=code_of_fault(answer.fault),
        generation_id=i32(answer.generation),
        protocol_type=answer.protocol_type,
        protocol_name=protocol,
        leader=answer.leader,
        skip_assignment=answer.skip_assignment,
        member_id=answer.member_id,
        members=tuple(
            JoinGroupResponseMember(member_id=each, group_instance_id=instance, metadata=metadata)
            for each, instance, metadata in answer.members
        ),
    )
