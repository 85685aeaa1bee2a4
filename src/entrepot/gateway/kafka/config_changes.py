"""Changes settings, for AlterConfigs and IncrementalAlterConfigs.

Settings of topics and share groups can be changed while the server runs, and so can the server's
defaults of topics' settings. A request that names a resource twice, or a setting of it twice, is
refused, because the order of the changes would not be defined.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol, TypeVar

from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from entrepot.broker.access import Operation
from entrepot.broker.server_settings import ALL_NODES, SERVER_NAMES, check_server_settings
from entrepot.broker.share_group import settings as share_settings
from entrepot.broker.topic_config import SETTINGS, SettingType, check_settings
from entrepot.broker.turns import gathered
from entrepot.core.errors import PeerError
from entrepot.gateway.kafka.config_entries import ResourceType
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group
from entrepot.gateway.kafka.refusal import check_node_id, check_on_cluster, reason_of
from entrepot.gateway.kafka.topics import topic_of


class ConfigChange(Protocol):
    @property
    def name(self) -> str: ...


class Resource(Protocol):
    @property
    def resource_type(self) -> i8: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[ConfigChange]: ...


R = TypeVar("R", bound=Resource)


class ConfigTarget(NamedTuple):
    """A topic, a share group or a server, whose settings can be changed."""

    settings: Mapping[str, str]  # Its settings that are not defaults.
    lists: Mapping[str, str]  # Settings whose value is a list -> their defaults.
    check: Callable[[Mapping[str, str]], None]
    alter: Callable[[Mapping[str, str]], Awaitable[None]]


SettingsAfter = Callable[[ConfigTarget, R], Mapping[str, str]]


class ConfigOutcome(NamedTuple):
    error_code: ErrorCode
    error_message: str | None


async def change_all(
    context: Context, resources: Sequence[R], settings_after: SettingsAfter[R], validate_only: bool
) -> list[ConfigOutcome]:
    """Change the settings of resources, and return an outcome for each. `settings_after` returns
    the settings that a resource is to have."""
    times = Counter((each.resource_type, each.resource_name) for each in resources)

    async def change(resource: R) -> ConfigOutcome:
        try:
            if times[resource.resource_type, resource.resource_name] > 1:
                raise PeerError("the resource is in the request twice")
            target = _target_of(context, resource)
            settings = settings_after(target, resource)
            target.check(settings)
            if not validate_only:
                await target.alter(settings)
        except KNOWN as error:
            return ConfigOutcome(*reason_of(error))
        return ConfigOutcome(ErrorCode.none, None)

    return await gathered(map(change, resources))


def _target_of(context: Context, resource: Resource) -> ConfigTarget:
    if len({change.name for change in resource.configs}) < len(resource.configs):
        raise PeerError("a setting is in the request twice")
    name = resource.resource_name
    match resource.resource_type:
        case ResourceType.TOPIC:
            return _topic(context, name)
        case ResourceType.GROUP:
            return _group(context, name)
        case ResourceType.BROKER:
            return _server(context, name)
        case other:
            raise PeerError(f"resources of type {other} have no settings here")


def _topic(context: Context, name: str) -> ConfigTarget:
    topic = topic_of(context, Operation.ALTER_CONFIGS, name)
    broker = context.broker
    lists = _lists(broker.defaults.settings)
    return ConfigTarget(
        topic.settings, lists, check_settings, lambda values: broker.alter_settings(topic, values)
    )


def _group(context: Context, name: str) -> ConfigTarget:
    check_group(context, Operation.ALTER_CONFIGS, name)
    groups = context.broker.share_groups
    return ConfigTarget(
        groups.settings.texts(name),
        {},
        share_settings.check_settings,
        lambda values: groups.alter_settings(name, values),
    )


def _server(context: Context, name: str) -> ConfigTarget:
    check_on_cluster(context, Operation.ALTER_CONFIGS)
    if name != ALL_NODES:
        check_node_id(context, name)
    broker = context.broker
    _, shared, static = broker.server_settings.layers()
    behind = static if name == ALL_NODES else {**static, **shared}
    return ConfigTarget(
        broker.server_settings.texts(name),
        {SERVER_NAMES[each]: text for each, text in _lists(behind).items()},
        check_server_settings,
        lambda values: broker.alter_server_settings(name, values),
    )


def _lists(values: Mapping[str, str]) -> dict[str, str]:
    return {
        name: values.get(name, setting.default)
        for name, setting in SETTINGS.items()
        if setting.kind is SettingType.LIST
    }
