"""ListOffsets (key 2), v1 to v11: the offset for a timestamp, the earliest or the latest.

For a timestamp the answer is the first record at or after it; -1 means: there is none. Negative
timestamps ask for special offsets. There is no tiered storage, so the local log is the whole log,
and no offset is tiered (v9) or waits to be (v11). With isolation level 1 (read committed) the
latest offset is that of the first open transaction.
"""

from collections import Counter
from enum import IntEnum

from kio.schema.errors import ErrorCode
from kio.schema.list_offsets.v11.request import ListOffsetsPartition, ListOffsetsRequest
from kio.schema.list_offsets.v11.response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kio.static.primitive import i32, i64

from entrepot.broker.access import Operation
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, reason_of
from entrepot.gateway.kafka.topics import served_partition_of

_READ_COMMITTED = 1
_NONE = -1  # As an offset: there is none. As a timestamp: the request had none.


class NamedOffset(IntEnum):
    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6


def handle(context: Context, request: ListOffsetsRequest) -> Steps[ListOffsetsResponse]:
    asked: Counter[tuple[str, int]] = Counter()
    for topic in request.topics:
        asked.update((topic.name, each.partition_index) for each in topic.partitions)
        yield
    topics = []
    for topic in request.topics:
        partitions = yield from listed(
            _answer(
                context,
                topic.name,
                each,
                request.isolation_level,
                asked[topic.name, each.partition_index],
            )
            for each in topic.partitions
        )
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(partitions)))
    return ListOffsetsResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _answer(
    context: Context,
    name: str,
    wanted: ListOffsetsPartition,
    isolation_level: int,
    times_asked: int,
) -> ListOffsetsPartitionResponse:
    try:
        if times_asked > 1:  # Refused as by Kafka, because looking up a time may take long.
            raise Refusal(ErrorCode.invalid_request, "a partition is asked for once")
        served = served_partition_of(context, Operation.DESCRIBE, name, wanted.partition_index)
        served.partition.check_epoch(wanted.current_leader_epoch)
        offset, timestamp = _find(served, wanted.timestamp, isolation_level)
    except KNOWN as error:
        code, _ = reason_of(error)
        return ListOffsetsPartitionResponse(partition_index=wanted.partition_index, error_code=code)
    return ListOffsetsPartitionResponse(
        partition_index=wanted.partition_index,
        error_code=ErrorCode.none,
        timestamp=i64(timestamp),
        offset=i64(offset),
        leader_epoch=i32(_NONE if offset == _NONE else served.partition.leader_epoch),
    )


def _find(served: ServedPartition, timestamp: int, isolation_level: int) -> tuple[int, int]:
    """Return an offset and its time."""
    partition = served.partition
    partition.check_readable(partition.offset_start)
    is_committed = isolation_level == _READ_COMMITTED
    if timestamp not in (NamedOffset.EARLIEST, NamedOffset.EARLIEST_LOCAL):
        served.check_knows_end()
    end = served.last_stable_offset if is_committed else partition.high_watermark
    if timestamp >= 0:
        found = partition.offset_for_time(timestamp)
        return found if found is not None and found[0] < end else (_NONE, _NONE)
    match timestamp:
        case NamedOffset.LATEST:
            return end, _NONE
        case NamedOffset.EARLIEST | NamedOffset.EARLIEST_LOCAL:
            return partition.offset_start, _NONE
        case NamedOffset.MAX_TIMESTAMP:
            found = partition.latest_time()
            return found if found is not None and found[0] < end else (_NONE, _NONE)
        case NamedOffset.LATEST_TIERED | NamedOffset.EARLIEST_PENDING_UPLOAD:
            return _NONE, _NONE
    raise Refusal(ErrorCode.unsupported_version, f"no place is called {timestamp}")
