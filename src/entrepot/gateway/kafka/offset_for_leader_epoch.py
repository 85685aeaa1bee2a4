"""OffsetForLeaderEpoch (key 23), v2 to v4: the end offset of a leader epoch.

A consumer asks after a change of leader, to find out whether records it has read were lost; a
follower, to find out where its log parts from its leader's. The answer has the epoch, or the last
one before it that has batches, and the offset at which it ended: where the next one begins, or
the end of the log. For an epoch after the present one it has -1 as epoch and offset.
"""

from kio.schema.errors import ErrorCode
from kio.schema.offset_for_leader_epoch.v4.request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kio.schema.offset_for_leader_epoch.v4.response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kio.static.primitive import i32, i64

from entrepot.broker.access import Operation
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of
from entrepot.gateway.kafka.topics import copied_partition_of, served_partition_of


def handle(
    context: Context, request: OffsetForLeaderEpochRequest
) -> Steps[OffsetForLeaderEpochResponse]:
    topics = []
    for topic in request.topics:
        name = topic.topic
        is_copy = request.replica_id >= 0 and context.broker.cluster is not None
        rows = yield from listed(_answer(context, name, each, is_copy) for each in topic.partitions)
        topics.append(OffsetForLeaderTopicResult(topic=name, partitions=tuple(rows)))
    return OffsetForLeaderEpochResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _answer(
    context: Context, name: str, wanted: OffsetForLeaderPartition, is_copy: bool
) -> EpochEndOffset:
    index = int(wanted.partition)
    try:
        if is_copy:
            served = copied_partition_of(context, name, index)
        else:
            served = served_partition_of(context, Operation.DESCRIBE, name, index)
        partition = served.partition
        partition.check_epoch(wanted.current_leader_epoch)
        partition.check_readable(partition.offset_start)
    except KNOWN as error:
        return EpochEndOffset(error_code=code_of(error), partition=wanted.partition)
    epoch, offset_end = partition.end_of_epoch(wanted.leader_epoch)
    return EpochEndOffset(
        error_code=ErrorCode.none,
        partition=wanted.partition,
        leader_epoch=i32(epoch),
        end_offset=i64(offset_end),
    )
