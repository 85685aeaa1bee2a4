"""EndTxn (key 26), v0 to v5: commit or abort a transaction; answered when readers see it.

A repeated request has no effect. Before v2, INVALID_PRODUCER_EPOCH takes the place of
PRODUCER_FENCED. v5 (transaction version 2): the answer has the producer id and epoch for the next
transaction, and a transaction without partitions can be aborted.
"""

from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from entrepot.broker.access import Operation
from entrepot.broker.transaction import VERSION_EPOCHS, ProducerIdentity
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.transactions import check_transactional_id, coordinator_code
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_FENCED = 2
_VERSION_EPOCHS = 5


async def handle(context: Context, header: RequestHeader, request: EndTxnRequest) -> EndTxnResponse:
    try:
        check_transactional_id(context, Operation.WRITE, request.transactional_id)
        producer = await context.broker.transactions.end(
            request.transactional_id,
            ProducerIdentity(request.producer_id, request.producer_epoch),
            commit=request.committed,
            version=VERSION_EPOCHS if header.version >= _VERSION_EPOCHS else 0,
        )
    except KNOWN as error:
        code = coordinator_code(error, knows_fenced=header.version >= _VERSION_FENCED)
        return EndTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
    return EndTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
    )
