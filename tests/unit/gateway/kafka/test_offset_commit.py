import errno
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9.request import OffsetCommitRequest as RequestByName
from kio.schema.offset_commit.v9.response import OffsetCommitResponse as ResponseByName
from kio.schema.offset_commit.v10 import request as v10
from kio.schema.offset_commit.v10.response import OffsetCommitResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32, i64

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.gateway.kafka.offset_commit import handle
from entrepot.wire.kafka.api import Api
from tests.unit.gateway.kafka.group_requests import (
    beat,
    commit_request,
    deny_everything,
    header,
    join,
    stable,
)
from tests.unit.gateway.kafka.node import Node, on_node


async def commit(node: Node, request: RequestByName, version: int = 9) -> list[ErrorCode]:
    response = await handle(node.context, header(Api.OFFSET_COMMIT, version), request)
    assert isinstance(response, ResponseByName)
    named = [
        (topic.name, each.partition_index) for topic in response.topics for each in topic.partitions
    ]
    asked = [
        (topic.name, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    assert named == asked
    return [each.error_code for topic in response.topics for each in topic.partitions]


@on_node()
async def test_a_commit_and_what_becomes_of_it(node: Node) -> None:
    await node.context.broker.create_topic("t", 2)
    request = commit_request("g", ("t", 0, 5), ("t", 1, 7), leader_epoch=3)
    assert await commit(node, request) == [ErrorCode.none] * 2
    found = node.context.broker.groups.fetch_offsets("g", [TopicPartition("t", 1)])[
        TopicPartition("t", 1)
    ]
    assert isinstance(found, CommittedOffset)
    assert (found.offset, found.leader_epoch, found.metadata) == (7, 3, "here")
    assert 0 <= node.clock.now_ms() - found.commit_ms < 1_000


@on_node()
async def test_each_partition_has_its_own_answer(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    request = commit_request("g", ("t", 0, 5), ("t", 1, 5), ("none", 0, 5), ("t", -1, 5))
    unknown = ErrorCode.unknown_topic_or_partition
    assert await commit(node, request) == [ErrorCode.none, unknown, unknown, unknown]
    nothing = commit_request("none", ("t", 9, 5), generation=3)
    assert await commit(node, nothing) == [unknown]
    huge = commit_request("g", ("t", 0, 5), metadata="x" * 4_097)
    assert await commit(node, huge) == [ErrorCode.offset_metadata_too_large]
    null = commit_request("g", ("t", 0, 6), metadata=None)
    assert await commit(node, null) == [ErrorCode.none]


@on_node()
async def test_only_members_commit_to_a_group_that_has_some(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    member_id, generation = await stable(node)

    async def code(who: str, when: int, instance: str | None = None) -> ErrorCode:
        request = commit_request(
            "g", ("t", 0, 5), member_id=who, generation=when, instance=instance
        )
        return (await commit(node, request))[0]

    assert await code(member_id, generation) is ErrorCode.none
    assert await code(member_id, generation - 1) is ErrorCode.illegal_generation
    assert await code("nobody", generation) is ErrorCode.unknown_member_id
    assert await code("", -1) is ErrorCode.unknown_member_id
    assert await code(member_id, generation, "i") is ErrorCode.unknown_member_id
    await join(node, "g", member_id)  # Alone, so the next generation is there at once.
    assert await code(member_id, generation + 1) is ErrorCode.rebalance_in_progress


@on_node()
async def test_a_group_that_there_is_not(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    request = commit_request("none", ("t", 0, 5), member_id="m", generation=3)
    assert await commit(node, request, 9) == [ErrorCode.group_id_not_found]
    assert await commit(node, request, 8) == [ErrorCode.illegal_generation]


@on_node()
async def test_members_of_modern_groups(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    epoch = (await beat(node, "g", "m")).member_epoch
    good = commit_request("g", ("t", 0, 5), member_id="m", generation=epoch)
    old = commit_request("g", ("t", 0, 5), member_id="m", generation=epoch - 1)
    assert await commit(node, good) == [ErrorCode.none]
    assert await commit(node, old) == [ErrorCode.stale_member_epoch]
    assert await commit(node, old, 8) == [ErrorCode.unsupported_version]


@on_node()
async def test_topics_by_id(node: Node) -> None:
    topic = await node.context.broker.create_topic("t", 1)
    partition = v10.OffsetCommitRequestPartition(
        partition_index=i32(0), committed_offset=i64(5), committed_metadata=""
    )
    request = v10.OffsetCommitRequest(
        group_id=GroupId("g"),
        member_id="",
        topics=tuple(
            v10.OffsetCommitRequestTopic(topic_id=each, partitions=(partition,))
            for each in (topic.id, UUID(int=9), None)
        ),
    )
    response = await handle(node.context, header(Api.OFFSET_COMMIT), request)
    assert isinstance(response, OffsetCommitResponse)
    assert [(each.topic_id, each.partitions[0].error_code) for each in response.topics] == [
        (topic.id, ErrorCode.none),
        (UUID(int=9), ErrorCode.unknown_topic_id),
        (None, ErrorCode.unknown_topic_id),
    ]


@on_node()
async def test_a_disk_that_fails(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    request = commit_request("g", ("t", 0, 5))
    assert await commit(node, request) == [ErrorCode.none]
    node.disk.fail_next("write", errno.ENOSPC, "partitions/__consumer_offsets*")
    assert await commit(node, request) == [ErrorCode.coordinator_not_available]
    assert await commit(node, request) == [ErrorCode.none]


@on_node()
async def test_who_may_not(node: Node) -> None:
    await node.context.broker.create_topic("t", 1)
    deny_everything(node)
    request = commit_request("g", ("t", 0, 5), ("none", 0, 5))
    assert await commit(node, request) == [ErrorCode.group_authorization_failed] * 2
