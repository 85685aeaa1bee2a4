"""ConsumerGroupHeartbeat (key 68), v0 and v1: join a modern group, stay in it, leave it.

A member joins with epoch 0 and leaves with -1; a static member that will come back leaves with
-2. A field that is left out has the value of the member's last request. The answer has the
member's epoch, and its partitions when they have changed or when the request had all fields. v1:
the member chooses its own id, and may subscribe to topics by a regular expression.
"""

from collections.abc import Awaitable
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple
from uuid import UUID

from kio.schema.consumer_group_heartbeat.v1 import request as v1
from kio.schema.consumer_group_heartbeat.v1.response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.consumer_group.messages import JOINS, GroupHeartbeat, HeartbeatAnswer
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group, group_reason, milliseconds
from entrepot.gateway.kafka.repeated import RepeatedHandler
from entrepot.gateway.kafka.topics import check_allowed
from entrepot.wire.kafka.frames import RequestHeader

_MILLISECOND = timedelta(milliseconds=1)

Told = HeartbeatAnswer | tuple[ErrorCode, str]


class Asked(NamedTuple):
    group_id: str
    heartbeat: GroupHeartbeat
    is_nameless: bool  # Whether, in this version, the broker chooses the ids of new members.


def understand(
    context: Context, header: RequestHeader, request: v1.ConsumerGroupHeartbeatRequest
) -> Asked:
    owned = request.topic_partitions
    heartbeat = GroupHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_ms=request.rebalance_timeout // _MILLISECOND,
        topics=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=None
        if owned is None
        else {each.topic_id or UUID(int=0): each.partitions for each in owned},
        client_id=header.client_id or "",
        client_host=f"/{context.peer_host}",
        may_see=lambda name: context.allows(Operation.DESCRIBE, ResourceKind.TOPIC, name),
    )
    return Asked(request.group_id, heartbeat, is_nameless=header.version == 0)


def ask(context: Context, asked: Asked) -> Told | Awaitable[Told]:
    group_id, heartbeat, is_nameless = asked
    try:
        check_group(context, Operation.READ, group_id)
        for name in heartbeat.topics or ():
            check_allowed(context, Operation.DESCRIBE, name)
        if is_nameless and not heartbeat.member_id and heartbeat.epoch == JOINS:
            heartbeat = replace(heartbeat, member_id=context.broker.groups.fresh_id())
        told = context.broker.groups.heartbeat_modern(group_id, heartbeat)
    except KNOWN as error:
        return group_reason(error)
    return told if isinstance(told, HeartbeatAnswer) else _later(told)


async def _later(answer: Awaitable[HeartbeatAnswer]) -> Told:
    try:
        return await answer
    except KNOWN as error:
        return group_reason(error)


def respond(told: Told) -> Steps[ConsumerGroupHeartbeatResponse]:
    if not isinstance(told, HeartbeatAnswer):
        return _failed(*told)
    assignment = None
    if told.assignment is not None:
        rows = (
            TopicPartitions(topic_id=topic, partitions=tuple(map(i32, partitions)))
            for topic, partitions in told.assignment.items()
        )
        assignment = Assignment(topic_partitions=tuple((yield from listed(rows))))
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        member_id=told.member_id,
        member_epoch=i32(told.epoch),
        heartbeat_interval=milliseconds(told.heartbeat_ms),
        assignment=assignment,
    )


def _failed(code: ErrorCode, text: str) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(
        throttle_time=NO_THROTTLE,
        error_code=code,
        error_message=text,
        member_epoch=i32(0),
        heartbeat_interval=NO_THROTTLE,
    )


HANDLER: RepeatedHandler[Asked, Told] = RepeatedHandler(understand, ask, respond)
