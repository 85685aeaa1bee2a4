"""Members of consumer groups, of both protocols, as they live in a simulation.

Each is a consumer of its own: it joins, reads what it is given from where its group is,
and commits what it has read. Requests go out twice now and then, over another connection,
as when an answer was given up on too early. Members know a few partitions of one topic;
they tell a `Witness` what they were given, read and committed, and it judges.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from random import Random
from typing import Any, Protocol, TypeVar

from kio.schema.consumer_group_heartbeat.v1 import request as modern
from kio.schema.consumer_group_heartbeat.v1.response import ConsumerGroupHeartbeatResponse
from kio.schema.errors import ErrorCode
from kio.schema.heartbeat.v4.request import HeartbeatRequest
from kio.schema.heartbeat.v4.response import HeartbeatResponse
from kio.schema.join_group.v9.request import JoinGroupRequest, JoinGroupRequestProtocol
from kio.schema.join_group.v9.response import JoinGroupResponse
from kio.schema.leave_group.v5.request import LeaveGroupRequest, MemberIdentity
from kio.schema.leave_group.v5.response import LeaveGroupResponse
from kio.schema.offset_commit.v9 import request as commits
from kio.schema.offset_commit.v9.response import OffsetCommitResponse
from kio.schema.offset_fetch.v9 import request as fetches
from kio.schema.offset_fetch.v9.response import OffsetFetchResponse
from kio.schema.sync_group.v5.request import SyncGroupRequest, SyncGroupRequestAssignment
from kio.schema.sync_group.v5.response import SyncGroupResponse
from kio.schema.types import GroupId, TopicName
from kio.static.primitive import i32, i32Timedelta, i64

from entrepot.client.connection import Connection
from entrepot.client.errors import ClientError

PATIENCE_S = 1.5
SESSION_MS = 700
REBALANCE_MS = 600
HEARTBEAT_S = 0.1
_TWICE_CHANCE = 0.05
_REJOIN = (ErrorCode.rebalance_in_progress, ErrorCode.illegal_generation)
_PROTOCOL = "halves"

T = TypeVar("T")
Connect = Callable[[str], Awaitable[Connection]]
Read = Callable[[Connection, int, int], Awaitable[int]]  # A partition, from where; to where.


class Witness(Protocol):
    def given(self, member: Member, partition: int) -> None:
        """In its generation or epoch, the partition is the member's."""

    def floor(self, group: str, partition: int) -> int:
        """The largest offset whose commit was acknowledged so far."""

    def found(self, group: str, partition: int, offset: int, floor: int) -> None:
        """What was committed, asked for when the floor was this."""

    def committed(self, group: str, partition: int, offset: int) -> None: ...


def ms(count: int) -> i32Timedelta:
    return i32Timedelta.parse(timedelta(milliseconds=count))


class Member:
    """What the two protocols share. `live` goes on until it is cancelled or told to leave."""

    def __init__(
        self,
        name: str,
        group: str,
        topic: str,
        witness: Witness,
        random: Random,
        *,
        connect: Connect,
        read: Read,
        instance_id: str | None = None,
    ) -> None:
        self.name = name
        self.group = group
        self.is_leaving = False
        self._topic = topic
        self._witness = witness
        self._random = random
        self._connect = connect
        self._read = read
        self._instance_id = instance_id
        self._member_id = ""
        self.epoch = -1  # The generation, or the member's epoch.
        self.positions: dict[int, int] = {}  # Partition to the next offset, of those it has.
        # When it sent the last request whose answer said that it is still in.
        self.heard_s = float("-inf")

    @property
    def identity(self) -> str:
        return self._instance_id or self._member_id

    async def live(self) -> None:
        while not self.is_leaving:
            try:
                connection = await self._connect(self.name)
                while not self.is_leaving:
                    await self._take_part(connection)
                self.positions.clear()
                await self._leave(connection)
                connection.close()
            except ClientError:
                await asyncio.sleep(self._random.uniform(0.01, 0.1))

    async def _take_part(self, connection: Connection) -> None:
        raise NotImplementedError

    async def _leave(self, connection: Connection) -> None:
        raise NotImplementedError

    async def _ask(
        self, connection: Connection, request: Any, answer: type[T], *, may_repeat: bool = True
    ) -> T:
        if may_repeat and self._random.random() < _TWICE_CHANCE:
            asyncio.get_running_loop().create_task(self._send_again(request, answer))
        return await connection.ask(request, answer, PATIENCE_S)

    async def _send_again(self, request: Any, answer: type[Any]) -> None:
        """The same, over another connection, a little earlier or later. Nobody listens."""
        await asyncio.sleep(self._random.uniform(0, 0.2))
        try:
            connection = await self._connect(self.name)
            await connection.ask(request, answer, PATIENCE_S)
            connection.close()
        except ClientError:
            return

    # --- reading

    async def _work(self, connection: Connection) -> None:
        """Read a little of everything it has, and commit most of the time."""
        for partition, position in list(self.positions.items()):
            self.positions[partition] = await self._read(connection, partition, position)
        if self.positions and self._random.random() < 0.7:
            await self._commit(connection)

    async def _find_positions(self, connection: Connection, partitions: list[int]) -> bool:
        """Where the group is in these. False: it is not ours to know."""
        floors = {each: self._witness.floor(self.group, each) for each in partitions}
        asked = fetches.OffsetFetchRequestTopics(
            name=TopicName(self._topic), partition_indexes=tuple(map(i32, partitions))
        )
        group = fetches.OffsetFetchRequestGroup(group_id=GroupId(self.group), topics=(asked,))
        request = fetches.OffsetFetchRequest(groups=(group,), require_stable=True)
        answer = (await connection.ask(request, OffsetFetchResponse, PATIENCE_S)).groups[0]
        if answer.error_code != ErrorCode.none:
            return False
        for row in answer.topics[0].partitions:
            if row.error_code != ErrorCode.none:
                return False
            offset, index = int(row.committed_offset), int(row.partition_index)
            self._witness.found(self.group, index, max(offset, 0), floors[index])
            self.positions[index] = max(offset, 0)
        return True

    async def _commit(self, connection: Connection) -> None:
        """Never sent twice: a client whose old commit overtakes its new one goes back, in
        Kafka as here."""
        rows = tuple(
            commits.OffsetCommitRequestPartition(
                partition_index=i32(partition),
                committed_offset=i64(position),
                committed_metadata=self.name,
            )
            for partition, position in self.positions.items()
        )
        request = commits.OffsetCommitRequest(
            group_id=GroupId(self.group),
            generation_id_or_member_epoch=i32(self.epoch),
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            topics=(
                commits.OffsetCommitRequestTopic(name=TopicName(self._topic), partitions=rows),
            ),
        )
        sent = dict(self.positions)
        answer = await connection.ask(request, OffsetCommitResponse, PATIENCE_S)
        for row in answer.topics[0].partitions:
            if row.error_code == ErrorCode.none:
                index = int(row.partition_index)
                self._witness.committed(self.group, index, sent[index])


class ClassicMember(Member):
    """The leader deals the partitions out, one after the other, to members by name."""

    def __init__(self, *arguments: Any, partition_count: int, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._partition_count = partition_count

    async def _take_part(self, connection: Connection) -> None:
        self.positions.clear()
        joined = await self._join(connection)
        if joined is None or not await self._sync(connection, joined):
            await asyncio.sleep(self._random.uniform(0, 0.05))
            return
        while not self.is_leaving:
            await asyncio.sleep(self._random.uniform(0, HEARTBEAT_S))
            await self._work(connection)
            if not await self._heartbeat(connection):
                return

    async def _join(self, connection: Connection) -> JoinGroupResponse | None:
        request = JoinGroupRequest(
            group_id=GroupId(self.group),
            session_timeout=ms(SESSION_MS),
            rebalance_timeout=ms(REBALANCE_MS),
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocols=(JoinGroupRequestProtocol(name=_PROTOCOL, metadata=self.name.encode()),),
        )
        answer = await self._ask(connection, request, JoinGroupResponse)
        if answer.error_code == ErrorCode.none:
            self._member_id, self.epoch = answer.member_id, int(answer.generation_id)
            return answer
        if answer.error_code == ErrorCode.member_id_required:
            self._member_id = answer.member_id
        elif answer.error_code not in _REJOIN:
            self._member_id = ""
        return None

    async def _sync(self, connection: Connection, joined: JoinGroupResponse) -> bool:
        parts = {}
        if joined.leader == joined.member_id and not joined.skip_assignment:
            members = sorted(each.member_id for each in joined.members)
            for place, member_id in enumerate(members):
                parts[member_id] = bytes(range(place, self._partition_count, len(members)))
        request = SyncGroupRequest(
            group_id=GroupId(self.group),
            generation_id=i32(self.epoch),
            member_id=self._member_id,
            group_instance_id=self._instance_id,
            protocol_type="consumer",
            protocol_name=_PROTOCOL,
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=member_id, assignment=part)
                for member_id, part in parts.items()
            ),
        )
        sent_s = asyncio.get_running_loop().time()
        answer = await self._ask(connection, request, SyncGroupResponse)
        if answer.error_code != ErrorCode.none:
            self._forget_if_strange(answer.error_code)
            return False
        self.heard_s = sent_s
        partitions = list(answer.assignment)
        for partition in partitions:
            self._witness.given(self, partition)
        return not partitions or await self._find_positions(connection, partitions)

    async def _heartbeat(self, connection: Connection) -> bool:
        request = HeartbeatRequest(
            group_id=GroupId(self.group),
            generation_id=i32(self.epoch),
            member_id=self._member_id,
            group_instance_id=self._instance_id,
        )
        sent_s = asyncio.get_running_loop().time()
        answer = await self._ask(connection, request, HeartbeatResponse)
        self._forget_if_strange(answer.error_code)
        if answer.error_code == ErrorCode.none:
            self.heard_s = sent_s
        return answer.error_code == ErrorCode.none

    def _forget_if_strange(self, code: ErrorCode) -> None:
        if code in (ErrorCode.unknown_member_id, ErrorCode.fenced_instance_id):
            self._member_id = ""

    async def _leave(self, connection: Connection) -> None:
        leaving = MemberIdentity(
            member_id=self._member_id, group_instance_id=self._instance_id, reason=None
        )
        request = LeaveGroupRequest(group_id=GroupId(self.group), members=(leaving,))
        await self._ask(connection, request, LeaveGroupResponse)


class ModernMember(Member):
    """Says what it has when that changed, and everything after it missed an answer."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._member_id = f"{self.name}-{self._random.randrange(1 << 60):x}"
        self.epoch = 0
        self._topic_ids: tuple[Any, ...] = ()
        self._is_whole = True
        self._told: list[int] | None = None  # What it said last that it has.

    async def _take_part(self, connection: Connection) -> None:
        sent_s = asyncio.get_running_loop().time()
        answer = await self._beat(connection, self.epoch)
        if answer.error_code == ErrorCode.none:
            self.heard_s = sent_s
            self.epoch = int(answer.member_epoch)
            self._is_whole = False
            if answer.assignment is not None:
                await self._follow(connection, answer.assignment.topic_partitions)
        elif answer.error_code in (
            ErrorCode.fenced_member_epoch,
            ErrorCode.unknown_member_id,
            ErrorCode.group_id_not_found,
            ErrorCode.fenced_instance_id,
        ):
            self.epoch, self._is_whole = 0, True
            self.positions.clear()
        else:
            self._is_whole = True
        await self._work(connection)
        await asyncio.sleep(self._random.uniform(0, HEARTBEAT_S))

    async def _follow(self, connection: Connection, rows: tuple[Any, ...]) -> None:
        wanted = [int(index) for row in rows for index in row.partitions]
        if rows:
            self._topic_ids = tuple(row.topic_id for row in rows)
        for partition in [each for each in self.positions if each not in wanted]:
            del self.positions[partition]
        new = [each for each in wanted if each not in self.positions]
        for partition in wanted:
            self._witness.given(self, partition)
        if not new:
            return
        self._is_whole = True  # To be told again, unless we find out where to begin.
        if await self._find_positions(connection, new):
            self._is_whole = False
            return
        for partition in new:
            self.positions.pop(partition, None)

    async def _beat(self, connection: Connection, epoch: int) -> ConsumerGroupHeartbeatResponse:
        owned, is_whole = sorted(self.positions), self._is_whole or epoch <= 0
        says_owned = is_whole or owned != self._told
        request = modern.ConsumerGroupHeartbeatRequest(
            group_id=GroupId(self.group),
            member_id=self._member_id,
            member_epoch=i32(epoch),
            instance_id=self._instance_id,
            rebalance_timeout=ms(REBALANCE_MS if is_whole else -1),
            subscribed_topic_names=(TopicName(self._topic),) if is_whole else None,
            topic_partitions=self._owned(owned) if says_owned else None,
        )
        self._is_whole = True  # Until there is an answer.
        # A join that comes late reads as "I have nothing any more": it is not sent twice.
        may_repeat = epoch != 0
        answer = await self._ask(
            connection, request, ConsumerGroupHeartbeatResponse, may_repeat=may_repeat
        )
        self._told = owned
        return answer

    def _owned(self, partitions: list[int]) -> tuple[modern.TopicPartitions, ...]:
        return tuple(
            modern.TopicPartitions(topic_id=topic_id, partitions=tuple(map(i32, partitions)))
            for topic_id in self._topic_ids
            if partitions
        )

    async def _leave(self, connection: Connection) -> None:
        is_coming_back = self._instance_id is not None and self._random.random() < 0.5
        await self._beat(connection, -2 if is_coming_back else -1)
