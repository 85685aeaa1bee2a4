import errno

import pytest
from kio.schema.create_topics.v7.request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kio.schema.create_topics.v7.response import CreatableTopicResult
from kio.schema.errors import ErrorCode
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i16, i32

from entrepot.broker.server_settings import Defaults
from entrepot.gateway.kafka.create_topics import handle
from tests.unit.gateway.kafka.node import NODE_ID, Node, on_node


def wanted(
    name: str = "one",
    partitions: int = -1,
    factor: int = -1,
    assignments: dict[int, tuple[int, ...]] | None = None,
    configs: dict[str, str | None] | None = None,
) -> CreatableTopic:
    return CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(partitions),
        replication_factor=i16(factor),
        assignments=tuple(
            CreatableReplicaAssignment(
                partition_index=i32(index), broker_ids=tuple(map(BrokerId, nodes))
            )
            for index, nodes in (assignments or {}).items()
        ),
        configs=tuple(
            CreatableTopicConfig(name=key, value=value) for key, value in (configs or {}).items()
        ),
    )


async def create(
    node: Node, *topics: CreatableTopic, validate_only: bool = False
) -> list[CreatableTopicResult]:
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    return list((await handle(node.context, request)).topics)


@on_node(Defaults(partition_count=3, settings={"retention.ms": "1000"}))
async def test_creates_with_defaults_and_says_what_it_made(node: Node) -> None:
    (result,) = await create(node, wanted(configs={"segment.bytes": "1048576"}))
    topic = node.context.broker.topic("one")
    assert (result.error_code, result.error_message) == (ErrorCode.none, None)
    assert (result.name, result.topic_id) == ("one", topic.id)
    assert (result.num_partitions, result.replication_factor) == (3, 1)
    assert topic.partition_count == 3
    assert topic.settings == {"segment.bytes": "1048576"}
    assert result.configs is not None
    told = {each.name: (each.value, each.config_source) for each in result.configs}
    assert told["segment.bytes"] == ("1048576", 1)
    assert told["retention.ms"] == ("1000", 4)
    assert told["cleanup.policy"] == ("delete", 5)


@on_node()
async def test_several_at_once_survive_a_crash(node: Node) -> None:
    results = await create(node, wanted("one", 2, 1), wanted("two", 4, 1))
    assert [(each.name, each.num_partitions) for each in results] == [("one", 2), ("two", 4)]
    await node.power_fails()
    counts = {topic.name: topic.partition_count for topic in node.context.broker.topics.values()}
    assert counts == {"one": 2, "two": 4}


@on_node()
async def test_a_manual_assignment_counts_the_partitions(node: Node) -> None:
    (result,) = await create(node, wanted(assignments={1: (NODE_ID,), 0: (NODE_ID,)}))
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 2)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (wanted("no spaces"), ErrorCode.invalid_topic_exception),
        (wanted("__consumer_offsets"), ErrorCode.invalid_topic_exception),
        (wanted("taken"), ErrorCode.topic_already_exists),
        (wanted(partitions=0), ErrorCode.invalid_partitions),
        (wanted(partitions=-2), ErrorCode.invalid_partitions),
        (wanted(partitions=2**31 - 1), ErrorCode.invalid_partitions),
        (wanted(factor=0), ErrorCode.invalid_replication_factor),
        (wanted(factor=2), ErrorCode.invalid_replication_factor),
        (wanted(configs={"no.such.setting": "1"}), ErrorCode.invalid_config),
        (wanted(configs={"retention.ms": "soon"}), ErrorCode.invalid_config),
        (wanted(configs={"retention.ms": None}), ErrorCode.invalid_config),
        (wanted(assignments={0: (NODE_ID + 1,)}), ErrorCode.invalid_replica_assignment),
        (wanted(assignments={0: (NODE_ID, NODE_ID)}), ErrorCode.invalid_replica_assignment),
        (wanted(assignments={0: ()}), ErrorCode.invalid_replica_assignment),
        (wanted(assignments={1: (NODE_ID,)}), ErrorCode.invalid_replica_assignment),
        (wanted(assignments={0: (NODE_ID,)}, partitions=1), ErrorCode.invalid_request),
        (wanted(assignments={0: (NODE_ID,)}, factor=1), ErrorCode.invalid_request),
    ],
)
@pytest.mark.parametrize("validate_only", [False, True])
@on_node()
async def test_refuses(
    node: Node, topic: CreatableTopic, code: ErrorCode, validate_only: bool
) -> None:
    await node.context.broker.create_topic("taken")
    bad, good = await create(node, topic, wanted("good"), validate_only=validate_only)
    assert bad.error_code is code
    assert bad.error_message
    assert (bad.topic_id, bad.num_partitions, bad.configs) == (None, -1, None)
    assert good.error_code is ErrorCode.none
    assert list(node.context.broker.topics) == (["taken"] if validate_only else ["taken", "good"])


@on_node()
async def test_a_name_that_comes_twice_is_refused(node: Node) -> None:
    results = await create(node, wanted("twice", 1), wanted("once"), wanted("twice", 2))
    codes = {result.name: result.error_code for result in results}
    assert codes == {"twice": ErrorCode.invalid_request, "once": ErrorCode.none}
    assert list(node.context.broker.topics) == ["once"]


@on_node()
async def test_validation_says_what_would_be(node: Node) -> None:
    (result,) = await create(node, wanted(partitions=5), validate_only=True)
    assert (result.error_code, result.num_partitions) == (ErrorCode.none, 5)
    assert not node.context.broker.topics


@on_node()
async def test_a_failing_disk(node: Node) -> None:
    node.disk.fail_next("sync", errno.EIO, count=100)
    (result,) = await create(node, wanted())
    assert result.error_code is ErrorCode.kafka_storage_error
    assert result.error_message
