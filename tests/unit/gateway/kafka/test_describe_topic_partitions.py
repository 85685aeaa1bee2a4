import pytest
from kio.schema.describe_topic_partitions.v0.request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.describe_topic_partitions.v0.response import DescribeTopicPartitionsResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from entrepot.core.steps import finish
from entrepot.gateway.kafka.describe_topic_partitions import handle
from tests.unit.gateway.kafka.node import NODE_ID, Node, on_node

TopicIndex = tuple[str, int]


def ask(
    node: Node, *names: str, limit: int = 2_000, cursor: TopicIndex | None = None
) -> DescribeTopicPartitionsResponse:
    request = DescribeTopicPartitionsRequest(
        topics=tuple(TopicRequest(name=TopicName(name)) for name in names),
        response_partition_limit=i32(limit),
        cursor=cursor and Cursor(topic_name=TopicName(cursor[0]), partition_index=i32(cursor[1])),
    )
    return finish(handle(node.context, request))


def places(response: DescribeTopicPartitionsResponse) -> list[TopicIndex]:
    return [
        (topic.name or "", partition.partition_index)
        for topic in response.topics
        for partition in topic.partitions
    ]


def cursor_of(response: DescribeTopicPartitionsResponse) -> TopicIndex | None:
    cursor = response.next_cursor
    return None if cursor is None else (cursor.topic_name, cursor.partition_index)


ALL = [("a", 0), ("b", 0), ("b", 1), ("b", 2), ("c", 0), ("c", 1)]


async def with_topics(node: Node) -> None:
    for name, count in (("c", 2), ("a", 1), ("b", 3)):
        await node.context.broker.create_topic(name, count)


@on_node()
async def test_all_topics_in_the_order_of_their_names(node: Node) -> None:
    await with_topics(node)
    response = ask(node)
    assert places(response) == ALL
    assert response.next_cursor is None
    for topic in response.topics:
        assert topic.topic_id == node.context.broker.topic(topic.name or "").id
        for partition in topic.partitions:
            assert (partition.leader_id, partition.leader_epoch) == (NODE_ID, 0)
            assert partition.replica_nodes == partition.isr_nodes == (NODE_ID,)
            assert partition.eligible_leader_replicas == partition.last_known_elr == ()


@pytest.mark.parametrize("limit", [-1, 0, 1, 2, 3, 4, 5, 6, 7])
@pytest.mark.parametrize("names", [(), ("c", "b", "a")], ids=["all", "named"])
@on_node()
async def test_page_by_page(node: Node, limit: int, names: tuple[str, ...]) -> None:
    await with_topics(node)
    found: list[TopicIndex] = []
    cursor: TopicIndex | None = None
    for _ in range(7):
        response = ask(node, *names, limit=limit, cursor=cursor)
        assert 0 < len(places(response)) <= max(1, limit)
        found += places(response)
        cursor = cursor_of(response)
        if cursor is None:
            break
    assert cursor is None
    assert found == ALL


@on_node()
async def test_what_is_not_there(node: Node) -> None:
    await with_topics(node)
    response = ask(node, "b", "aa", "no spaces")
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("aa", ErrorCode.unknown_topic_or_partition),
        ("b", ErrorCode.none),
        ("no spaces", ErrorCode.invalid_topic_exception),
    ]


@on_node()
async def test_a_cursor_survives_its_topic(node: Node) -> None:
    await with_topics(node)
    await node.context.broker.delete_topic(node.context.broker.topic("b"))
    assert places(ask(node, cursor=("b", 1))) == [("c", 0), ("c", 1)]
    response = ask(node, "b", "c", cursor=("b", 1))
    assert [(topic.name, topic.error_code) for topic in response.topics] == [
        ("b", ErrorCode.unknown_topic_or_partition),
        ("c", ErrorCode.none),
    ]
    assert places(response) == [("c", 0), ("c", 1)]
    assert places(ask(node, cursor=("c", 5))) == []


@on_node()
async def test_a_cursor_must_be_in_the_request(node: Node) -> None:
    await with_topics(node)
    for cursor in (("b", 0), ("a", -1)):
        response = ask(node, "a", "c", cursor=cursor)
        assert [(topic.name, topic.error_code) for topic in response.topics] == [
            ("a", ErrorCode.invalid_request),
            ("c", ErrorCode.invalid_request),
        ]
        assert places(response) == []
