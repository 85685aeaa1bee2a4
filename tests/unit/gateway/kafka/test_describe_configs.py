import pytest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_configs.v4.response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from entrepot.broker.server_settings import SERVER_NAMES, Defaults
from entrepot.broker.share_group import settings as share_settings
from entrepot.broker.topic_config import SETTINGS
from entrepot.core.steps import finish
from entrepot.gateway.kafka.config_entries import Fact, Type
from entrepot.gateway.kafka.describe_configs import handle
from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import NODE_ID, Node, on_node
from tests.unit.gateway.kafka.sharing import configure

TOPIC, BROKER, BROKER_LOGGER, GROUP = 2, 4, 8, 32
OF_TOPIC, OF_NODE, OF_ALL_NODES, OF_SERVER, DEFAULT, OF_GROUP = 1, 2, 3, 4, 5, 8
BOOLEAN, STRING, INT, LONG, DOUBLE, LIST, PASSWORD = 1, 2, 3, 5, 6, 7, 9


def describe(
    node: Node,
    kind: int,
    name: str,
    keys: tuple[str, ...] | None = None,
    *,
    synonyms: bool = False,
    documentation: bool = False,
) -> DescribeConfigsResult:
    resource = DescribeConfigsResource(
        resource_type=i8(kind), resource_name=name, configuration_keys=keys
    )
    request = DescribeConfigsRequest(
        resources=(resource,), include_synonyms=synonyms, include_documentation=documentation
    )
    (result,) = finish(handle(node.context, request)).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def by_name(result: DescribeConfigsResult) -> dict[str, DescribeConfigsResourceResult]:
    assert (result.error_code, result.error_message) == (ErrorCode.none, None)
    return {each.name: each for each in result.configs}


DEFAULTS = Defaults(
    partition_count=3,
    auto_create_topics=False,
    settings={"retention.ms": "1000", "segment.bytes": "2097152", "retention.bytes": "-1"},
)


@on_node(DEFAULTS)
async def test_a_topics_settings_and_where_they_come_from(node: Node) -> None:
    settings = {"segment.bytes": "1048576", "cleanup.policy": "delete"}
    await node.context.broker.create_topic("one", 1, settings)
    found = by_name(describe(node, TOPIC, "one"))
    assert list(found) == list(SETTINGS)
    for name, value, source, kind in (
        ("segment.bytes", "1048576", OF_TOPIC, INT),
        ("cleanup.policy", "delete", OF_TOPIC, LIST),
        ("retention.ms", "1000", OF_SERVER, LONG),
        ("retention.bytes", "-1", DEFAULT, LONG),
        ("compression.type", "producer", DEFAULT, STRING),
    ):
        each = found[name]
        assert (each.value, each.config_source, each.config_type) == (value, source, kind)
        assert not each.read_only
        assert not each.is_sensitive
        assert each.synonyms == ()
        assert each.documentation is None


@on_node(DEFAULTS)
async def test_synonyms_and_documentation_when_asked_for(node: Node) -> None:
    await node.context.broker.create_topic("one", 1, {"segment.bytes": "1048576"})
    found = by_name(describe(node, TOPIC, "one", synonyms=True, documentation=True))
    assert [(each.name, each.value, each.source) for each in found["segment.bytes"].synonyms] == [
        ("segment.bytes", "1048576", OF_TOPIC),
        ("log.segment.bytes", "2097152", OF_SERVER),
        ("log.segment.bytes", "1073741824", DEFAULT),
    ]
    assert all(each.documentation for each in found.values())


@pytest.mark.parametrize("keys", [None, ()])
@on_node()
async def test_no_keys_are_all_keys(node: Node, keys: tuple[str, ...] | None) -> None:
    await node.context.broker.create_topic("one")
    assert len(by_name(describe(node, TOPIC, "one", keys))) == len(SETTINGS)


@on_node()
async def test_keys(node: Node) -> None:
    await node.context.broker.create_topic("one")
    keys = ("retention.ms", "no.such.setting")
    assert list(by_name(describe(node, TOPIC, "one", keys))) == ["retention.ms"]


@on_node(DEFAULTS)
async def test_the_servers_settings(node: Node) -> None:
    node.context.facts = lambda: [
        Fact("node.id", Type.INT, str(NODE_ID), "", "Which node this is."),
        Fact("ssl.keystore.key", Type.PASSWORD, "secret", "", "The key."),
    ]
    found = by_name(describe(node, BROKER, str(NODE_ID), synonyms=True))
    for name, value, source, kind, read_only in (
        ("node.id", str(NODE_ID), OF_SERVER, INT, True),
        ("ssl.keystore.key", None, OF_SERVER, PASSWORD, True),
        ("auto.create.topics.enable", "false", OF_SERVER, BOOLEAN, True),
        ("num.partitions", "3", OF_SERVER, INT, True),
        ("default.replication.factor", "1", DEFAULT, INT, True),
        ("log.retention.ms", "1000", OF_SERVER, LONG, False),
        ("log.roll.ms", "604800000", DEFAULT, LONG, False),
        ("log.cleaner.min.cleanable.ratio", "0.5", DEFAULT, DOUBLE, False),
        ("compression.type", "producer", DEFAULT, STRING, False),
    ):
        each = found[name]
        assert (each.value, each.config_source, each.config_type) == (value, source, kind)
        assert each.read_only is read_only
        assert each.is_sensitive is (kind == PASSWORD)
        assert each.synonyms[0].name == name
    assert len(found) == len(SERVER_NAMES) + 5
    assert "secret" not in str(found)


@on_node(DEFAULTS)
async def test_what_was_set_while_it_runs(node: Node) -> None:
    broker = node.context.broker
    assert by_name(describe(node, BROKER, "")) == {}
    await broker.alter_server_settings("", {"log.retention.ms": "2000", "log.roll.ms": "5"})
    await broker.alter_server_settings(str(NODE_ID), {"log.retention.ms": "3000"})
    await broker.create_topic("one", 1, {"segment.ms": "6"})
    shared = by_name(describe(node, BROKER, ""))
    assert {name: (each.value, each.config_source) for name, each in shared.items()} == {
        "log.retention.ms": ("2000", OF_ALL_NODES),
        "log.roll.ms": ("5", OF_ALL_NODES),
    }
    layers = [
        ("log.retention.ms", "3000", OF_NODE),
        ("log.retention.ms", "2000", OF_ALL_NODES),
        ("log.retention.ms", "1000", OF_SERVER),
        ("log.retention.ms", "604800000", DEFAULT),
    ]
    for kind, name, key in (
        (BROKER, str(NODE_ID), "log.retention.ms"),
        (TOPIC, "one", "retention.ms"),
    ):
        each = by_name(describe(node, kind, name, (key,), synonyms=True))[key]
        assert (each.value, each.config_source) == ("3000", OF_NODE)
        assert [(one.name, one.value, one.source) for one in each.synonyms] == layers
    own = by_name(describe(node, TOPIC, "one", ("segment.ms",)))["segment.ms"]
    assert (own.value, own.config_source) == ("6", OF_TOPIC)


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        (TOPIC, "one", ErrorCode.unknown_topic_or_partition),
        (TOPIC, "no spaces", ErrorCode.invalid_topic_exception),
        (BROKER, "8", ErrorCode.invalid_request),
        (BROKER, "seven", ErrorCode.invalid_request),
        (BROKER_LOGGER, str(NODE_ID), ErrorCode.invalid_request),
        (0, "", ErrorCode.invalid_request),
    ],
)
@on_node()
async def test_refuses(node: Node, kind: int, name: str, code: ErrorCode) -> None:
    result = describe(node, kind, name)
    assert result.error_code is code
    assert result.error_message
    assert result.configs == ()


@on_node(DEFAULTS)
async def test_a_resource_asked_for_twice_is_answered_once(node: Node) -> None:
    await node.context.broker.create_topic("one")
    resource = DescribeConfigsResource(
        resource_type=i8(TOPIC), resource_name="one", configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=(resource,) * 3, include_synonyms=False, include_documentation=False
    )
    assert len(finish(handle(node.context, request)).results) == 1


@on_node()
async def test_a_share_groups_settings(node: Node) -> None:
    await configure(node, share_delivery_count_limit="7")
    found = by_name(describe(node, GROUP, "g", synonyms=True))
    assert list(found) == list(share_settings.SETTINGS)
    limit = found["share.delivery.count.limit"]
    assert (limit.value, limit.config_source, limit.config_type) == ("7", OF_GROUP, INT)
    assert [each.value for each in limit.synonyms] == ["7", "5"]
    lock = found["share.record.lock.duration.ms"]
    assert (lock.value, lock.config_source, lock.read_only) == ("30000", DEFAULT, False)
    deny_everything(node)
    assert describe(node, GROUP, "g").error_code is ErrorCode.group_authorization_failed
