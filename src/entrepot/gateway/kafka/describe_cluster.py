"""DescribeCluster (key 60), v0 to v2: the nodes and who is their controller.

v1: the request says whether it is meant for a broker or for a controller. This is a broker's
endpoint, so the latter is answered with MISMATCHED_ENDPOINT_TYPE.
"""

from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_cluster.v2.response import DescribeClusterBroker, DescribeClusterResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId
from kio.static.primitive import i32

from entrepot.gateway.kafka.acl_codes import NOT_TOLD, cluster_bits
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.leadership import controller_of, nodes_of

_BROKERS = 1
_CONTROLLERS = 2


def handle(context: Context, request: DescribeClusterRequest) -> DescribeClusterResponse:
    if request.endpoint_type != _BROKERS:
        is_known = request.endpoint_type == _CONTROLLERS
        return DescribeClusterResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.mismatched_endpoint_type
            if is_known
            else ErrorCode.unsupported_endpoint_type,
            error_message="this is a broker's endpoint",
            cluster_id="",
            brokers=(),
        )
    return DescribeClusterResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        cluster_id=context.broker.cluster_id,
        controller_id=controller_of(context),
        cluster_authorized_operations=cluster_bits(context)
        if request.include_cluster_authorized_operations
        else NOT_TOLD,
        brokers=tuple(
            DescribeClusterBroker(
                broker_id=BrokerId(node),
                host=host,
                port=i32(port),
                rack=rack or None,
                is_fenced=False,
            )
            for node, host, port, rack, _ in nodes_of(context)
        ),
    )
