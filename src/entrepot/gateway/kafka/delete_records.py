"""DeleteRecords (key 21), v0 to v2: forget what is below an offset, -1 for all there is.

The answer carries where the log begins from now on. An offset below that changes
nothing; one above the high watermark is out of range.
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
from entrepot.gateway.kafka.topics import stream_of


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
        stream = stream_of(context, Operation.DELETE, name, wanted.partition_index)
        stream.partition.check_readable(stream.partition.offset_start)
        offset_start = await context.broker.delete_records(stream, wanted.offset)
    except KNOWN as error:
        code = code_of(error)
    return DeleteRecordsPartitionResult(
        partition_index=wanted.partition_index, low_watermark=i64(offset_start), error_code=code
    )
