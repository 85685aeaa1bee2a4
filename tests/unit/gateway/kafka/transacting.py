"""A transactional producer and its readers, who call the handlers directly."""

from datetime import timedelta
from typing import Any

from kio.schema.add_partitions_to_txn.v3 import request as add_v3
from kio.schema.end_txn.v5.request import EndTxnRequest
from kio.schema.end_txn.v5.response import EndTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.init_producer_id.v6.request import InitProducerIdRequest
from kio.schema.init_producer_id.v6.response import InitProducerIdResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i32Timedelta

from entrepot.broker.access import (
    Access,
    AccessSettings,
    Answers,
    Operation,
    Question,
    ResourceKind,
)
from entrepot.broker.transaction import ProducerIdentity
from entrepot.gateway.kafka import add_partitions_to_txn, end_txn, init_producer_id
from entrepot.wire.kafka.api import Api
from entrepot.wire.kafka.fetch import FetchedPartition
from entrepot.wire.kafka.frames import RequestHeader
from tests.unit.gateway.kafka.node import Node
from tests.unit.gateway.kafka.serving import (
    Fetching,
    Produced,
    batch_of,
    fetch_request,
    to,
    wanted,
)

ID = "pay"
TOPIC = "one"
COMMITTED = 1  # An isolation level.


def header(api: Api, version: int | None = None) -> RequestHeader:
    return RequestHeader(api, api.version_last if version is None else version, 1, None)


async def init(
    node: Node,
    transactional_id: str | None = ID,
    known: ProducerIdentity | None = None,
    *,
    version: int = 6,
    timeout_ms: int = 60_000,
    **more: Any,
) -> InitProducerIdResponse:
    known = known or ProducerIdentity(-1, -1)
    request = InitProducerIdRequest(
        transactional_id=None if transactional_id is None else TransactionalId(transactional_id),
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=timeout_ms)),
        producer_id=ProducerId(known.id),
        producer_epoch=i16(known.epoch),
        **more,
    )
    context = node.context
    return await init_producer_id.handle(context, header(Api.INIT_PRODUCER_ID, version), request)


async def producer_of(node: Node, transactional_id: str = ID) -> ProducerIdentity:
    response = await init(node, transactional_id)
    assert response.error_code is ErrorCode.none
    return ProducerIdentity(response.producer_id, response.producer_epoch)


async def add(
    node: Node,
    producer: ProducerIdentity,
    *indexes: int,
    topic: str = TOPIC,
    transactional_id: str = ID,
    version: int = 3,
) -> list[ErrorCode]:
    """As a producer does it, in a version before batches."""
    request = add_v3.AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=TransactionalId(transactional_id),
        v3_and_below_producer_id=ProducerId(producer.id),
        v3_and_below_producer_epoch=i16(producer.epoch),
        v3_and_below_topics=(
            add_v3.AddPartitionsToTxnTopic(
                name=TopicName(topic), partitions=tuple(map(i32, indexes))
            ),
        ),
    )
    response = await add_partitions_to_txn.handle(
        node.context, header(Api.ADD_PARTITIONS_TO_TXN, version), request
    )
    (found,) = response.results_by_topic_v3_and_below
    assert [each.partition_index for each in found.results_by_partition] == list(indexes)
    return [each.partition_error_code for each in found.results_by_partition]


async def end(
    node: Node,
    producer: ProducerIdentity,
    *,
    commit: bool = True,
    version: int = 4,
    transactional_id: str = ID,
) -> EndTxnResponse:
    request = EndTxnRequest(
        transactional_id=TransactionalId(transactional_id),
        producer_id=ProducerId(producer.id),
        producer_epoch=i16(producer.epoch),
        committed=commit,
    )
    return await end_txn.handle(node.context, header(Api.END_TXN, version), request)


async def write(
    node: Node,
    producer: ProducerIdentity,
    value: bytes,
    index: int = 0,
    *,
    sequence: int = 0,
    version: int = 9,
    transactional_id: str | None = ID,
) -> ErrorCode:
    data = batch_of(
        value,
        producer_id=producer.id,
        producer_epoch=producer.epoch,
        sequence_first=sequence,
        transactional=True,
    )
    produced = Produced(
        node, [to(TOPIC, data, index)], version=version, transactional_id=transactional_id
    )
    (result,) = await produced.done()
    return ErrorCode(result.error_code)


async def read(
    node: Node, offset: int = 0, *, isolation: int = COMMITTED, **more: Any
) -> FetchedPartition:
    request = fetch_request(TOPIC, wanted(offset), isolation_level=isolation, **more)
    (topic,) = (await Fetching(node, request).done()).topics
    (found,) = topic.partitions
    return found


class Denying:
    """Rules that allow everything but one operation on one kind of thing."""

    asks_clients = False

    def __init__(self, operation: Operation, kind: ResourceKind) -> None:
        self.answers: Answers = {}
        self._denied = (operation, kind)

    def allows(self, question: Question) -> bool:
        return (question.operation, question.kind) != self._denied


def deny(node: Node, operation: Operation, kind: ResourceKind) -> None:
    rules = Denying(operation, kind)
    access = Access(AccessSettings(is_enforced=True), rules, rules)
    node.context.principal = access.principal("ana", "")
