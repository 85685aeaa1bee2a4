"""DescribeLogDirs (key 35), v1 to v5: the sizes of partitions, and which of them have failed.

There is one log directory, which is called "/": its real path is not disclosed. In Kafka a
failing disk takes a whole directory offline, here one partition: each stopped partition is
listed as a directory of its own, with an error. Partitions that do not exist are left out. Sizes
of the volume (v4) are unknown.
"""

from collections.abc import Iterable, Iterator
from itertools import groupby

from kio.schema.describe_log_dirs.v5.request import DescribeLogDirsRequest
from kio.schema.describe_log_dirs.v5.response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from entrepot.broker.access import Operation
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.errors import UnknownTopic
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context

ROOT = "/"

Row = tuple[str, ServedPartition]  # A topic's name and one of its partitions.


def handle(context: Context, request: DescribeLogDirsRequest) -> Steps[DescribeLogDirsResponse]:
    if not context.allows_on_cluster(Operation.DESCRIBE):
        return DescribeLogDirsResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.cluster_authorization_failed,
            results=(),
        )
    rows = yield from listed(_rows(context, request))
    healthy = [row for row in rows if row[1].partition.stopped is None]
    stopped = [row for row in rows if row[1].partition.stopped is not None]
    whole = yield from _directory(ROOT, ErrorCode.none, healthy)
    broken = []
    for row in stopped:
        path = ROOT + row[1].partition.directory
        broken.append((yield from _directory(path, ErrorCode.kafka_storage_error, [row])))
    return DescribeLogDirsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results=(whole, *broken),
    )


def _rows(context: Context, request: DescribeLogDirsRequest) -> Iterator[Row]:
    for name, indexes in _wanted(context, request):
        for index in indexes:
            try:
                yield name, context.broker.served_partition(context.broker.topic(name), index)
            except UnknownTopic:
                continue


def _wanted(
    context: Context, request: DescribeLogDirsRequest
) -> Iterable[tuple[str, Iterable[int]]]:
    """Return the topics that are asked for, with the partitions of each, all of them once."""
    if request.topics is None:
        topics = list(context.broker.topics.values())
        return [(topic.name, range(topic.partition_count)) for topic in topics]
    asked: dict[str, dict[int, None]] = {}
    for each in request.topics:
        asked.setdefault(each.topic, {}).update(dict.fromkeys(each.partitions))
    return [(name, sorted(indexes)) for name, indexes in sorted(asked.items())]


def _directory(path: str, error: ErrorCode, rows: list[Row]) -> Steps[DescribeLogDirsResult]:
    topics = []
    for name, group in groupby(rows, key=lambda row: row[0]):
        partitions = yield from listed(_partition(served) for _, served in group)
        topics.append(DescribeLogDirsTopic(name=TopicName(name), partitions=tuple(partitions)))
    return DescribeLogDirsResult(error_code=error, log_dir=path, topics=tuple(topics))


def _partition(served: ServedPartition) -> DescribeLogDirsPartition:
    partition = served.partition
    return DescribeLogDirsPartition(
        partition_index=i32(partition.id.number),
        partition_size=i64(partition.size),
        offset_lag=i64(partition.offset_end - partition.high_watermark),
        is_future_key=False,
    )
