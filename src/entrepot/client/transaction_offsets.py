"""How far a group has read, as a part of a transaction: known when it is committed, or never."""

from collections.abc import Mapping

from kio.schema.add_offsets_to_txn.v3.request import AddOffsetsToTxnRequest
from kio.schema.add_offsets_to_txn.v3.response import AddOffsetsToTxnResponse
from kio.schema.txn_offset_commit.v3.request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kio.schema.txn_offset_commit.v3.response import TxnOffsetCommitResponse
from kio.schema.types import GroupId, ProducerId, TopicName, TransactionalId
from kio.static.primitive import i16, i32, i64

from entrepot.client.client import Client, TopicPartition, by_topic
from entrepot.client.errors import check
from entrepot.client.transactions import OpenTransaction, Transactions


async def commit_in_transaction(
    client: Client,
    transaction: OpenTransaction,
    group: str,
    offsets: Mapping[TopicPartition, int],
) -> None:
    """Raises ClientError."""
    cluster = client.cluster
    joining = AddOffsetsToTxnRequest(
        transactional_id=TransactionalId(transaction.transactional_id),
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=i16(transaction.epoch),
        group_id=GroupId(group),
    )

    async def join(node: int) -> None:
        answer = await cluster.ask(joining, AddOffsetsToTxnResponse, node=node)
        check(answer.error_code, f"transactional id {transaction.transactional_id}")

    await Transactions(client).at_coordinator(transaction.transactional_id, join)
    request = TxnOffsetCommitRequest(
        transactional_id=TransactionalId(transaction.transactional_id),
        group_id=GroupId(group),
        producer_id=ProducerId(transaction.producer_id),
        producer_epoch=i16(transaction.epoch),
        topics=tuple(
            TxnOffsetCommitRequestTopic(
                name=TopicName(topic),
                partitions=tuple(
                    TxnOffsetCommitRequestPartition(
                        partition_index=i32(number),
                        committed_offset=i64(offset),
                        committed_metadata="",
                    )
                    for number, offset in partitions
                ),
            )
            for topic, partitions in by_topic(offsets)
        ),
    )

    async def attempt() -> None:
        answer = await cluster.ask_coordinator(group, request, TxnOffsetCommitResponse)
        for topic in answer.topics:
            for each in topic.partitions:
                check(each.error_code, TopicPartition(topic.name, each.partition_index))

    await cluster.retry(attempt)
