"""ShareFetch (key 78), v1 and v2: acknowledge records of a share group, and acquire more.

An epoch of 0 begins a session and -1 ends it; other requests contain only changed partitions.
Records are acquired up to a number for the whole request. The last batch may exceed it, unless
the mode (v2) is strict. Answered when there are records, or after `max_wait_ms`, and when the
acknowledgements are permanent. v2: a request can renew locks; it then acquires nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from datetime import timedelta
from typing import TYPE_CHECKING

from kio.schema.errors import ErrorCode
from kio.schema.share_fetch.v2.request import ShareFetchRequest

from entrepot.broker.quotas import Limit
from entrepot.broker.share_group.sessions import CLOSES, OPENS, ShareSession, TopicIdPartition
from entrepot.broker.share_group.share_partition import ShareDelivery, SharePartition
from entrepot.core import limits
from entrepot.core.steps import Steps, listed
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.refusal import Refusal, reason_of
from entrepot.gateway.kafka.share_requests import (
    Acknowledging,
    ShareOutcome,
    by_topic,
    end_session,
    new_session,
    session_of,
    share_partition_of,
)
from entrepot.gateway.kafka.throttle import Cost, cost_of
from entrepot.wire.kafka.api import Api, request_class
from entrepot.wire.kafka.frames import RequestHeader
from entrepot.wire.kafka.layout import decode, decode_steps
from entrepot.wire.kafka.share_fetch import (
    AcquiredRecords,
    ShareFetchedPartition,
    ShareFetchedTopic,
    encode_response,
)

if TYPE_CHECKING:
    from entrepot.gateway.kafka.ports import Answer

WAIT_MS_MAX = 300_000  # A client that asks to wait longer gets an empty answer by then.

_MILLISECOND = timedelta(milliseconds=1)
_RECORD_LIMIT = 1  # The mode in which the number of records is strict.


def serve(
    context: Context, header: RequestHeader, frame: memoryview, position: int, answer: Answer
) -> Awaitable[None]:
    layout = request_class(Api.SHARE_FETCH, header.version)
    cost = cost_of(context, header.client_id)
    if len(frame) - position > limits.REQUEST_BYTES_NARROW:
        decoding = decode_steps(ShareFetchRequest, layout, frame, position)
        return cost.watch(_serve_long(context, decoding, answer, cost))
    request = decode(ShareFetchRequest, layout, frame, position)
    return cost.watch(_ShareFetch(context, request, answer, cost).serve())


async def _serve_long(
    context: Context, decoding: Steps[ShareFetchRequest], answer: Answer, cost: Cost
) -> None:
    request = await context.broker.turns.run(decoding)
    await _ShareFetch(context, request, answer, cost).serve()


class _ShareFetch:
    """Serves one request."""

    def __init__(
        self, context: Context, request: ShareFetchRequest, answer: Answer, cost: Cost
    ) -> None:
        self._context = context
        self._groups = context.broker.share_groups
        self._request = request
        self._answer = answer
        self._cost = cost
        self._found: dict[TopicIdPartition, ShareDelivery | ShareOutcome] = {}
        self._listening: list[SharePartition] = []
        self._woken: asyncio.Future[None] | None = None
        self._is_news = False  # Whether records may have come since the last look.
        self._is_over = False  # Whether the time that the client wants to wait is over.
        self._run = context.broker.turns.run

    async def serve(self) -> None:
        request = self._request
        try:
            session = await self._run(self._resolve_session())
            told = Acknowledging(self._context, session, may_renew=request.is_renew_ack)
            await self._run(told.tell_all(request.topics))
            if request.share_session_epoch == CLOSES:
                end_session(self._context, session)
            elif request.max_records > 0 and not request.is_renew_ack:
                await self._acquire(session)
            outcomes = await told.outcomes()
        except KNOWN as error:
            code, text = reason_of(error)
            body = await self._run(encode_response([], error_code=code, error_message=text))
            self._answer.send(*body)
            return
        await self._run(self._send(session, outcomes))

    def _resolve_session(self) -> Steps[ShareSession]:
        """Find or begin the session, and note in it what the request wants. Raises Refusal."""
        request = self._request
        epoch, group_id, member_id = (
            request.share_session_epoch,
            request.group_id,
            request.member_id,
        )
        added = (
            (topic.topic_id, each.partition_index)
            for topic in request.topics
            for each in topic.partitions
            if topic.topic_id is not None
        )
        forgotten = (
            (topic.topic_id, index)
            for topic in request.forgotten_topics_data
            for index in topic.partitions
            if topic.topic_id is not None
        )
        if epoch != OPENS:
            session = session_of(self._context, group_id, member_id, epoch)
        elif any(e.acknowledgement_batches for t in request.topics for e in t.partitions):
            raise Refusal(ErrorCode.invalid_request, "nothing was fetched in a new session")
        else:
            session = new_session(self._context, group_id, member_id)
        if epoch != CLOSES:
            has_room = yield from self._groups.sessions.update(session, added, forgotten)
            self._check_open(session)
            if not has_room:
                end_session(self._context, session)
                raise Refusal(ErrorCode.share_session_limit_reached, "share sessions want too much")
        return session

    def _check_open(self, session: ShareSession) -> None:
        if self._groups.sessions.find(session.group, session.member_id) is not session:
            raise Refusal(ErrorCode.share_session_not_found, "the share session has ended")

    # --- acquiring

    async def _acquire(self, session: ShareSession) -> None:
        """Acquire records; wait for some if there are none, until the client's time is over."""
        wait_ms = min(self._request.max_wait // _MILLISECOND, WAIT_MS_MAX)
        timer = asyncio.get_running_loop().call_later(max(0, wait_ms) / 1_000, self._end)
        self._is_over = wait_ms <= 0
        is_listening = False
        try:
            while not await self._run(self._acquire_now(session)) and not self._is_over:
                if is_listening:
                    await self._something_new()
                    self._check_open(session)
                else:  # Listen, and look again: records may have come before that.
                    await self._run(self._listen(session))
                    is_listening = True
        finally:
            timer.cancel()
            self._context.broker.turns.start(self._unlisten())

    def _listen(self, session: ShareSession) -> Steps[None]:
        for place in list(session.places):
            share = share_partition_of(self._context, session, place)
            share.listen(self, self._wake)
            self._listening.append(share)
            yield

    def _unlisten(self) -> Steps[None]:
        for share in self._listening:
            share.unlisten(self)
            yield

    async def _something_new(self) -> None:
        if not self._is_news:
            self._woken = asyncio.get_running_loop().create_future()
            await self._woken

    def _wake(self) -> None:
        self._is_news = True
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _end(self) -> None:
        self._is_over = True
        self._wake()

    def _acquire_now(self, session: ShareSession) -> Steps[bool]:
        """Acquire the records that are ready. Returns whether there is something to answer."""
        self._is_news = False
        if not self._is_over and not (yield from self._is_enough(session)):
            return False
        left: int = self._request.max_records
        room = min(self._request.max_bytes, limits.FETCH_BYTES_MAX)
        for place in list(session.places):
            if left <= 0 or room <= 0:
                break
            yield
            self._check_open(session)
            if place not in session.places:
                continue  # Another request of the session has forgotten it meanwhile.
            found = self._acquire_from(session, place, left, room)
            if found is None:
                continue
            self._found[place] = found
            if isinstance(found, ShareDelivery):
                left -= sum(len(each.offsets) for each in found.acquired)
                room -= sum(each.size for each in found.batches)
                session.places.move_to_end(place)
        return bool(self._found)

    def _acquire_from(
        self, session: ShareSession, place: TopicIdPartition, records_max: int, bytes_max: int
    ) -> ShareDelivery | ShareOutcome | None:
        try:
            share = share_partition_of(self._context, session, place)
            found = share.acquire(
                session,
                records_max,
                bytes_max,
                self._groups.now(),
                is_strict=self._request.share_acquire_mode == _RECORD_LIMIT,
            )
        except KNOWN as error:
            return ShareOutcome(*reason_of(error))
        if found is not None:
            session.locked[place] = None
            self._groups.watch(share)
        return found

    def _is_enough(self, session: ShareSession) -> Steps[bool]:
        """Return whether the bytes asked for are there, or an error is to be told."""
        size = 0
        for place in list(session.places):
            yield
            try:
                size += share_partition_of(self._context, session, place).available()
            except KNOWN:
                return True
            if size >= max(1, self._request.min_bytes):
                return True
        return False

    # --- answering

    def _send(
        self, session: ShareSession, acknowledged: Mapping[TopicIdPartition, ShareOutcome]
    ) -> Steps[None]:
        """Answer for the partitions that have something new; at first, for all of the session."""
        places = dict.fromkeys((*acknowledged, *self._found))
        if self._request.share_session_epoch == OPENS:
            places.update(dict.fromkeys(session.places))
        topics: list[ShareFetchedTopic] = []
        for topic, numbers in (yield from by_topic(places)).items():
            rows = ((topic, number) for number in numbers)
            fetched = (self._fetched(row, acknowledged.get(row, ShareOutcome())) for row in rows)
            topics.append(ShareFetchedTopic(topic, (yield from listed(fetched))))
        size = sum(
            each.size
            for found in self._found.values()
            if isinstance(found, ShareDelivery)
            for each in found.batches
        )
        body, size = yield from encode_response(
            topics,
            throttle_ms=self._cost.throttle_ms(Limit.CONSUMER_BYTE_RATE, size),
            lock_ms=self._groups.settings.of(session.group).lock_ms,
        )
        self._answer.send(body, size)

    def _fetched(
        self, place: TopicIdPartition, acknowledged: ShareOutcome
    ) -> ShareFetchedPartition:
        found = self._found.get(place)
        fault = found if isinstance(found, ShareOutcome) else ShareOutcome()
        delivery = found if isinstance(found, ShareDelivery) else ShareDelivery([], [])
        return ShareFetchedPartition(
            place[1],
            fault.error_code,
            fault.error_message,
            acknowledged.error_code,
            acknowledged.error_message,
            self._context.node_id,
            0,
            delivery.batches,
            [
                AcquiredRecords(each.offsets.start, each.offsets.stop - 1, each.delivery_count)
                for each in delivery.acquired
            ],
        )
