"""InitProducerId (key 22), v0 to v6: give a producer its id and epoch.

Without a transactional id every request gets a new producer id with epoch 0, also if it has the
producer's former id (v3): such a producer increments its epoch by itself, and asks only to start
with a new id.

With a transactional id, its open transaction is aborted before the answer, and its former
producer is fenced. A producer that sends its id and epoch (v3) gets the next epoch, unless it was
fenced: PRODUCER_FENCED (v4), before that INVALID_PRODUCER_EPOCH. With two-phase commit (v6) its
transactions have no timeout, because an external coordinator decides about them. To keep a
prepared transaction over this request is refused.
"""

from datetime import timedelta

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from entrepot.broker.access import Operation, ResourceKind
from entrepot.broker.transaction import NONE, TIMEOUT_NEVER, ProducerIdentity
from entrepot.core.errors import InvalidTransactionTimeout, PeerError
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of
from entrepot.gateway.kafka.refusal import Refusal
from entrepot.gateway.kafka.transactions import check_transactional_id, coordinator_code
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_FENCED = 4
_MILLISECOND = timedelta(milliseconds=1)


async def handle(
    context: Context, header: RequestHeader, request: InitProducerIdRequest
) -> InitProducerIdResponse:
    if request.transactional_id is None:
        return await _idempotent(context)
    try:
        producer = await _transactional(context, request)
    except KNOWN as error:
        fenced = header.version >= _VERSION_FENCED
        return _failed(coordinator_code(error, knows_fenced=fenced))
    return _found(producer)


async def _idempotent(context: Context) -> InitProducerIdResponse:
    if not context.allows_on_cluster(Operation.IDEMPOTENT_WRITE) and not context.allows_some(
        Operation.WRITE, ResourceKind.TOPIC
    ):
        return _failed(ErrorCode.cluster_authorization_failed)
    try:
        return _found(ProducerIdentity(await context.broker.new_producer_id(), 0))
    except KNOWN as error:
        return _failed(code_of(error))


async def _transactional(context: Context, request: InitProducerIdRequest) -> ProducerIdentity:
    transactional_id = request.transactional_id
    check_transactional_id(context, Operation.WRITE, transactional_id)
    assert transactional_id is not None
    if request.keep_prepared_txn:
        raise Refusal(ErrorCode.unsupported_version, "there are no prepared transactions to keep")
    known = ProducerIdentity(request.producer_id, request.producer_epoch)
    if (known.id == NONE) != (known.epoch == NONE):
        raise PeerError("a producer names its id and its epoch, or neither")
    timeout_ms = request.transaction_timeout // _MILLISECOND
    if request.enable2_pc:
        timeout_ms = TIMEOUT_NEVER
    elif timeout_ms == TIMEOUT_NEVER:
        raise InvalidTransactionTimeout("only two-phase commit has no timeout")
    return await context.broker.transactions.init_producer_id(
        transactional_id, timeout_ms, None if known.id == NONE else known
    )


def _found(producer: ProducerIdentity) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
    )


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=error, producer_epoch=i16(NONE)
    )
