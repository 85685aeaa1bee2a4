"""InitProducerId (key 22), v0 to v6: an identity for an idempotent producer.

Without a transactional id every request gets a new producer id with epoch 0, also
one that names the id it had (v3 on): such a producer bumps its epoch by itself and
asks only when it wants to start anew. Transactions are not served yet: a
transactional id is answered with UNSUPPORTED_VERSION, which clients take as final.
"""

from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId
from kio.static.primitive import i16

from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of


async def handle(context: Context, request: InitProducerIdRequest) -> InitProducerIdResponse:
    if request.transactional_id is not None:
        is_empty = not request.transactional_id
        return _failed(ErrorCode.invalid_request if is_empty else ErrorCode.unsupported_version)
    try:
        producer_id = await context.broker.new_producer_id()
    except KNOWN as error:
        return _failed(code_of(error))
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        producer_id=ProducerId(producer_id),
        producer_epoch=i16(0),
    )


def _failed(error: ErrorCode) -> InitProducerIdResponse:
    return InitProducerIdResponse(
        throttle_time=NO_THROTTLE, error_code=error, producer_epoch=i16(-1)
    )
