"""Requests of share consumers, as short as a test wants them."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

from kio.schema.incremental_alter_configs.v1.request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kio.schema.share_acknowledge.v2 import request as acknowledging
from kio.schema.share_acknowledge.v2.response import ShareAcknowledgeResponse
from kio.schema.share_fetch.v2 import request as fetching
from kio.schema.share_fetch.v2.response import PartitionData, ShareFetchResponse
from kio.schema.share_group_heartbeat.v1.request import ShareGroupHeartbeatRequest
from kio.schema.share_group_heartbeat.v1.response import ShareGroupHeartbeatResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i8, i32, i64

from entrepot.core.steps import finish
from entrepot.gateway.kafka import (
    incremental_alter_configs,
    share_acknowledge,
    share_fetch,
    share_group_heartbeat,
)
from entrepot.gateway.kafka.context import Context
from entrepot.wire.kafka.api import Api, request_class, response_class
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.layout import encode
from tests.unit.gateway.kafka.group_requests import header, ms
from tests.unit.gateway.kafka.node import Node
from tests.unit.gateway.kafka.serving import Answer
from tests.unit.wire.kafka.oracle import kio_read

ACCEPT, RELEASE, REJECT, RENEW = 1, 2, 3, 4
GROUP_RESOURCE = 32

Acks = dict[int, list[tuple[int, int, int]]]  # By partition: first, last, type.


async def configure(node: Node, group: str = "g", **settings: str) -> None:
    """Settings with `_` for their dots."""
    resource = AlterConfigsResource(
        resource_type=i8(GROUP_RESOURCE),
        resource_name=group,
        configs=tuple(
            AlterableConfig(name=name.replace("_", "."), config_operation=i8(0), value=value)
            for name, value in settings.items()
        ),
    )
    request = IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
    (answer,) = (await incremental_alter_configs.handle(node.context, request)).responses
    assert answer.error_message is None


async def beat(
    node: Node,
    group: str = "g",
    member: str = "m",
    epoch: int = 0,
    topics: tuple[str, ...] | None = None,
) -> ShareGroupHeartbeatResponse:
    request = ShareGroupHeartbeatRequest(
        group_id=GroupId(group),
        member_id=member,
        member_epoch=i32(epoch),
        subscribed_topic_names=None if topics is None else tuple(map(TopicName, topics)),
    )
    asking = header(Api.SHARE_GROUP_HEARTBEAT)
    asked = share_group_heartbeat.understand(node.context, asking, request)
    told = share_group_heartbeat.ask(node.context, asked)
    if isinstance(told, tuple):
        return finish(share_group_heartbeat.respond(told))
    return finish(share_group_heartbeat.respond(await told))


class Member:
    """A share consumer on a connection of its own, which keeps count of its epochs."""

    def __init__(self, node: Node, name: str = "m", group: str = "g", topic: str = "t") -> None:
        context = node.context
        made = (context.broker, context.clock, context.sessions)
        self.context = Context(*made, context.node_id, "h", 1, context.principal)
        self.name, self.group, self.epoch = name, group, 0
        self.topic_id: UUID = context.broker.topic(topic).id

    def begin(self, **options: Any) -> tuple[asyncio.Future[None], Answer]:
        """A fetch on its way."""
        version = options.pop("version", 2)
        acks: Acks = options.pop("acks", {})
        partitions: tuple[int, ...] = options.pop("partitions", (0,) if not self.epoch else ())
        epoch = options.pop("epoch", self.epoch)
        topics = [
            fetching.FetchTopic(
                topic_id=options.pop("topic_id", self.topic_id),
                partitions=tuple(
                    fetching.FetchPartition(
                        partition_index=i32(index),
                        acknowledgement_batches=tuple(
                            fetching.AcknowledgementBatch(
                                first_offset=i64(first),
                                last_offset=i64(last),
                                acknowledge_types=(i8(kind),),
                            )
                            for first, last, kind in acks.get(index, ())
                        ),
                    )
                    for index in dict.fromkeys((*partitions, *acks))
                ),
            )
        ]
        forgotten = [
            fetching.ForgottenTopic(topic_id=self.topic_id, partitions=(i32(index),))
            for index in options.pop("forgotten", ())
        ]
        request = fetching.ShareFetchRequest(
            group_id=GroupId(self.group),
            member_id=options.pop("member", self.name),
            share_session_epoch=i32(epoch),
            max_wait=ms(options.pop("wait_ms", 0)),
            min_bytes=i32(options.pop("min_bytes", 1)),
            max_bytes=i32(options.pop("max_bytes", 1 << 25)),
            max_records=i32(options.pop("max_records", 500)),
            batch_size=i32(500),
            share_acquire_mode=i8(options.pop("mode", 0)),
            is_renew_ack=options.pop("renews", False),
            topics=tuple(topics),
            forgotten_topics_data=tuple(forgotten),
        )
        assert not options, options
        frame = encode(request, request_class(Api.SHARE_FETCH, version))
        answer = Answer()
        serving = share_fetch.serve(
            self.context,
            RequestHeader(Api.SHARE_FETCH, version, 1, None),
            memoryview(frame),
            0,
            answer,  # type: ignore[arg-type]
        )
        self.epoch += 1
        return asyncio.ensure_future(serving), answer

    async def fetch(self, **options: Any) -> ShareFetchResponse:
        version = options.get("version", 2)
        serving, answer = self.begin(**options)
        await serving
        assert answer.body is not None
        read: ShareFetchResponse = kio_read(response_class(Api.SHARE_FETCH, version), answer.body)
        return read

    async def get(self, **options: Any) -> list[tuple[int, int, int]]:
        """What is acquired: first, last, count."""
        return [
            row for each in partitions_of(await self.fetch(**options)) for row in acquired(each)
        ]

    async def acknowledge(
        self, acks: Acks, *, epoch: int | None = None, renews: bool = False
    ) -> ShareAcknowledgeResponse:
        request = acknowledging.ShareAcknowledgeRequest(
            group_id=GroupId(self.group),
            member_id=self.name,
            share_session_epoch=i32(self.epoch if epoch is None else epoch),
            is_renew_ack=renews,
            topics=(
                acknowledging.AcknowledgeTopic(
                    topic_id=self.topic_id,
                    partitions=tuple(
                        acknowledging.AcknowledgePartition(
                            partition_index=i32(index),
                            acknowledgement_batches=tuple(
                                acknowledging.AcknowledgementBatch(
                                    first_offset=i64(first),
                                    last_offset=i64(last),
                                    acknowledge_types=(i8(kind),),
                                )
                                for first, last, kind in rows
                            ),
                        )
                        for index, rows in acks.items()
                    ),
                ),
            ),
        )
        self.epoch += 1
        return await share_acknowledge.handle(self.context, request)

    def disconnect(self) -> None:
        for end in list(self.context.at_close.values()):
            end()


def partitions_of(response: ShareFetchResponse) -> list[PartitionData]:
    return [each for topic in response.responses for each in topic.partitions]


def acquired(partition: PartitionData) -> list[tuple[int, int, int]]:
    return [
        (int(each.first_offset), int(each.last_offset), int(each.delivery_count))
        for each in partition.acquired_records
    ]


async def append(node: Node, count: int, index: int = 0) -> None:
    """One batch of records that retention will not take."""
    await node.append("t", [node.clock.now_ms()] * count, index)


async def opened(node: Node, *, partitions: int = 1, records: int = 0) -> Member:
    """A topic "t" that the group "g" reads from its beginning, and a member of it."""
    await node.context.broker.create_topic("t", partitions)
    await configure(node, share_auto_offset_reset="earliest")
    await beat(node, topics=("t",))
    if records:
        await append(node, records)
    return Member(node)
