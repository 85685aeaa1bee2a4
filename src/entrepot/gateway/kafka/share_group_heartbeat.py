"""ShareGroupHeartbeat (key 76), v1: join a share group, stay in it, leave it.

A member joins with epoch 0 and leaves with -1. A field that is left out has the value of the
member's last request. The answer has the member's epoch, and its partitions when they have
changed or when the request named its topics.
"""

from collections.abc import Awaitable
from typing import NamedTuple

from kio.schema.errors import ErrorCode
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import (
    Assignment,
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.static.primitive import i32

from entrepot.broker.access import Operation
from entrepot.broker.share_group.group import ShareHeartbeat, ShareHeartbeatAnswer
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason, milliseconds
from entrepot.gateway.kafka.repeated import RepeatedHandler
from entrepot.gateway.kafka.topics import check_allowed
from entrepot.wire.kafka.frames import RequestHeader

Told = ShareHeartbeatAnswer | tuple[ErrorCode, str]


class Asked(NamedTuple):
    group_id: str
    heartbeat: ShareHeartbeat


def understand(
    context: Context, header: RequestHeader, request: ShareGroupHeartbeatRequest
) -> Asked:
    heartbeat = ShareHeartbeat(
        request.member_id,
        request.member_epoch,
        request.rack_id,
        request.subscribed_topic_names,
        header.client_id or "",
        f"/{context.peer_host}",
    )
    return Asked(request.group_id, heartbeat)


def ask(context: Context, asked: Asked) -> Told | Awaitable[Told]:
    group_id, heartbeat = asked
    try:
        check_group(context, Operation.READ, group_id)
        for name in heartbeat.topics or ():
            check_allowed(context, Operation.DESCRIBE, name)
        told = context.broker.share_groups.heartbeat(group_id, heartbeat)
    except KNOWN as error:
        return group_reason(error)
    return told if isinstance(told, ShareHeartbeatAnswer) else _later(told)


async def _later(answer: Awaitable[ShareHeartbeatAnswer]) -> Told:
    try:
        return await answer
    except KNOWN as error:
        return group_reason(error)


def respond(told: Told) -> Steps[ShareGroupHeartbeatResponse]:
    if not isinstance(told, ShareHeartbeatAnswer):
        code, text = told
        return ShareGroupHeartbeatResponse(
            throttle_time=NO_THROTTLE,
            error_code=code,
            error_message=text,
            member_epoch=i32(0),
            heartbeat_interval=NO_THROTTLE,
        )
    assignment = None
    if told.assignment is not None:
        rows = (
            TopicPartitions(topic_id=topic, partitions=tuple(map(i32, partitions)))
            for topic, partitions in told.assignment.items()
        )
        assignment = Assignment(topic_partitions=tuple((yield from listed(rows))))
    return ShareGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=told.member_id,
        member_epoch=i32(told.epoch),
        heartbeat_interval=milliseconds(told.heartbeat_ms),
        assignment=assignment,
    )


HANDLER: RepeatedHandler[Asked, Told] = RepeatedHandler(understand, ask, respond)
