from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.types import GroupId
from kio.static.primitive import i32

from entrepot.gateway.kafka.heartbeat import ask, respond, understand
from entrepot.wire.kafka.api import Api
from tests.unit.gateway.kafka.group_requests import deny_everything, header, stable
from tests.unit.gateway.kafka.node import Node, on_node


def code(node: Node, group: str, member_id: str, generation: int) -> ErrorCode:
    request = HeartbeatRequest(
        group_id=GroupId(group), generation_id=i32(generation), member_id=member_id
    )
    asked = understand(node.context, header(Api.HEARTBEAT), request)
    return respond(ask(node.context, asked)).error_code


@on_node()
async def test_heartbeats(node: Node) -> None:
    member_id, generation = await stable(node)
    assert code(node, "g", member_id, generation) is ErrorCode.none
    assert code(node, "g", member_id, generation + 1) is ErrorCode.illegal_generation
    assert code(node, "g", "nobody", generation) is ErrorCode.unknown_member_id
    assert code(node, "none", member_id, generation) is ErrorCode.unknown_member_id
    assert code(node, "", member_id, generation) is ErrorCode.invalid_group_id
    deny_everything(node)
    assert code(node, "g", member_id, generation) is ErrorCode.group_authorization_failed
