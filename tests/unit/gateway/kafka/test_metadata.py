import errno
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.metadata.v0.request import MetadataRequest as MetadataRequestV0
from kio.schema.metadata.v0.request import MetadataRequestTopic as MetadataRequestTopicV0
from kio.schema.metadata.v11.request import MetadataRequest as MetadataRequestV11
from kio.schema.metadata.v11.request import MetadataRequestTopic as MetadataRequestTopicV11
from kio.schema.metadata.v13.request import MetadataRequest, MetadataRequestTopic
from kio.schema.metadata.v13.response import MetadataResponseTopic
from kio.schema.types import TopicName

from entrepot.broker.server_settings import Defaults
from entrepot.gateway.kafka.metadata import handle
from tests.unit.gateway.kafka.node import HOST, NODE_ID, PORT, Node, on_node


def request(
    *wanted: str | UUID | None, all_topics: bool = False, may_create: bool = True
) -> MetadataRequest:
    topics = tuple(
        MetadataRequestTopic(
            name=TopicName(each) if isinstance(each, str) else None,
            topic_id=each if isinstance(each, UUID) else None,
        )
        for each in wanted
    )
    return MetadataRequest(
        topics=None if all_topics else topics,
        allow_auto_topic_creation=may_create,
        include_topic_authorized_operations=True,
    )


async def topics_of(node: Node, asked: MetadataRequest) -> list[MetadataResponseTopic]:
    return list((await handle(node.context, asked)).topics)


@on_node()
async def test_names_the_only_node(node: Node) -> None:
    response = await handle(node.context, request())
    (broker,) = response.brokers
    assert (broker.node_id, broker.host, broker.port, broker.rack) == (NODE_ID, HOST, PORT, None)
    assert response.controller_id == NODE_ID
    assert response.cluster_id == node.context.broker.cluster_id != ""
    assert response.topics == ()


@on_node()
async def test_all_topics_with_their_partitions(node: Node) -> None:
    one = await node.context.broker.create_topic("one", 1)
    two = await node.context.broker.create_topic("two", 2)
    first, second = await topics_of(node, request(all_topics=True))
    assert (first.name, first.topic_id) == ("one", one.id)
    assert (second.name, second.topic_id) == ("two", two.id)
    assert [partition.partition_index for partition in second.partitions] == [0, 1]
    for partition in second.partitions:
        assert partition.error_code is ErrorCode.none
        assert partition.leader_id == NODE_ID
        assert partition.leader_epoch == 0
        assert partition.replica_nodes == partition.isr_nodes == (NODE_ID,)
        assert partition.offline_replicas == ()


@on_node()
async def test_by_name_and_by_id(node: Node) -> None:
    topic = await node.context.broker.create_topic("one")
    by_name, by_id = await topics_of(node, request("one", topic.id))
    assert by_name == by_id
    assert by_name.error_code is ErrorCode.none


@on_node()
async def test_an_unknown_id_has_no_name(node: Node) -> None:
    identity = UUID(int=1)
    (topic,) = await topics_of(node, request(identity))
    assert topic.error_code is ErrorCode.unknown_topic_id
    assert (topic.name, topic.topic_id) == (None, identity)


@on_node(Defaults(partition_count=3))
async def test_what_is_missing_is_created(node: Node) -> None:
    first, second = await topics_of(node, request("one", "two", "one"))
    (again,) = await topics_of(node, request("one"))
    assert first == again
    assert {topic.error_code for topic in (first, second)} == {ErrorCode.none}
    assert len(first.partitions) == 3
    assert first.topic_id == node.context.broker.topic("one").id


@on_node()
async def test_creation_needs_the_clients_consent(node: Node) -> None:
    (topic,) = await topics_of(node, request("one", may_create=False))
    assert topic.error_code is ErrorCode.unknown_topic_or_partition
    assert (topic.name, topic.topic_id) == ("one", None)
    assert not node.context.broker.topics


@on_node(Defaults(auto_create_topics=False))
async def test_creation_needs_the_servers_consent(node: Node) -> None:
    for asked in (
        request("one"),
        MetadataRequestV0(topics=(MetadataRequestTopicV0(name=TopicName("one")),)),
    ):
        (topic,) = (await handle(node.context, asked)).topics
        assert topic.error_code is ErrorCode.unknown_topic_or_partition


@on_node()
async def test_a_bad_name_is_told_whether_or_not_it_would_be_created(node: Node) -> None:
    for may_create in (True, False):
        (topic,) = await topics_of(node, request("no spaces", may_create=may_create))
        assert (topic.name, topic.error_code) == ("no spaces", ErrorCode.invalid_topic_exception)


@on_node()
async def test_what_cannot_be_created_now_is_asked_for_again(node: Node) -> None:
    node.disk.fail_next("sync", errno.EIO, count=100)
    (topic,) = await topics_of(node, request("one"))
    assert topic.error_code is ErrorCode.leader_not_available


@on_node()
async def test_version_0_asks_for_all_with_an_empty_list(node: Node) -> None:
    await node.context.broker.create_topic("one")
    response = await handle(node.context, MetadataRequestV0(topics=()))
    assert [topic.name for topic in response.topics] == ["one"]
    asked = MetadataRequestV0(topics=(MetadataRequestTopicV0(name=TopicName("new")),))
    response = await handle(node.context, asked)
    assert [(topic.name, topic.error_code) for topic in response.topics] == [("new", 0)]


@on_node()
async def test_version_11_asks_for_all_with_null_and_knows_no_ids(node: Node) -> None:
    topic = await node.context.broker.create_topic("one")

    def asked(topics: tuple[MetadataRequestTopicV11, ...] | None) -> MetadataRequestV11:
        return MetadataRequestV11(topics=topics, include_topic_authorized_operations=False)

    assert len((await handle(node.context, asked(None))).topics) == 1
    assert (await handle(node.context, asked(()))).topics == ()
    wanted = MetadataRequestTopicV11(topic_id=topic.id, name=None)
    (answer,) = (await handle(node.context, asked((wanted,)))).topics
    assert (answer.name, answer.error_code) == ("", ErrorCode.invalid_topic_exception)


@on_node()
async def test_a_refused_partition_has_no_leader_and_a_stopped_one_has(node: Node) -> None:
    topic = await node.context.broker.create_topic("one", 2)
    node.context.broker.served_partition(topic, 0).partition.refuse("damaged")
    node.context.broker.served_partition(topic, 1).partition.stop("the disk failed")
    (answer,) = await topics_of(node, request("one"))
    refused, stopped = answer.partitions
    assert refused.error_code is ErrorCode.leader_not_available
    assert refused.leader_id == -1
    assert refused.offline_replicas == refused.replica_nodes == (NODE_ID,)
    assert (stopped.error_code, stopped.leader_id) == (ErrorCode.none, NODE_ID)
