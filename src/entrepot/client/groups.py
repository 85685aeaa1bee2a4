"""Consumer groups, looked at and changed from outside.

There are groups of two protocols. The older keeps what members say of themselves as
bytes, the newer knows their partitions; here they look alike. Which one a group is of,
only asking tells: the newer request first, as Kafka's tools do.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kio.schema.consumer_group_describe.v1 import response as modern
from kio.schema.consumer_group_describe.v1.request import ConsumerGroupDescribeRequest
from kio.schema.delete_groups.v2.request import DeleteGroupsRequest
from kio.schema.delete_groups.v2.response import DeleteGroupsResponse
from kio.schema.describe_groups.v6 import response as classic
from kio.schema.describe_groups.v6.request import DescribeGroupsRequest
from kio.schema.errors import ErrorCode
from kio.schema.list_groups.v5.request import ListGroupsRequest
from kio.schema.list_groups.v5.response import ListGroupsResponse
from kio.schema.offset_delete.v0.request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kio.schema.offset_delete.v0.response import OffsetDeleteResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32

from entrepot.client.assignment import decode_assignment
from entrepot.client.client import LATEST, Client, TopicPartition, by_topic
from entrepot.client.cluster import Broker, TopicInfo
from entrepot.client.errors import Refused, Unsupported, check
from entrepot.client.offsets import commit_offsets, committed_offsets

DEAD = "Dead"
EMPTY = "Empty"
_SHARE = "share"
_CONSUMER = "consumer"  # The protocol type of groups that read topics; an empty one may have none.


@dataclass(frozen=True, slots=True)
class GroupListing:
    name: str
    state: str
    kind: str  # classic, consumer or share: the protocol.


@dataclass(frozen=True, slots=True)
class GroupMember:
    id: str
    instance_id: str | None
    client_id: str
    host: str
    parts: tuple[TopicPartition, ...]
    epoch: int | None = None  # This and the next are of the newer protocol.
    parts_target: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupInfo:
    name: str
    state: str
    assignor: str
    coordinator: Broker
    members: tuple[GroupMember, ...]
    epoch: int | None = None
    epoch_target: int | None = None

    def owner(self, part: TopicPartition) -> GroupMember | None:
        return next((member for member in self.members if part in member.parts), None)


class GroupAdmin:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = client.cluster

    async def all(self, *, with_share: bool = False) -> list[GroupListing]:
        """The consumer groups of every broker, by name; with share groups, if told so."""
        kinds = (_CONSUMER, "", _SHARE) if with_share else (_CONSUMER, "")
        request = ListGroupsRequest(states_filter=(), types_filter=())

        async def of(node: int) -> list[GroupListing]:
            answer = await self._cluster.ask(request, ListGroupsResponse, node=node)
            check(answer.error_code, "groups")
            return [
                GroupListing(each.group_id, each.group_state, each.group_type.lower())
                for each in answer.groups
                if each.protocol_type in kinds
            ]

        async def attempt() -> list[GroupListing]:
            await self._cluster.describe([])
            lists = await asyncio.gather(*map(of, self._cluster.brokers))
            return sorted((each for one in lists for each in one), key=lambda each: each.name)

        return await self._cluster.retry(attempt)

    async def describe(self, group: str) -> GroupInfo:
        """Raises Refused with GROUP_ID_NOT_FOUND where there is none."""

        async def attempt() -> GroupInfo:
            try:
                found = await self._describe_modern(group)
            except Unsupported:
                found = None
            return found or await self._describe_classic(group)

        return await self._cluster.retry(attempt)

    async def _describe_modern(self, group: str) -> GroupInfo | None:
        request = ConsumerGroupDescribeRequest(
            group_ids=(GroupId(group),), include_authorized_operations=False
        )
        answer = await self._cluster.ask_coordinator(
            group, request, modern.ConsumerGroupDescribeResponse
        )
        (found,) = answer.groups
        if found.error_code is ErrorCode.group_id_not_found:
            return None
        check(found.error_code, f"group {group}", found.error_message)
        return GroupInfo(
            name=group,
            state=found.group_state,
            assignor=found.assignor_name,
            coordinator=await self._cluster.coordinator(group),
            members=tuple(map(_modern_member, found.members)),
            epoch=int(found.group_epoch),
            epoch_target=int(found.assignment_epoch),
        )

    async def _describe_classic(self, group: str) -> GroupInfo:
        request = DescribeGroupsRequest(
            groups=(GroupId(group),), include_authorized_operations=False
        )
        answer = await self._cluster.ask_coordinator(group, request, classic.DescribeGroupsResponse)
        (found,) = answer.groups
        check(found.error_code, f"group {group}", found.error_message)
        if found.group_state == DEAD:
            raise Refused(ErrorCode.group_id_not_found, f"group {group}")
        return GroupInfo(
            name=group,
            state=found.group_state,
            assignor=found.protocol_data,
            coordinator=await self._cluster.coordinator(group),
            members=tuple(map(_classic_member, found.members)),
        )

    async def offsets(self, group: str) -> dict[TopicPartition, int]:
        """What is committed, by partition."""
        return dict(sorted((await committed_offsets(self._cluster, group)).items()))

    async def ends(self, parts: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Where these partitions end. A topic may be gone while a group remembers it."""
        wanted = list(parts)
        topics = list(dict.fromkeys(part.topic for part in wanted))
        infos = await self._cluster.retry(lambda: self._cluster.describe(topics))
        counts = {info.name: len(info.partitions) for info in infos if isinstance(info, TopicInfo)}
        there = [part for part in wanted if part.partition < counts.get(part.topic, 0)]
        found = await self._client.list_offsets(dict.fromkeys(there, LATEST))
        return {part: place.offset for part, place in found.items()}

    async def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """For a group without members, or which is not there yet."""
        await commit_offsets(self._cluster, group, offsets)

    async def delete(self, group: str) -> None:
        request = DeleteGroupsRequest(groups_names=(GroupId(group),))

        async def attempt() -> None:
            answer = await self._cluster.ask_coordinator(group, request, DeleteGroupsResponse)
            for each in answer.results:
                check(each.error_code, f"group {group}")

        await self._cluster.retry(attempt)

    async def delete_offsets(
        self, group: str, parts: Iterable[TopicPartition]
    ) -> dict[TopicPartition, Refused | None]:
        """Forget what is committed there."""
        request = OffsetDeleteRequest(
            group_id=GroupId(group),
            topics=tuple(
                OffsetDeleteRequestTopic(
                    name=TopicName(topic),
                    partitions=tuple(
                        OffsetDeleteRequestPartition(partition_index=i32(p)) for p, _ in partitions
                    ),
                )
                for topic, partitions in by_topic(dict.fromkeys(parts))
            ),
        )

        async def attempt() -> dict[TopicPartition, Refused | None]:
            answer = await self._cluster.ask_coordinator(group, request, OffsetDeleteResponse)
            check(answer.error_code, f"group {group}")
            found: dict[TopicPartition, Refused | None] = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    name = TopicPartition(topic.name, each.partition_index)
                    is_done = each.error_code is ErrorCode.none
                    found[name] = None if is_done else Refused(each.error_code, name)
            return found

        return await self._cluster.retry(attempt)


def _modern_member(member: modern.Member) -> GroupMember:
    return GroupMember(
        id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        parts=_parts(member.assignment),
        epoch=int(member.member_epoch),
        parts_target=_parts(member.target_assignment),
    )


def _parts(assignment: modern.Assignment) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(each.topic_name, partition)
        for each in assignment.topic_partitions
        for partition in each.partitions
    )


def _classic_member(member: classic.DescribedGroupMember) -> GroupMember:
    return GroupMember(
        id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        parts=tuple(decode_assignment(member.member_assignment)),
    )
