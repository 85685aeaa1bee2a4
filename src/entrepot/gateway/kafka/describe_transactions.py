"""DescribeTransactions (key 65), v0: the state of transactions, by transactional id.

Only partitions whose topic the client may describe are listed.
"""

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import cast

from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import TZAware, i16, i32, i32Timedelta

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import Transaction
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.transactions import (
    check_transactional_id,
    coordinator_code,
    state_name,
)

_EPOCH = datetime.fromtimestamp(0, UTC)


def handle(
    context: Context, request: DescribeTransactionsRequest
) -> Steps[DescribeTransactionsResponse]:
    states = yield from listed(_state(context, each) for each in request.transactional_ids)
    return DescribeTransactionsResponse(throttle_time=NO_THROTTLE, transaction_states=tuple(states))


def _state(context: Context, transactional_id: TransactionalId) -> TransactionState:
    try:
        check_transactional_id(context, Operation.DESCRIBE, transactional_id)
        found = context.broker.transactions.get(transactional_id)
    except KNOWN as error:
        return _failed(transactional_id, coordinator_code(error, knows_fenced=True))
    if found is None:
        return _failed(transactional_id, ErrorCode.transactional_id_not_found)
    return TransactionState(
        error_code=ErrorCode.none,
        transactional_id=transactional_id,
        transaction_state=state_name(found.state),
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=found.timeout_ms)),
        transaction_start_time=_time(found.started_ms),
        producer_id=ProducerId(found.producer.id),
        producer_epoch=i16(found.producer.epoch),
        topics=_topics(context, found),
    )


def _topics(context: Context, found: Transaction) -> tuple[TopicData, ...]:
    return tuple(
        TopicData(
            topic=TopicName(topic), partitions=tuple(i32(place.partition) for place in places)
        )
        for topic, places in groupby(sorted(found.partitions), key=lambda place: place.topic)
        if context.allows(Operation.DESCRIBE, ResourceKind.TOPIC, topic)
    )


def _failed(transactional_id: TransactionalId, code: ErrorCode) -> TransactionState:
    return TransactionState(
        error_code=code,
        transactional_id=transactional_id,
        transaction_state="",
        transaction_timeout=NO_THROTTLE,
        transaction_start_time=_time(0),
        producer_id=ProducerId(0),
        producer_epoch=i16(0),
        topics=(),
    )


def _time(ms: int) -> TZAware:
    """Return a time as kio's type has it, without its check, which refuses milliseconds."""
    return cast(TZAware, _EPOCH + timedelta(milliseconds=ms))
