"""Fetch (key 1), v4 to v18. Answers when there is enough, or when the client's patience ends.

Record bytes go from the file to the socket; here they are ranges. What a partition
gets is bounded by its own limit and by the request's; the first that has records
gives at least one whole batch, so that a large one cannot block a consumer.

Who reads only what is committed (isolation level 1) gets nothing from an open transaction
on, and is told which of the transactions in what it gets were aborted.

While it waits, a partition whose watermark moves is looked at alone. A fetch of many
partitions is served in turns; what it wants may be gone by its next turn.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.quotas import Limit
from entrepot.broker.stream import Stream
from entrepot.core import limits
from entrepot.core.ports import FileRange
from entrepot.core.steps import Steps, finish
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN, code_of
from entrepot.gateway.kafka.fetch_session import FetchSession, Key, Wanted
from entrepot.gateway.kafka.throttle import Cost
from entrepot.gateway.kafka.topics import stream_of, topic_key
from entrepot.wire.kafka import fetch
from entrepot.wire.kafka.fetch import FetchedPartition, FetchedTopic, FetchRequest
from entrepot.wire.kafka.frames import RequestHeader

if TYPE_CHECKING:
    from entrepot.gateway.kafka.adapter import Answer

WAIT_MS_MAX = 300_000  # Whatever the client's patience: it is told of nothing, and asks again.

PARTITIONS_AT_ONCE_MAX = 500  # Of more, a fetch is served in turns.

_READ_COMMITTED = 1
_NO_SESSION = -1
_NEW_SESSION = 0
_NOTHING = b""  # Not null, also beside an error: librdkafka takes that for damage.


def serve(
    context: Context, header: RequestHeader, frame: memoryview, position: int, answer: Answer
) -> Awaitable[None] | None:
    decoding = fetch.decode_request_steps(header.version, frame, position)
    if len(frame) - position > limits.REQUEST_BYTES_NARROW:
        return _serve_long(context, header, decoding, answer)
    work = _Fetch(context, header, finish(decoding), answer)
    finish(work.resolve_session())
    return work.answer()


async def _serve_long(
    context: Context, header: RequestHeader, decoding: Steps[FetchRequest], answer: Answer
) -> None:
    turns = context.broker.turns
    work = _Fetch(context, header, await turns.run(decoding), answer)
    await turns.run(work.resolve_session())
    pending = work.answer()
    if pending is not None:
        await pending


class _Fetch:
    """One request being served."""

    def __init__(
        self, context: Context, header: RequestHeader, request: FetchRequest, answer: Answer
    ) -> None:
        self._context = context
        self._version = header.version
        self._by_name = header.version < fetch.VERSION_TOPIC_ID
        self._client_id = header.client_id
        self._request = request
        self._answer = answer
        self._is_committed = request.isolation_level == _READ_COMMITTED
        self._session: FetchSession | None = None
        self._incremental = False
        self._wanted: list[Wanted] = []
        self._session_error = 0
        self._is_long = False  # So many partitions that they are not looked at all at once.
        self._listening: list[Stream] = []
        self._size = 0  # Bytes that there are, while it waits,
        self._sizes: dict[Key, int] = {}  # and of each partition.
        self._timer: asyncio.TimerHandle | None = None
        self._done: asyncio.Future[None] | None = None

    # --- the session

    def resolve_session(self) -> Steps[None]:
        """Find out what is wanted, from the request and its session."""
        asked, forgotten = yield from _asked(self._request)
        self._session_error = self._resolve(asked, forgotten)
        self._is_long = len(self._wanted) > PARTITIONS_AT_ONCE_MAX

    def _resolve(self, asked: list[Wanted], forgotten: list[Key]) -> int:
        """An error code or 0."""
        request, sessions = self._request, self._context.sessions
        if request.session_epoch in (_NO_SESSION, _NEW_SESSION):
            if request.session_id:
                sessions.close(request.session_id)
            if request.session_epoch == _NEW_SESSION:
                self._session = sessions.open(asked, by_name=self._by_name)
            self._wanted = asked
            return 0
        session = sessions.find(request.session_id)
        if session is None:
            return ErrorCode.fetch_session_id_not_found
        if session.epoch != request.session_epoch:
            return ErrorCode.invalid_fetch_session_epoch
        if session.by_name != self._by_name:
            return ErrorCode.fetch_session_topic_id_error
        if not sessions.update(session, asked, forgotten):
            return ErrorCode.fetch_session_id_not_found
        self._session, self._incremental = session, True
        self._wanted = list(session.partitions.values())
        return 0

    # --- waiting

    def answer(self) -> Awaitable[None] | None:
        return self._answer_in_turns() if self._is_long else self._answer_now_or_wait()

    def _answer_now_or_wait(self) -> asyncio.Future[None] | None:
        """For few partitions: nothing happens between looking at them and listening."""
        if not self._may_wait or finish(self._is_enough()):
            finish(self._send())
            return None
        done = self._begin_waiting()
        done.add_done_callback(lambda _: self._stop_waiting())
        finish(self._listen())
        return done

    async def _answer_in_turns(self) -> None:
        turns = self._context.broker.turns
        if self._may_wait and not await turns.run(self._is_enough()):
            done = self._begin_waiting()
            try:
                await turns.run(self._listen())
                await done
            finally:
                self._stop_waiting()
        await turns.run(self._send())

    @property
    def _may_wait(self) -> bool:
        return self._request.max_wait_ms > 0 and bool(self._wanted)

    def _begin_waiting(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        self._done = loop.create_future()
        wait_ms = min(self._request.max_wait_ms, WAIT_MS_MAX)
        self._timer = loop.call_later(wait_ms / 1_000, self._answer.guard, self._finish)
        return self._done

    def _is_enough(self) -> Steps[bool]:
        """Whether the bytes asked for are there, or an error is to be told."""
        size = 0
        for wanted in self._wanted:
            try:
                size += self._available(wanted)
            except KNOWN:
                return True
            if size >= self._request.min_bytes:
                return True
            yield
        return False

    def _available(self, wanted: Wanted) -> int:
        """How many bytes a partition has for us."""
        stream = self._stream(wanted)
        stream.partition.check_readable(wanted.offset)
        if self._is_committed and wanted.offset >= stream.last_stable_offset:
            return 0
        return min(stream.partition.available(wanted.offset), wanted.bytes_max)

    def _listen(self) -> Steps[None]:
        for wanted in self._wanted:
            try:
                stream = self._stream(wanted)
            except KNOWN:
                self._finish()
                return
            moved = partial(self._answer.guard, self._moved, wanted)
            stream.partition.listen(self, moved)
            self._listening.append(stream)
            self._moved(wanted)
            yield

    def _moved(self, wanted: Wanted) -> None:
        """Look at one partition: its watermark is another, or it is the first time."""
        try:
            size = self._available(wanted)
        except KNOWN:
            self._finish()
            return
        self._size += size - self._sizes.get(wanted.key, 0)
        self._sizes[wanted.key] = size
        if self._size >= self._request.min_bytes:
            self._finish()

    def _finish(self) -> None:
        """The waiting is over. For few partitions the answer goes out at once."""
        if self._done is not None and not self._done.done():
            if not self._is_long:
                finish(self._send())
            self._done.set_result(None)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for stream in self._listening:
            stream.partition.unlisten(self)
        self._listening.clear()

    # --- answering

    def _send(self) -> Steps[None]:
        cost = Cost(self._context, self._client_id)
        room = min(self._request.max_bytes, limits.FETCH_BYTES_MAX)
        rows: list[tuple[Key, FetchedPartition]] = []
        taken = 0
        for wanted in self._wanted:
            fetched = self._fetch(wanted, room - taken, is_first=taken == 0)
            size = fetched.records.size if isinstance(fetched.records, FileRange) else 0
            taken += size
            if self._is_news(wanted, fetched):
                rows.append((wanted.key, fetched))
            if size and self._session is not None:
                self._session.served(wanted.key)
            yield
        by_name = self._by_name
        topics = [
            FetchedTopic(topic if by_name else None, None if by_name else topic, [r for _, r in rs])
            for topic, rs in groupby(rows, key=lambda row: row[0][0])
        ]
        body, size = yield from fetch.encode_response_steps(
            self._version,
            topics,
            throttle_ms=cost.throttle_ms(Limit.CONSUMER_BYTE_RATE, taken),
            error_code=self._session_error,
            session_id=self._session.id if self._session is not None else 0,
        )
        self._answer.send(body, size)

    def _fetch(self, wanted: Wanted, room: int, *, is_first: bool) -> FetchedPartition:
        index = wanted.key[1]
        try:
            stream = self._stream(wanted)
            partition, stable = stream.partition, stream.last_stable_offset
            limit = stable if self._is_committed else None
            found = partition.read(wanted.offset, max(0, min(wanted.bytes_max, room)), limit)
        except KNOWN as error:
            return FetchedPartition(index, code_of(error), records=_NOTHING)
        if found is not None and found.size > room and not is_first:
            found = None
        return FetchedPartition(
            index,
            0,
            partition.high_watermark,
            stable,
            partition.offset_start,
            stream.aborted(wanted.offset, found) if self._is_committed else None,
            -1,
            found or _NOTHING,
        )

    def _stream(self, wanted: Wanted) -> Stream:
        stream = stream_of(self._context, Operation.READ, *wanted.key)
        stream.partition.check_epoch(wanted.leader_epoch)
        return stream

    def _is_news(self, wanted: Wanted, fetched: FetchedPartition) -> bool:
        """In a session, what has not changed is left out."""
        told = (wanted.high_watermark, wanted.offset_start, wanted.last_stable_offset)
        wanted.high_watermark = fetched.high_watermark
        wanted.offset_start = fetched.log_start_offset
        wanted.last_stable_offset = fetched.last_stable_offset
        return (
            not self._incremental
            or isinstance(fetched.records, FileRange)
            or fetched.error_code != 0
            or told
            != (fetched.high_watermark, fetched.log_start_offset, fetched.last_stable_offset)
        )


def _asked(request: FetchRequest) -> Steps[tuple[list[Wanted], list[Key]]]:
    """What is wanted and what no longer; of a partition that is named twice, the last counts."""
    asked: dict[Key, Wanted] = {}
    for topic in request.topics:
        name = topic_key(topic.name, topic.id)
        for each in topic.partitions:
            yield
            key = name, each.partition_index
            asked[key] = Wanted(
                key, each.fetch_offset, each.partition_max_bytes, each.current_leader_epoch
            )
    forgotten = [
        (topic_key(topic.name, topic.id), index)
        for topic in request.forgotten
        for index in topic.partitions
    ]
    return list(asked.values()), forgotten
