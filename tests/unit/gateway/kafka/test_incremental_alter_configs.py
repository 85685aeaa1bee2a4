import pytest
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.incremental_alter_configs.v1.response import AlterConfigsResourceResponse
from kio.static.primitive import i8

from entrepot.gateway.kafka.incremental_alter_configs import handle
from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import NODE_ID, Node, on_node

TOPIC, BROKER, GROUP = 2, 4, 32
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3

Change = tuple[str, int, str | None]

BEFORE = {"retention.ms": "1000", "flush.ms": "50"}


async def alter(
    node: Node, *changes: Change, kind: int = TOPIC, name: str = "one", validate_only: bool = False
) -> AlterConfigsResourceResponse:
    resource = AlterConfigsResource(
        resource_type=i8(kind),
        resource_name=name,
        configs=tuple(
            AlterableConfig(name=key, config_operation=i8(operation), value=value)
            for key, operation, value in changes
        ),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=validate_only)
    (answer,) = (await handle(node.context, request)).responses
    assert (answer.resource_type, answer.resource_name) == (kind, name)
    return answer


@pytest.mark.parametrize(
    ("changes", "after"),
    [
        ([("retention.ms", SET, "2000")], {"retention.ms": "2000", "flush.ms": "50"}),
        ([("segment.ms", SET, "1")], BEFORE | {"segment.ms": "1"}),
        ([("flush.ms", DELETE, None)], {"retention.ms": "1000"}),
        ([("segment.ms", DELETE, None)], BEFORE),
        ([("cleanup.policy", APPEND, "delete")], BEFORE | {"cleanup.policy": "delete"}),
        ([("cleanup.policy", SUBTRACT, "compact")], BEFORE | {"cleanup.policy": "delete"}),
        (
            [("flush.ms", DELETE, None), ("retention.ms", SET, "-1")],
            {"retention.ms": "-1"},
        ),
        ([], BEFORE),
    ],
)
@on_node()
async def test_changes(node: Node, changes: list[Change], after: dict[str, str]) -> None:
    await node.context.broker.create_topic("one", 1, BEFORE)
    answer = await alter(node, *changes, validate_only=True)
    assert answer.error_code is ErrorCode.none
    assert node.context.broker.topic("one").settings == BEFORE
    answer = await alter(node, *changes)
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    await node.power_fails()
    assert node.context.broker.topic("one").settings == after


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ([("no.such.setting", SET, "1")], ErrorCode.invalid_config),
        ([("flush.ms", DELETE, None), ("retention.ms", SET, "soon")], ErrorCode.invalid_config),
        ([("cleanup.policy", APPEND, "burn")], ErrorCode.invalid_config),
        ([("cleanup.policy", SUBTRACT, "delete")], ErrorCode.invalid_config),
        ([("retention.ms", APPEND, "1")], ErrorCode.invalid_config),
        ([("retention.ms", SUBTRACT, "1")], ErrorCode.invalid_config),
        ([("no.such.setting", APPEND, "1")], ErrorCode.invalid_config),
        ([("retention.ms", SET, None)], ErrorCode.invalid_request),
        ([("retention.ms", 4, "1")], ErrorCode.invalid_request),
        ([("flush.ms", SET, "1"), ("flush.ms", SET, "2")], ErrorCode.invalid_request),
    ],
)
@on_node()
async def test_refuses_all_or_nothing(node: Node, changes: list[Change], code: ErrorCode) -> None:
    await node.context.broker.create_topic("one", 1, BEFORE)
    for validate_only in (True, False):
        answer = await alter(node, *changes, validate_only=validate_only)
        assert answer.error_code is code
        assert answer.error_message
    assert node.context.broker.topic("one").settings == BEFORE


@on_node()
async def test_refuses_resources(node: Node) -> None:
    change: Change = ("flush.ms", SET, "1")
    answer = await alter(node, change, name="two")
    assert answer.error_code is ErrorCode.unknown_topic_or_partition


def retention_ms(node: Node, topic: str) -> int:
    broker = node.context.broker
    return broker.served_partition(broker.topic(topic), 0).partition.policy.retention_ms


@on_node()
async def test_topics_follow_the_server(node: Node) -> None:
    broker = node.context.broker
    await broker.create_topic("one", 1, BEFORE)
    await broker.create_topic("other")
    for name, value in (("", "2000"), (str(NODE_ID), "3000")):
        answer = await alter(node, ("log.retention.ms", SET, value), kind=BROKER, name=name)
        assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    await alter(node, ("log.retention.ms", SET, "9"), kind=BROKER, name="", validate_only=True)
    for _ in range(2):
        assert (retention_ms(node, "one"), retention_ms(node, "other")) == (1000, 3000)
        await node.power_fails()
    await node.context.broker.create_topic("new")
    assert retention_ms(node, "new") == 3000
    await alter(node, ("log.retention.ms", DELETE, None), kind=BROKER, name=str(NODE_ID))
    assert retention_ms(node, "other") == 2000


@on_node()
async def test_a_list_of_the_servers(node: Node) -> None:
    change: Change = ("log.cleanup.policy", APPEND, "compact")
    answer = await alter(node, change, kind=BROKER, name="")
    assert answer.error_code is ErrorCode.none
    change = ("log.cleanup.policy", SUBTRACT, "delete")
    answer = await alter(node, change, kind=BROKER, name=str(NODE_ID))
    assert answer.error_code is ErrorCode.none
    settings = node.context.broker.server_settings
    assert settings.texts("") == {"log.cleanup.policy": "delete,compact"}
    assert settings.texts(str(NODE_ID)) == {"log.cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("name", "change", "text"),
    [
        (
            str(NODE_ID),
            ("advertised.listeners", "PLAINTEXT://a:1"),
            "Cannot update these configs dynamically: Set(advertised.listeners)",
        ),
        ("", ("num.partitions", "3"), "Cannot update these configs dynamically"),
        ("", ("log.retention.ms", "soon"), "Invalid value soon for configuration log.retention.ms"),
        ("8", ("log.retention.ms", "1"), "Unexpected broker id, expected 7, but received 8"),
        ("seven", ("log.retention.ms", "1"), "Broker id must be an integer, but it is: seven"),
    ],
)
@on_node()
async def test_what_the_server_refuses(
    node: Node, name: str, change: tuple[str, str], text: str
) -> None:
    setting, value = change
    answer = await alter(node, (setting, SET, value), kind=BROKER, name=name)
    assert answer.error_code is ErrorCode.invalid_request
    assert answer.error_message is not None
    assert answer.error_message.startswith(text)
    assert node.context.broker.server_settings.texts(name) == {}


@on_node()
async def test_a_share_group(node: Node) -> None:
    """It need not be there."""
    name = "share.delivery.count.limit"
    answer = await alter(node, (name, SET, "7"), kind=GROUP, name="g")
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    for change in ((name, SET, "many"), (name, APPEND, "1"), ("retention.ms", SET, "1")):
        refused = await alter(node, change, kind=GROUP, name="g")
        assert refused.error_code is ErrorCode.invalid_config
    settings = node.context.broker.share_groups.settings
    assert settings.texts("g") == {name: "7"}
    await alter(node, (name, SET, "8"), kind=GROUP, name="g", validate_only=True)
    await node.power_fails()
    settings = node.context.broker.share_groups.settings
    assert settings.of("g").deliveries_max == 7
    await alter(node, (name, DELETE, None), kind=GROUP, name="g")
    assert settings.texts("g") == {}
    deny_everything(node)
    denied = await alter(node, (name, SET, "7"), kind=GROUP, name="g")
    assert denied.error_code is ErrorCode.group_authorization_failed
