"""Reading as a member of a consumer group, by Kafka's classic protocol.

Members join; one of them is told to lead and divides the partitions; each reads what it
was given, from where the group is, and commits how far it came. While it reads, it says
so in the background. An answer that the group is dividing anew, or has gone on without
us, makes us stale: at the next poll we commit what we still may, and join again. All of
it passes through a twin of the client's cluster, for a fetch in waiting would hold a
heartbeat up.

Whatever is in doubt is read again by somebody: a record comes at least once.
"""

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.schema.types import GroupId
from kio.static.primitive import i32

from entrepot.client.assignment import (
    RANGE,
    Subscriber,
    decode_assignment,
    decode_subscription,
    divide_by_range,
    encode_assignment,
    encode_subscription,
)
from entrepot.client.client import FETCH_WAIT_MS, LATEST, Client, TopicPartition, milliseconds
from entrepot.client.cluster import TopicInfo
from entrepot.client.errors import ClientError, Refused, check
from entrepot.client.offsets import NO_GENERATION, commit_offsets, committed_offsets
from entrepot.client.reader import Message, Reader

TOPICS_REFRESH_S = 5.0  # How often a leader looks for partitions that are new.
PATIENCE_S = 60.0  # So long without a coordinator, and it is an error.
PAUSE_S = 0.1

_PROTOCOL_TYPE = "consumer"
_GRACE_S = 5.0  # What an answer may take longer than the wait it was asked for.
_LOST = (ErrorCode.unknown_member_id, ErrorCode.illegal_generation)  # Others have our part.
_STALE = (*_LOST, ErrorCode.rebalance_in_progress, ErrorCode.member_id_required)


@dataclass(frozen=True, slots=True)
class Pace:
    """What a member does when. The defaults are Kafka's."""

    session_ms: int = 45_000  # So long without a heartbeat, and it counts as dead.
    heartbeat_ms: int = 3_000
    rebalance_ms: int = 300_000  # How long the others wait for it to join again.
    commit_ms: int | None = 5_000  # None: it commits nothing.


USUAL = Pace()


class GroupReader:
    """Like a `Reader`, of the partitions it is given. Ends with `close`."""

    def __init__(
        self,
        client: Client,
        group: str,
        topics: Iterable[str],
        *,
        reset: int = LATEST,
        committed: bool = False,
        pace: Pace = USUAL,
    ) -> None:
        """`reset` is EARLIEST or LATEST: where to begin what the group has not begun."""
        self._client = client
        self._cluster = client.cluster.twin()
        self._group = group
        self._topics = tuple(topics)
        self._reset = reset
        self._committed = committed
        self._pace = pace
        self._reader = Reader(client, {}, reset=reset, committed=committed)
        self._member_id = ""  # Empty until the coordinator gives us one.
        self._generation = NO_GENERATION
        self._is_stale = asyncio.Event()
        self._is_stale.set()
        self._heart: asyncio.Task[None] | None = None
        self._counts: dict[str, int] = {}  # What the leader divided: partitions by topic.
        self._said: dict[TopicPartition, int] = {}  # What the coordinator has of our positions.
        # By the loop's clock: of the last good answer, commit, and look at the topics.
        self._heard_s = self._committed_s = self._looked_s = _now_s()

    @property
    def positions(self) -> dict[TopicPartition, int]:
        return self._reader.positions

    async def poll(self, wait_ms: int = FETCH_WAIT_MS) -> Iterator[Message]:
        """What is there, or comes within the wait. Take it all before the next poll.

        Longer only while the group divides its partitions.
        """
        await self.join()
        try:
            await self._look_after()
            if not self.positions:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(wait_ms / 1000):
                        await self._is_stale.wait()
                return iter(())
            messages = await self._reader.poll(wait_ms)
        except ClientError as error:
            await self._endure(error)
            return iter(())
        return messages if self._generation != NO_GENERATION else iter(())

    async def join(self) -> None:
        """Be a member that knows its part; at once, when we are."""
        while self._is_stale.is_set():
            try:
                await self._rejoin()
            except ClientError as error:
                await self._endure(error)

    async def close(self) -> None:
        """Commit and leave, as well as it goes: a group copes with those who do neither."""
        self._stop_heart()
        if self._is_stale.is_set():
            await self._cluster.close()  # A join that waits for its answer would hold us up.
        with contextlib.suppress(ClientError):
            await self._commit()
        with contextlib.suppress(ClientError):
            await self._leave()
        self.positions.clear()
        await self._cluster.close()

    # --- being one of them

    async def _rejoin(self) -> None:
        self._stop_heart()
        await self._commit()
        self._generation = NO_GENERATION
        self.positions.clear()
        joined = await self._join()
        parts = decode_assignment(await self._sync(joined))
        await self._find_positions(parts)
        self._is_stale.clear()
        self._heart = asyncio.create_task(self._beat())

    async def _join(self) -> JoinGroupResponse:
        request = JoinGroupRequest(
            group_id=GroupId(self._group),
            session_timeout=milliseconds(self._pace.session_ms),
            rebalance_timeout=milliseconds(self._pace.rebalance_ms),
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=_PROTOCOL_TYPE,
            protocols=(
                JoinGroupRequestProtocol(name=RANGE, metadata=encode_subscription(self._topics)),
            ),
        )
        timeout_s = self._pace.rebalance_ms / 1000 + _GRACE_S
        answer = await self._cluster.ask_coordinator(
            self._group, request, JoinGroupResponse, timeout_s=timeout_s
        )
        if answer.error_code is ErrorCode.member_id_required:
            self._member_id = answer.member_id
        self._check(answer.error_code)
        self._member_id, self._generation = answer.member_id, int(answer.generation_id)
        return answer

    async def _sync(self, joined: JoinGroupResponse) -> bytes:
        divided: dict[str, list[TopicPartition]] = {}
        self._counts = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            subscribers = [
                Subscriber(
                    each.member_id, each.group_instance_id, decode_subscription(each.metadata)
                )
                for each in joined.members
            ]
            topics = dict.fromkeys(topic for each in subscribers for topic in each.topics)
            self._counts = await self._count_partitions(topics)
            divided = divide_by_range(subscribers, self._counts)
        request = SyncGroupRequest(
            group_id=GroupId(self._group),
            generation_id=i32(self._generation),
            member_id=self._member_id,
            group_instance_id=None,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=RANGE,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member, assignment=encode_assignment(parts))
                for member, parts in divided.items()
            ),
        )
        timeout_s = self._pace.rebalance_ms / 1000 + _GRACE_S
        answer = await self._cluster.ask_coordinator(
            self._group, request, SyncGroupResponse, timeout_s=timeout_s
        )
        self._check(answer.error_code)
        return answer.assignment

    async def _beat(self) -> None:
        request = HeartbeatRequest(
            group_id=GroupId(self._group),
            generation_id=i32(self._generation),
            member_id=self._member_id,
            group_instance_id=None,
        )
        while not self._is_stale.is_set():
            await asyncio.sleep(self._pace.heartbeat_ms / 1000)
            try:
                answer = await self._cluster.ask_coordinator(
                    self._group, request, HeartbeatResponse, timeout_s=self._pace.session_ms / 1000
                )
                self._check(answer.error_code)
            except ClientError as error:
                if not error.retriable:
                    self._is_stale.set()  # Who joins next will see what it is.
                self._cluster.forget()

    async def _leave(self) -> None:
        if not self._member_id:
            return
        who = MemberIdentity(member_id=self._member_id, group_instance_id=None, reason=None)
        request = LeaveGroupRequest(group_id=GroupId(self._group), members=(who,))
        await self._cluster.ask_coordinator(self._group, request, LeaveGroupResponse)
        self._member_id, self._generation = "", NO_GENERATION

    def _stop_heart(self) -> None:
        if self._heart is not None:
            self._heart.cancel()
            self._heart = None

    def _check(self, code: ErrorCode) -> None:
        """Take note of what the answer means for us; raise it if it is an error."""
        if code in _LOST:
            self._generation = NO_GENERATION
        if code is ErrorCode.unknown_member_id:
            self._member_id = ""
        if code in _STALE:
            self._is_stale.set()
        check(code, f"group {self._group}")
        self._heard_s = _now_s()

    async def _endure(self, error: ClientError) -> None:
        """Pause when we may go on after it; raise what will not get better."""
        if isinstance(error, Refused) and error.code in _STALE:
            if error.code is ErrorCode.member_id_required:
                return
        elif not error.retriable or _now_s() - self._heard_s > PATIENCE_S:
            raise error
        self._cluster.forget()
        await asyncio.sleep(PAUSE_S)

    # --- where we are

    async def _find_positions(self, parts: list[TopicPartition]) -> None:
        self._said = await committed_offsets(self._cluster, self._group, parts)
        new = [part for part in parts if part not in self._said]
        places = await self._client.list_offsets(
            dict.fromkeys(new, self._reset), committed=self._committed
        )
        found = self._said | {part: place.offset for part, place in places.items()}
        self.positions.update((part, found[part]) for part in parts)

    async def _commit(self) -> None:
        """What has moved. A group that has gone on without us wants none of it."""
        moved = {
            part: offset
            for part, offset in self.positions.items()
            if self._said.get(part) != offset
        }
        if not moved or self._generation == NO_GENERATION or self._pace.commit_ms is None:
            return
        who = (self._member_id, self._generation)
        try:
            await commit_offsets(self._cluster, self._group, moved, who)
        except Refused as error:
            if error.code not in _STALE:
                raise
            with contextlib.suppress(Refused):
                self._check(error.code)
            return
        self._said |= moved

    async def _look_after(self) -> None:
        """What is due now and then: a commit, and a leader's look at its topics."""
        now_s = _now_s()
        commit_ms = self._pace.commit_ms
        if commit_ms is not None and now_s - self._committed_s >= commit_ms / 1000:
            self._committed_s = now_s
            await self._commit()
        if self._counts and now_s - self._looked_s >= TOPICS_REFRESH_S:
            self._looked_s = now_s
            if await self._count_partitions(self._counts) != self._counts:
                self._is_stale.set()

    async def _count_partitions(self, topics: Iterable[str]) -> dict[str, int]:
        """None, of a topic that is not there yet."""
        counts = dict.fromkeys(topics, 0)
        for info in await self._client.cluster.describe(counts, create=True):
            if isinstance(info, TopicInfo):
                counts[info.name] = len(info.partitions)
        return counts


def _now_s() -> float:
    return asyncio.get_running_loop().time()
