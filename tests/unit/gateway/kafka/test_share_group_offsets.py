"""DescribeShareGroupOffsets, AlterShareGroupOffsets and DeleteShareGroupOffsets."""

from collections.abc import Mapping

from kio.schema.alter_share_group_offsets.v0 import request as altering
from kio.schema.alter_share_group_offsets.v0.response import AlterShareGroupOffsetsResponse
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_share_group_offsets.v0 import request as deleting
from kio.schema.delete_share_group_offsets.v0.response import DeleteShareGroupOffsetsResponse
from kio.schema.describe_share_group_offsets.v1 import request as describing
from kio.schema.describe_share_group_offsets.v1.response import (
    DescribeShareGroupOffsetsResponseGroup,
)
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from entrepot.core.steps import finish
from entrepot.gateway.kafka import (
    alter_share_group_offsets,
    delete_groups,
    delete_share_group_offsets,
    describe_share_group_offsets,
    list_groups,
)
from tests.unit.gateway.kafka.group_requests import deny_everything
from tests.unit.gateway.kafka.node import Node, on_node
from tests.unit.gateway.kafka.sharing import ACCEPT, Member, beat, opened

Row = tuple[str, int, int, int, ErrorCode]  # Topic, partition, start, lag, code.


def group_of(
    node: Node, topics: Mapping[str, tuple[int, ...]] | None, group: str = "g"
) -> DescribeShareGroupOffsetsResponseGroup:
    asked = describing.DescribeShareGroupOffsetsRequestGroup(
        group_id=GroupId(group),
        topics=None
        if topics is None
        else tuple(
            describing.DescribeShareGroupOffsetsRequestTopic(
                topic_name=TopicName(name), partitions=tuple(map(i32, numbers))
            )
            for name, numbers in topics.items()
        ),
    )
    request = describing.DescribeShareGroupOffsetsRequest(groups=(asked,))
    (found,) = finish(describe_share_group_offsets.handle(node.context, request)).groups
    return found


def rows(node: Node, topics: Mapping[str, tuple[int, ...]] | None = None) -> list[Row]:
    found = group_of(node, topics)
    assert found.error_code is ErrorCode.none
    return [
        (topic.topic_name, each.partition_index, each.start_offset, each.lag, each.error_code)
        for topic in found.topics
        for each in topic.partitions
    ]


async def alter(
    node: Node, offsets: Mapping[tuple[str, int], int], group: str = "g"
) -> AlterShareGroupOffsetsResponse:
    request = altering.AlterShareGroupOffsetsRequest(
        group_id=GroupId(group),
        topics=tuple(
            altering.AlterShareGroupOffsetsRequestTopic(
                topic_name=TopicName(name),
                partitions=(
                    altering.AlterShareGroupOffsetsRequestPartition(
                        partition_index=i32(number), start_offset=i64(offset)
                    ),
                ),
            )
            for (name, number), offset in offsets.items()
        ),
    )
    return await alter_share_group_offsets.handle(node.context, request)


async def delete(node: Node, *names: str) -> DeleteShareGroupOffsetsResponse:
    request = deleting.DeleteShareGroupOffsetsRequest(
        group_id=GroupId("g"),
        topics=tuple(
            deleting.DeleteShareGroupOffsetsRequestTopic(topic_name=TopicName(name))
            for name in names
        ),
    )
    return await delete_share_group_offsets.handle(node.context, request)


@on_node()
async def test_where_a_group_stands(node: Node) -> None:
    member = await opened(node, partitions=2, records=5)
    await member.fetch()
    await member.acknowledge({0: [(0, 1, ACCEPT), (3, 3, ACCEPT)]})
    none = ErrorCode.none
    assert rows(node) == [("t", 0, 2, 2, none), ("t", 1, 0, 0, none)]
    unknown = ErrorCode.unknown_topic_or_partition
    assert rows(node, {"t": (1, 9), "u": (0,)}) == [
        ("t", 1, 0, 0, none),
        ("t", 9, -1, -1, none),
        ("u", 0, -1, -1, unknown),
    ]
    assert group_of(node, None, "other").error_code is ErrorCode.group_id_not_found


@on_node()
async def test_a_refused_partition_is_said_to_be_one(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await beat(node, topics=("t",))
    topic = node.context.broker.topic("t")
    node.context.broker.served_partition(topic, 0).partition.refuse("damaged")
    assert rows(node) == [("t", 0, -1, -1, ErrorCode.kafka_storage_error)]


@on_node()
async def test_offsets_are_altered(node: Node) -> None:
    await opened(node, records=5)
    assert (await alter(node, {("t", 0): 3})).error_code is ErrorCode.non_empty_group
    await beat(node, epoch=-1)
    answer = await alter(node, {("t", 0): 3, ("u", 0): 1})
    assert answer.error_code is ErrorCode.none
    known, unknown = answer.responses
    assert (known.topic_id is not None, known.partitions[0].error_code) == (True, ErrorCode.none)
    assert unknown.partitions[0].error_code is ErrorCode.unknown_topic_or_partition
    (row,) = (await alter(node, {("t", 0): 6})).responses
    assert row.partitions[0].error_code is ErrorCode.offset_out_of_range
    assert row.partitions[0].error_message
    await node.power_fails()
    assert await Member(node).get() == [(3, 4, 1)]
    deny_everything(node)
    denied = await alter(node, {("t", 0): 3})
    assert denied.error_code is ErrorCode.group_authorization_failed


@on_node()
async def test_topics_are_forgotten(node: Node) -> None:
    await opened(node, records=5)
    assert (await delete(node, "t")).error_code is ErrorCode.non_empty_group
    await beat(node, epoch=-1)
    answer = await delete(node, "t", "u")
    codes = [each.error_code for each in answer.responses]
    assert codes == [ErrorCode.none, ErrorCode.unknown_topic_or_partition]
    assert (await delete(node)).error_code is ErrorCode.group_id_not_found  # Nothing was left.


@on_node()
async def test_a_group_is_listed_and_deleted(node: Node) -> None:
    await opened(node)

    def listed(*types: str) -> list[tuple[str, str, str]]:
        request = ListGroupsRequest(states_filter=(), types_filter=types)
        found = finish(list_groups.handle(node.context, request)).groups
        return [(each.group_id, each.group_state, each.group_type) for each in found]

    async def deleted() -> ErrorCode:
        request = DeleteGroupsRequest(groups_names=(GroupId("g"),))
        (result,) = (await delete_groups.handle(node.context, request)).results
        return result.error_code

    assert listed() == listed("share") == [("g", "Stable", "share")]
    assert listed("consumer") == []
    assert await deleted() is ErrorCode.non_empty_group
    await beat(node, epoch=-1)
    assert await deleted() is ErrorCode.none
    assert listed() == []
    await node.power_fails()
    assert await deleted() is ErrorCode.group_id_not_found
