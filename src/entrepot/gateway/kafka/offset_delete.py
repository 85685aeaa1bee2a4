"""OffsetDelete (key 47), v0: forget what a group has committed.

Not for topics its members are subscribed to.
"""

from kio.schema.errors import ErrorCode
from kio.schema.offset_delete.v0.request import OffsetDeleteRequest
from kio.schema.offset_delete.v0.response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.offsets import Place
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, find_place, group_code


async def handle(context: Context, request: OffsetDeleteRequest) -> OffsetDeleteResponse:
    found = {
        (topic.name, each.partition_index): find_place(
            context, Operation.READ, topic.name, each.partition_index
        )
        for topic in request.topics
        for each in topic.partitions
    }
    places = [place for place in found.values() if isinstance(place, Place)]
    try:
        check_group(context, Operation.DELETE, request.group_id)
        faults = await context.broker.groups.delete_offsets(request.group_id, places)
    except KNOWN as error:
        return OffsetDeleteResponse(
            error_code=group_code(error), throttle_time=NO_THROTTLE, topics=()
        )
    codes = {
        key: code_of_fault(faults.get(place)) if isinstance(place, Place) else place
        for key, place in found.items()
    }
    return OffsetDeleteResponse(
        error_code=ErrorCode.none,
        throttle_time=NO_THROTTLE,
        topics=tuple(
            OffsetDeleteResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetDeleteResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
