"""Heartbeat (key 12), v0 to v4: keep a member of a classic group alive.

REBALANCE_IN_PROGRESS tells the member to join again. v3: static members.
"""

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse

from entrepot.broker.access import Operation
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, group_code
from entrepot.gateway.kafka.repeated import RepeatedHandler
from entrepot.wire.kafka.frames import RequestHeader

_Asked = tuple[str, str, str | None, int]  # Group, member, instance, generation.


def understand(context: Context, header: RequestHeader, request: HeartbeatRequest) -> _Asked:
    return (
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
    )


def ask(context: Context, asked: _Asked) -> ErrorCode:
    try:
        check_group(context, Operation.READ, asked[0])
    except KNOWN as error:
        return group_code(error)
    return code_of_fault(context.broker.groups.heartbeat(*asked))


def respond(code: ErrorCode) -> HeartbeatResponse:
    return HeartbeatResponse(throttle_time=NO_THROTTLE, error_code=code)


HANDLER = RepeatedHandler(understand, ask, respond)
