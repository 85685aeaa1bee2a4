"""Produce (key 0), v3 to v13. Batches only; acks=0 is never answered.

All partitions are appended at once, in the order of the request. With acks=1 or
all, the answer waits until every one of them is committed: on one node both mean
on disk, as far as the topic's durability says. With acks=0 the only way to report
a failure is to close the connection, as Kafka does.

A transactional batch is taken when its transaction has the partition. From v12 on
(transaction version 2) the partition joins the transaction with the batch, and the answer
waits for both. Before v11 a client knows no word for a transaction it should abort.
"""

from __future__ import annotations

from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.consumer_group.offsets import Place
from entrepot.broker.quotas import Limit
from entrepot.broker.stream import Admit
from entrepot.broker.transaction import Producer
from entrepot.broker.transaction_coordinator import Recorded
from entrepot.core.batch import BatchHeader
from entrepot.core.errors import (
    ConcurrentTransactions,
    InvalidBatch,
    InvalidRecord,
    NotInTransaction,
    StorageError,
)
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.throttle import Cost
from entrepot.gateway.kafka.topics import topic_key, topic_of
from entrepot.gateway.kafka.transactions import check_transactional_id
from entrepot.wire.kafka import produce
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.produce import ProducePartition, ProduceResult, ProduceTopic

if TYPE_CHECKING:
    from entrepot.gateway.kafka.adapter import Answer

_ACKS = (0, 1, -1)
_VERSION_ABORTABLE = 11
_VERSION_JOINS = 12


def serve(
    context: Context, header: RequestHeader, frame: memoryview, position: int, answer: Answer
) -> None:
    cost = Cost(context, header.client_id)
    request = produce.decode_request(header.version, frame, position)
    pending = _Pending(header.version, request.partitions, answer)
    transactional_id = request.transactional_id
    if request.acks not in _ACKS:
        for number, wanted in enumerate(request.partitions):
            pending.results[number] = ProduceResult(
                wanted.partition_index,
                ErrorCode.invalid_required_acks,
                error_message="acks is 0, 1 or -1",
            )
    else:
        for number, wanted in enumerate(request.partitions):
            _append(context, pending, number, wanted, transactional_id, wait=request.acks != 0)
    pending.throttle_ms = cost.throttle_ms(Limit.PRODUCER_BYTE_RATE, len(frame))
    if request.acks == 0:
        _unanswered(pending, answer)
    else:
        pending.appended_all()


def _append(
    context: Context,
    pending: _Pending,
    number: int,
    wanted: ProducePartition,
    transactional_id: str | None,
    *,
    wait: bool,
) -> None:
    joined: list[Recorded] = []
    try:
        key = topic_key(wanted.topic_name, wanted.topic_id)
        topic = topic_of(context, Operation.WRITE, key)
        context.broker.check_foreign(topic.name)
        stream = context.broker.stream(topic, wanted.partition_index)
        if wanted.records is None:
            raise InvalidBatch("no records")
        if transactional_id is None:
            appended = stream.append(wanted.records)
        else:
            place = Place(topic.name, wanted.partition_index)
            admit = _admission(context, pending.version, transactional_id, place, joined)
            appended = stream.append(wanted.records, admit)
    except KNOWN as error:
        pending.results[number] = pending.failed(wanted.partition_index, error)
        return
    pending.results[number] = ProduceResult(
        wanted.partition_index,
        0,
        appended.offset_first,
        appended.append_time_ms,
        stream.partition.offset_start,
    )
    if wait:
        pending.wait_for(number, Recorded(stream.partition, appended.offset_end))
        for recorded in joined:
            pending.wait_for(number, recorded)


def _admission(
    context: Context, version: int, transactional_id: str, place: Place, joined: list[Recorded]
) -> Admit:
    """Asks the coordinator; what it had to record for that goes to `joined`."""
    transactions = context.broker.transactions

    def admit(header: BatchHeader) -> None:
        check_transactional_id(context, Operation.WRITE, transactional_id)
        producer = Producer(header.producer_id, header.producer_epoch)
        if version < _VERSION_JOINS:
            transactions.check_member(transactional_id, producer, place)
        elif (recorded := transactions.join(transactional_id, producer, [place])) is not None:
            joined.append(recorded)

    return admit


def _code(version: int, error: Exception) -> ErrorCode:
    if isinstance(error, NotInTransaction) and version >= _VERSION_ABORTABLE:
        return ErrorCode.transaction_abortable
    if isinstance(error, ConcurrentTransactions) and version < _VERSION_JOINS:
        return ErrorCode.not_enough_replicas  # To be sent again; the other is not known.
    return reason_of(error)[0]


def _unanswered(pending: _Pending, answer: Answer) -> None:
    for result in pending.results:
        if result.error_code:
            answer.refuse(f"a produce with acks=0 failed: {result.error_message}")
            return
    answer.omit()


class _Pending:
    """A request whose answer waits for commits."""

    __slots__ = (
        "_answer",
        "_appending",
        "_partitions",
        "_waiting",
        "results",
        "throttle_ms",
        "version",
    )

    def __init__(self, version: int, partitions: list[ProducePartition], answer: Answer) -> None:
        self.version = version
        self._partitions = partitions
        self._answer = answer
        self._waiting = 0
        self._appending = True
        self.throttle_ms = 0  # What the client is told to wait.
        self.results = [ProduceResult(partition.partition_index) for partition in partitions]

    def failed(self, index: int, error: Exception) -> ProduceResult:
        places = error.places if isinstance(error, InvalidRecord) else ()
        wrong = [(place, str(error)) for place in places]
        code = _code(self.version, error)
        return ProduceResult(index, code, record_errors=wrong, error_message=str(error))

    def wait_for(self, number: int, recorded: Recorded) -> None:
        def finish(error: StorageError | None) -> None:
            if error is not None:
                self.results[number] = self.failed(self.results[number].partition_index, error)
            self._waiting -= 1
            self._answer_when_done()

        self._waiting += 1
        recorded.partition.when_committed(recorded.offset_end, partial(self._answer.guard, finish))

    def appended_all(self) -> None:
        self._appending = False
        self._answer_when_done()

    def _answer_when_done(self) -> None:
        if self._waiting or self._appending:
            return
        rows = zip(self._partitions, self.results, strict=True)
        topics = [
            ProduceTopic(name, identity, [result for _, result in group])
            for (name, identity), group in groupby(rows, key=lambda row: row[0][:2])
        ]
        body = produce.encode_response(self.version, topics, self.throttle_ms)
        self._answer.send([body], len(body))
