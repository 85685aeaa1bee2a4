"""DescribeProducers (key 61), v0: the producers of a partition, and their open transactions.

Outside of a cluster there is one coordinator, whose epoch is 0.
"""

from collections.abc import Iterator

from kio.schema.describe_producers.v0.request import DescribeProducersRequest
from kio.schema.describe_producers.v0.response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i32, i64

from entrepot.broker.access import Operation
from entrepot.broker.served_partition import ServedPartition
from entrepot.core.names import check_topic_name
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.topics import served_partition_of

_NONE = -1


def handle(context: Context, request: DescribeProducersRequest) -> Steps[DescribeProducersResponse]:
    topics = []
    for topic in request.topics:
        name = topic.name
        rows = yield from listed(_partition(context, name, i) for i in topic.partition_indexes)
        topics.append(TopicResponse(name=name, partitions=tuple(rows)))
    return DescribeProducersResponse(throttle_time=NO_THROTTLE, topics=tuple(topics))


def _partition(context: Context, name: str, index: int) -> PartitionResponse:
    try:
        check_topic_name(name)
        served = served_partition_of(context, Operation.READ, name, index)
    except KNOWN as error:
        code, text = reason_of(error)
        return PartitionResponse(
            partition_index=i32(index), error_code=code, error_message=text, active_producers=()
        )
    return PartitionResponse(
        partition_index=i32(index),
        error_code=ErrorCode.none,
        active_producers=tuple(_producers(served)),
    )


def _producers(served: ServedPartition) -> Iterator[ProducerState]:
    for identity, producer in served.producers.items():
        last = producer.batches[-1] if producer.batches else None
        opened = served.isolation.open.get(identity)
        yield ProducerState(
            producer_id=ProducerId(identity),
            producer_epoch=i32(producer.epoch),
            last_sequence=i32(_NONE if last is None else last.sequence_last),
            last_timestamp=i64(_NONE if last is None else last.timestamp_ms),
            coordinator_epoch=i32(max(producer.coordinator_epoch, 0)),
            current_txn_start_offset=i64(_NONE if opened is None else opened.offset_first),
        )
