"""OffsetDelete (key 47), v0: delete committed offsets of a group.

Offsets of topics that its members are subscribed to cannot be deleted.
"""

from collections.abc import Iterator

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.core import limits
from entrepot.core.steps import Steps, listed, parts
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, find_place, group_code

Key = tuple[str, int]


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    turns, groups = context.broker.turns, context.broker.groups
    found = dict(await turns.run(listed(_find(context, request))))
    places = [place for place in found.values() if isinstance(place, TopicPartition)]
    faults: dict[TopicPartition, Fault] = {}
    try:
        check_group(context, Operation.DELETE, request.group_id)
        for some in list(parts(places, limits.OFFSETS_AT_ONCE_MAX)) or [[]]:
            faults |= await groups.delete_offsets(request.group_id, some)
            if len(some) == limits.OFFSETS_AT_ONCE_MAX:
                await turns.next()
    except KNOWN as error:
        return OffsetDeleteResponse(
            error_code=group_code(error), throttle_time=NO_THROTTLE, topics=()
        )
    return await turns.run(_response(request, found, faults))


def _find(
    context: Context, request: OffsetDeleteRequest
) -> Iterator[tuple[Key, TopicPartition | ErrorCode]]:
    for topic in request.topics:
        for each in topic.partitions:
            key = topic.name, each.partition_index
            yield key, find_place(context, Operation.READ, *key)


def _response(
    request: OffsetDeleteRequest,
    found: dict[Key, TopicPartition | ErrorCode],
    faults: dict[TopicPartition, Fault],
) -> Steps[OffsetDeleteResponse]:
    def code(key: Key) -> ErrorCode:
        place = found[key]
        return code_of_fault(faults.get(place)) if isinstance(place, TopicPartition) else place

    topics = []
    for topic in request.topics:
        rows = yield from listed(
            OffsetDeleteResponsePartition(
                partition_index=each.partition_index,
                error_code=code((topic.name, each.partition_index)),
            )
            for each in topic.partitions
        )
        topics.append(OffsetDeleteResponseTopic(name=topic.name, partitions=tuple(rows)))
    return OffsetDeleteResponse(
        error_code=ErrorCode.none, throttle_time=NO_THROTTLE, topics=tuple(topics)
    )
