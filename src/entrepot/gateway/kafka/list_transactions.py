"""ListTransactions (key 66), v0 to v2: list the transactional ids and their states.

Filters: state, producer id, how long the transaction has been open (v1), and a regular expression
for the whole transactional id (v2). Only ids that the client may describe are listed.
"""

import asyncio

from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse, TransactionState
from kio.schema.types import ProducerId, TransactionalId

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.regex import InvalidRegex, Regex
from entrepot.broker.transaction import Transaction, TransactionStatus
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.transactions import state_name

_OTHERS_EVERY = 100  # After so many transactions, other work has a turn.
_OPEN = (
    TransactionStatus.ONGOING,
    TransactionStatus.PREPARE_COMMIT,
    TransactionStatus.PREPARE_ABORT,
)


async def handle(context: Context, request: ListTransactionsRequest) -> ListTransactionsResponse:
    known = {state_name(state): state for state in TransactionStatus}
    unknown = tuple(name for name in request.state_filters if name not in known)
    pattern = None
    if request.transactional_id_pattern:
        try:
            pattern = Regex(request.transactional_id_pattern)
        except InvalidRegex:
            return ListTransactionsResponse(
                throttle_time=NO_THROTTLE,
                error_code=ErrorCode.invalid_regular_expression,
                transaction_states=(),
            )
    is_whole = context.broker.transactions.refusal is None
    found: list[TransactionState] = []
    for number, each in enumerate(list(context.broker.transactions.transactions.values())):
        if number % _OTHERS_EVERY == _OTHERS_EVERY - 1:
            await asyncio.sleep(0)
        if _is_wanted(context, request, each) and (
            pattern is None or pattern.is_whole(each.transactional_id)
        ):
            found.append(_listed(each))
    return ListTransactionsResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none if is_whole else ErrorCode.kafka_storage_error,
        unknown_state_filters=unknown,
        transaction_states=tuple(found),
    )


def _is_wanted(context: Context, request: ListTransactionsRequest, each: Transaction) -> bool:
    if request.state_filters and state_name(each.state) not in request.state_filters:
        return False
    if request.producer_id_filters and each.producer.id not in request.producer_id_filters:
        return False
    if request.duration_filter >= 0:
        open_ms = context.clock.now_ms() - each.started_ms
        if each.state not in _OPEN or open_ms <= request.duration_filter:
            return False
    return context.allows(Operation.DESCRIBE, ResourceKind.TRANSACTIONAL_ID, each.transactional_id)


def _listed(each: Transaction) -> TransactionState:
    return TransactionState(
        transactional_id=TransactionalId(each.transactional_id),
        producer_id=ProducerId(each.producer.id),
        transaction_state=state_name(each.state),
    )
