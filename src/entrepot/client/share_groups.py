"""Share groups, looked at from outside."""

from typing import NamedTuple

from kio.schema.describe_share_group_offsets.v1.request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kio.schema.describe_share_group_offsets.v1.response import DescribeShareGroupOffsetsResponse
from kio.schema.share_group_describe.v1.request import ShareGroupDescribeRequest
from kio.schema.share_group_describe.v1.response import Member, ShareGroupDescribeResponse
from kio.schema.types import GroupId

from entrepot.client.client import Client, TopicPartition
from entrepot.client.errors import check
from entrepot.client.groups import GroupInfo, GroupMember


class SharedPartition(NamedTuple):
    """How far a share group is in a partition; None is what is not known."""

    part: TopicPartition
    offset_start: int | None  # The oldest that is not settled.
    leader_epoch: int | None
    lag: int | None


class ShareGroupAdmin:
    def __init__(self, client: Client) -> None:
        self._cluster = client.cluster

    async def describe(self, group: str) -> GroupInfo:
        """Raises Refused with GROUP_ID_NOT_FOUND where there is none."""
        request = ShareGroupDescribeRequest(
            group_ids=(GroupId(group),), include_authorized_operations=False
        )

        async def attempt() -> GroupInfo:
            answer = await self._cluster.ask_coordinator(group, request, ShareGroupDescribeResponse)
            (found,) = answer.groups
            check(found.error_code, f"group {group}", found.error_message)
            return GroupInfo(
                name=group,
                state=found.group_state,
                assignor=found.assignor_name,
                coordinator=await self._cluster.coordinator(group),
                members=tuple(map(_member, sorted(found.members, key=lambda m: m.member_id))),
                epoch=int(found.group_epoch),
                epoch_target=int(found.assignment_epoch),
            )

        return await self._cluster.retry(attempt)

    async def offsets(self, group: str) -> list[SharedPartition]:
        """All partitions that the group reads, in order."""
        asked = DescribeShareGroupOffsetsRequestGroup(group_id=GroupId(group), topics=None)
        request = DescribeShareGroupOffsetsRequest(groups=(asked,))

        async def attempt() -> list[SharedPartition]:
            answer = await self._cluster.ask_coordinator(
                group, request, DescribeShareGroupOffsetsResponse
            )
            (found,) = answer.groups
            check(found.error_code, f"group {group}", found.error_message)
            return sorted(
                SharedPartition(
                    TopicPartition(topic.topic_name, each.partition_index),
                    _known(each.start_offset),
                    _known(each.leader_epoch),
                    _known(each.lag),
                )
                for topic in found.topics
                for each in topic.partitions
            )

        return await self._cluster.retry(attempt)


def _known(number: int) -> int | None:
    return number if number >= 0 else None


def _member(member: Member) -> GroupMember:
    return GroupMember(
        id=member.member_id,
        instance_id=None,
        client_id=member.client_id,
        host=member.client_host,
        parts=tuple(
            TopicPartition(topic.topic_name, partition)
            for topic in member.assignment.topic_partitions
            for partition in topic.partitions
        ),
        epoch=int(member.member_epoch),
    )
