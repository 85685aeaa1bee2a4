from kio.schema.errors import ErrorCode
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import DescribedGroup
from kio.schema.types import GroupId

from entrepot.core.steps import finish
from entrepot.gateway.kafka.share_group_describe import handle
from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.sharing import beat


def describe(node: Node, *groups: str, operations: bool = False) -> tuple[DescribedGroup, ...]:
    request = ShareGroupDescribeRequest(
        group_ids=tuple(map(GroupId, groups)), include_authorized_operations=operations
    )
    return finish(handle(node.context, request)).groups


@on_node()
async def test_a_group_and_its_members(node: Node) -> None:
    topic = await node.context.broker.create_topic("t", 2)
    await beat(node, topics=("t", "none"))
    await beat(node, member="n", topics=("t",))
    group, unknown = describe(node, "g", "h", operations=True)
    assert (group.error_code, group.group_state, group.assignor_name) == (0, "Stable", "simple")
    assert (group.group_epoch, group.assignment_epoch) == (2, 2)
    assert group.authorized_operations > 0
    one, other = group.members
    assert (one.member_id, one.member_epoch, one.client_id) == ("m", 1, "client")
    assert one.subscribed_topic_names == ("none", "t")
    (given,) = one.assignment.topic_partitions
    assert (given.topic_id, given.topic_name, given.partitions) == (topic.id, "t", (0, 1))
    assert other.member_epoch == 2
    assert (unknown.error_code, unknown.members) == (ErrorCode.group_id_not_found, ())
    assert unknown.error_message


@on_node()
async def test_who_may_not(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await beat(node, topics=("t",))
    deny_everything(node)
    (group,) = describe(node, "g")
    assert (group.error_code, group.members) == (ErrorCode.group_authorization_failed, ())
