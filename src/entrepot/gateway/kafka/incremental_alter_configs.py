"""IncrementalAlterConfigs (key 44), v0 and v1: change single settings of a topic, a share group or
the server.

SET and DELETE apply to any setting, APPEND and SUBTRACT to settings that are lists; these change
the value in effect, which may be a default. Either all changes of a resource are made, or none.
"""

from collections.abc import Mapping
from enum import IntEnum

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)

from entrepot.core.errors import InvalidConfig, PeerError
from entrepot.gateway.kafka.config_changes import ConfigTarget, change_all
from entrepot.gateway.kafka.context import NO_THROTTLE, Context


class ConfigOperation(IntEnum):
    """What to do with a setting, with Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


async def handle(
    context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    resources = request.resources
    outcomes = await change_all(context, resources, _settings_after, request.validate_only)
    return IncrementalAlterConfigsResponse(
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
    settings = dict(target.settings)
    for change in resource.configs:
        _apply(change, settings, target.lists)
    return settings


def _apply(change: AlterableConfig, settings: dict[str, str], lists: Mapping[str, str]) -> None:
    name, value = change.name, change.value
    match change.config_operation:
        case ConfigOperation.DELETE:
            settings.pop(name, None)
        case _ if value is None:
            raise PeerError(f"{name} has no value")
        case ConfigOperation.SET:
            settings[name] = value
        case ConfigOperation.APPEND:
            words = _words(name, settings, lists)
            settings[name] = ",".join(dict.fromkeys(words + value.split(",")))
        case ConfigOperation.SUBTRACT:
            gone = value.split(",")
            kept = [word for word in _words(name, settings, lists) if word not in gone]
            settings[name] = ",".join(kept)
        case other:
            raise PeerError(f"there is no operation {other}")


def _words(name: str, settings: Mapping[str, str], lists: Mapping[str, str]) -> list[str]:
    if name not in lists:
        raise InvalidConfig(f"{name} is not a list")
    return (settings.get(name) or lists[name]).split(",")
