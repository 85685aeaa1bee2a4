"""ListConfigResources (key 74), v0 and v1: list the resources that have settings.

v0: client metrics only, which are not supported, so the list is empty. v1: resources of the given
types; without types: topics, this server, and groups with settings of their own.
"""

from collections.abc import Iterator

from kio.schema.errors import ErrorCode
from kio.schema.list_config_resources.v1.request import ListConfigResourcesRequest
from kio.schema.list_config_resources.v1.response import (
    ConfigResource,
    ListConfigResourcesResponse,
)
from kio.static.primitive import i8

from entrepot.broker.access import Operation
from entrepot.gateway.kafka.config_entries import ResourceType
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import check_on_cluster, reason_of
from entrepot.wire.kafka.frames import RequestHeader


async def handle(
    context: Context, header: RequestHeader, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    types = [int(each) for each in request.resource_types] or [int(each) for each in ResourceType]
    code = ErrorCode.none
    rows: list[ConfigResource] = []
    try:
        check_on_cluster(context, Operation.DESCRIBE_CONFIGS)
        if header.version > 0:
            rows = [
                ConfigResource(resource_name=name, resource_type=i8(kind))
                for kind in dict.fromkeys(types)
                for name in _names(context, kind)
            ]
    except KNOWN as error:
        code, _ = reason_of(error)
    return ListConfigResourcesResponse(
        throttle_time=NO_THROTTLE, error_code=code, config_resources=tuple(rows)
    )


def _names(context: Context, kind: int) -> Iterator[str]:
    match kind:
        case ResourceType.TOPIC:
            yield from context.broker.topics
        case ResourceType.BROKER:
            yield str(context.node_id)
        case ResourceType.GROUP:
            yield from context.broker.share_groups.settings.names()
