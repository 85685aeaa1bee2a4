"""What may be done to a group is told when asked, and a group does not give its topics away."""

from collections.abc import Awaitable
from inspect import isawaitable
from typing import Any

from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_heartbeat.v1.request import ConsumerGroupHeartbeatRequest
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import Acl, Pattern, PermissionType, acl_record
from entrepot.client.client import milliseconds
from entrepot.core.steps import finish
from entrepot.gateway.kafka import (
    consumer_group_describe,
    describe_groups,
)
from entrepot.gateway.kafka.acl_codes import NOT_TOLD, OPERATION_CODES
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.frames import RequestHeader
from tests.unit.gateway.kafka.group_requests import answered
from tests.unit.gateway.kafka.node import Node, on_node

GROUP, TOPIC = GroupId("readers"), TopicName("one")


def acl(user: str, kind: ResourceKind, name: str, operation: Operation) -> Acl:
    return Acl(kind, Pattern.LITERAL, name, user, "*", operation, PermissionType.ALLOW)


async def enforce(node: Node, *acls: Acl) -> None:
    node.context.broker.access.is_enforced = True
    await node.context.broker.change_security(*map(acl_record, acls))


def header(api: Api, version: int) -> RequestHeader:
    return RequestHeader(api, version, 1, "test")


async def done(answer: Any | Awaitable[Any]) -> Any:
    return await answer if isawaitable(answer) else answer


def bits(*operations: Operation) -> int:
    return sum(1 << OPERATION_CODES[operation] for operation in operations)


@on_node()
async def test_what_may_be_done_to_a_classic_group(node: Node) -> None:
    node.act_as("ana")
    await enforce(node, acl("ana", ResourceKind.GROUP, GROUP, Operation.READ))

    async def operations(name: str, asked: bool = True) -> int:
        request = DescribeGroupsRequest(
            groups=(GroupId(name),), include_authorized_operations=asked
        )
        asking = header(Api.DESCRIBE_GROUPS, 5)
        answer = await describe_groups.handle(node.context, asking, request)
        return int(answer.groups[0].authorized_operations)

    assert await operations(GROUP) == bits(Operation.READ, Operation.DESCRIBE)
    assert await operations(GROUP, asked=False) == NOT_TOLD
    assert await operations("other") == NOT_TOLD


@on_node()
async def test_a_modern_group_does_not_give_its_topics_away(node: Node) -> None:
    await node.context.broker.create_topic(TOPIC, 1)
    await enforce(
        node,
        acl("ana", ResourceKind.GROUP, GROUP, Operation.READ),
        acl("ana", ResourceKind.TOPIC, TOPIC, Operation.READ),
        acl("bob", ResourceKind.GROUP, GROUP, Operation.DESCRIBE),
    )
    node.act_as("ana")
    joining = ConsumerGroupHeartbeatRequest(
        group_id=GROUP,
        member_id="m",
        member_epoch=i32(0),
        rebalance_timeout=milliseconds(60_000),
        subscribed_topic_names=(TOPIC,),
        topic_partitions=(),
    )
    joined = await answered(node, joining)
    assert joined.error_code is ErrorCode.none

    async def described(asked: bool = True) -> Any:
        request = ConsumerGroupDescribeRequest(
            group_ids=(GROUP,), include_authorized_operations=asked
        )
        answer = await done(finish(consumer_group_describe.handle(node.context, request)))
        return answer.groups[0]

    mine = await described()
    assert mine.error_code is ErrorCode.none
    assert mine.members[0].target_assignment.topic_partitions[0].topic_name == TOPIC
    assert mine.authorized_operations == bits(Operation.READ, Operation.DESCRIBE)
    assert (await described(asked=False)).authorized_operations == NOT_TOLD
    node.act_as("bob")
    yours = await described()
    assert yours.error_code is ErrorCode.topic_authorization_failed
    assert yours.members == ()
    assert yours.authorized_operations == NOT_TOLD
