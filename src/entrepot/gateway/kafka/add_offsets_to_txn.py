"""AddOffsetsToTxn (key 25), v0 to v4: add a group's offsets to a transaction.

The partition of `__consumer_offsets` that has the group's offsets is added to the transaction.
Before v2, INVALID_PRODUCER_EPOCH takes the place of PRODUCER_FENCED.
"""

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v4.response import AddOffsetsToTxnResponse
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.store import TOPIC
from entrepot.broker.transaction import ProducerIdentity
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group
from entrepot.gateway.kafka.transactions import check_transactional_id, coordinator_code
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_FENCED = 2


async def handle(
    context: Context, header: RequestHeader, request: AddOffsetsToTxnRequest
) -> AddOffsetsToTxnResponse:
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    try:
        check_transactional_id(context, Operation.WRITE, request.transactional_id)
        check_group(context, Operation.READ, request.group_id)
        await context.broker.groups.prepare()
        place = TopicPartition(TOPIC, context.broker.groups.partition_of(request.group_id))
        await context.broker.transactions.add_partitions(
            request.transactional_id, producer, [place]
        )
        code = ErrorCode.none
    except KNOWN as error:
        code = coordinator_code(error, knows_fenced=header.version >= _VERSION_FENCED)
    return AddOffsetsToTxnResponse(throttle_time=NO_THROTTLE, error_code=code)
