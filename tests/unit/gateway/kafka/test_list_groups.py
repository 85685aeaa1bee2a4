from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest

from entrepot.core.steps import finish
from entrepot.gateway.kafka.list_groups import handle
from tests.unit.gateway.kafka.group_requests import beat, deny_everything, stable
from tests.unit.gateway.kafka.node import Node, on_node


def listed(node: Node, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[str]:
    response = finish(
        handle(node.context, ListGroupsRequest(states_filter=states, types_filter=types))
    )
    assert response.error_code is ErrorCode.none
    return [
        f"{each.group_id} {each.protocol_type} {each.group_state} {each.group_type}"
        for each in response.groups
    ]


@on_node()
async def test_groups_of_every_kind(node: Node) -> None:
    """Proves K-10."""
    await node.context.broker.create_topic("t", 1)
    await node.context.broker.groups.commit_offsets("simple", "", -1, {})
    await stable(node, "old")
    await beat(node, "new", "m")
    simple, old, new = (
        "simple  Empty classic",
        "old consumer Stable classic",
        ("new consumer Stable consumer"),
    )
    assert listed(node) == [simple, old, new]
    assert listed(node, states=("STABLE",)) == [old, new]
    assert listed(node, states=("Empty", "Dead")) == [simple]
    assert listed(node, types=("Consumer",)) == [new]
    assert listed(node, states=("Stable",), types=("classic",)) == [old]
    deny_everything(node)
    assert listed(node) == []
