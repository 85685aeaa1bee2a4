"""Finds share sessions and processes acknowledgements, for ShareFetch and ShareAcknowledge.

A session ends with its connection, so that the records of a consumer that disconnects become
available to others at once, and not only when its locks expire.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from kio.schema.errors import ErrorCode
from kio.static.primitive import i8, i32, i64

from entrepot.broker.access import Operation
from entrepot.broker.share_group.sessions import CLOSES, ShareSession, TopicIdPartition
from entrepot.broker.share_group.share_partition import (
    Acknowledgement,
    AcknowledgeType,
    SharePartition,
)
from entrepot.core import limits
from entrepot.core.errors import InvalidAcknowledgement
from entrepot.core.steps import Steps
from entrepot.gateway.kafka.context import Context
from entrepot.gateway.kafka.errors import KNOWN
from entrepot.gateway.kafka.groups import check_group
from entrepot.gateway.kafka.refusal import Refusal, reason_of
from entrepot.gateway.kafka.topics import topic_of


class AckBatch(Protocol):
    @property
    def first_offset(self) -> i64: ...
    @property
    def last_offset(self) -> i64: ...
    @property
    def acknowledge_types(self) -> Sequence[i8]: ...


class AckPartition(Protocol):
    @property
    def partition_index(self) -> i32: ...
    @property
    def acknowledgement_batches(self) -> Sequence[AckBatch]: ...


class AckTopic(Protocol):
    @property
    def topic_id(self) -> UUID | None: ...
    @property
    def partitions(self) -> Sequence[AckPartition]: ...


class ShareOutcome(NamedTuple):
    error_code: ErrorCode = ErrorCode.none
    error_message: str | None = None


def session_of(
    context: Context, group_id: str | None, member_id: str | None, epoch: int
) -> ShareSession:
    """Return the session of a request that is not the session's first. Raises Refusal."""
    group_id, member_id = checked(context, group_id, member_id)
    session = context.broker.share_groups.sessions.find(group_id, member_id)
    if session is None:
        raise Refusal(ErrorCode.share_session_not_found, "there is no such share session")
    if epoch not in (CLOSES, session.epoch):
        raise Refusal(
            ErrorCode.invalid_share_session_epoch, f"the epoch is {session.epoch}, not {epoch}"
        )
    session.advance()
    keep_with(context, session)
    return session


def new_session(context: Context, group_id: str | None, member_id: str | None) -> ShareSession:
    """Begin a session. Raises Refusal."""
    group_id, member_id = checked(context, group_id, member_id)
    session = context.broker.share_groups.sessions.open(group_id, member_id, context)
    if session is None:
        raise Refusal(ErrorCode.share_session_limit_reached, "there are too many share sessions")
    keep_with(context, session)
    return session


def checked(context: Context, group_id: str | None, member_id: str | None) -> tuple[str, str]:
    if not group_id or not member_id:
        raise Refusal(ErrorCode.invalid_request, "a group and a member must be named")
    check_group(context, Operation.READ, group_id)
    context.broker.share_groups.check_served()
    return group_id, member_id


def keep_with(context: Context, session: ShareSession) -> None:
    """End the session with this connection, unless another connection uses it by then."""
    session.connection = context
    share_groups = context.broker.share_groups

    def end() -> None:
        if session.connection is context:
            share_groups.end_session(session)

    context.at_close[session.group, session.member_id] = end


def end_session(context: Context, session: ShareSession) -> None:
    context.at_close.pop((session.group, session.member_id), None)
    context.broker.share_groups.end_session(session)


def share_partition_of(
    context: Context, session: ShareSession, place: TopicIdPartition
) -> SharePartition:
    """Return a partition of the group. Raises TopicDenied, UnknownTopic, UnknownTopicId."""
    topic = topic_of(context, Operation.READ, place[0])
    return context.broker.share_groups.partition(session.group, topic, place[1])


class Acknowledging:
    """Processes the acknowledgements of one request, in turns. Results are known when they are
    permanent."""

    def __init__(self, context: Context, session: ShareSession, *, may_renew: bool) -> None:
        self._context = context
        self._session = session
        self._may_renew = may_renew
        self._waiting: dict[TopicIdPartition, SharePartition] = {}
        self._outcomes: dict[TopicIdPartition, ShareOutcome] = {}

    def tell_all(self, topics: Sequence[AckTopic]) -> Steps[None]:
        for topic in topics:
            for each in topic.partitions:
                if each.acknowledgement_batches:
                    place = topic.topic_id or UUID(int=0), int(each.partition_index)
                    self._tell(place, each.acknowledgement_batches)
                yield

    def _tell(self, place: TopicIdPartition, batches: Sequence[AckBatch]) -> None:
        try:
            share = share_partition_of(self._context, self._session, place)
            now_ms = self._context.broker.share_groups.now()
            share.acknowledge(self._session, [self._read(each) for each in batches], now_ms)
        except KNOWN as error:
            self._outcomes[place] = ShareOutcome(*reason_of(error))
        else:
            self._waiting[place] = share
            self._context.broker.share_groups.watch(share)

    def _read(self, batch: AckBatch) -> Acknowledgement:
        if not self._may_renew and AcknowledgeType.RENEW in map(int, batch.acknowledge_types):
            raise InvalidAcknowledgement("a lock is renewed in a request that says so")
        if batch.first_offset < 0 or batch.last_offset < batch.first_offset:
            raise InvalidAcknowledgement(
                f"records from {batch.first_offset} to {batch.last_offset}"
            )
        offsets = range(batch.first_offset, batch.last_offset + 1)
        return Acknowledgement(offsets, batch.acknowledge_types)

    async def outcomes(self) -> Mapping[TopicIdPartition, ShareOutcome]:
        """Wait until the acknowledgements are permanent. Returns the outcome of each partition."""
        for number, (place, share) in enumerate(self._waiting.items(), start=1):
            if number % limits.CHANGES_AT_ONCE_MAX == 0:
                await self._context.broker.turns.next()  # Most of them have nothing to wait for.
            try:
                await share.kept()
                self._outcomes[place] = ShareOutcome()
            except KNOWN as error:
                self._outcomes[place] = ShareOutcome(*reason_of(error))
        self._waiting.clear()
        return self._outcomes


def by_topic(places: Iterable[TopicIdPartition]) -> Steps[dict[UUID, list[int]]]:
    """Return the partitions of each topic, in ascending order. Topics stay in the order in which
    they come, because ids are slow to sort."""
    found: dict[UUID, list[int]] = {}
    for topic, number in places:
        found.setdefault(topic, []).append(number)
        yield
    for numbers in found.values():
        numbers.sort()
    return found
