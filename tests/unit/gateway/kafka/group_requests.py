"""Requests about consumer groups, as short as a test wants them."""

from datetime import timedelta
from typing import Any
from uuid import UUID

from kio.schema.consumer_group_heartbeat.v1 import request as modern
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.offset_commit.v9 import request as commits
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from entrepot.core.steps import finish
from entrepot.gateway.kafka import consumer_group_heartbeat, join_group, sync_group
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.frames import RequestHeader
from tests.unit.gateway.kafka.node import Node

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t"  # To the topic "t".


def ms(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))


def header(api: Api, version: int | None = None, client_id: str | None = "client") -> RequestHeader:
    return RequestHeader(api, api.version_last if version is None else version, 1, client_id)


def deny_everything(node: Node) -> None:
    """From now on nobody may do anything."""
    node.context.broker.access.is_enforced = True


async def join(
    node: Node, group: str = "g", member_id: str = "", **options: Any
) -> JoinGroupResponse:
    version = options.pop("version", 9)
    request = JoinGroupRequest(
        group_id=GroupId(group),
        session_timeout=options.pop("session", ms(10_000)),
        rebalance_timeout=options.pop("rebalance", ms(30_000)),
        member_id=member_id,
        group_instance_id=options.pop("instance", None),
        protocol_type="consumer",
        protocols=(JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),),
    )
    assert not options, options
    return await join_group.handle(node.context, header(Api.JOIN_GROUP, version), request)


async def sync(
    node: Node, group: str, member_id: str, generation: int, **parts: bytes
) -> SyncGroupResponse:
    """The leader's, when it has parts; `me` is its own."""
    request = SyncGroupRequest(
        group_id=GroupId(group),
        generation_id=i32(generation),
        member_id=member_id,
        assignments=tuple(
            SyncGroupRequestAssignment(member_id=member_id if who == "me" else who, assignment=part)
            for who, part in parts.items()
        ),
    )
    return await sync_group.handle(node.context, request)


async def stable(node: Node, group: str = "g") -> tuple[str, int]:
    """A group of one member: its id, and the generation."""
    first = await join(node, group)
    joined = await join(node, group, first.member_id)
    synced = await sync(node, group, joined.member_id, joined.generation_id, me=b"all")
    assert synced.assignment == b"all"
    return joined.member_id, int(joined.generation_id)


async def beat(
    node: Node, group: str, member_id: str, epoch: int = 0, **options: Any
) -> ConsumerGroupHeartbeatResponse:
    version = options.pop("version", 1)
    if epoch == 0:
        options = {"topics": ("t",), "owned": {}, "rebalance": 5_000, **options}
    owned: dict[UUID, tuple[int, ...]] | None = options.pop("owned", None)
    topics = options.pop("topics", None)
    request = modern.ConsumerGroupHeartbeatRequest(
        group_id=GroupId(group),
        member_id=member_id,
        member_epoch=i32(epoch),
        instance_id=options.pop("instance", None),
        rebalance_timeout=ms(options.pop("rebalance", -1)),
        subscribed_topic_names=None if topics is None else tuple(map(TopicName, topics)),
        subscribed_topic_regex=options.pop("regex", None),
        server_assignor=options.pop("assignor", None),
        topic_partitions=None
        if owned is None
        else tuple(
            modern.TopicPartitions(topic_id=topic, partitions=tuple(map(i32, numbers)))
            for topic, numbers in owned.items()
        ),
    )
    assert not options, options
    return await answered(node, request, version)


async def answered(
    node: Node, request: modern.ConsumerGroupHeartbeatRequest, version: int = 1
) -> ConsumerGroupHeartbeatResponse:
    asking = header(Api.CONSUMER_GROUP_HEARTBEAT, version)
    asked = consumer_group_heartbeat.understand(node.context, asking, request)
    told = consumer_group_heartbeat.ask(node.context, asked)
    if isinstance(told, tuple):
        return finish(consumer_group_heartbeat.respond(told))
    return finish(consumer_group_heartbeat.respond(await told))


def commit_request(
    group: str,
    *rows: tuple[str, int, int],
    member_id: str = "",
    generation: int = -1,
    **options: Any,
) -> commits.OffsetCommitRequest:
    """Rows are topic, partition, offset."""
    return commits.OffsetCommitRequest(
        group_id=GroupId(group),
        generation_id_or_member_epoch=i32(generation),
        member_id=member_id,
        group_instance_id=options.get("instance"),
        topics=tuple(
            commits.OffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=(
                    commits.OffsetCommitRequestPartition(
                        partition_index=i32(partition),
                        committed_offset=i64(offset),
                        committed_leader_epoch=i32(options.get("leader_epoch", -1)),
                        committed_metadata=options.get("metadata", "here"),
                    ),
                ),
            )
            for topic, partition, offset in rows
        ),
    )
