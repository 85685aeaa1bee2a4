"""WriteTxnMarkers (key 27), v1 and v2: how a transaction ended, or shall end.

In a cluster, as in Kafka, the node that coordinates a transaction tells it those that lead the
partitions, and each writes the markers it is told. An operator can do that, too, for one partition
of a transaction that nobody ends.

A node alone has nobody to tell: there it is for tools, which abort what nobody ends. The
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
from entrepot.broker.turns import gathered
from entrepot.core.errors import StillLoading
from entrepot.core.marker import Marker
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import group_code
from entrepot.gateway.kafka.refusal import Refusal, check_on_cluster, reason_of


async def handle(context: Context, request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    if context.broker.cluster is not None:
        told = [await _write(context, each) for each in request.markers]
        return WriteTxnMarkersResponse(markers=tuple(told))
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


async def _write(context: Context, told: WritableTxnMarker) -> WritableTxnMarkerResult:
    """Write a marker to the partitions that are led here. Their commits are waited for at once."""
    marker = Marker(
        told.producer_id, told.producer_epoch, told.transaction_result, told.coordinator_epoch
    )
    places = [TopicPartition(each.name, n) for each in told.topics for n in each.partition_indexes]
    writer, is_allowed = context.broker.transactions.markers, _is_allowed(context)

    async def write(place: TopicPartition) -> ErrorCode:
        try:
            if not is_allowed:
                check_on_cluster(context, Operation.ALTER)
            await writer.write_here(marker, place)
        except StillLoading as error:
            return group_code(error)
        except KNOWN as error:
            return reason_of(error)[0]
        return ErrorCode.none

    codes = dict(zip(places, await gathered(map(write, places)), strict=True))
    topics = tuple(
        WritableTxnMarkerTopicResult(
            name=topic.name,
            partitions=tuple(
                WritableTxnMarkerPartitionResult(
                    partition_index=i32(n), error_code=codes[TopicPartition(topic.name, n)]
                )
                for n in topic.partition_indexes
            ),
        )
        for topic in told.topics
    )
    return WritableTxnMarkerResult(producer_id=told.producer_id, topics=topics)


def _is_allowed(context: Context) -> bool:
    return context.allows_on_cluster(Operation.CLUSTER_ACTION)


async def _abort(
    context: Context,
    marker: WritableTxnMarker,
    place: TopicPartition,
    transactional_ids: Mapping[int, str],
) -> ErrorCode:
    try:
        if not _is_allowed(context):
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
