"""How far a group has read: what its coordinator keeps for it."""

from collections.abc import Iterable, Mapping

from kio.schema.offset_commit.v9.request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kio.schema.offset_commit.v9.response import OffsetCommitResponse
from kio.schema.offset_fetch.v7.request import OffsetFetchRequest, OffsetFetchRequestTopic
from kio.schema.offset_fetch.v7.response import OffsetFetchResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i64

from entrepot.client.client import TopicPartition, by_topic
from entrepot.client.cluster import Cluster
from entrepot.client.errors import check

NO_GENERATION = -1
NOBODY = ("", NO_GENERATION)  # Who commits for a group that has no members.


async def committed_offsets(
    cluster: Cluster, group: str, parts: Iterable[TopicPartition] | None = None
) -> dict[TopicPartition, int]:
    """Of these partitions, or of all, those that have one."""
    topics = None
    if parts is not None:
        topics = tuple(
            OffsetFetchRequestTopic(
                name=TopicName(topic), partition_indexes=tuple(i32(p) for p, _ in partitions)
            )
            for topic, partitions in by_topic(dict.fromkeys(parts))
        )
        if not topics:
            return {}
    request = OffsetFetchRequest(group_id=GroupId(group), topics=topics, require_stable=True)

    async def attempt() -> dict[TopicPartition, int]:
        answer = await cluster.ask_coordinator(group, request, OffsetFetchResponse)
        check(answer.error_code, f"group {group}")
        found = {}
        for topic in answer.topics:
            for each in topic.partitions:
                name = TopicPartition(topic.name, each.partition_index)
                check(each.error_code, name)
                if each.committed_offset >= 0:
                    found[name] = int(each.committed_offset)
        return found

    return await cluster.retry(attempt)


async def commit_offsets(
    cluster: Cluster,
    group: str,
    offsets: Mapping[TopicPartition, int],
    who: tuple[str, int] = NOBODY,
) -> None:
    """`who` is a member's id and its generation."""
    member_id, generation = who
    request = OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=i32(generation),
        member_id=member_id,
        group_instance_id=None,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=i32(p), committed_offset=i64(o), committed_metadata=""
                    )
                    for p, o in partitions
                ),
            )
            for topic, partitions in by_topic(offsets)
        ),
    )

    async def attempt() -> None:
        answer = await cluster.ask_coordinator(group, request, OffsetCommitResponse)
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, TopicPartition(topic.name, each.partition_index))

    await cluster.retry(attempt)
