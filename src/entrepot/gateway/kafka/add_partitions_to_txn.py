"""AddPartitionsToTxn (key 24), v0 to v5: add partitions to a transaction, before they are written.

All partitions are added or none: when one does not exist or is not allowed, the others are
answered with OPERATION_NOT_ATTEMPTED. Before v2, INVALID_PRODUCER_EPOCH takes the place of
PRODUCER_FENCED. v4: several transactions in a request, and `verify_only`, which checks instead of
adding; both need the right to act for the cluster.
"""

from collections.abc import Iterable, Mapping

from kio.schema.add_partitions_to_txn.v3.request import (
    AddPartitionsToTxnRequest as AddPartitionsToTxnRequestV3,
)
from kio.schema.add_partitions_to_txn.v3.request import (
    AddPartitionsToTxnTopic as AddPartitionsToTxnTopicV3,
)
from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnPartitionResult as AddPartitionsToTxnPartitionResultV3,
)
from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnResponse as AddPartitionsToTxnResponseV3,
)
from kio.schema.add_partitions_to_txn.v3.response import (
    AddPartitionsToTxnTopicResult as AddPartitionsToTxnTopicResultV3,
)
from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import ProducerIdentity
from entrepot.core.errors import NotInTransaction
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.topics import topic_of
from entrepot.gateway.kafka.transactions import check_transactional_id, coordinator_code
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_FENCED = 2

Topics = Iterable[AddPartitionsToTxnTopicV3 | AddPartitionsToTxnTopic]
Codes = Mapping[TopicPartition, ErrorCode]


async def handle(
    context: Context,
    header: RequestHeader,
    request: AddPartitionsToTxnRequestV3 | AddPartitionsToTxnRequest,
) -> AddPartitionsToTxnResponseV3 | AddPartitionsToTxnResponse:
    if isinstance(request, AddPartitionsToTxnRequestV3):
        return await _from_producer(context, header, request)
    if not context.allows_on_cluster(Operation.CLUSTER_ACTION):
        return AddPartitionsToTxnResponse(
            throttle_time=NO_THROTTLE,
            error_code=ErrorCode.cluster_authorization_failed,
            results_by_transaction=(),
        )
    return AddPartitionsToTxnResponse(
        throttle_time=NO_THROTTLE,
        error_code=ErrorCode.none,
        results_by_transaction=tuple(
            [await _from_cluster(context, each) for each in request.transactions]
        ),
    )


async def _from_producer(
    context: Context, header: RequestHeader, request: AddPartitionsToTxnRequestV3
) -> AddPartitionsToTxnResponseV3:
    transactional_id, turns = request.v3_and_below_transactional_id, context.broker.turns
    places = await turns.run(_places(request.v3_and_below_topics))
    codes = await turns.run(_missing(context, places, from_producer=True))
    if not codes:
        producer = ProducerIdentity(
            request.v3_and_below_producer_id, request.v3_and_below_producer_epoch
        )
        try:
            check_transactional_id(context, Operation.WRITE, transactional_id)
            await context.broker.transactions.add_partitions(transactional_id, producer, places)
            code = ErrorCode.none
        except KNOWN as error:
            code = coordinator_code(error, knows_fenced=header.version >= _VERSION_FENCED)
        codes = dict.fromkeys(places, code)
    results = await turns.run(_results_v3(request.v3_and_below_topics, codes))
    return AddPartitionsToTxnResponseV3(
        throttle_time=NO_THROTTLE, results_by_topic_v3_and_below=tuple(results)
    )


def _results_v3(
    topics: Iterable[AddPartitionsToTxnTopicV3], codes: Codes
) -> Steps[list[AddPartitionsToTxnTopicResultV3]]:
    results: list[AddPartitionsToTxnTopicResultV3] = []
    for topic in topics:
        rows = yield from listed(
            AddPartitionsToTxnPartitionResultV3(
                partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
            )
            for index in topic.partitions
        )
        results.append(
            AddPartitionsToTxnTopicResultV3(name=topic.name, results_by_partition=tuple(rows))
        )
    return results


async def _from_cluster(
    context: Context, wanted: AddPartitionsToTxnTransaction
) -> AddPartitionsToTxnResult:
    turns = context.broker.turns
    places = await turns.run(_places(wanted.topics))
    codes = await turns.run(_missing(context, places, from_producer=False))
    if not codes:
        codes = await _add_or_verify(context, wanted, places)
    results = await turns.run(_results(wanted.topics, codes))
    return AddPartitionsToTxnResult(
        transactional_id=wanted.transactional_id, topic_results=tuple(results)
    )


def _results(
    topics: Iterable[AddPartitionsToTxnTopic], codes: Codes
) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results: list[AddPartitionsToTxnTopicResult] = []
    for topic in topics:
        rows = yield from listed(
            AddPartitionsToTxnPartitionResult(
                partition_index=index, partition_error_code=codes[TopicPartition(topic.name, index)]
            )
            for index in topic.partitions
        )
        results.append(
            AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=tuple(rows))
        )
    return results


async def _add_or_verify(
    context: Context, wanted: AddPartitionsToTxnTransaction, places: list[TopicPartition]
) -> Codes:
    transactions = context.broker.transactions
    producer = ProducerIdentity(wanted.producer_id, wanted.producer_epoch)
    codes = dict.fromkeys(places, ErrorCode.none)
    try:
        if not wanted.verify_only:
            await transactions.add_partitions(wanted.transactional_id, producer, places)
            return codes
        for place in places:
            try:
                await transactions.verify(wanted.transactional_id, producer, place)
            except NotInTransaction:
                codes[place] = ErrorCode.transaction_abortable
    except KNOWN as error:
        return dict.fromkeys(places, coordinator_code(error, knows_fenced=True))
    return codes


def _places(topics: Topics) -> Steps[list[TopicPartition]]:
    found = (TopicPartition(topic.name, index) for topic in topics for index in topic.partitions)
    return (yield from listed(found))


def _missing(
    context: Context, places: list[TopicPartition], *, from_producer: bool
) -> Steps[Codes]:
    """Return an error code for each partition if one cannot be added. Empty means: all can."""
    codes = {}
    for place in places:
        yield
        try:
            if from_producer:
                topic = topic_of(context, Operation.WRITE, place.topic)
                context.broker.check_foreign(topic.name)
            else:
                topic = context.broker.topic(place.topic)
            context.broker.served_partition(topic, place.partition)
        except KNOWN as error:
            codes[place] = reason_of(error)[0]
    if not codes:
        return {}
    return {place: codes.get(place, ErrorCode.operation_not_attempted) for place in places}
