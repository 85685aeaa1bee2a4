"""OffsetFetch (key 9), v1 to v10: the committed offsets of groups; -1 where there is none.

Of the given partitions, or of all (null, v2). v7: with `require_stable`, an offset that an open
transaction may change is answered with UNSTABLE_OFFSET_COMMIT. v8: several groups. v9: a member
of a modern group sends its id and epoch, and is refused if the epoch is old. v10: topics by id.
"""

from typing import NamedTuple
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.schema.offset_fetch.v7 import request as v7_request
from kio.schema.offset_fetch.v7 import response as v7
from kio.schema.offset_fetch.v9 import request as v9_request
from kio.schema.offset_fetch.v9 import response as v9
from kio.schema.offset_fetch.v10 import request as v10_request
from kio.schema.offset_fetch.v10 import response as v10
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, find_place, group_code

Request = (
    v7_request.OffsetFetchRequest | v9_request.OffsetFetchRequest | v10_request.OffsetFetchRequest
)
Response = v7.OffsetFetchResponse | v9.OffsetFetchResponse | v10.OffsetFetchResponse
Asked = list[tuple[str | UUID, tuple[i32, ...]]] | None  # None means: all that the group has.

_NONE = CommittedOffset(-1, -1, "", -1)


class _Row(NamedTuple):
    partition: int
    offset: CommittedOffset = _NONE
    code: ErrorCode = ErrorCode.none


Rows = list[tuple[str | UUID, list[_Row]]]  # The rows of each topic, as the request names it.


def handle(context: Context, request: Request) -> Steps[Response]:
    if isinstance(request, v7_request.OffsetFetchRequest):
        return (yield from _only(context, request))
    if isinstance(request, v9_request.OffsetFetchRequest):
        return (yield from _by_name(context, request))
    return (yield from _by_id(context, request))


def _fetch(
    context: Context,
    group_id: str,
    asked: Asked,
    *,
    stable: bool,
    member: tuple[str | None, int] = (None, -1),
    by_id: bool = False,
) -> Steps[tuple[ErrorCode, Rows]]:
    try:
        check_group(context, Operation.DESCRIBE, group_id)
        context.broker.groups.check_fetch(group_id, *member)
        if asked is None:
            return ErrorCode.none, (yield from _all(context, group_id, stable=stable, by_id=by_id))
        rows: Rows = []
        for topic, indexes in asked:
            found = yield from listed(
                _one(context, group_id, topic, index, stable=stable) for index in indexes
            )
            rows.append((topic, found))
        return ErrorCode.none, rows
    except KNOWN as error:
        return group_code(error), []


def _one(context: Context, group_id: str, topic: str | UUID, index: int, *, stable: bool) -> _Row:
    place = find_place(context, Operation.DESCRIBE, topic, index)
    if isinstance(place, ErrorCode):
        is_known = place is not ErrorCode.unknown_topic_or_partition
        # A partition that does not exist is answered as if nothing was committed.
        return _Row(index, code=place if is_known else ErrorCode.none)
    found = context.broker.groups.fetch_offsets(group_id, [place], require_stable=stable)
    return _row(index, found[place])


def _all(context: Context, group_id: str, *, stable: bool, by_id: bool) -> Steps[Rows]:
    found: dict[str | UUID, list[_Row]] = {}
    fetched = context.broker.groups.fetch_offsets(group_id, None, require_stable=stable)
    for place, offset in fetched.items():
        yield
        topic = context.broker.topics.get(place.topic)
        if topic and context.allows(Operation.DESCRIBE, ResourceKind.TOPIC, place.topic):
            key = topic.id if by_id else topic.name
            found.setdefault(key, []).append(_row(place.partition, offset))
    return list(found.items())


def _row(index: int, found: CommittedOffset | Fault | None) -> _Row:
    if isinstance(found, Fault):
        return _Row(index, code=code_of_fault(found))
    return _Row(index, found or _NONE)


# The answers of the three kinds of versions: one group, topics by name, topics by id.


def _only(
    context: Context, request: v7_request.OffsetFetchRequest
) -> Steps[v7.OffsetFetchResponse]:
    topics = request.topics
    asked: Asked = None if topics is None else [(t.name, t.partition_indexes) for t in topics]
    code, rows = yield from _fetch(context, request.group_id, asked, stable=request.require_stable)
    answers = []
    for topic, of_topic in rows:
        partitions = yield from listed(
            v7.OffsetFetchResponsePartition(
                partition_index=i32(row.partition),
                committed_offset=i64(row.offset.offset),
                committed_leader_epoch=i32(row.offset.leader_epoch),
                metadata=row.offset.metadata,
                error_code=row.code,
            )
            for row in of_topic
        )
        name = TopicName(str(topic))
        answers.append(v7.OffsetFetchResponseTopic(name=name, partitions=tuple(partitions)))
    return v7.OffsetFetchResponse(throttle_time=NO_THROTTLE, topics=tuple(answers), error_code=code)


def _by_name(
    context: Context, request: v9_request.OffsetFetchRequest
) -> Steps[v9.OffsetFetchResponse]:
    groups = []
    for group in request.groups:
        topics, member = group.topics, (group.member_id, int(group.member_epoch))
        asked: Asked = None if topics is None else [(t.name, t.partition_indexes) for t in topics]
        code, rows = yield from _fetch(
            context, group.group_id, asked, stable=request.require_stable, member=member
        )
        answers = []
        for topic, of_topic in rows:
            partitions = yield from listed(
                v9.OffsetFetchResponsePartitions(
                    partition_index=i32(row.partition),
                    committed_offset=i64(row.offset.offset),
                    committed_leader_epoch=i32(row.offset.leader_epoch),
                    metadata=row.offset.metadata,
                    error_code=row.code,
                )
                for row in of_topic
            )
            answers.append(
                v9.OffsetFetchResponseTopics(
                    name=TopicName(str(topic)),
                    partitions=tuple(partitions),
                )
            )
        groups.append(
            v9.OffsetFetchResponseGroup(
                group_id=group.group_id, topics=tuple(answers), error_code=code
            )
        )
    return v9.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))


def _by_id(
    context: Context, request: v10_request.OffsetFetchRequest
) -> Steps[v10.OffsetFetchResponse]:
    groups = []
    for group in request.groups:
        topics, member = group.topics, (group.member_id, int(group.member_epoch))
        asked: Asked = (
            None
            if topics is None
            else [(t.topic_id or UUID(int=0), t.partition_indexes) for t in topics]
        )
        code, rows = yield from _fetch(
            context, group.group_id, asked, stable=request.require_stable, member=member, by_id=True
        )
        answers = []
        for topic, of_topic in rows:
            partitions = yield from listed(
                v10.OffsetFetchResponsePartitions(
                    partition_index=i32(row.partition),
                    committed_offset=i64(row.offset.offset),
                    committed_leader_epoch=i32(row.offset.leader_epoch),
                    metadata=row.offset.metadata,
                    error_code=row.code,
                )
                for row in of_topic
            )
            answers.append(
                v10.OffsetFetchResponseTopics(
                    topic_id=topic if isinstance(topic, UUID) else None,
                    partitions=tuple(partitions),
                )
            )
        groups.append(
            v10.OffsetFetchResponseGroup(
                group_id=group.group_id, topics=tuple(answers), error_code=code
            )
        )
    return v10.OffsetFetchResponse(throttle_time=NO_THROTTLE, groups=tuple(groups))
