"""WriteTxnMarkers (key 27), v1 and v2: an operator aborts a transaction that nobody ends.

Kafka's brokers tell each other with it how a transaction ended; here it is for tools alone. The
whole transaction is aborted, and its owner fenced, whichever of its partitions is named. Only
aborting is allowed: which transactions are committed, their owners decide. A partition where the
producer has nothing open is answered with success.
"""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from kio.schema.write_txn_markers.v2.request import WritableTxnMarker, WriteTxnMarkersRequest
from kio.schema.write_txn_markers.v2.response import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersResponse,
)
from kio.static.primitive import i32

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import ProducerIdentity
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of


async def handle(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    transactional_ids = await context.broker.transactions.transactional_ids()
    results = [await _marker(context, each, transactional_ids) for each in request.markers]
    return WriteTxnMarkersResponse(markers=tuple(results))


async def _marker(
    context: Context, marker: WritableTxnMarker, transactional_ids: Mapping[int, str]
) -> WritableTxnMarkerResult:
    topics = []
    for topic in marker.topics:
        rows = []
        for index in topic.partition_indexes:
            await context.broker.turns.next()
            code = await _abort(
                context, marker, TopicPartition(topic.name, index), transactional_ids
            )
            rows.append(
                WritableTxnMarkerPartitionResult(partition_index=i32(index), error_code=code)
            )
        topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=tuple(rows)))
    return WritableTxnMarkerResult(producer_id=marker.producer_id, topics=tuple(topics))


async def _abort(
    context: Context,
    marker: WritableTxnMarker,
    place: TopicPartition,
    transactional_ids: Mapping[int, str],
) -> ErrorCode:
    try:
        if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
            check_on_cluster(context, Operation.ALTER)
        if marker.transaction_result:
            raise Refusal(ErrorCode.invalid_request, "only aborting is possible")
        await context.broker.transactions.abort_batches(
            place,
            ProducerIdentity(marker.producer_id, marker.producer_epoch),
            transactional_ids.get(marker.producer_id),
        )
    except KNOWN as error:
        return reason_of(error)[0]
    return ErrorCode.none
