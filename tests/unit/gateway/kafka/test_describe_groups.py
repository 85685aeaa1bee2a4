from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.describe_groups.v6.response import DescribedGroup
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from entrepot.gateway.kafka.describe_groups import handle
from entrepot.wire.kafka.api import Api
from tests.unit.gateway.kafka.group_requests import (
    SUBSCRIPTION,
    beat,
    deny_everything,
    header,
    stable,
)
from tests.unit.gateway.kafka.node import Node, on_node


async def describe(node: Node, *groups: str, version: int = 6) -> list[DescribedGroup]:
    request = DescribeGroupsRequest(
        groups=tuple(map(GroupId, groups)), include_authorized_operations=False
    )
    answer = await handle(node.context, header(Api.DESCRIBE_GROUPS, version), request)
    return list(answer.groups)


@on_node()
async def test_who_is_in_a_group(node: Node) -> None:
    """Proves K-10."""
    node.act_as("ana", "192.0.2.1")
    member_id, _ = await stable(node)
    (found,) = await describe(node, "g")
    assert (found.error_code, found.group_state) == (ErrorCode.none, "Stable")
    assert (found.protocol_type, found.protocol_data) == ("consumer", "range")
    (member,) = found.members
    assert (member.member_id, member.client_id, member.client_host) == (
        member_id,
        "client",
        "/192.0.2.1",
    )
    assert (member.member_metadata, member.member_assignment) == (SUBSCRIPTION, b"all")


@on_node()
async def test_groups_that_are_none_of_this_kind(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await beat(node, "modern", "m")
    for version, code in ((6, ErrorCode.group_id_not_found), (5, ErrorCode.none)):
        for found in await describe(node, "none", "modern", version=version):
            assert (found.error_code, found.group_state) == (code, "Dead")
            assert (found.error_message is None) == (code is ErrorCode.none)
    deny_everything(node)
    (found,) = await describe(node, "g")
    assert (found.error_code, found.group_state) == (ErrorCode.group_authorization_failed, "")
