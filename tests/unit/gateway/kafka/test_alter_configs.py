import pytest
from kio.schema.alter_configs.v2.request import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from kio.schema.alter_configs.v2.response import AlterConfigsResourceResponse
from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from entrepot.gateway.kafka.alter_configs import handle
from tests.unit.gateway.kafka.node import NODE_ID, Node, on_node

TOPIC, BROKER, BROKER_LOGGER = 2, 4, 8


def resource(
    name: str, *settings: tuple[str, str | None], kind: int = TOPIC
) -> AlterConfigsResource:
    return AlterConfigsResource(
        resource_type=i8(kind),
        resource_name=name,
        configs=tuple(AlterableConfig(name=key, value=value) for key, value in settings),
    )


async def alter(
    node: Node, *resources: AlterConfigsResource, validate_only: bool = False
) -> list[AlterConfigsResourceResponse]:
    request = AlterConfigsRequest(resources=resources, validate_only=validate_only)
    responses = list((await handle(node.context, request)).responses)
    assert [(each.resource_type, each.resource_name) for each in responses] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return responses


BEFORE = {"retention.ms": "1000", "flush.ms": "50"}


@on_node()
async def test_what_is_left_out_goes_back_to_its_default(node: Node) -> None:
    topic = await node.context.broker.create_topic("one", 1, BEFORE)
    changes = resource("one", ("retention.ms", "2000"), ("max.message.bytes", "5000"))
    (answer,) = await alter(node, changes)
    assert (answer.error_code, answer.error_message) == (ErrorCode.none, None)
    served = node.context.broker.served_partition(topic, 0)
    assert served.config.batch_bytes_max == 5000
    assert served.partition.policy.retention_ms == 2000
    await node.power_fails()
    assert node.context.broker.topic("one").settings == {
        "retention.ms": "2000",
        "max.message.bytes": "5000",
    }


@on_node()
async def test_validation_changes_nothing(node: Node) -> None:
    await node.context.broker.create_topic("one", 1, BEFORE)
    good = resource("one", ("retention.ms", "2000"))
    bad = resource("one", ("retention.ms", "soon"))
    (answer,) = await alter(node, good, validate_only=True)
    assert answer.error_code is ErrorCode.none
    (answer,) = await alter(node, bad, validate_only=True)
    assert answer.error_code is ErrorCode.invalid_config
    assert node.context.broker.topic("one").settings == BEFORE


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        (resource("two"), ErrorCode.unknown_topic_or_partition),
        (resource("one", ("no.such.setting", "1")), ErrorCode.invalid_config),
        (resource("one", ("retention.ms", "soon")), ErrorCode.invalid_config),
        (resource("one", ("retention.ms", None)), ErrorCode.invalid_request),
        (resource("one", ("flush.ms", "1"), ("flush.ms", "1")), ErrorCode.invalid_request),
        (resource(str(NODE_ID), ("flush.ms", "1"), kind=BROKER), ErrorCode.invalid_request),
        (resource("", ("flush.ms", "1"), kind=BROKER), ErrorCode.invalid_request),
        (resource(str(NODE_ID), kind=BROKER_LOGGER), ErrorCode.invalid_request),
    ],
)
@on_node()
async def test_refuses(node: Node, changes: AlterConfigsResource, code: ErrorCode) -> None:
    await node.context.broker.create_topic("one", 1, BEFORE)
    await node.context.broker.create_topic("other")
    bad, good = await alter(node, changes, resource("other", ("flush.ms", "1")))
    assert bad.error_code is code
    assert bad.error_message
    assert node.context.broker.topic("one").settings == BEFORE
    assert good.error_code is ErrorCode.none
    assert node.context.broker.topic("other").settings == {"flush.ms": "1"}


@on_node()
async def test_a_topic_that_comes_twice_is_refused(node: Node) -> None:
    await node.context.broker.create_topic("one", 1, BEFORE)
    answers = await alter(node, resource("one"), resource("one"))
    assert [each.error_code for each in answers] == [ErrorCode.invalid_request] * 2
    assert node.context.broker.topic("one").settings == BEFORE


@on_node()
async def test_the_servers_that_are_left_out_go_back_to_what_it_was_started_with(
    node: Node,
) -> None:
    first = [("log.retention.ms", "1000"), ("message.max.bytes", "5000")]
    for settings in (first, [("compression.type", "lz4")]):
        (answer,) = await alter(node, resource(str(NODE_ID), *settings, kind=BROKER))
        assert answer.error_code is ErrorCode.none
        await node.power_fails()
        assert node.context.broker.server_settings.texts(str(NODE_ID)) == dict(settings)
    assert node.context.broker.defaults.settings == {"compression.type": "lz4"}
