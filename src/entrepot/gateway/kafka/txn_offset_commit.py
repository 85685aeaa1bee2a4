"""TxnOffsetCommit (key 28), v0 to v5: commit offsets of a group as part of a transaction.

The offsets are pending until the transaction commits. The group must have been added to the
transaction (AddOffsetsToTxn); from v5 on (transaction version 2) this request adds it. v3: the
member and its generation, so that a fenced member cannot commit.
"""

from collections.abc import Mapping

from kio.schema.errors import ErrorCode
from kio.schema.txn_offset_commit.v5.request import TxnOffsetCommitRequest
from kio.schema.txn_offset_commit.v5.response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from entrepot.broker import vouching
from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset
from entrepot.broker.consumer_group.store import TOPIC
from entrepot.broker.transaction import ProducerIdentity
from entrepot.core import limits
from entrepot.core.errors import ConcurrentTransactions, NotInTransaction
from entrepot.core.steps import Steps, parts
from entrepot.gateway.kafka.context import NO_THROTTLE, Context
from entrepot.gateway.kafka.errors import KNOWN, code_of_fault
from entrepot.gateway.kafka.groups import check_group, find_place
from entrepot.gateway.kafka.transactions import check_transactional_id, coordinator_code
from entrepot.wire.kafka.frames import RequestHeader

_VERSION_ABORTABLE = 4
_VERSION_JOINS = 5


async def handle(
    context: Context, header: RequestHeader, request: TxnOffsetCommitRequest
) -> TxnOffsetCommitResponse:
    codes: dict[TopicPartition, ErrorCode] = {}
    try:
        check_transactional_id(context, Operation.WRITE, request.transactional_id)
        check_group(context, Operation.READ, request.group_id)
        offsets: dict[TopicPartition, CommittedOffset] = {}
        await context.broker.turns.run(_find(context, request, offsets, codes))
        for some in parts(offsets.items(), limits.OFFSETS_AT_ONCE_MAX):
            codes |= await _commit(context, header.version, request, dict(some))
            if len(some) == limits.OFFSETS_AT_ONCE_MAX:
                await context.broker.turns.next()
    except KNOWN as error:
        return _response(request, {}, _code(error, header.version))
    return _response(request, codes, ErrorCode.none)


def _find(
    context: Context,
    request: TxnOffsetCommitRequest,
    offsets: dict[TopicPartition, CommittedOffset],
    codes: dict[TopicPartition, ErrorCode],
) -> Steps[None]:
    """Put what can be committed into `offsets`, and error codes of the others into `codes`."""
    for topic in request.topics:
        for each in topic.partitions:
            yield
            index = each.partition_index
            place = find_place(context, Operation.READ, topic.name, index)
            if isinstance(place, ErrorCode):
                codes[TopicPartition(topic.name, index)] = place
            else:
                epoch, metadata = each.committed_leader_epoch, each.committed_metadata or ""
                offsets[place] = CommittedOffset(each.committed_offset, epoch, metadata, -1)


async def _commit(
    context: Context,
    version: int,
    request: TxnOffsetCommitRequest,
    offsets: Mapping[TopicPartition, CommittedOffset],
) -> dict[TopicPartition, ErrorCode]:
    groups, transactions = context.broker.groups, context.broker.transactions
    producer = ProducerIdentity(request.producer_id, request.producer_epoch)
    await groups.prepare()
    place = TopicPartition(TOPIC, groups.partition_of(request.group_id))
    if context.broker.cluster is not None:
        await _vouch(context, version, request, producer, place)
    else:
        if version >= _VERSION_JOINS:
            await transactions.add_partitions(request.transactional_id, producer, [place])
        # No other task runs between this and the append, so the transaction cannot end before it.
        transactions.check_member(request.transactional_id, producer, place)
    faults = await groups.commit_offsets(
        request.group_id,
        request.member_id,
        request.generation_id,
        offsets,
        instance_id=request.group_instance_id,
        producer=producer,
    )
    return {place: code_of_fault(fault) for place, fault in faults.items()}


async def _vouch(
    context: Context,
    version: int,
    request: TxnOffsetCommitRequest,
    producer: ProducerIdentity,
    place: TopicPartition,
) -> None:
    """Let the transaction's coordinator, which may be another node, say that it goes on."""
    broker = context.broker
    broker.groups.check_readable(request.group_id)
    served = broker.served_partition(broker.topic(place.topic), place.partition)
    vouched = None
    if not vouching.is_open(served, producer):
        vouched = await vouching.vouch(
            broker.transactions,
            served,
            place,
            request.transactional_id,
            producer,
            joins=version >= _VERSION_JOINS,
        )
    vouching.check(served, producer, vouched)


def _code(error: Exception, version: int) -> ErrorCode:
    if isinstance(error, NotInTransaction) and version >= _VERSION_ABORTABLE:
        return ErrorCode.transaction_abortable
    if isinstance(error, ConcurrentTransactions) and version < _VERSION_JOINS:
        # Clients of these versions do not know CONCURRENT_TRANSACTIONS; with this they ask again.
        return ErrorCode.coordinator_load_in_progress
    code = coordinator_code(error, knows_fenced=False)
    if code in (ErrorCode.group_id_not_found, ErrorCode.stale_member_epoch):
        return ErrorCode.illegal_generation
    return code


def _response(
    request: TxnOffsetCommitRequest, codes: Mapping[TopicPartition, ErrorCode], otherwise: ErrorCode
) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        throttle_time=NO_THROTTLE,
        topics=tuple(
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    TxnOffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=codes.get(
                            TopicPartition(topic.name, each.partition_index), otherwise
                        ),
                    )
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        ),
    )
