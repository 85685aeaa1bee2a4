"""Produce (key 0), v3 to v13. Batches only; acks=0 is never answered.

Partitions are appended in the order of the request, and nearly always at once. Where there
are very many, or a batch has to be unpacked, for its keys or to be compressed anew, what is
left is appended in turns, also if the client is gone by then. With acks=1 or all, the answer
waits until every one of them is committed: on one node both mean on disk, as far as the
topic's durability says. With acks=0 the only way to report a failure is to close the
connection, as Kafka does.

A transactional batch is taken when its transaction has the partition. From v12 on
(transaction version 2) the partition joins the transaction with the batch, and the answer
waits for both. Before v11 a client knows no word for a transaction it should abort.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.offsets import Place
from entrepot.broker.quotas import Limit
from entrepot.broker.stream import Admit, Stream
from entrepot.broker.transaction import Producer
from entrepot.broker.transaction_coordinator import Recorded
from entrepot.core import limits
from entrepot.core.batch import BatchHeader
from entrepot.core.errors import (
    ConcurrentTransactions,
    InvalidBatch,
    InvalidRecord,
    NotInTransaction,
    StorageError,
)
from entrepot.core.ports import Buffer
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import reason_of
from entrepot.gateway.kafka.throttle import Cost
from entrepot.gateway.kafka.topics import topic_key, topic_of
from entrepot.gateway.kafka.transactions import check_transactional_id
from entrepot.wire.kafka import produce
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.produce import (
    ProducePartition,
    ProduceRequest,
    ProduceResult,
    ProduceTopic,
)

if TYPE_CHECKING:
    from entrepot.gateway.kafka.adapter import Answer

_ACKS = (0, 1, -1)
_VERSION_ABORTABLE = 11
_VERSION_JOINS = 12


def serve(
    context: Context, header: RequestHeader, frame: memoryview, position: int, answer: Answer
) -> Awaitable[None] | None:
    cost = Cost(context, header.client_id)
    decoding = produce.decode_request_steps(header.version, frame, position)
    request = context.broker.turns.begin(decoding)
    if isinstance(request, Awaitable):
        rest = _serve_long(context, header, request, cost, len(frame), answer)
        return asyncio.shield(cost.watch(rest))  # Who asked for no answer may be gone by now.
    return _serve(_Produce(context, header.version, request, answer), cost, len(frame))


async def _serve_long(
    context: Context,
    header: RequestHeader,
    decoding: Awaitable[ProduceRequest],
    cost: Cost,
    size: int,
    answer: Answer,
) -> None:
    work = _Produce(context, header.version, await decoding, answer)
    pending = _serve(work, cost, size)
    if pending is not None:
        await pending


def _serve(work: _Produce, cost: Cost, size: int) -> Awaitable[None] | None:
    context, request = work.context, work.request
    if request.acks not in _ACKS:
        work.refuse_all()
    else:
        until_s = context.clock.monotonic() + limits.TURN_MS / 1_000
        while work.number < len(request.partitions):
            if context.clock.monotonic() >= until_s or not work.append():
                return asyncio.shield(cost.watch(_append_later(work, cost, size)))
            work.number += 1
    work.end(cost.throttle_ms(Limit.PRODUCER_BYTE_RATE, size))
    return None


async def _append_later(work: _Produce, cost: Cost, size: int) -> None:
    """What is left, in turns."""
    context, until_s = work.context, 0.0
    while work.number < len(work.request.partitions):
        if context.clock.monotonic() >= until_s:
            await context.broker.turns.next()
            until_s = context.clock.monotonic() + limits.TURN_MS / 1_000
        if not work.append():
            await work.append_in_turns()
        work.number += 1
    work.end(cost.throttle_ms(Limit.PRODUCER_BYTE_RATE, size))


class _Produce:
    """One request, partition by partition."""

    def __init__(
        self, context: Context, version: int, request: ProduceRequest, answer: Answer
    ) -> None:
        self.context = context
        self._answer = answer
        self._pending = _Pending(version, request.partitions, answer)
        self.request = request
        self.number = 0  # Of the partition that is the next.

    def refuse_all(self) -> None:
        for number, wanted in enumerate(self.request.partitions):
            self._pending.results[number] = ProduceResult(
                wanted.partition_index,
                ErrorCode.invalid_required_acks,
                error_message="acks is 0, 1 or -1",
            )

    def append(self) -> bool:
        """Append to the next partition. False, and nothing has happened, if that takes long."""
        wanted = self.request.partitions[self.number]
        try:
            topic, stream, data = self._find(wanted)
            if stream.takes_long(data):
                return False
            self._append(topic, stream, data)
        except KNOWN as error:
            self._failed(error)
        return True

    async def append_in_turns(self) -> None:
        wanted, broker = self.request.partitions[self.number], self.context.broker
        try:
            _, stream, data = self._find(wanted)
            data = await stream.look_into(data, broker.codec_worker, broker.turns)
            _, stream, _ = self._find(wanted)  # It may be deleted by now, and made anew.
            chunks = await stream.write_ahead_of(data)
            topic, now, _ = self._find(wanted)
            chunks = chunks if now is stream else None
            self._append(topic, now, data, is_looked_into=True, chunks=chunks)
        except KNOWN as error:
            self._failed(error)

    def _find(self, wanted: ProducePartition) -> tuple[Topic, Stream, Buffer]:
        key = topic_key(wanted.topic_name, wanted.topic_id)
        topic = topic_of(self.context, Operation.WRITE, key)
        self.context.broker.check_foreign(topic.name)
        stream = self.context.broker.stream(topic, wanted.partition_index)
        if wanted.records is None:
            raise InvalidBatch("no records")
        return topic, stream, wanted.records

    def _append(
        self,
        topic: Topic,
        stream: Stream,
        data: Buffer,
        *,
        is_looked_into: bool = False,
        chunks: list[Buffer] | None = None,
    ) -> None:
        pending, index = self._pending, stream.partition.id.number
        joined: list[Recorded] = []
        admit: Admit | None = None
        if self.request.transactional_id is not None:
            admit = _admission(
                self.context,
                pending.version,
                self.request.transactional_id,
                Place(topic.name, index),
                joined,
            )
        appended = stream.append(data, admit, is_looked_into=is_looked_into, chunks=chunks)
        pending.results[self.number] = ProduceResult(
            index,
            0,
            appended.offset_first,
            appended.append_time_ms,
            stream.partition.offset_start,
        )
        if self.request.acks != 0:
            pending.wait_for(self.number, Recorded(stream.partition, appended.offset_end))
            for recorded in joined:
                pending.wait_for(self.number, recorded)

    def _failed(self, error: Exception) -> None:
        index = self.request.partitions[self.number].partition_index
        self._pending.results[self.number] = self._pending.failed(index, error)

    def end(self, throttle_ms: int) -> None:
        self._pending.throttle_ms = throttle_ms
        if self.request.acks == 0:
            _unanswered(self._pending, self._answer)
        else:
            self._pending.appended_all()


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
