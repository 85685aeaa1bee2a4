from kio.schema.errors import ErrorCode
from kio.schema.find_coordinator.v3.request import FindCoordinatorRequest as RequestForOne
from kio.schema.find_coordinator.v3.response import FindCoordinatorResponse as ResponseForOne
from kio.schema.find_coordinator.v6.request import FindCoordinatorRequest
from kio.schema.find_coordinator.v6.response import FindCoordinatorResponse

from entrepot.gateway.kafka.find_coordinator import handle
from tests.unit.gateway.kafka.node import Node, on_node


@on_node()
async def test_there_is_none_yet(node: Node) -> None:
    one = handle(node.context, RequestForOne(key="group"))
    assert isinstance(one, ResponseForOne)
    assert one.error_code is ErrorCode.coordinator_not_available
    several = handle(node.context, FindCoordinatorRequest(coordinator_keys=("a", "b")))
    assert isinstance(several, FindCoordinatorResponse)
    assert [(each.key, each.error_code) for each in several.coordinators] == [
        ("a", ErrorCode.coordinator_not_available),
        ("b", ErrorCode.coordinator_not_available),
    ]
