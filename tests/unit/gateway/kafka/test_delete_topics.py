import errno
from uuid import UUID

from kio.schema.delete_topics.v5.request import DeleteTopicsRequest as DeleteTopicsRequestV5
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.delete_topics.v6.response import DeletableTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName

from entrepot.gateway.kafka.context import NO_THROTTLE
from entrepot.gateway.kafka.delete_topics import handle
from tests.unit.gateway.kafka.node import Node, on_node


async def delete(node: Node, *wanted: tuple[str | None, UUID | None]) -> list[DeletableTopicResult]:
    topics = tuple(
        DeleteTopicState(name=None if name is None else TopicName(name), topic_id=identity)
        for name, identity in wanted
    )
    request = DeleteTopicsRequest(topics=topics, timeout=NO_THROTTLE)
    return list((await handle(node.context, request)).responses)


@on_node()
async def test_by_name_and_by_id_for_good(node: Node) -> None:
    topics = [await node.context.broker.create_topic(name) for name in ("one", "two", "three")]
    results = await delete(node, ("one", None), (None, topics[1].id))
    assert [(each.name, each.topic_id, each.error_code) for each in results] == [
        ("one", topics[0].id, ErrorCode.none),
        ("two", topics[1].id, ErrorCode.none),
    ]
    assert list(node.context.broker.topics) == ["three"]
    await node.power_fails()
    assert list(node.context.broker.topics) == ["three"]


@on_node()
async def test_old_versions_know_names_only(node: Node) -> None:
    await node.context.broker.create_topic("one")
    names = (TopicName("one"), TopicName("two"))
    request = DeleteTopicsRequestV5(topic_names=names, timeout=NO_THROTTLE)
    results = (await handle(node.context, request)).responses
    assert [(each.name, each.error_code) for each in results] == [
        ("one", ErrorCode.none),
        ("two", ErrorCode.unknown_topic_or_partition),
    ]
    assert results[1].error_message


@on_node()
async def test_refuses(node: Node) -> None:
    topic = await node.context.broker.create_topic("one")
    identity = UUID(int=1)
    for wanted, code in (
        ((None, identity), ErrorCode.unknown_topic_id),
        (("one", topic.id), ErrorCode.invalid_request),
        ((None, None), ErrorCode.invalid_request),
    ):
        (result,) = await delete(node, wanted)
        assert (result.name, result.topic_id) == wanted
        assert result.error_code is code
        assert result.error_message
    (result,) = await delete(node, ("one", None), ("one", None))
    assert result.error_code is ErrorCode.invalid_request
    assert list(node.context.broker.topics) == ["one"]


@on_node()
async def test_a_failing_disk(node: Node) -> None:
    await node.context.broker.create_topic("one")
    node.disk.fail_next("sync", errno.EIO, count=100)
    (result,) = await delete(node, ("one", None))
    assert result.error_code is ErrorCode.kafka_storage_error
