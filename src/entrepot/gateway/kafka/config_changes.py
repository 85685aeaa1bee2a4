"""Changing settings: what AlterConfigs and IncrementalAlterConfigs have in common.

A topic's and a share group's can be changed while the server runs. A request names a
resource once, and a setting of it once; otherwise it would not say in which order to apply.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from entrepot.broker.access import Operation
from entrepot.broker.share_group import settings as share_settings
from entrepot.broker.topic_config import check_settings
from entrepot.broker.turns import gathered
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.config_entries import ResourceType
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group
from entrepot.gateway.kafka.refusal import check_on_cluster, reason_of
from entrepot.gateway.kafka.topics import topic_of


class Change(Protocol):
    @property
    def name(self) -> str: ...


class Resource(Protocol):
    @property
    def resource_type(self) -> i8: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[Change]: ...


R = TypeVar("R", bound=Resource)
SettingsAfter = Callable[[Mapping[str, str], R], Mapping[str, str]]


class _Target(NamedTuple):
    """What has settings that can be changed."""

    settings: Mapping[str, str]  # Those that are set on it.
    check: Callable[[Mapping[str, str]], None]
    alter: Callable[[Mapping[str, str]], Awaitable[None]]


class Outcome(NamedTuple):
    error_code: ErrorCode
    error_message: str | None


async def change_all(
    context: Context, resources: Sequence[R], settings_after: SettingsAfter[R], validate_only: bool
) -> list[Outcome]:
    """One outcome per resource. `settings_after` says what it will have instead of what it has."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)

    async def change(resource: R) -> Outcome:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise PeerError("the resource is in the request twice")
            target = _target_of(context, resource)
            settings = settings_after(target.settings, resource)
            target.check(settings)
            if not validate_only:
                await target.alter(settings)
        except KNOWN as error:
            return Outcome(*reason_of(error))
        return Outcome(ErrorCode.none, None)

    return await gathered(map(change, resources))


def _target_of(context: Context, resource: Resource) -> _Target:
    if len({change.name for change in resource.configs}) < len(resource.configs):
        raise PeerError("a setting is in the request twice")
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            topic = topic_of(context, Operation.ALTER_CONFIGS, name)
            alter = context.broker.alter_settings
            return _Target(topic.settings, check_settings, lambda values: alter(topic, values))
        case ResourceType.GROUP:
            check_group(context, Operation.ALTER_CONFIGS, name)
            groups = context.broker.share_groups
            return _Target(
                groups.settings.texts(name),
                share_settings.check_settings,
                lambda values: groups.alter_settings(name, values),
            )
        case ResourceType.BROKER:
            check_on_cluster(context, Operation.ALTER_CONFIGS)
            raise PeerError("the server's settings are those it was started with")
        case other:
            raise PeerError(f"resources of type {other} have no settings here")
