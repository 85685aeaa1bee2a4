from kio.schema.errors import ErrorCode
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.static.primitive import i8

from entrepot.gateway.kafka.list_config_resources import handle
from entrepot.wire.kafka.api import Api
from tests.unit.gateway.kafka.group_requests import deny_everything, header
from tests.unit.gateway.kafka.node import NODE_ID, Node, on_node
from tests.unit.gateway.kafka.sharing import configure

TOPIC, BROKER, CLIENT_METRICS, GROUP = 2, 4, 16, 32


async def listed(
    node: Node, *types: int, version: int = 1
) -> tuple[ErrorCode, list[tuple[int, str]]]:
    request = ListConfigResourcesRequest(resource_types=tuple(map(i8, types)))
    asking = header(Api.LIST_CONFIG_RESOURCES, version)
    answer = await handle(node.context, asking, request)
    rows = [(int(each.resource_type), each.resource_name) for each in answer.config_resources]
    return answer.error_code, rows


@on_node()
async def test_what_has_settings(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await configure(node, share_delivery_count_limit="7")
    everything = [(TOPIC, "t"), (BROKER, str(NODE_ID)), (GROUP, "g")]
    assert await listed(node) == (ErrorCode.none, everything)
    assert await listed(node, GROUP, GROUP, CLIENT_METRICS) == (ErrorCode.none, [(GROUP, "g")])
    assert await listed(node, version=0) == (ErrorCode.none, [])
    deny_everything(node)
    assert await listed(node) == (ErrorCode.cluster_authorization_failed, [])
