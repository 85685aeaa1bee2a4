import errno

from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as RequestForOne
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as ResponseForOne
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import Coordinator, FindCoordinatorResponse
from kio.static.primitive import i8

from entrepot.gateway.kafka.find_coordinator import handle
from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import HOST, NODE_ID, PORT, Node, on_node


async def find(node: Node, *keys: str, key_type: int = 0) -> list[Coordinator]:
    request = FindCoordinatorRequest(key_type=i8(key_type), coordinator_keys=keys)
    response = await handle(node.context, request)
    assert isinstance(response, FindCoordinatorResponse)
    return list(response.coordinators)


@on_node()
async def test_it_is_us(node: Node) -> None:
    for key_type in (0, 1):
        found = await find(node, "a", "b", key_type=key_type)
        assert [each.key for each in found] == ["a", "b"]
        assert {(each.error_code, each.node_id, each.host, each.port) for each in found} == {
            (ErrorCode.none, NODE_ID, HOST, PORT)
        }
    one = await handle(node.context, RequestForOne(key="group"))
    assert isinstance(one, ResponseForOne)
    assert (one.error_code, one.node_id, one.port) == (ErrorCode.none, NODE_ID, PORT)
    assert "__consumer_offsets" in node.context.broker.topics


@on_node()
async def test_nobody_coordinates_share_groups(node: Node) -> None:
    for key_type in (2, -1, 77):
        (found,) = await find(node, "a", key_type=key_type)
        assert (found.error_code, found.node_id) == (ErrorCode.invalid_request, -1)


@on_node()
async def test_later_on_a_bad_disk(node: Node) -> None:
    node.disk.fail_next("write", errno.ENOSPC)
    (found,) = await find(node, "a")
    assert found.error_code is ErrorCode.coordinator_not_available
    (found,) = await find(node, "a")
    assert found.error_code is ErrorCode.none


@on_node()
async def test_who_may_not_know(node: Node) -> None:
    deny_everything(node)
    codes = [(await find(node, "a", key_type=key_type))[0].error_code for key_type in (0, 1)]
    assert codes == [
        ErrorCode.group_authorization_failed,
        ErrorCode.transactional_id_authorization_failed,
    ]
