"""What the requests about consumer groups have in common: who may, and what went wrong."""

from datetime import timedelta
from functools import lru_cache
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i32Timedelta

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.consumer_group.offsets import Place
from entrepot.core.errors import StorageError
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
    """As elsewhere, but a disk that fails is a coordinator to be asked again later."""
    if isinstance(error, StorageError | OSError):
        return ErrorCode.coordinator_not_available, str(error)
    return reason_of(error)


def group_code(error: Exception) -> ErrorCode:
    return group_reason(error)[0]


def find_place(
    context: Context, operation: Operation, topic: str | UUID, partition: int
) -> Place | ErrorCode:
    """A partition that there is and that may be used, or why it is not."""
    try:
        found = topic_of(context, operation, topic)
        context.broker.stream(found, partition)
    except KNOWN as error:
        return reason_of(error)[0]
    return Place(found.name, partition)


@lru_cache(maxsize=100)  # A few different ones, in nearly every answer.
def milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))
