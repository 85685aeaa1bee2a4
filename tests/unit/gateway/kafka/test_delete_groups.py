from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from entrepot.gateway.kafka.delete_groups import handle
from tests.unit.gateway.kafka.group_requests import beat, deny_everything, stable
from tests.unit.gateway.kafka.node import Node, on_node


async def delete(node: Node, *groups: str) -> dict[str, ErrorCode]:
    request = DeleteGroupsRequest(groups_names=tuple(map(GroupId, groups)))
    response = await handle(node.context, request)
    return {each.group_id: each.error_code for each in response.results}


@on_node()
async def test_only_groups_without_members_go(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await node.context.broker.groups.commit_offsets("simple", "", -1, {})
    await stable(node, "old")
    await beat(node, "new", "m")
    await beat(node, "gone", "m")
    await beat(node, "gone", "m", -1)
    assert await delete(node, "simple", "old", "new", "gone", "none") == {
        "simple": ErrorCode.none,
        "old": ErrorCode.non_empty_group,
        "new": ErrorCode.non_empty_group,
        "gone": ErrorCode.none,
        "none": ErrorCode.group_id_not_found,
    }
    assert [each.group_id for each in node.context.broker.groups.list()] == ["old", "new"]
    deny_everything(node)
    assert await delete(node, "old") == {"old": ErrorCode.group_authorization_failed}
