"""OffsetCommit (key 8), v2 to v10: commit offsets of a group; answered when they are permanent.

A member must be of the present generation or epoch; while the group has no members, anybody may
commit. The retention time of v2 to v4 is ignored; the broker's applies. v6: the leader epoch of
the last record read. v9: used by modern groups; an unknown group is answered with
GROUP_ID_NOT_FOUND, before that with ILLEGAL_GENERATION. v10: topics by id.
"""

from collections.abc import Callable, Mapping
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.offset_commit.v9 import request as v9_request
from kio.schema.offset_commit.v9 import response as v9
from kio.schema.offset_commit.v10 import request as v10_request
from kio.schema.offset_commit.v10 import response as v10

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.core import limits
from entrepot.core.steps import Steps, listed, parts
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, find_place, group_code
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_MODERN = 9

Request = v9_request.OffsetCommitRequest | v10_request.OffsetCommitRequest
Response = v9.OffsetCommitResponse | v10.OffsetCommitResponse
Topic = v9_request.OffsetCommitRequestTopic | v10_request.OffsetCommitRequestTopic
Code = Callable[[str | UUID, int], ErrorCode]  # Takes a partition as the request names it.


async def handle(context: Context, header: RequestHeader, request: Request) -> Response:
    turns = context.broker.turns
    try:
        check_group(context, Operation.READ, request.group_id)
    except KNOWN as error:
        refused = group_code(error)
        return await turns.run(_response(request, lambda topic, index: refused))
    found: dict[tuple[str | UUID, int], TopicPartition | ErrorCode] = {}
    offsets: dict[TopicPartition, CommittedOffset] = {}

    def find() -> Steps[None]:
        for topic in request.topics:
            for each in topic.partitions:
                yield
                key = _key(topic), int(each.partition_index)
                place = found[key] = find_place(context, Operation.READ, *key)
                if isinstance(place, TopicPartition):
                    epoch, metadata = each.committed_leader_epoch, each.committed_metadata or ""
                    offsets[place] = CommittedOffset(each.committed_offset, epoch, metadata, -1)

    await turns.run(find())
    codes: dict[TopicPartition, ErrorCode] = {}
    for some in parts(offsets.items(), limits.OFFSETS_AT_ONCE_MAX):
        codes |= await _commit(context, header.version, request, dict(some))
        if len(some) == limits.OFFSETS_AT_ONCE_MAX:
            await turns.next()

    def code(topic: str | UUID, index: int) -> ErrorCode:
        place = found[topic, index]
        return codes.get(place, ErrorCode.none) if isinstance(place, TopicPartition) else place

    return await turns.run(_response(request, code))


async def _commit(
    context: Context,
    version: int,
    request: Request,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> Mapping[TopicPartition, ErrorCode]:
    try:
        faults = await context.broker.groups.commit_offsets(
            request.group_id,
            request.member_id,
            request.generation_id_or_member_epoch,
            offsets,
            instance_id=request.group_instance_id,
        )
    except KNOWN as error:
        code = group_code(error)
        if version < _VERSION_MODERN:
            code = _BEFORE_MODERN.get(code, code)
        return dict.fromkeys(offsets, code)
    return {place: code_of_fault(fault) for place, fault in faults.items()}


_BEFORE_MODERN = {
    ErrorCode.group_id_not_found: ErrorCode.illegal_generation,
    ErrorCode.stale_member_epoch: ErrorCode.unsupported_version,
}


def _key(topic: Topic) -> str | UUID:
    if isinstance(topic, v9_request.OffsetCommitRequestTopic):
        return topic.name
    return topic.topic_id or UUID(int=0)


def _response(request: Request, code: Code) -> Steps[Response]:
    if isinstance(request, v9_request.OffsetCommitRequest):
        named = []
        for topic in request.topics:
            rows = yield from listed(
                v9.OffsetCommitResponsePartition(
                    partition_index=each.partition_index,
                    error_code=code(topic.name, each.partition_index),
                )
                for each in topic.partitions
            )
            named.append(v9.OffsetCommitResponseTopic(name=topic.name, partitions=tuple(rows)))
        return v9.OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=tuple(named))
    identified = []
    for each_topic in request.topics:
        by_id = yield from listed(
            v10.OffsetCommitResponsePartition(
                partition_index=each.partition_index,
                error_code=code(_key(each_topic), each.partition_index),
            )
            for each in each_topic.partitions
        )
        identified.append(
            v10.OffsetCommitResponseTopic(topic_id=each_topic.topic_id, partitions=tuple(by_id))
        )
    return v10.OffsetCommitResponse(throttle_time=NO_THROTTLE, topics=tuple(identified))
