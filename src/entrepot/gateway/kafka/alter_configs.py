"""AlterConfigs (key 33), v0 to v2: replace all settings of a topic, a share group or the server.

A setting that is not in the request goes back to its default. Newer clients use
IncrementalAlterConfigs.
"""

from kio.schema.alter_configs.v2.request import AlterConfigsRequest, AlterConfigsResource
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse, AlterConfigsResponse

from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.config_changes import ConfigTarget, change_all
from entrepot.gateway.kafka.context import NO_THROTTLE, Context


async def handle(context: Context, request: AlterConfigsRequest) -> AlterConfigsResponse:
    resources = request.resources
    outcomes = await change_all(context, resources, _settings_after, request.validate_only)
    return AlterConfigsResponse(
        throttle_time=NO_THROTTLE,
        responses=tuple(
            AlterConfigsResourceResponse(
                error_code=outcome.error_code,
                error_message=outcome.error_message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource, outcome in zip(resources, outcomes, strict=True)
        ),
    )


def _settings_after(target: ConfigTarget, resource: AlterConfigsResource) -> dict[str, str]:
    settings = {}
    for each in resource.configs:
        if each.value is None:
            raise PeerError(f"{each.name} has no value")
        settings[each.name] = each.value
    return settings
