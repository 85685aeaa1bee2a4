"""Calls of this node to others, about transactions: whether a batch may join, and markers.

They are Kafka's requests, over one connection to each node, as the fetchers' are. What a call that
failed has done there is not known; whoever made it makes it again, or knows that it need not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any, TypeVar

from kio.schema.add_partitions_to_txn.v5.request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kio.schema.add_partitions_to_txn.v5.response import AddPartitionsToTxnResponse
from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId, TopicName, TransactionalId
from kio.schema.write_txn_markers.v2.request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kio.schema.write_txn_markers.v2.response import WriteTxnMarkersResponse
from kio.static.primitive import i8, i16, i32

from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.transaction import ProducerIdentity
from entrepot.client.connection import Connection
from entrepot.client.errors import ClientError
from entrepot.client.sasl import Credentials
from entrepot.cluster.state import Node
from entrepot.core.errors import (
    ConcurrentTransactions,
    FencedProducer,
    InvalidProducerMapping,
    InvalidTransactionState,
    NotInTransaction,
    PeerError,
    StorageError,
)
from entrepot.core.marker import Marker
from entrepot.core.ports import Net

_PATIENCE_S = 5.0
# What is the producer's to know; with everything else it is asked to send the batch again.
_REFUSALS: dict[ErrorCode, type[PeerError]] = {
    ErrorCode.producer_fenced: FencedProducer,
    ErrorCode.invalid_producer_epoch: FencedProducer,
    ErrorCode.invalid_producer_id_mapping: InvalidProducerMapping,
    ErrorCode.transaction_abortable: NotInTransaction,
    ErrorCode.invalid_txn_state: InvalidTransactionState,
    ErrorCode.concurrent_transactions: ConcurrentTransactions,
}
# The second means: a marker is of no use any more, the producer has gone on.
_DONE = (ErrorCode.none, ErrorCode.invalid_producer_epoch)

T = TypeVar("T")


class Calls:
    def __init__(
        self,
        node: int,
        net: Net,
        find: Callable[[int], Node | None],
        credentials: Credentials | None,
    ) -> None:
        """`find` returns where a node is now; None if it is not alive."""
        self._node = node
        self._net = net
        self._find = find
        self._credentials = credentials
        self._connections: dict[int, Connection] = {}
        self._connecting: dict[int, asyncio.Lock] = {}

    def forget(self, node: int) -> None:
        """Drop the connection to a node that is gone, or came back somewhere else."""
        connection = self._connections.pop(node, None)
        if connection is not None:
            connection.close()

    def close(self) -> None:
        for node in list(self._connections):
            self.forget(node)

    async def ask_coordinator(
        self,
        node: int,
        transactional_id: str,
        producer: ProducerIdentity,
        place: TopicPartition,
        *,
        joins: bool,
    ) -> None:
        topic = AddPartitionsToTxnTopic(
            name=TopicName(place.topic), partitions=(i32(place.partition),)
        )
        wanted = AddPartitionsToTxnTransaction(
            transactional_id=TransactionalId(transactional_id),
            producer_id=ProducerId(producer.id),
            producer_epoch=i16(producer.epoch),
            verify_only=not joins,
            topics=(topic,),
        )
        request = AddPartitionsToTxnRequest(transactions=(wanted,))
        response = await self._ask(node, request, AddPartitionsToTxnResponse)
        codes = [response.error_code]
        for result in response.results_by_transaction:
            for of_topic in result.topic_results:
                codes += [row.partition_error_code for row in of_topic.results_by_partition]
        failed = next((code for code in codes if code is not ErrorCode.none), None)
        if failed is not None:
            text = f"the coordinator of the transaction says {failed.name}"
            raise _REFUSALS.get(failed, StorageError)(text)

    async def write_markers(
        self, node: int, marker: Marker, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, str]:
        topics = [
            WritableTxnMarkerTopic(
                name=TopicName(name),
                partition_indexes=tuple(i32(place.partition) for place in some),
            )
            for name, some in groupby(sorted(places), key=attrgetter("topic"))
        ]
        request = WriteTxnMarkersRequest(
            markers=(
                WritableTxnMarker(
                    producer_id=ProducerId(marker.producer_id),
                    producer_epoch=i16(marker.producer_epoch),
                    transaction_result=marker.committed,
                    topics=tuple(topics),
                    coordinator_epoch=i32(marker.coordinator_epoch),
                    transaction_version=i8(0),
                ),
            )
        )
        response = await self._ask(node, request, WriteTxnMarkersResponse)
        codes = {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for result in response.markers
            for topic in result.topics
            for row in topic.partitions
        }
        found = {place: codes.get(place, ErrorCode.unknown_server_error) for place in places}
        return {place: code.name for place, code in found.items() if code not in _DONE}

    async def _ask(self, node: int, request: Any, answer: type[T]) -> T:
        """Ask a node. Raises StorageError when there is no answer."""
        try:
            connection = await self._connect(node)
            try:
                return await connection.ask(request, answer, _PATIENCE_S)
            except ClientError:
                if self._connections.get(node) is connection:
                    self.forget(node)
                raise
        except ClientError as error:
            raise StorageError(f"node {node}: {error}") from None

    async def _connect(self, node: int) -> Connection:
        async with self._connecting.setdefault(node, asyncio.Lock()):
            known = self._connections.get(node)
            if known is not None and known.is_open:
                return known
            found = self._find(node)
            if found is None:
                raise StorageError(f"node {node} is not there")
            connection = await Connection.open(
                self._net,
                found.host,
                found.port,
                client_id=f"coordinator-{self._node}",
                timeout_s=_PATIENCE_S,
                credentials=self._credentials,
            )
            self._connections[node] = connection
            return connection
