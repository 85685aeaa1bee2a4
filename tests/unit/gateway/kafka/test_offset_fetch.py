from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v7 import request as v7
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse as ResponseForOne
from kio.schema.offset_fetch.v9 import request as v9
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse as ResponseByName
from kio.schema.offset_fetch.v9.response import OffsetFetchResponseGroup
from kio.schema.offset_fetch.v10 import request as v10
from kio.schema.offset_fetch.v10.response import OffsetFetchResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.core.steps import finish
from entrepot.gateway.kafka.offset_fetch import handle
from tests.unit.gateway.kafka.group_requests import beat, deny_everything
from tests.unit.gateway.kafka.node import Node, on_node

Topics = dict[str, tuple[int, ...]] | None


async def committed(node: Node, group: str = "g", **options: tuple[int, int]) -> None:
    """Topic "t": partition 0 at 5, with a word; others are not committed."""
    await node.context.broker.groups.commit_offsets(
        group,
        "",
        -1,
        {TopicPartition("t", 0): CommittedOffset(5, 2, "here", -1)},
        **options,  # type: ignore[arg-type]
    )


def fetch(
    node: Node,
    topics: Topics,
    group: str = "g",
    *,
    stable: bool = False,
    member_id: str | None = None,
    epoch: int = -1,
) -> OffsetFetchResponseGroup:
    asked = v9.OffsetFetchRequestGroup(
        group_id=GroupId(group),
        member_id=member_id,
        member_epoch=i32(epoch),
        topics=None
        if topics is None
        else tuple(
            v9.OffsetFetchRequestTopics(
                name=TopicName(name), partition_indexes=tuple(map(i32, indexes))
            )
            for name, indexes in topics.items()
        ),
    )
    response = finish(
        handle(node.context, v9.OffsetFetchRequest(groups=(asked,), require_stable=stable))
    )
    assert isinstance(response, ResponseByName)
    (found,) = response.groups
    return found


def rows(found: OffsetFetchResponseGroup) -> list[tuple[str, int, int, ErrorCode]]:
    return [
        (topic.name, each.partition_index, each.committed_offset, each.error_code)
        for topic in found.topics
        for each in topic.partitions
    ]


@on_node()
async def test_what_was_committed(node: Node) -> None:
    await node.context.broker.create_topic("t", 2)
    await committed(node)
    found = fetch(node, {"t": (0, 1, 7), "none": (0,)})
    assert found.error_code is ErrorCode.none
    assert rows(found) == [
        ("t", 0, 5, ErrorCode.none),
        ("t", 1, -1, ErrorCode.none),
        ("t", 7, -1, ErrorCode.none),
        ("none", 0, -1, ErrorCode.none),
    ]
    first, second = found.topics[0].partitions[:2]
    assert (first.committed_leader_epoch, first.metadata) == (2, "here")
    assert (second.committed_leader_epoch, second.metadata) == (-1, "")


@on_node()
async def test_all_of_it(node: Node) -> None:
    await node.context.broker.create_topic("t", 2)
    await committed(node)
    assert rows(fetch(node, None)) == [("t", 0, 5, ErrorCode.none)]
    assert rows(fetch(node, None, "none")) == []


@on_node()
async def test_one_group_before_v8(node: Node) -> None:
    await node.context.broker.create_topic("t", 2)
    await committed(node)
    topic = v7.OffsetFetchRequestTopic(name=TopicName("t"), partition_indexes=(i32(0),))
    for topics in ((topic,), None):
        response = finish(
            handle(node.context, v7.OffsetFetchRequest(group_id=GroupId("g"), topics=topics))
        )
        assert isinstance(response, ResponseForOne)
        assert response.error_code is ErrorCode.none
        (found,) = response.topics[0].partitions
        assert (found.committed_offset, found.metadata) == (5, "here")


@on_node()
async def test_topics_by_id(node: Node) -> None:
    topic = await node.context.broker.create_topic("t", 1)
    await committed(node)
    asked = tuple(
        v10.OffsetFetchRequestTopics(topic_id=each, partition_indexes=(i32(0),))
        for each in (topic.id, UUID(int=9))
    )
    groups = tuple(
        v10.OffsetFetchRequestGroup(group_id=GroupId("g"), topics=topics)
        for topics in (asked, None)
    )
    response = finish(handle(node.context, v10.OffsetFetchRequest(groups=groups)))
    assert isinstance(response, OffsetFetchResponse)
    named, everything = response.groups
    assert [
        (each.topic_id, each.partitions[0].committed_offset, each.partitions[0].error_code)
        for each in named.topics
    ] == [(topic.id, 5, ErrorCode.none), (UUID(int=9), -1, ErrorCode.unknown_topic_id)]
    assert [each.topic_id for each in everything.topics] == [topic.id]


@on_node()
async def test_what_a_transaction_is_about_to_change(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await committed(node)
    await committed(node, producer=(9, 0))
    unstable = [("t", 0, -1, ErrorCode.unstable_offset_commit)]
    assert rows(fetch(node, {"t": (0,)}, stable=True)) == unstable
    assert rows(fetch(node, None, stable=True)) == unstable
    assert rows(fetch(node, {"t": (0,)})) == [("t", 0, 5, ErrorCode.none)]


@on_node()
async def test_a_member_of_a_modern_group_that_is_behind(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    epoch = (await beat(node, "g", "m")).member_epoch
    codes = {
        ("m", int(epoch)): ErrorCode.none,
        ("m", epoch - 1): ErrorCode.stale_member_epoch,
        ("nobody", int(epoch)): ErrorCode.unknown_member_id,
        (None, -1): ErrorCode.none,
    }
    for (who, when), code in codes.items():
        assert fetch(node, None, member_id=who, epoch=when).error_code is code


@on_node()
async def test_who_may_not(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    await committed(node)
    deny_everything(node)
    found = fetch(node, None)
    assert (found.error_code, found.topics) == (ErrorCode.group_authorization_failed, ())
