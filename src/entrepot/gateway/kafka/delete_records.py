"""DeleteRecords (key 21), v0 to v2: delete the records below an offset; -1 means all.

The answer has the new start offset of the log. An offset below the start has no effect; one above
the high watermark is answered with OFFSET_OUT_OF_RANGE.
"""

from itertools import islice

from kio.schema.delete_records.v2.request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
)
from kio.schema.delete_records.v2.response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kio.schema.errors import ErrorCode
from kio.static.primitive import i64

from entrepot.broker.access import Operation
from entrepot.broker.turns import gathered
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of
from entrepot.gateway.kafka.topics import served_partition_of


async def handle(context: Context, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    rows = iter(
        await gathered(
            _answer(context, topic.name, each)
            for topic in request.topics
            for each in topic.partitions
        )
    )
    return DeleteRecordsResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            DeleteRecordsTopicResult(
                name=topic.name, partitions=tuple(islice(rows, len(topic.partitions)))
            )
            for topic in request.topics
        ),
    )


async def _answer(
    context: Context, name: str, wanted: DeleteRecordsPartition
) -> DeleteRecordsPartitionResult:
    offset_start, code = -1, ErrorCode.none
    try:
        served = served_partition_of(context, Operation.DELETE, name, wanted.partition_index)
        served.partition.check_readable(served.partition.offset_start)
        offset_start = await context.broker.delete_records(served, wanted.offset)
    except KNOWN as error:
        code = code_of(error)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=i64(offset_start), error_code=code
    )
