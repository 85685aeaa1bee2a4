from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.consumer_group_describe.v1.response import DescribedGroup
from kio.schema.errors import ErrorCode
from kio.schema.types import GroupId

from entrepot.core.steps import finish
from entrepot.gateway.kafka.consumer_group_describe import handle
from tests.unit.gateway.kafka.group_requests import beat, deny_everything, stable
from tests.unit.gateway.kafka.node import Node, on_node


def describe(node: Node, *groups: str) -> list[DescribedGroup]:
    request = ConsumerGroupDescribeRequest(
        group_ids=tuple(map(GroupId, groups)), include_authorized_operations=False
    )
    return list(finish(handle(node.context, request)).groups)


@on_node()
async def test_what_members_have_and_will_have(node: Node) -> None:
    """Proves K-10."""
    topic = await node.context.broker.create_topic("t", 4)
    await beat(node, "g", "a", instance="i", regex="x.*")
    await beat(node, "g", "b")
    (found,) = describe(node, "g")
    assert (found.error_code, found.group_state) == (ErrorCode.none, "Reconciling")
    assert (found.group_epoch, found.assignment_epoch, found.assignor_name) == (2, 2, "uniform")
    first, second = found.members
    assert (first.member_id, first.instance_id, first.member_epoch) == ("a", "i", 1)
    assert (first.subscribed_topic_names, first.subscribed_topic_regex) == (("t",), "x.*")
    (has,) = first.assignment.topic_partitions
    (will,) = first.target_assignment.topic_partitions
    assert (has.topic_id, has.topic_name, has.partitions) == (topic.id, "t", (0, 1, 2, 3))
    assert will.partitions == (0, 1)
    assert second.assignment.topic_partitions == ()
    assert first.member_type == 1


@on_node()
async def test_a_topic_that_is_gone_is_not_told(node: Node) -> None:
    topic = await node.context.broker.create_topic("t", 1)
    await beat(node, "g", "a")
    await node.context.broker.delete_topic(topic)
    (found,) = describe(node, "g")
    assert found.members[0].assignment.topic_partitions == ()


@on_node()
async def test_groups_that_are_none_of_this_kind(node: Node) -> None:
    await stable(node, "classic")
    for found in describe(node, "none", "classic"):
        assert found.error_code is ErrorCode.group_id_not_found
        assert found.error_message
    deny_everything(node)
    (found,) = describe(node, "g")
    assert found.error_code is ErrorCode.group_authorization_failed
