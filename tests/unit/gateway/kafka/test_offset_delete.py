from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0 import request as v0
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.gateway.kafka.offset_delete import handle
from tests.unit.gateway.kafka.group_requests import deny_everything, stable
from tests.unit.gateway.kafka.node import Node, on_node


async def delete(node: Node, group: str, **topics: tuple[int, ...]) -> OffsetDeleteResponse:
    request = v0.OffsetDeleteRequest(
        group_id=GroupId(group),
        topics=tuple(
            v0.OffsetDeleteRequestTopic(
                name=TopicName(name),
                partitions=tuple(
                    v0.OffsetDeleteRequestPartition(partition_index=i32(each)) for each in indexes
                ),
            )
            for name, indexes in topics.items()
        ),
    )
    return await handle(node.context, request)


def codes(response: OffsetDeleteResponse) -> list[ErrorCode]:
    return [each.error_code for topic in response.topics for each in topic.partitions]


@on_node()
async def test_what_is_deleted_and_what_is_not(node: Node) -> None:
    broker = node.context.broker
    await broker.create_topic("t", 1)
    await broker.create_topic("u", 1)
    offsets = {TopicPartition(name, 0): CommittedOffset(5, -1, "", -1) for name in ("t", "u")}
    await broker.groups.commit_offsets("g", "", -1, offsets)
    await stable(node)  # Its member reads "t".
    response = await delete(node, "g", t=(0,), u=(0, 3), none=(0,))
    unknown = ErrorCode.unknown_topic_or_partition
    assert response.error_code is ErrorCode.none
    assert codes(response) == [
        ErrorCode.group_subscribed_to_topic,
        ErrorCode.none,
        unknown,
        unknown,
    ]
    left = broker.groups.fetch_offsets("g", None)
    assert [place.topic for place in left] == ["t"]


@on_node()
async def test_refusals(node: Node) -> None:
    assert (await delete(node, "none", t=(0,))).error_code is ErrorCode.group_id_not_found
    deny_everything(node)
    assert (await delete(node, "g", t=(0,))).error_code is ErrorCode.group_authorization_failed
