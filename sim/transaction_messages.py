"""The requests of a transactional client, for transaction versions 1 and 2."""

from datetime import timedelta
from typing import Any

from kio.schema.add_offsets_to_txn.v4.request import AddOffsetsToTxnRequest
from kio.schema.add_partitions_to_txn.v3.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from kio.schema.end_txn import v4 as end_v4
from kio.schema.end_txn import v5 as end_v5
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v12.request import FetchPartition, FetchRequest, FetchTopic
from kio.schema.init_producer_id.v5.request import InitProducerIdRequest
from kio.schema.offset_fetch.v9.request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kio.schema.produce import v11 as produce_v11
from kio.schema.produce import v12 as produce_v12
from kio.schema.txn_offset_commit import v4 as commit_v4
from kio.schema.txn_offset_commit import v5 as commit_v5
from kio.schema.types import BrokerId, GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import Records, i8, i16, i32, i32Timedelta, i64

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import ProducerIdentity
from entrepot.wire.kafka.api import Api, response_class

# To be asked again, as nothing has happened yet.
TOO_EARLY = (
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas,
    ErrorCode.unstable_offset_commit,
    # In a cluster: another node has to be asked, or this one again.
    ErrorCode.not_coordinator,
    ErrorCode.not_leader_or_follower,
    ErrorCode.leader_not_available,
    ErrorCode.not_enough_replicas_after_append,
    ErrorCode.request_timed_out,
)
_READ_COMMITTED = 1


def answer_of(request: Any) -> type[Any]:
    return response_class(Api(request.__api_key__), int(request.__version__))


def code_of(response: Any) -> ErrorCode:
    """The first thing that is wrong, wherever it stands."""
    match Api(response.__api_key__):
        case Api.PRODUCE:
            rows = response.responses[0].partition_responses
            codes = [row.error_code for row in rows]
        case Api.ADD_PARTITIONS_TO_TXN:
            rows = response.results_by_topic_v3_and_below[0].results_by_partition
            codes = [row.partition_error_code for row in rows]
        case Api.TXN_OFFSET_COMMIT:
            codes = [row.error_code for row in response.topics[0].partitions]
        case _:
            codes = [response.error_code]
    return next((code for code in codes if code), ErrorCode.none)


def belongs_to_any(request: Any) -> bool:
    """Whether, come too late, it falls into the next transaction of the same epoch.

    That is what transaction version 2 is for: it has no two transactions in one epoch.
    """
    return Api(request.__api_key__) in (Api.END_TXN, Api.TXN_OFFSET_COMMIT)


def init(transactional_id: str | None, timeout_ms: int) -> Any:
    return InitProducerIdRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        transaction_timeout=_milliseconds(timeout_ms),
    )


def add(transactional_id: str, producer: ProducerIdentity, place: TopicPartition) -> Any:
    topic = AddPartitionsToTxnTopic(name=TopicName(place.topic), partitions=(i32(place.partition),))
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(transactional_id),
        v3_and_below_producer_id=ProducerId(producer.id),
        v3_and_below_producer_epoch=i16(producer.epoch),
        v3_and_below_topics=(topic,),
    )


def produce(transactional_id: str, place: TopicPartition, data: bytes, version: int) -> Any:
    v: Any = (produce_v11 if version == 1 else produce_v12).request
    rows = (v.PartitionProduceData(index=i32(place.partition), records=Records(data)),)
    return v.ProduceRequest(
        transactional_id=TransactionalId(transactional_id),
        acks=i16(-1),
        timeout=_milliseconds(1_000),
        topic_data=(v.TopicProduceData(name=TopicName(place.topic), partition_data=rows),),
    )


def end(transactional_id: str, producer: ProducerIdentity, *, commit: bool, version: int) -> Any:
    v: Any = (end_v4 if version == 1 else end_v5).request
    return v.EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
        committed=commit,
    )


def add_offsets(transactional_id: str, producer: ProducerIdentity, group: str) -> Any:
    return AddOffsetsToTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
        group_id=GroupId(group),
    )


def commit_offset(
    transactional_id: str,
    producer: ProducerIdentity,
    group: str,
    place: TopicPartition,
    offset: int,
    *,
    version: int,
) -> Any:
    v: Any = (commit_v4 if version == 1 else commit_v5).request
    row = v.TxnOffsetCommitRequestPartition(
        partition_index=i32(place.partition), committed_offset=i64(offset), committed_metadata=""
    )
    topic = v.TxnOffsetCommitRequestTopic(name=TopicName(place.topic), partitions=(row,))
    return v.TxnOffsetCommitRequest(
        transactional_id=TransactionalId(transactional_id),
        group_id=GroupId(group),
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
        topics=(topic,),
    )


def fetch_offset(group: str, place: TopicPartition) -> Any:
    topic = OffsetFetchRequestTopics(
        name=TopicName(place.topic), partition_indexes=(i32(place.partition),)
    )
    wanted = OffsetFetchRequestGroup(group_id=GroupId(group), topics=(topic,))
    return OffsetFetchRequest(groups=(wanted,), require_stable=True)


def fetch(place: TopicPartition, offset: int) -> Any:
    wanted = FetchPartition(
        partition=i32(place.partition), fetch_offset=i64(offset), partition_max_bytes=i32(2_000)
    )
    return FetchRequest(
        replica_id=BrokerId(-1),
        max_wait=_milliseconds(20),
        min_bytes=i32(1),
        max_bytes=i32(20_000),
        isolation_level=i8(_READ_COMMITTED),
        session_id=i32(0),
        session_epoch=i32(-1),
        topics=(FetchTopic(topic=TopicName(place.topic), partitions=(wanted,)),),
        forgotten_topics_data=(),
    )


def _milliseconds(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))
