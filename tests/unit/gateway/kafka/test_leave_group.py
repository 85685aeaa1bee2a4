from kio.schema.errors import ErrorCode
from kio.schema.leave_group.v2.request import LeaveGroupRequest as RequestForOne
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.types import GroupId

from entrepot.gateway.kafka.leave_group import handle
from tests.unit.gateway.kafka.group_requests import deny_everything, stable
from tests.unit.gateway.kafka.node import Node, on_node


def leave(node: Node, group: str, *leaving: tuple[str, str | None]) -> LeaveGroupResponse:
    members = tuple(
        MemberIdentity(member_id=member_id, group_instance_id=instance_id)
        for member_id, instance_id in leaving
    )
    response = handle(node.context, LeaveGroupRequest(group_id=GroupId(group), members=members))
    assert isinstance(response, LeaveGroupResponse)
    return response


@on_node()
async def test_several_leave(node: Node) -> None:
    member_id, _ = await stable(node)
    response = leave(node, "g", (member_id, None), ("nobody", None), ("", "i"))
    assert response.error_code is ErrorCode.none
    assert [(each.member_id, each.error_code) for each in response.members] == [
        (member_id, ErrorCode.none),
        ("nobody", ErrorCode.unknown_member_id),
        ("", ErrorCode.unknown_member_id),
    ]
    assert node.context.broker.groups.describe("g").state == "Empty"


@on_node()
async def test_one_leaves_before_v3(node: Node) -> None:
    member_id, _ = await stable(node)
    for who, code in (
        (member_id, ErrorCode.none),
        (member_id, ErrorCode.unknown_member_id),
    ):
        request = RequestForOne(group_id=GroupId("g"), member_id=who)
        assert handle(node.context, request).error_code is code


@on_node()
async def test_refusals(node: Node) -> None:
    none = leave(node, "none", ("a", None))
    assert [each.error_code for each in none.members] == [ErrorCode.unknown_member_id]
    assert leave(node, "", ("a", None)).error_code is ErrorCode.invalid_group_id
    deny_everything(node)
    assert leave(node, "g", ("a", None)).error_code is ErrorCode.group_authorization_failed
    old = RequestForOne(group_id=GroupId("g"), member_id="a")
    assert handle(node.context, old).error_code is ErrorCode.group_authorization_failed
