"""AlterReplicaLogDirs (key 34), v1 and v2: move partitions to a directory.

There is one directory, which DescribeLogDirs calls "/", and all partitions are in it. Any other
directory is answered with LOG_DIR_NOT_FOUND.
"""

from kio.schema.alter_replica_log_dirs.v2.request import AlterReplicaLogDirsRequest
from kio.schema.alter_replica_log_dirs.v2.response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import TopicName
from kio.static.primitive import i32

from entrepot.broker.access import Operation
from entrepot.core.errors import UnknownTopic
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.describe_log_dirs import ROOT


def handle(context: Context, request: AlterReplicaLogDirsRequest) -> AlterReplicaLogDirsResponse:
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    results: dict[TopicName, list[AlterReplicaLogDirPartitionResult]] = {}
    for (name, index), path in wanted.items():
        result = AlterReplicaLogDirPartitionResult(
            partition_index=index, error_code=_moved(context, name, index, path)
        )
        results.setdefault(name, []).append(result)
    return AlterReplicaLogDirsResponse(
        throttle_time=NO_THROTTLE,
        results=tuple(
            AlterReplicaLogDirTopicResult(topic_name=name, partitions=tuple(partitions))
            for name, partitions in results.items()
        ),
    )


def _moved(context: Context, name: str, index: i32, path: str) -> ErrorCode:
    if not context.allows_on_cluster(Operation.ALTER):
        return ErrorCode.cluster_authorization_failed
    if path != ROOT:
        return ErrorCode.log_dir_not_found
    try:
        served = context.broker.served_partition(context.broker.topic(name), index)
    except UnknownTopic:
        return ErrorCode.replica_not_available
    return ErrorCode.none if served.partition.stopped is None else ErrorCode.kafka_storage_error
