"""DescribeConfigs (key 32), v1 to v4: the settings of topics, share groups and this server.

The server is named by its node id; the empty name means: what is set for all servers. The
defaults of topics' settings can be changed while the server runs; its other settings are
read-only. Passwords and keys are listed without their values. A request without keys asks for
all of them.

v1: where a value comes from and, on request, the values it overrides. v3: its type and, on
request, its documentation.
"""

from collections.abc import Iterable

from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from entrepot.broker.access import Operation
from entrepot.broker.server_settings import ALL_NODES
from entrepot.core.errors import PeerError
from entrepot.core.names import check_topic_name
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.config_entries import (
    ConfigEntry,
    ResourceType,
    group_entries,
    server_entries,
    shared_entries,
    topic_entries,
)
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group
from entrepot.gateway.kafka.refusal import check_node_id, check_on_cluster, reason_of
from entrepot.gateway.kafka.topics import topic_of


def handle(context: Context, request: DescribeConfigsRequest) -> Steps[DescribeConfigsResponse]:
    # A resource that is asked for twice is answered once, because answers are long.
    resources = {(each.resource_type, each.resource_name): each for each in request.resources}
    results = yield from listed(_answer(context, request, each) for each in resources.values())
    return DescribeConfigsResponse(throttle_time=NO_THROTTLE, results=tuple(results))


def _answer(
    context: Context, request: DescribeConfigsRequest, wanted: DescribeConfigsResource
) -> DescribeConfigsResult:
    code, text = ErrorCode.none, None
    entries: Iterable[ConfigEntry] = ()
    try:
        entries = _entries(context, wanted)
    except KNOWN as error:
        code, text = reason_of(error)
    keys = wanted.configuration_keys
    return DescribeConfigsResult(
        error_code=code,
        error_message=text,
        resource_type=wanted.resource_type,
        resource_name=wanted.resource_name,
        configs=tuple(
            _described(entry, request) for entry in entries if not keys or entry.name in keys
        ),
    )


def _entries(context: Context, wanted: DescribeConfigsResource) -> Iterable[ConfigEntry]:
    match wanted.resource_type:
        case ResourceType.TOPIC:
            name = check_topic_name(wanted.resource_name)
            topic = topic_of(context, Operation.DESCRIBE_CONFIGS, name)
            return topic_entries(topic.settings, context.broker.server_settings.layers())
        case ResourceType.GROUP:
            check_group(context, Operation.DESCRIBE_CONFIGS, wanted.resource_name)
            settings = context.broker.share_groups.settings
            return group_entries(settings.texts(wanted.resource_name))
        case ResourceType.BROKER:
            return _server_entries(context, wanted.resource_name)
    raise PeerError(f"resources of type {wanted.resource_type} have no settings here")


def _server_entries(context: Context, name: str) -> Iterable[ConfigEntry]:
    check_on_cluster(context, Operation.DESCRIBE_CONFIGS)
    broker = context.broker
    if name == ALL_NODES:
        return shared_entries(broker.server_settings.layers())
    check_node_id(context, name)
    return server_entries(context.facts(), broker.defaults, broker.server_settings.layers())


def _described(
    entry: ConfigEntry, request: DescribeConfigsRequest
) -> DescribeConfigsResourceResult:
    value = entry.values[0]
    synonyms = entry.values if request.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=entry.name,
        value=value.text,
        read_only=entry.is_read_only,
        config_source=i8(value.source),
        is_sensitive=entry.is_sensitive,
        synonyms=tuple(
            DescribeConfigsSynonym(name=each.name, value=each.text, source=i8(each.source))
            for each in synonyms
        ),
        config_type=i8(entry.type),
        documentation=entry.doc if request.include_documentation else None,
    )
