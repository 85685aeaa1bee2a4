"""Every request that names a topic or speaks to the cluster, by somebody who may and who may not.

The codes are Kafka's. What a stranger to a topic is told does not depend on whether
there is such a topic.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from kio.schema.alter_configs.v2.request import AlterConfigsRequest
from kio.schema.alter_configs.v2.request import AlterConfigsResource as OldResource
from kio.schema.create_partitions.v3.request import CreatePartitionsRequest, CreatePartitionsTopic
from kio.schema.create_topics.v7.request import CreatableTopic, CreateTopicsRequest
from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kio.schema.delete_topics.v6.request import DeleteTopicsRequest, DeleteTopicState
from kio.schema.describe_cluster.v2.request import DescribeClusterRequest
from kio.schema.describe_configs.v4.request import DescribeConfigsRequest, DescribeConfigsResource
from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_topic_partitions.v0.request import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kio.schema.errors import ErrorCode
from kio.schema.incremental_alter_configs.v1.request import (
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.list_offsets.v11.request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kio.schema.metadata.v10.request import MetadataRequest as MetadataRequestV10
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kio.schema.types import BrokerId, TopicName
from kio.static.primitive import i8, i16, i32, i64

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.acls import OPERATIONS, Acl, Pattern, PermissionType, acl_record
from entrepot.broker.server_settings import Defaults
from entrepot.core.steps import finish
from entrepot.gateway.kafka import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_log_dirs,
    describe_topic_partitions,
    incremental_alter_configs,
    list_offsets,
    metadata,
    offset_for_leader_epoch,
)
from entrepot.gateway.kafka.acl_codes import CLUSTER_NAME, NOT_TOLD, OPERATION_CODES
from entrepot.gateway.kafka.context import NO_THROTTLE
from tests.unit.gateway.kafka.node import NODE_ID, Node, on_node
from tests.unit.gateway.kafka.serving import Fetching, Produced, batch_of, fetch_request, to

TOPIC, CLUSTER = ResourceKind.TOPIC, ResourceKind.CLUSTER
TOPIC_DENIED, CLUSTER_DENIED = (
    ErrorCode.topic_authorization_failed,
    ErrorCode.cluster_authorization_failed,
)
NONE = ErrorCode.none
TOPIC_CODE, BROKER_CODE = i8(2), i8(4)

Ask = Callable[[Node, str], Awaitable[ErrorCode]]


def cluster_acl(operation: Operation) -> Acl:
    return acl(operation, CLUSTER, CLUSTER_NAME)


def acl(operation: Operation, kind: ResourceKind = TOPIC, name: str = "one") -> Acl:
    return Acl(kind, Pattern.LITERAL, name, "ana", "*", operation, PermissionType.ALLOW)


async def enforce(node: Node, *acls: Acl) -> None:
    node.act_as("ana", "10.0.0.1")
    node.context.broker.access.is_enforced = True
    await node.context.broker.change_security(*map(acl_record, acls))


# --- requests, each about one topic, and what it is answered


async def produce(node: Node, name: str) -> ErrorCode:
    (result,) = await Produced(node, [to(name, batch_of(b"x"))]).done()
    return ErrorCode(result.error_code)


async def fetch(node: Node, name: str) -> ErrorCode:
    response = await Fetching(node, fetch_request(name)).done()
    (partition,) = response.topics[0].partitions
    assert partition.records is not None, "librdkafka takes null for damage"
    return ErrorCode(partition.error_code)


async def list_offsets_(node: Node, name: str) -> ErrorCode:
    partition = ListOffsetsPartition(partition_index=i32(0), timestamp=i64(-1))
    request = ListOffsetsRequest(
        replica_id=BrokerId(-1),
        isolation_level=i8(0),
        topics=(ListOffsetsTopic(name=TopicName(name), partitions=(partition,)),),
        timeout=NO_THROTTLE,
    )
    return finish(list_offsets.handle(node.context, request)).topics[0].partitions[0].error_code


async def leader_epoch(node: Node, name: str) -> ErrorCode:
    partition = OffsetForLeaderPartition(partition=i32(0), leader_epoch=i32(0))
    request = OffsetForLeaderEpochRequest(
        replica_id=BrokerId(-2),
        topics=(OffsetForLeaderTopic(topic=TopicName(name), partitions=(partition,)),),
    )
    answer = finish(offset_for_leader_epoch.handle(node.context, request))
    return answer.topics[0].partitions[0].error_code


async def delete_records_(node: Node, name: str) -> ErrorCode:
    partition = DeleteRecordsPartition(partition_index=i32(0), offset=i64(0))
    request = DeleteRecordsRequest(
        topics=(DeleteRecordsTopic(name=TopicName(name), partitions=(partition,)),),
        timeout=NO_THROTTLE,
    )
    answer = await delete_records.handle(node.context, request)
    return answer.topics[0].partitions[0].error_code


async def delete_topics_(node: Node, name: str) -> ErrorCode:
    state = DeleteTopicState(name=TopicName(name), topic_id=None)
    request = DeleteTopicsRequest(topics=(state,), timeout=NO_THROTTLE)
    return (await delete_topics.handle(node.context, request)).responses[0].error_code


async def create_partitions_(node: Node, name: str) -> ErrorCode:
    topic = CreatePartitionsTopic(name=TopicName(name), count=i32(2), assignments=None)
    request = CreatePartitionsRequest(topics=(topic,), timeout=NO_THROTTLE, validate_only=True)
    return (await create_partitions.handle(node.context, request)).results[0].error_code


async def describe_configs_(node: Node, name: str, kind: i8 = TOPIC_CODE) -> ErrorCode:
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(resources=(resource,))
    return finish(describe_configs.handle(node.context, request)).results[0].error_code


async def alter_configs_(node: Node, name: str, kind: i8 = TOPIC_CODE) -> ErrorCode:
    resource = OldResource(resource_type=kind, resource_name=name, configs=())
    request = AlterConfigsRequest(resources=(resource,), validate_only=True)
    return (await alter_configs.handle(node.context, request)).responses[0].error_code


async def incremental_alter_configs_(node: Node, name: str, kind: i8 = TOPIC_CODE) -> ErrorCode:
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=())
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=True)
    answer = await incremental_alter_configs.handle(node.context, request)
    return answer.responses[0].error_code


async def describe_topic_partitions_(node: Node, name: str) -> ErrorCode:
    request = DescribeTopicPartitionsRequest(
        topics=(TopicRequest(name=TopicName(name)),),
        response_partition_limit=i32(10),
        cursor=None,
    )
    return finish(describe_topic_partitions.handle(node.context, request)).topics[0].error_code


async def metadata_(node: Node, name: str) -> ErrorCode:
    return (await metadata.handle(node.context, about(name))).topics[0].error_code


def about(*names: str, create: bool = False) -> MetadataRequest:
    return MetadataRequest(
        topics=tuple(MetadataRequestTopic(topic_id=None, name=TopicName(n)) for n in names),
        allow_auto_topic_creation=create,
        include_topic_authorized_operations=False,
    )


ABOUT_TOPICS: dict[str, tuple[Ask, Operation]] = {
    "produce": (produce, Operation.WRITE),
    "fetch": (fetch, Operation.READ),
    "list_offsets": (list_offsets_, Operation.DESCRIBE),
    "offset_for_leader_epoch": (leader_epoch, Operation.DESCRIBE),
    "delete_records": (delete_records_, Operation.DELETE),
    "delete_topics": (delete_topics_, Operation.DELETE),
    "create_partitions": (create_partitions_, Operation.ALTER),
    "describe_configs": (describe_configs_, Operation.DESCRIBE_CONFIGS),
    "alter_configs": (alter_configs_, Operation.ALTER_CONFIGS),
    "incremental_alter_configs": (incremental_alter_configs_, Operation.ALTER_CONFIGS),
    "describe_topic_partitions": (describe_topic_partitions_, Operation.DESCRIBE),
    "metadata": (metadata_, Operation.DESCRIBE),
}


@pytest.mark.parametrize("name", ABOUT_TOPICS)
@on_node()
async def test_a_topic_needs_a_permission(node: Node, name: str) -> None:
    ask, operation = ABOUT_TOPICS[name]
    await node.context.broker.create_topic("one", 1)
    await enforce(node)
    assert [await ask(node, "one"), await ask(node, "two")] == [TOPIC_DENIED] * 2
    others = [each for each in OPERATIONS[TOPIC] if each not in _implying(operation)]
    await enforce(node, *map(acl, others))
    assert await ask(node, "one") is TOPIC_DENIED
    await enforce(node, acl(operation), acl(operation, name="two"))
    assert await ask(node, "one") is NONE
    assert await ask(node, "two") is ErrorCode.unknown_topic_or_partition


def _implying(operation: Operation) -> tuple[Operation, ...]:
    return {
        Operation.DESCRIBE: (
            Operation.DESCRIBE,
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.ALTER,
        ),
        Operation.DESCRIBE_CONFIGS: (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS),
    }.get(operation, (operation,))


async def broker_configs(node: Node, _: str) -> ErrorCode:
    return await describe_configs_(node, str(NODE_ID), BROKER_CODE)


async def alter_broker(node: Node, _: str) -> ErrorCode:
    return await alter_configs_(node, str(NODE_ID), BROKER_CODE)


async def incremental_alter_broker(node: Node, _: str) -> ErrorCode:
    return await incremental_alter_configs_(node, str(NODE_ID), BROKER_CODE)


async def log_dirs(node: Node, _: str) -> ErrorCode:
    return finish(
        describe_log_dirs.handle(node.context, DescribeLogDirsRequest(topics=None))
    ).error_code


ABOUT_CLUSTER: dict[str, tuple[Ask, Operation]] = {
    "describe_configs": (broker_configs, Operation.DESCRIBE_CONFIGS),
    "alter_configs": (alter_broker, Operation.ALTER_CONFIGS),
    "incremental_alter_configs": (incremental_alter_broker, Operation.ALTER_CONFIGS),
    "describe_log_dirs": (log_dirs, Operation.DESCRIBE),
}


@pytest.mark.parametrize("name", ABOUT_CLUSTER)
@on_node()
async def test_the_cluster_needs_a_permission(node: Node, name: str) -> None:
    ask, operation = ABOUT_CLUSTER[name]
    await enforce(node)
    assert await ask(node, "") is CLUSTER_DENIED
    await enforce(node, cluster_acl(operation))
    assert await ask(node, "") is not CLUSTER_DENIED


# --- creating


def creating(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(
        name=TopicName(name),
        num_partitions=i32(1),
        replication_factor=i16(1),
        assignments=(),
        configs=(),
    )
    return CreateTopicsRequest(topics=(topic,), timeout=NO_THROTTLE, validate_only=False)


@pytest.mark.parametrize("allowed", [acl(Operation.CREATE), cluster_acl(Operation.CREATE)])
@on_node()
async def test_creating_needs_a_permission_for_all_or_for_one(node: Node, allowed: Acl) -> None:
    await enforce(node)
    (denied,) = (await create_topics.handle(node.context, creating("one"))).topics
    assert denied.error_code is TOPIC_DENIED
    await enforce(node, allowed)
    (created,) = (await create_topics.handle(node.context, creating("one"))).topics
    assert (created.error_code, created.configs) == (NONE, None)
    assert created.topic_config_error_code == TOPIC_DENIED
    (other,) = (await create_topics.handle(node.context, creating("two"))).topics
    assert other.error_code is (NONE if allowed.kind is CLUSTER else TOPIC_DENIED)


@on_node()
async def test_the_settings_of_a_created_topic_are_for_who_may_know_them(node: Node) -> None:
    await enforce(node, acl(Operation.CREATE), acl(Operation.DESCRIBE_CONFIGS))
    (created,) = (await create_topics.handle(node.context, creating("one"))).topics
    assert created.topic_config_error_code == 0
    assert created.configs


@on_node(Defaults(auto_create_topics=True))
async def test_asking_for_a_topic_creates_it_for_who_may(node: Node) -> None:
    await enforce(node, acl(Operation.DESCRIBE), acl(Operation.CREATE, name="two"))
    for names in (("one", "two"), ("one",), ("two",)):
        answer = await metadata.handle(node.context, about(*names, create=True))
        assert [topic.error_code for topic in answer.topics] == [TOPIC_DENIED] * len(names)
    assert list(node.context.broker.topics) == []
    await enforce(node, acl(Operation.CREATE))
    answer = await metadata.handle(node.context, about("one", "two", create=True))
    assert [topic.error_code for topic in answer.topics] == [NONE, TOPIC_DENIED]
    assert list(node.context.broker.topics) == ["one"]


# --- by id, and all of them


@on_node()
async def test_by_id(node: Node) -> None:
    topic = await node.context.broker.create_topic("one", 1)
    await enforce(node)
    request = MetadataRequest(
        topics=(MetadataRequestTopic(topic_id=topic.id, name=None),),
        include_topic_authorized_operations=False,
    )
    (found,) = (await metadata.handle(node.context, request)).topics
    assert (found.error_code, found.name) == (TOPIC_DENIED, None)
    deleting = DeleteTopicsRequest(
        topics=(DeleteTopicState(name=None, topic_id=topic.id),), timeout=NO_THROTTLE
    )
    (refused,) = (await delete_topics.handle(node.context, deleting)).responses
    assert (refused.error_code, refused.name) == (TOPIC_DENIED, None)


@on_node()
async def test_of_all_topics_the_others_are_left_out(node: Node) -> None:
    for name in ("one", "two", "three"):
        await node.context.broker.create_topic(name, 1)
    await enforce(node, acl(Operation.READ), acl(Operation.DESCRIBE, name="two"))
    everything = replace(about(), topics=None)
    answer = await metadata.handle(node.context, everything)
    assert [topic.name for topic in answer.topics] == ["one", "two"]
    paged = finish(
        describe_topic_partitions.handle(
            node.context,
            DescribeTopicPartitionsRequest(topics=(), response_partition_limit=i32(9), cursor=None),
        )
    )
    assert [topic.name for topic in paged.topics] == ["one", "two"]


# --- what may be done, told


def bits(*operations: Operation) -> int:
    return sum(1 << OPERATION_CODES[operation] for operation in operations)


@on_node()
async def test_what_one_may_do_is_told_when_asked(node: Node) -> None:
    await node.context.broker.create_topic("one", 1)
    await enforce(node, acl(Operation.WRITE), cluster_acl(Operation.ALTER))
    asked = MetadataRequestV10(
        topics=None,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    answer: Any = await metadata.handle(node.context, asked)
    mine = bits(Operation.WRITE, Operation.DESCRIBE)
    on_cluster = bits(Operation.ALTER, Operation.DESCRIBE)
    assert answer.topics[0].topic_authorized_operations == mine
    assert answer.cluster_authorized_operations == on_cluster
    silent: Any = await metadata.handle(node.context, replace(about("one")))
    assert silent.topics[0].topic_authorized_operations == NOT_TOLD
    assert silent.cluster_authorized_operations == NOT_TOLD
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=True, include_fenced_brokers=False
    )
    described = describe_cluster.handle(node.context, request)
    assert described.cluster_authorized_operations == on_cluster
    quiet = describe_cluster.handle(
        node.context, replace(request, include_cluster_authorized_operations=False)
    )
    assert quiet.cluster_authorized_operations == NOT_TOLD
    node.act_as("bob")
    assert describe_cluster.handle(node.context, request).cluster_authorized_operations == 0


@on_node()
async def test_without_authorisation_one_may_do_everything(node: Node) -> None:
    request = DescribeClusterRequest(
        include_cluster_authorized_operations=True, include_fenced_brokers=False
    )
    described = describe_cluster.handle(node.context, request)
    assert described.cluster_authorized_operations == bits(*OPERATIONS[CLUSTER])
