"""Produce (key 0), v3 to v13. Batches only; acks=0 is never answered.

Batches are appended in the order of the request, nearly always at once. If there are very many,
or a batch must be decompressed (to check its keys or to recompress it), the rest is appended in
turns, also if the client disconnects meanwhile. With acks=1 and acks=all the answer is sent when
all batches are committed: on one node both mean that they are on disk, as the topic's durability
defines it. In a cluster acks=1 means: on the leader's disk, and acks=all: on those of all replicas
that are in sync, of which there must be as many as the topic requires; it is answered with
REQUEST_TIMED_OUT when that takes longer than the client says. With acks=0 a failure closes the
connection, as in Kafka.

A transactional batch is accepted if its partition was added to the transaction. From v12 on
(transaction version 2) the batch itself adds the partition, and the answer waits for both. Before
v11 clients do not know the error TRANSACTION_ABORTABLE.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from entrepot.broker import vouching
from entrepot.broker.access import Operation
from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.quotas import Limit
from entrepot.broker.served_partition import Admit, ServedPartition
from entrepot.broker.transaction import ProducerIdentity
from entrepot.broker.transaction_coordinator import Recorded
from entrepot.core import limits
from entrepot.core.batch import BatchHeader, read_header
from entrepot.core.errors import (
    ConcurrentTransactions,
    InvalidBatch,
    NotEnoughReplicasAfterAppend,
    StorageError,
)
from entrepot.core.ports import Buffer
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.produce_one import ACKS, VERSION_JOINS, append_one, failed, remember
from entrepot.gateway.kafka.throttle import Cost, cost_of
from entrepot.gateway.kafka.topics import topic_key, topic_of
from entrepot.gateway.kafka.traced import traced
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
    from entrepot.gateway.kafka.ports import Answer

# Python 3.11 finds members of an enumeration slowly.
_BYTE_RATE, _WRITE = Limit.PRODUCER_BYTE_RATE, Operation.WRITE
_ALL = -1


def serve(
    context: Context, header: RequestHeader, frame: memoryview, position: int, answer: Answer
) -> Awaitable[None] | None:
    cost = cost_of(context, header.client_id)
    request: ProduceRequest | Awaitable[ProduceRequest] | None
    request = produce.decode_one(header.version, frame, position)
    if request is None:
        decoding = produce.decode_request_steps(header.version, frame, position)
        request = context.broker.turns.begin(decoding)
        if isinstance(request, Awaitable):
            rest = _serve_long(context, header, request, cost, len(frame), answer)
            # It goes on also if the client is gone, which may have wanted no answer.
            return asyncio.shield(cost.watch(rest))
    elif append_one(context, header.version, request, answer, cost, len(frame)):
        return None
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
    if work.request.acks not in ACKS:
        work.refuse_all()
    elif not work.is_appended:
        clock = work.context.clock
        until_s = clock.monotonic() + limits.TURN_MS / 1_000
        while work.append():
            if work.is_appended:
                break
            if clock.monotonic() >= until_s:
                return asyncio.shield(cost.watch(_append_later(work, cost, size)))
        else:
            return asyncio.shield(cost.watch(_append_later(work, cost, size)))
    work.end(cost.throttle_ms(_BYTE_RATE, size))
    return None


async def _append_later(work: _Produce, cost: Cost, size: int) -> None:
    """Append what is left, in turns."""
    context, until_s = work.context, 0.0
    while not work.is_appended:
        if context.clock.monotonic() >= until_s:
            await context.broker.turns.next()
            until_s = context.clock.monotonic() + limits.TURN_MS / 1_000
        if not work.append():
            await work.append_in_turns()
    work.end(cost.throttle_ms(_BYTE_RATE, size))


class _Produce:
    """Serves one request, partition by partition. The answer waits for their commits."""

    __slots__ = (
        "_answer",
        "_begun_s",
        "_deadline",
        "_is_appending",
        "_pending",
        "_results",
        "_throttle_ms",
        "_version",
        "_vouched",
        "_waiting",
        "context",
        "request",
    )

    def __init__(
        self, context: Context, version: int, request: ProduceRequest, answer: Answer
    ) -> None:
        self.context = context
        self.request = request
        self._version = version
        tracer = context.broker.tracer
        self._answer = answer if tracer is None else traced(tracer, request, answer)
        self._results: list[ProduceResult] = []  # One for each partition so far, in order.
        self._is_appending = True
        self._waiting = 0  # How many commits the answer waits for.
        # In a cluster: the numbers of their results, and when it waits no longer.
        self._pending: list[int] = []
        self._deadline: asyncio.TimerHandle | None = None
        self._vouched: vouching.Vouched | None = None  # For the batch that comes next.
        self._throttle_ms = 0  # How long the client is told to wait.
        self._begun_s = 0.0  # When it began, if it is timed.
        if context.messages.answering.is_due:
            self._begun_s = context.messages.answering.begin(context.clock.monotonic())

    @property
    def is_appended(self) -> bool:
        return len(self._results) == len(self.request.partitions)

    def refuse_all(self) -> None:
        self._results = [
            ProduceResult(
                wanted.partition_index,
                ErrorCode.invalid_required_acks,
                error_message="acks is 0, 1 or -1",
            )
            for wanted in self.request.partitions
        ]

    def append(self) -> bool:
        """Append to the next partition. False means: that takes long, and nothing was done."""
        wanted = self.request.partitions[len(self._results)]
        try:
            topic, served, data = self._find(wanted)
            if served.takes_long(data) or self._must_ask(served, data):
                return False
            self._append(topic, served, data)
        except KNOWN as error:
            self.refuse(error)
        return True

    async def append_in_turns(self) -> None:
        """Append to the next partition, in turns."""
        wanted, broker = self.request.partitions[len(self._results)], self.context.broker
        try:
            topic, served, data = self._find(wanted)
            if self._must_ask(served, data):
                await self._ask(topic, served, data)
            data = await served.look_into(data, broker.codec_worker, broker.turns)
            _, served, _ = self._find(wanted)  # It may be deleted by now, and made anew.
            chunks = await served.write_ahead_of(data)
            topic, now, _ = self._find(wanted)
            chunks = chunks if now is served else None
            self._append(topic, now, data, is_looked_into=True, chunks=chunks)
        except KNOWN as error:
            self.refuse(error)

    def refuse(self, error: Exception) -> None:
        """Note that the next partition's batches are refused."""
        wanted = self.request.partitions[len(self._results)]
        self._note_refused(wanted, error)
        self._results.append(failed(self._version, wanted.partition_index, error))

    def _must_ask(self, served: ServedPartition, data: Buffer) -> bool:
        """Return whether a coordinator has to be asked about the batch first: in a cluster, unless
        its transaction is open in the partition."""
        if self.request.transactional_id is None or served.role is None:
            return False
        header = read_header(data)
        return header.is_transactional and not vouching.is_open(served, _producer_of(header))

    async def _ask(self, topic: Topic, served: ServedPartition, data: Buffer) -> None:
        transactional_id = self.request.transactional_id
        check_transactional_id(self.context, _WRITE, transactional_id)
        assert transactional_id is not None
        served.check_leads()
        self._vouched = await vouching.vouch(
            self.context.broker.transactions,
            served,
            TopicPartition(topic.name, served.partition.id.number),
            transactional_id,
            _producer_of(read_header(data)),
            joins=self._version >= VERSION_JOINS,
        )

    def _find(self, wanted: ProducePartition) -> tuple[Topic, ServedPartition, Buffer]:
        key = topic_key(wanted.topic_name, wanted.topic_id)
        topic = topic_of(self.context, _WRITE, key)
        self.context.broker.check_foreign(topic.name)
        served = self.context.broker.served_partition(topic, wanted.partition_index)
        if wanted.records is None:
            raise InvalidBatch("no records")
        return topic, served, wanted.records

    def _append(
        self,
        topic: Topic,
        served: ServedPartition,
        data: Buffer,
        *,
        is_looked_into: bool = False,
        chunks: list[Buffer] | None = None,
    ) -> None:
        partition = served.partition
        index = partition.id.number
        if served.role is not None:
            served.check_leads()
            if self.request.acks == _ALL:
                served.check_enough_in_sync()
        joined: list[Recorded] = []
        admit: Admit | None = None
        if self.request.transactional_id is not None:
            place = TopicPartition(topic.name, index)
            transactional_id = self.request.transactional_id
            admit = _admission(self.context, self._version, transactional_id, place, joined)
            if served.role is not None:
                admit = partial(
                    _check_vouched, self.context, transactional_id, served, self._vouched
                )
        appended = served.append(data, admit, is_looked_into=is_looked_into, chunks=chunks)
        if len(self.request.partitions) == 1:
            remember(self.context, self.request.partitions[0], served)
        number = len(self._results)
        offset, offset_end, time_ms = appended
        self.context.messages.published += offset_end - offset
        self._results.append(ProduceResult(index, 0, offset, time_ms, partition.offset_start))
        if self.request.acks != 0:
            if served.role is not None:
                self._wait_for_replicas(number, served, offset_end)
            elif offset_end > partition.high_watermark:
                self._wait_for(number, Recorded(partition, offset_end))
            for recorded in joined:
                self._wait_for(number, recorded)

    def _note_refused(self, wanted: ProducePartition, error: Exception) -> None:
        """Let the partition know if the producer will send the batch again."""
        if isinstance(error, StorageError | ConcurrentTransactions):
            with suppress(*KNOWN):
                _, served, data = self._find(wanted)
                served.note_refused(data)

    def _wait_for(self, number: int, recorded: Recorded) -> None:
        """Let the answer wait for a commit. If that fails, so does the result of that number."""

        def finish(error: StorageError | None) -> None:
            if error is not None:
                index = self._results[number].partition_index
                self._results[number] = failed(self._version, index, error)
            self._waiting -= 1
            if not self._waiting and not self._is_appending:
                self._send()

        self._waiting += 1
        recorded.partition.when_committed(recorded.offset_end, partial(self._answer.guard, finish))

    def _wait_for_replicas(self, number: int, served: ServedPartition, offset_end: int) -> None:
        """Let the answer wait until this replica has what was appended, or all in sync have."""
        partition, is_all = served.partition, self.request.acks == _ALL

        def finish(error: StorageError | None) -> None:
            if number not in self._pending:
                return  # The answer is sent: it took too long.
            self._pending.remove(number)
            role = served.role
            in_sync = 0 if role is None else role.in_sync_count
            if is_all and error is None and in_sync < served.config.in_sync_min:
                error = NotEnoughReplicasAfterAppend("too few replicas are in sync now")
            if error is not None:
                index = partition.id.number
                self._results[number] = failed(self._version, index, error)
            self._waiting -= 1
            if not self._waiting and not self._is_appending:
                self._send()

        self._waiting += 1
        self._pending.append(number)
        waiter = partial(self._answer.guard, finish)
        if is_all:
            partition.when_committed(offset_end, waiter)
        else:
            partition.when_durable(offset_end, waiter)

    def _give_up(self) -> None:
        """Answer although not everything is where it should be: the client waits no longer."""
        for number in self._pending:
            index = self._results[number].partition_index
            text = "not in all replicas in time"
            self._results[number] = ProduceResult(
                index, ErrorCode.request_timed_out, error_message=text
            )
        self._pending.clear()
        self._waiting = 0
        self._send()

    def end(self, throttle_ms: int) -> None:
        """Answer when everything is committed. Called when everything is appended."""
        self._is_appending = False
        self._throttle_ms = throttle_ms
        if self.request.acks == 0:
            self._omit()
        elif not self._waiting:
            self._send()
        elif self._pending:
            loop, timeout_ms = asyncio.get_running_loop(), max(self.request.timeout_ms, 1)
            give_up = partial(self._answer.guard, self._give_up)
            self._deadline = loop.call_later(timeout_ms / 1_000, give_up)

    def _omit(self) -> None:
        for result in self._results:
            if result.error_code:
                self._answer.refuse(f"a produce with acks=0 failed: {result.error_message}")
                return
        self._answer.omit()

    def _send(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        rows = zip(self.request.partitions, self._results, strict=True)
        topics = [
            ProduceTopic(name, identity, [result for _, result in group])
            for (name, identity), group in groupby(rows, key=lambda row: row[0][:2])
        ]
        body = produce.encode_response(self._version, topics, self._throttle_ms)
        self._answer.send([body], len(body))
        if self._begun_s:
            elapsed_s = self.context.clock.monotonic() - self._begun_s
            self.context.messages.answering.histogram.add(elapsed_s)


def _admission(
    context: Context,
    version: int,
    transactional_id: str,
    place: TopicPartition,
    joined: list[Recorded],
) -> Admit:
    """Return a function that asks the coordinator whether a batch may be part of the transaction.
    What the coordinator records for that is appended to `joined`."""
    transactions = context.broker.transactions

    def admit(header: BatchHeader) -> None:
        check_transactional_id(context, _WRITE, transactional_id)
        producer = ProducerIdentity(header.producer_id, header.producer_epoch)
        if version < VERSION_JOINS:
            transactions.check_member(transactional_id, producer, place)
        elif (
            recorded := transactions.join_transaction(transactional_id, producer, [place])
        ) is not None:
            joined.append(recorded)

    return admit


def _check_vouched(
    context: Context,
    transactional_id: str,
    served: ServedPartition,
    vouched: vouching.Vouched | None,
    header: BatchHeader,
) -> None:
    check_transactional_id(context, _WRITE, transactional_id)
    vouching.check(served, _producer_of(header), vouched)


def _producer_of(header: BatchHeader) -> ProducerIdentity:
    return ProducerIdentity(header.producer_id, header.producer_epoch)
