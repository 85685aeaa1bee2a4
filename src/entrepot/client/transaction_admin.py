"""Transactions, looked at and ended from outside.

Who began them is not asked: a transactional id is taken over, which aborts its transaction and
fences its owner, or the partition's leader is told to abort what is open there.
"""

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from kio.schema.describe_producers.v0.request import DescribeProducersRequest, TopicRequest
from kio.schema.describe_producers.v0.response import DescribeProducersResponse, ProducerState
from kio.schema.describe_transactions.v0.request import DescribeTransactionsRequest
from kio.schema.describe_transactions.v0.response import (
    DescribeTransactionsResponse,
    TransactionState,
)
from kio.schema.errors import ErrorCode
from kio.schema.list_transactions.v2.request import ListTransactionsRequest
from kio.schema.list_transactions.v2.response import ListTransactionsResponse
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.schema.write_txn_markers.v1.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v1.response import WriteTxnMarkersResponse
from kio.static.primitive import i16, i32, i64

from entrepot.client.client import Client, TopicPartition
from entrepot.client.errors import Refused, check
from entrepot.client.transactions import Transactions

OPEN_STATES = ("Ongoing", "PrepareCommit", "PrepareAbort")  # These hold readers back.
_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class TransactionListing:
    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionInfo:
    transactional_id: str
    coordinator: int
    producer_id: int
    epoch: int
    state: str
    timeout_ms: int
    started_ms: int | None  # None: it has not begun.
    parts: tuple[TopicPartition, ...]

    @property
    def is_open(self) -> bool:
        return self.state in OPEN_STATES


@dataclass(frozen=True, slots=True)
class ActiveProducer:
    """What a partition remembers of a producer."""

    part: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    open_from: int | None  # The first offset of its open transaction; None: none is open.


class TransactionAdmin:
    def __init__(self, client: Client) -> None:
        self._client = client
        self._cluster = client.cluster

    async def all(
        self,
        *,
        states: tuple[str, ...] = (),
        producer_ids: tuple[int, ...] = (),
        open_for_ms: int = -1,
        pattern: str | None = None,
    ) -> list[TransactionListing]:
        """The transactional ids of every broker, by name; of several filters all must hold."""
        request = ListTransactionsRequest(
            state_filters=states,
            producer_id_filters=tuple(map(ProducerId, producer_ids)),
            duration_filter=i64(open_for_ms),
            transactional_id_pattern=pattern,
        )

        async def of(node: int) -> list[TransactionListing]:
            answer = await self._cluster.ask(request, ListTransactionsResponse, node=node)
            check(answer.error_code, "transactions")
            return [
                TransactionListing(
                    each.transactional_id, node, each.producer_id, each.transaction_state
                )
                for each in answer.transaction_states
            ]

        async def attempt() -> list[TransactionListing]:
            await self._cluster.describe([])
            answers = await asyncio.gather(*map(of, self._cluster.brokers))
            found = [each for answer in answers for each in answer]
            return sorted(found, key=lambda each: each.transactional_id)

        return await self._cluster.retry(attempt)

    async def describe(self, transactional_id: str) -> TransactionInfo:
        request = DescribeTransactionsRequest(
            transactional_ids=(TransactionalId(transactional_id),)
        )

        async def ask(node: int) -> TransactionInfo:
            answer = await self._cluster.ask(request, DescribeTransactionsResponse, node=node)
            (found,) = answer.transaction_states
            check(found.error_code, f"transactional id {transactional_id}")
            return _info(found, node)

        return await Transactions(self._client).at_coordinator(transactional_id, ask)

    async def producers(self, parts: list[TopicPartition]) -> list[ActiveProducer]:
        """Who has written to these partitions, in their order."""

        async def ask(
            leader: int, wanted: dict[TopicPartition, None]
        ) -> dict[TopicPartition, list[ActiveProducer]]:
            request = DescribeProducersRequest(
                topics=tuple(
                    TopicRequest(
                        name=TopicName(part.topic), partition_indexes=(i32(part.partition),)
                    )
                    for part in wanted
                )
            )
            answer = await self._cluster.ask(request, DescribeProducersResponse, node=leader)
            found = {}
            for topic in answer.topics:
                for each in topic.partitions:
                    part = TopicPartition(topic.name, each.partition_index)
                    check(each.error_code, part, each.error_message)
                    found[part] = [_producer(part, state) for state in each.active_producers]
            return found

        answers = await self._client.per_leader(dict.fromkeys(parts), ask)
        return [each for part in parts for each in answers[part]]

    async def abort(self, producer: ActiveProducer) -> None:
        """Abort the transaction that the producer has open in the partition."""
        part = producer.part
        marker = WritableTxnMarker(
            producer_id=ProducerId(producer.producer_id),
            producer_epoch=i16(producer.epoch),
            transaction_result=False,
            topics=(
                WritableTxnMarkerTopic(
                    name=TopicName(part.topic), partition_indexes=(i32(part.partition),)
                ),
            ),
            coordinator_epoch=i32(max(producer.coordinator_epoch, 0)),
        )
        request = WriteTxnMarkersRequest(markers=(marker,))

        async def attempt() -> None:
            leader = await self._cluster.leader(*part)
            answer = await self._cluster.ask(request, WriteTxnMarkersResponse, node=leader)
            check(answer.markers[0].topics[0].partitions[0].error_code, part)

        await self._cluster.retry(attempt)


def is_unknown(error: Refused) -> bool:
    """Return whether there is no such transactional id."""
    return error.code is ErrorCode.transactional_id_not_found


def _info(found: TransactionState, node: int) -> TransactionInfo:
    started_ms = round(found.transaction_start_time.timestamp() * 1000)
    return TransactionInfo(
        transactional_id=found.transactional_id,
        coordinator=node,
        producer_id=found.producer_id,
        epoch=found.producer_epoch,
        state=found.transaction_state,
        timeout_ms=found.transaction_timeout // _MILLISECOND,
        started_ms=started_ms if started_ms >= 0 else None,
        parts=tuple(
            TopicPartition(topic.topic, partition)
            for topic in found.topics
            for partition in topic.partitions
        ),
    )


def _producer(part: TopicPartition, state: ProducerState) -> ActiveProducer:
    return ActiveProducer(
        part=part,
        producer_id=state.producer_id,
        epoch=state.producer_epoch,
        coordinator_epoch=state.coordinator_epoch,
        last_sequence=state.last_sequence,
        last_timestamp_ms=state.last_timestamp,
        open_from=state.current_txn_start_offset if state.current_txn_start_offset >= 0 else None,
    )
