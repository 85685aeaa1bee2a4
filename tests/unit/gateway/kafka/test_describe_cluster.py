from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from entrepot.gateway.kafka.describe_cluster import handle
from tests.unit.gateway.kafka.node import HOST, NODE_ID, PORT, Node, on_node


def request(endpoint_type: int) -> DescribeClusterRequest:
    return DescribeClusterRequest(
        include_cluster_authorized_operations=True,
        endpoint_type=i8(endpoint_type),
        include_fenced_brokers=False,
    )


@on_node()
async def test_one_node_that_is_its_own_controller(node: Node) -> None:
    response = handle(node.context, request(1))
    assert response.error_code is ErrorCode.none
    assert response.cluster_id == node.context.broker.cluster_id
    assert response.controller_id == NODE_ID
    (broker,) = response.brokers
    assert (broker.broker_id, broker.host, broker.port) == (NODE_ID, HOST, PORT)


@on_node()
async def test_it_is_not_a_controllers_endpoint(node: Node) -> None:
    response = handle(node.context, request(2))
    assert response.error_code is ErrorCode.mismatched_endpoint_type
    assert response.error_message
    assert response.brokers == ()
    assert handle(node.context, request(3)).error_code is ErrorCode.unsupported_endpoint_type
