"""Fetch (key 1), v4 to v18. Answers when `min_bytes` are there, or after `max_wait_ms`.

Records are not copied; the answer contains ranges of the segment files. The size of each
partition's records is limited by the partition's and by the request's limit. The first partition
with records returns at least one whole batch, so that a large batch cannot block a consumer.

A client with isolation level 1 (read committed) gets no records from the first open transaction
on, and is told which transactions before it were aborted.

A fetch first reads, and waits if there is too little. While it waits, a partition is looked at
only when its high watermark moves. A fetch of many partitions is served in turns; a partition may
be deleted between two of them.

A consumer of one partition asks again and again for the same, from where the last answer ended.
Such a request is recognised by its bytes, and served by the object that served the one before,
which knows the session and the partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING
from uuid import UUID

from kio.schema.errors import ErrorCode

from entrepot.broker.access import Operation
from entrepot.broker.quotas import Limit
from entrepot.broker.served_partition import ServedPartition
from entrepot.core import limits
from entrepot.core.errors import OffsetOutOfRange
from entrepot.core.ports import FileRange
from entrepot.core.steps import Steps, finish
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.fetch_request import asked_at_once, asked_in_steps
from entrepot.gateway.kafka.fetch_session import FetchSession, Key, Wanted
from entrepot.gateway.kafka.fetch_wait import Wait
from entrepot.gateway.kafka.refusal import check_on_cluster, reason_of
from entrepot.gateway.kafka.throttle import Cost, cost_of
from entrepot.gateway.kafka.topics import copied_partition_of, served_partition_of
from entrepot.wire.kafka import fetch
from entrepot.wire.kafka.fetch import FetchedPartition, FetchedTopic, FetchRequest
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.repeated_fetch import RepeatedRequest

if TYPE_CHECKING:
    from entrepot.gateway.kafka.ports import Answer

WAIT_MS_MAX = 300_000  # A client that asks to wait longer gets an empty answer by then.

PARTITIONS_AT_ONCE_MAX = 500  # A fetch of more partitions is served in turns.

# Python 3.11 finds members of an enumeration slowly.
_BYTE_RATE, _READ = Limit.CONSUMER_BYTE_RATE, Operation.READ
_READ_COMMITTED = 1
_NO_SESSION = -1
_NEW_SESSION = 0
_NOTHING = b""  # Never null, not even beside an error: librdkafka takes null for damage.


def serve(
    context: Context, header: RequestHeader, frame: memoryview, position: int, answer: Answer
) -> Awaitable[None] | None:
    last = context.last_fetch
    if last is not None:
        if last.serve_again(header, frame, position, answer):
            return None
        last.close()
        context.last_fetch = None
    if len(frame) - position > limits.REQUEST_BYTES_NARROW:
        decoding = fetch.decode_request_steps(header.version, frame, position)
        return _serve_long(context, header, decoding, answer)
    request = fetch.decode_request(header.version, frame, position)
    work = _Fetch(context, header, request, answer)
    pending = work.serve(*asked_at_once(request))
    if work.may_be_repeated:
        work.repeated = RepeatedRequest.of(header.version, frame, position)
        if work.repeated is not None:
            context.last_fetch = work
    return pending


async def _serve_long(
    context: Context, header: RequestHeader, decoding: Steps[FetchRequest], answer: Answer
) -> None:
    turns = context.broker.turns
    request = await turns.run(decoding)
    asked, forgotten = await turns.run(asked_in_steps(request))
    pending = _Fetch(context, header, request, answer).serve(asked, forgotten)
    if pending is not None:
        await pending


class _Fetch:
    """Serves one request."""

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
        # The node that copies from us; -1 means: it is a consumer. A broker alone has no others.
        self._replica = request.replica_id if context.broker.cluster is not None else -1
        self._session: FetchSession | None = None
        self._incremental = False
        self._changes = 0  # Of the session's partitions, before this request was served.
        self._wanted: list[Wanted] = []
        self._session_error = 0
        self._is_long = False  # Whether there are too many partitions to look at all at once.
        self._served: list[ServedPartition] = []  # Of the last read, in the order of `_wanted`.
        self._taken = 0  # How many bytes of records the last read found.
        self._wait: Wait | None = None  # What it waits for, if it has to.
        self._enough: asyncio.Future[None] | None = None  # Of a long one: done when the wait is.
        self._begun_s = 0.0  # When it began, if it is timed.
        self._begin_timing()
        # What is the same in a request that this object may serve, too; None means: it may not.
        self.repeated: RepeatedRequest | None = None
        self._listener: Callable[[], object] | None = None  # That waited last,
        self._listener_of: ServedPartition | None = None  # and for what.

    def _begin_timing(self) -> None:
        context, self._begun_s = self._context, 0.0
        if context.messages.fetching.is_due:
            self._begun_s = context.messages.fetching.begin(context.clock.monotonic())

    @property
    def may_be_repeated(self) -> bool:
        """Return whether this may serve the same request from another offset on: it asks for one
        partition, without a session or with the only one in it."""
        if len(self._wanted) != 1 or self._replica >= 0 or self._session_error:
            return False
        if self._session is None:
            return self._request.session_epoch == _NO_SESSION and not self._request.session_id
        return self._incremental

    def serve_again(
        self, header: RequestHeader, frame: memoryview, position: int, answer: Answer
    ) -> bool:
        """Serve a request if it is the same, from another offset on. False means: it is not, and
        nothing was done."""
        if self.repeated is None or header.version != self._version:
            return False
        found = self.repeated.read(bytes(frame[position:]))
        if found is None or (self._wait is not None and not self._wait.is_over):
            return False
        epoch, offset = found
        (wanted,), session = self._wanted, self._session
        if session is None:
            if epoch != _NO_SESSION:  # It begins one.
                return False
        else:
            is_valid = self._context.sessions.find(session.id) is session
            if not is_valid or session.epoch != epoch or session.changes != self._changes:
                return False
            session.go_on()
        asked = self._request.topics[0].partitions[0]
        wanted.offset, wanted.bytes_max = offset, asked.partition_max_bytes
        wanted.leader_epoch = asked.current_leader_epoch
        self._answer, self._client_id = answer, header.client_id
        self._begin_timing()
        served = self._served_before(wanted)
        if served is not None and self._may_wait and self._is_at_end(offset, served):
            self._wait_for_more()
        else:
            self._answer_or_wait(served)
        return True

    def _served_before(self, wanted: Wanted) -> ServedPartition | None:
        """Return the partition that was read last; None if it has to be looked up again."""
        if not self._served or not self._context.principal.may_all:
            return None
        served = self._served[0]
        partition = served.partition
        if served.role is not None or partition.stopped is not None:  # It may be deleted.
            return None
        return served if wanted.leader_epoch in (-1, partition.leader_epoch) else None

    def _is_at_end(self, offset: int, served: ServedPartition) -> bool:
        return offset == served.partition.high_watermark and self._request.min_bytes > 0

    def close(self) -> None:
        """Serve no more requests."""
        self.repeated = None
        if self._wait is not None and self._wait.is_over:
            self._wait.cancel()

    def serve(self, asked: list[Wanted], forgotten: list[Key]) -> Awaitable[None] | None:
        self._session_error = self._resolve_session(asked, forgotten)
        self._is_long = len(self._wanted) > PARTITIONS_AT_ONCE_MAX
        if self._is_long:
            return self._answer_in_turns()
        self._answer_or_wait()
        return None

    def _resolve_session(self, asked: list[Wanted], forgotten: list[Key]) -> int:
        """Find the session and the partitions that are wanted. Returns an error code, or 0."""
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
        self._changes = session.changes
        self._wanted = list(session.partitions.values())
        return 0

    # --- few partitions: nothing happens between reading them and listening or answering

    def _answer_or_wait(self, served: ServedPartition | None = None) -> None:
        if not self._answer_if_enough(served):
            self._wait_for_more()

    def _wait_for_more(self) -> None:
        wait = self._begin_waiting()
        self._answer.hold(wait)
        for wanted, served in zip(self._wanted, self._served, strict=True):
            self._listen(wait, wanted, served)
            if wait.is_over:
                break

    def _answer_if_enough(self, served: ServedPartition | None = None) -> bool:
        """Read; answer if there is enough, or no time to wait. Returns whether it has answered."""
        if served is not None and self._answer_newest(served):
            return True
        cost = cost_of(self._context, self._client_id)
        found = self._read(served)
        if self._may_wait and not self._is_enough(found):
            return False
        self._send(found, cost)
        return True

    def _answer_newest(self, served: ServedPartition) -> bool:
        """Answer with the newest batch of the only partition, if the consumer has all before it.
        False means: it has to be read as any other."""
        (wanted,), session, partition = self._wanted, self._session, served.partition
        data = partition.newest(wanted.offset)
        if data is None or len(data) < self._request.min_bytes or self._context.broker.quotas:
            return False
        watermark, stable = partition.high_watermark, served.last_stable_offset
        aborted: list[tuple[int, int]] | None = None
        if self._is_committed:
            if stable != watermark or served.isolation.has_aborted(wanted.offset):
                return False
            aborted = []
        start, (topic, index) = partition.offset_start, wanted.key
        if session is not None:
            wanted.high_watermark, wanted.offset_start = watermark, start
            wanted.last_stable_offset = stable
        told = FetchedPartition(index, 0, watermark, stable, start, aborted, -1, data)
        session_id = 0 if session is None else session.id
        topics = [_topic(topic, [told])]
        body, size = fetch.encode_response(self._version, topics, session_id=session_id)
        self._taken = len(data)
        self._answer.send(body, size)
        if self._begun_s:
            self._note_time()
        return True

    def _read(self, served: ServedPartition | None = None) -> list[FetchedPartition]:
        """Read what is wanted. `served` is the only partition, if it was found before."""
        room = min(self._request.max_bytes, limits.FETCH_BYTES_MAX)
        found: list[FetchedPartition] = []
        taken = 0
        self._served.clear()
        for wanted in self._wanted:
            fetched = self._fetch(wanted, room - taken, taken == 0, served)
            taken += _size_of(fetched)
            found.append(fetched)
        self._taken = taken
        return found

    def _is_enough(self, found: list[FetchedPartition]) -> bool:
        """Return whether the bytes asked for are there, or an error is to be told."""
        if self._taken >= self._request.min_bytes:
            return True
        for fetched in found:
            if fetched.error_code:
                return True
        # What was read of a partition ends with a segment; there may be more behind it.
        return self._taken > 0 and finish(self._is_enough_available())

    def _send(self, found: list[FetchedPartition], cost: Cost) -> None:
        rows: list[tuple[Key, FetchedPartition]] = []
        for wanted, fetched in zip(self._wanted, found, strict=True):
            if self._is_news(wanted, fetched):
                rows.append((wanted.key, fetched))
        body, size = fetch.encode_response(
            self._version,
            _topics(rows),
            throttle_ms=cost.throttle_ms(_BYTE_RATE, self._taken),
            error_code=self._session_error,
            session_id=self._session_id,
        )
        self._answer.send(body, size)
        if self._begun_s:
            self._note_time()

    # --- many partitions: anything may happen between two of them

    async def _answer_in_turns(self) -> None:
        turns = self._context.broker.turns
        if self._may_wait and not await turns.run(self._is_enough_available()):
            self._enough = asyncio.get_running_loop().create_future()
            wait = self._begin_waiting()
            try:
                await turns.run(self._listen_in_steps())
                await self._enough
            finally:
                wait.cancel()
        await turns.run(self._send_in_steps())

    def _is_enough_available(self) -> Steps[bool]:
        """Do what `_is_enough` does, without reading."""
        size = 0
        for wanted in self._wanted:
            try:
                size += self._available(wanted, self._served_partition(wanted))
            except KNOWN:
                return True
            if size >= self._request.min_bytes:
                return True
            yield
        return False

    def _listen_in_steps(self) -> Steps[None]:
        assert self._wait is not None
        for wanted in self._wanted:
            try:
                self._listen(self._wait, wanted, self._served_partition(wanted))
            except KNOWN:
                self._finish()
                return
            yield

    def _send_in_steps(self) -> Steps[None]:
        cost = cost_of(self._context, self._client_id)
        room = min(self._request.max_bytes, limits.FETCH_BYTES_MAX)
        rows: list[tuple[Key, FetchedPartition]] = []
        taken = 0
        for wanted in self._wanted:
            fetched = self._fetch(wanted, room - taken, taken == 0)
            taken += _size_of(fetched)
            if self._is_news(wanted, fetched):
                rows.append((wanted.key, fetched))
            yield
        body, size = yield from fetch.encode_response_steps(
            self._version,
            _topics(rows),
            throttle_ms=cost.throttle_ms(_BYTE_RATE, taken),
            error_code=self._session_error,
            session_id=self._session_id,
        )
        self._answer.send(body, size)
        if self._begun_s:
            self._note_time()

    def _note_time(self) -> None:
        elapsed_s = self._context.clock.monotonic() - self._begun_s
        self._context.messages.fetching.histogram.add(elapsed_s)

    # --- waiting

    @property
    def _may_wait(self) -> bool:
        return self._request.max_wait_ms > 0 and bool(self._wanted)

    def _begin_waiting(self) -> Wait:
        self._begun_s = 0.0  # What would be timed is how long there was nothing to read.
        wait = self._wait
        if wait is None:
            end = partial(self._answer.guard, self._finish)
            wait = self._wait = Wait(self._context.clock, end)
        wait.begin(min(self._request.max_wait_ms, WAIT_MS_MAX) / 1_000)
        return wait

    def _listen(self, wait: Wait, wanted: Wanted, served: ServedPartition) -> None:
        moved = self._listener
        if moved is None or self._listener_of is not served:
            moved = partial(self._answer.guard, self._moved, wanted, served)
            self._listener, self._listener_of = moved, served
        if self._replica >= 0:  # What this turn of the loop appends goes together.
            loop, later = asyncio.get_running_loop(), moved
            moved = lambda: loop.call_soon(later)  # noqa: E731
        wait.listen(served, moved, to_appends=self._replica >= 0)
        if self._is_long or self._request.min_bytes > 1:  # Otherwise it waits since all are empty.
            self._note_size(wanted, served)

    def _moved(self, wanted: Wanted, served: ServedPartition) -> None:
        """Count the bytes of a partition whose high watermark has moved; answer if it is enough.

        As in Kafka, the client's rights are those that it had when it asked.
        """
        wait = self._wait
        assert wait is not None
        if wait.is_over:
            return
        if len(self._wanted) == 1:  # Reading it costs little more than looking at it.
            if self._answer_if_enough(served):
                if self.repeated is None:
                    wait.cancel()
                else:
                    wait.rest()
                self._answer.go_on()
            return
        try:
            self._note_size(wanted, served)
        except KNOWN:
            self._finish()

    def _note_size(self, wanted: Wanted, served: ServedPartition) -> None:
        """Count the bytes that a partition has, and end the wait if there are enough in all."""
        wait = self._wait
        assert wait is not None
        size = self._available(wanted, served)
        wait.size += size - wait.sizes.get(wanted.key, 0)
        wait.sizes[wanted.key] = size
        if wait.size >= self._request.min_bytes:
            self._finish()

    def _available(self, wanted: Wanted, served: ServedPartition) -> int:
        """Return how many bytes a partition has for this request."""
        served.partition.check_readable(wanted.offset)
        if self._replica >= 0:
            size = served.partition.available(wanted.offset, to_end=True)
            return min(size, wanted.bytes_max)
        if self._is_committed and wanted.offset >= served.last_stable_offset:
            return 0
        return min(served.partition.available(wanted.offset), wanted.bytes_max)

    def _finish(self) -> None:
        """End the wait. With few partitions the answer goes out at once."""
        wait = self._wait
        assert wait is not None
        if wait.is_over:
            return
        wait.cancel()
        if self._enough is not None:
            if not self._enough.done():  # It is cancelled if the client is gone.
                self._enough.set_result(None)
        else:
            cost = cost_of(self._context, self._client_id)
            self._send(self._read(), cost)
            self._answer.go_on()

    # --- partitions

    def _fetch(
        self, wanted: Wanted, room: int, is_first: bool, served: ServedPartition | None = None
    ) -> FetchedPartition:
        """Read one partition. It is looked for unless it is given."""
        index, offset, is_committed = wanted.key[1], wanted.offset, self._is_committed
        try:
            if served is None:
                served = self._served_partition(wanted)
            self._served.append(served)
            size_max = max(0, min(wanted.bytes_max, room))
            if self._replica >= 0:
                return self._fetch_copy(served, index, offset, size_max, room, is_first)
            # The first alone is copied, so that an answer takes little memory.
            found = served.read(offset, size_max, is_committed=is_committed, may_copy=is_first)
            if not is_first and isinstance(found, FileRange) and found.size > room:
                found = None
            aborted = served.aborted(offset, found) if is_committed else None
        except KNOWN as error:
            return FetchedPartition(index, reason_of(error)[0], records=_NOTHING)
        partition = served.partition
        return FetchedPartition(
            index,
            0,
            partition.high_watermark,
            served.last_stable_offset,
            partition.offset_start,
            aborted,
            -1,
            found or _NOTHING,
        )

    def _fetch_copy(
        self,
        served: ServedPartition,
        index: int,
        offset: int,
        size_max: int,
        room: int,
        is_first: bool,
    ) -> FetchedPartition:
        """Read one partition for another replica."""
        check_on_cluster(self._context, Operation.CLUSTER_ACTION)
        partition = served.partition
        watermark, start = partition.high_watermark, partition.offset_start
        try:
            found = served.read_as_replica(self._replica, offset, size_max)
        except OffsetOutOfRange as error:  # It is told where to begin.
            reason = reason_of(error)[0]
            return FetchedPartition(index, reason, watermark, watermark, start, records=_NOTHING)
        if not is_first and found is not None and found.size > room:
            found = None
        return FetchedPartition(index, 0, watermark, watermark, start, None, -1, found or _NOTHING)

    def _served_partition(self, wanted: Wanted) -> ServedPartition:
        if self._replica >= 0:
            served = copied_partition_of(self._context, *wanted.key)
        else:
            served = served_partition_of(self._context, _READ, *wanted.key)
        served.partition.check_epoch(wanted.leader_epoch)
        return served

    def _is_news(self, wanted: Wanted, fetched: FetchedPartition) -> bool:
        """Return whether to tell of a partition: in a session, what has not changed is left out."""
        session = self._session
        if session is None:
            return True
        size = _size_of(fetched)
        if size:
            session.served(wanted.key)
        told = (wanted.high_watermark, wanted.offset_start, wanted.last_stable_offset)
        wanted.high_watermark = fetched.high_watermark
        wanted.offset_start = fetched.log_start_offset
        wanted.last_stable_offset = fetched.last_stable_offset
        return (
            not self._incremental
            or size > 0
            or fetched.error_code != 0
            or told
            != (fetched.high_watermark, fetched.log_start_offset, fetched.last_stable_offset)
        )

    @property
    def _session_id(self) -> int:
        return self._session.id if self._session is not None else 0


def _topics(rows: list[tuple[Key, FetchedPartition]]) -> list[FetchedTopic]:
    """Group the partitions by topic. Those of one topic are neighbours."""
    if len(rows) == 1:
        ((topic, _), fetched) = rows[0]
        return [_topic(topic, [fetched])]
    return [
        _topic(topic, [fetched for _, fetched in group])
        for topic, group in groupby(rows, key=lambda row: row[0][0])
    ]


def _topic(key: str | UUID, partitions: list[FetchedPartition]) -> FetchedTopic:
    if isinstance(key, str):
        return FetchedTopic(key, None, partitions)
    return FetchedTopic(None, key, partitions)


def _size_of(fetched: FetchedPartition) -> int:
    records = fetched.records
    if records is None:
        return 0
    return records.size if isinstance(records, FileRange) else len(records)
