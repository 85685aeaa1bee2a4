"""Checks rights and maps errors, for all requests about consumer groups."""

from datetime import timedelta
from functools import lru_cache
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.core.errors import NotLeader, StillLoading, StorageError
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, reason_of
from entrepot.gateway.kafka.topics import topic_of


def check_group(context: Context, operation: Operation, group_id: str) -> None:
    if not context.allows(operation, ResourceKind.GROUP, group_id):
        raise Refusal(
            ErrorCode.group_authorization_failed, f"not allowed to {operation.value} the group"
        )


def group_reason(error: Exception) -> tuple[ErrorCode, str]:
    """Return the code of an error. A disk that fails is COORDINATOR_NOT_AVAILABLE: clients then
    ask again later."""
    if isinstance(error, NotLeader):
        return ErrorCode.not_coordinator, str(error)
    if isinstance(error, StillLoading):
        return ErrorCode.coordinator_load_in_progress, str(error)
    if isinstance(error, StorageError | OSError):
        return ErrorCode.coordinator_not_available, str(error)
    return reason_of(error)


def group_code(error: Exception) -> ErrorCode:
    return group_reason(error)[0]


def find_place(
    context: Context, operation: Operation, topic: str | UUID, partition: int
) -> TopicPartition | ErrorCode:
    """Return a partition that exists and that the client may use, or the error code."""
    try:
        found = topic_of(context, operation, topic)
        context.broker.served_partition(found, partition)
    except KNOWN as error:
        return reason_of(error)[0]
    return TopicPartition(found.name, partition)


@lru_cache(maxsize=100)  # Cached: nearly all answers have one of a few durations.
def milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))
