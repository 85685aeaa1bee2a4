"""Produces one batch to a partition that the connection has produced to before.

That is what nearly all requests are when messages come one at a time. The answer is the one that
`produce` gives, which looks after everything else: transactions, clusters, rights, spans, and
batches that take long.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from uuid import UUID

from kio.schema.errors import ErrorCode

from entrepot.broker.quotas import Limit
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.errors import (
    ConcurrentTransactions,
    InvalidRecord,
    NotInTransaction,
    StorageError,
)
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.throttle import Cost
from entrepot.wire.kafka import produce
from entrepot.wire.kafka.produce import ProducePartition, ProduceRequest, ProduceResult

if TYPE_CHECKING:
    from entrepot.gateway.kafka.ports import Answer

_BYTE_RATE = Limit.PRODUCER_BYTE_RATE  # Python 3.11 finds members of an enumeration slowly.
ACKS = (0, 1, -1)
_VERSION_ABORTABLE = 11
VERSION_JOINS = 12
_WRITABLE_MAX = 100  # Of a connection. Who produces to more, in turn, is looked after in full.


def append_one(
    context: Context,
    version: int,
    request: ProduceRequest,
    answer: Answer,
    cost: Cost,
    size: int,
) -> bool:
    """Append one batch to a partition that the connection has produced to before, and answer.
    False means: it is not that, and nothing was done."""
    name, identity, index, data = request.partitions[0]
    topic = name if identity is None else identity
    served = context.writable.get((topic, index))
    if (
        served is None
        or topic is None
        or data is None
        or served.partition.stopped is not None  # Among others, because the topic is deleted.
        or request.acks not in ACKS
        or served.takes_long(data)
        or context.messages.answering.is_due
    ):
        return False
    try:
        offset, offset_end, time_ms = served.append(data)
    except KNOWN as error:
        throttle_ms = cost.throttle_ms(_BYTE_RATE, size)
        if request.acks == 0:
            answer.refuse(f"a produce with acks=0 failed: {error}")
        else:
            _tell(version, topic, failed(version, index, error), throttle_ms, answer)
        return True
    context.messages.published += offset_end - offset
    throttle_ms, partition = cost.throttle_ms(_BYTE_RATE, size), served.partition
    result = ProduceResult(index, 0, offset, time_ms, partition.offset_start)
    if request.acks == 0:
        answer.omit()
    elif offset_end > partition.high_watermark:
        told = partial(_tell, version, topic, result, throttle_ms, answer)
        partition.when_committed(offset_end, partial(answer.guard, told))
    else:
        _tell(version, topic, result, throttle_ms, answer)
    return True


def _tell(
    version: int,
    topic: str | UUID,
    result: ProduceResult,
    throttle_ms: int,
    answer: Answer,
    error: StorageError | None = None,
) -> None:
    if error is not None:
        result = failed(version, result.partition_index, error)
    body = produce.encode_one(version, topic, result, throttle_ms)
    answer.send([body], len(body))


def remember(context: Context, wanted: ProducePartition, served: ServedPartition) -> None:
    """Let the connection's next batch for this partition go the short way, if nobody has to be
    asked for rights or for a transaction, and no spans are made."""
    is_alone = served.role is None and context.broker.tracer is None
    if is_alone and context.principal.may_all:
        if len(context.writable) >= _WRITABLE_MAX:
            context.writable.clear()
        name, identity, index, _ = wanted
        context.writable[name if identity is None else identity, index] = served


def failed(version: int, index: int, error: Exception) -> ProduceResult:
    places = error.places if isinstance(error, InvalidRecord) else ()
    wrong = [(place, str(error)) for place in places]
    code = _code(version, error)
    return ProduceResult(index, code, record_errors=wrong, error_message=str(error))


def _code(version: int, error: Exception) -> ErrorCode:
    if isinstance(error, NotInTransaction) and version >= _VERSION_ABORTABLE:
        return ErrorCode.transaction_abortable
    if isinstance(error, ConcurrentTransactions) and version < VERSION_JOINS:
        # Clients of these versions do not know CONCURRENT_TRANSACTIONS; with this they try again.
        return ErrorCode.not_enough_replicas
    return reason_of(error)[0]
