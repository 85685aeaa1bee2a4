"""Produce (key 0), v3 to v13. Batches only; acks=0 is never answered.

All partitions are appended at once, in the order of the request. With acks=1 or
all, the answer waits until every one of them is committed: on one node both mean
on disk, as far as the topic's durability says. With acks=0 the only way to report
a failure is to close the connection, as Kafka does.
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from entrepot.broker.stream import Appended, Stream
from entrepot.core.errors import InvalidBatch, StorageError
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN, code_of
from entrepot.gateway.kafka.topics import stream_of, topic_key
from entrepot.wire.kafka import produce
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.produce import ProducePartition, ProduceResult, ProduceTopic

if TYPE_CHECKING:
    from entrepot.gateway.kafka.adapter import Answer

_ACKS = (0, 1, -1)


def serve(
    context: Context, header: RequestHeader, frame: memoryview, position: int, answer: Answer
) -> None:
    request = produce.decode_request(header.version, frame, position)
    pending = _Pending(header.version, request.partitions, answer)
    if request.acks not in _ACKS:
        for number, wanted in enumerate(request.partitions):
            pending.results[number] = ProduceResult(
                wanted.partition_index,
                ErrorCode.invalid_required_acks,
                error_message="acks is 0, 1 or -1",
            )
    else:
        for number, wanted in enumerate(request.partitions):
            _append(context, pending, number, wanted, wait=request.acks != 0)
    if request.acks == 0:
        _unanswered(pending, answer)
    else:
        pending.appended_all()


def _append(
    context: Context, pending: _Pending, number: int, wanted: ProducePartition, *, wait: bool
) -> None:
    try:
        stream = stream_of(
            context, topic_key(wanted.topic_name, wanted.topic_id), wanted.partition_index
        )
        if wanted.records is None:
            raise InvalidBatch("no records")
        appended = stream.append(wanted.records)
    except KNOWN as error:
        pending.results[number] = _failed(wanted.partition_index, error)
        return
    pending.results[number] = ProduceResult(
        wanted.partition_index,
        0,
        appended.offset_first,
        appended.append_time_ms,
        stream.partition.offset_start,
    )
    if wait:
        pending.wait_for(number, stream, appended)


def _failed(index: int, error: Exception) -> ProduceResult:
    return ProduceResult(index, code_of(error), error_message=str(error))


def _unanswered(pending: _Pending, answer: Answer) -> None:
    for result in pending.results:
        if result.error_code:
            answer.refuse(f"a produce with acks=0 failed: {result.error_message}")
            return
    answer.omit()


class _Pending:
    """A request whose answer waits for commits."""

    __slots__ = ("_answer", "_appending", "_partitions", "_version", "_waiting", "results")

    def __init__(self, version: int, partitions: list[ProducePartition], answer: Answer) -> None:
        self._version = version
        self._partitions = partitions
        self._answer = answer
        self._waiting = 0
        self._appending = True
        self.results = [ProduceResult(partition.partition_index) for partition in partitions]

    def wait_for(self, number: int, stream: Stream, appended: Appended) -> None:
        def finish(error: StorageError | None) -> None:
            if error is not None:
                self.results[number] = _failed(self.results[number].partition_index, error)
            self._waiting -= 1
            self._answer_when_done()

        self._waiting += 1
        stream.partition.when_committed(appended.offset_end, finish)

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
        body = produce.encode_response(self._version, topics)
        self._answer.send([body], len(body))
