"""The share groups of this node: who is in them, where they stand, and what may be changed.

A group is there as long as it has members or reads topics. Which topics it reads, and what
of them is settled, is kept (`store`); an answer that rests on it goes out when it is
permanent. Where a group begins to read is decided when it first has a partition, so that
nothing is missed between its subscription and its first fetch.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from entrepot.broker.alarm import Alarm
from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.messages import JOINS, LEAVES, Listed
from entrepot.broker.deadlines import Deadlines
from entrepot.broker.ledger import Ledger
from entrepot.broker.settlements import Settlements
from entrepot.broker.share_group.dead_letter import DeadLetters
from entrepot.broker.share_group.group import (
    DescribedShareGroup,
    ShareGroup,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareMember,
    check,
)
from entrepot.broker.share_group.sessions import ShareSession, ShareSessions
from entrepot.broker.share_group.settings import GroupSettingsView, check_settings, settings_record
from entrepot.broker.share_group.share_partition import SharePartition
from entrepot.broker.share_group.store import ShareName, Store, new_settlements
from entrepot.broker.stream import Stream
from entrepot.broker.virtual_host.claims import Claims
from entrepot.core import limits
from entrepot.core.errors import InvalidConfig, OffsetOutOfRange, StorageError, UnknownTopic
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps

if TYPE_CHECKING:
    from entrepot.broker.broker import Broker

log = logging.getLogger("entrepot.share")

SHARE = "share"  # The protocol of these groups, and their kind.

_Watched = ShareName | tuple[str, str]  # Locks of a partition, or a group's member.


class ShareCoordinator:
    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self.settings = GroupSettingsView()
        self.sessions = ShareSessions()
        self._groups: dict[str, ShareGroup] = {}
        self._partitions: dict[ShareName, SharePartition] = {}
        self._adding = Claims()  # Topics to groups.
        self._store = Store(broker, clock)
        self._dead_letters = DeadLetters(broker, clock)
        self._deadlines: Deadlines[_Watched] = Deadlines()
        self._alarm = Alarm(clock, self._deadlines, self._ring, broker.faults)
        self._version = -1  # Of the topics, when they were last looked at.

    # --- life

    def open(self) -> None:
        """Fold what was kept."""
        orphans: dict[tuple[str, UUID], list[Settlements]] = {}
        for name, settlements in self._store.open().items():
            topic = self._broker.catalog.by_id.get(name.topic)
            if topic is None:
                orphans.setdefault((name.group, name.topic), []).append(settlements)
                continue
            group = self._groups.setdefault(name.group, ShareGroup(name.group))
            group.partition_counts[name.topic] = name.partition + 1  # They come in their order.
            stream = self._broker.stream(topic, name.partition)
            partition = stream.partition
            if partition.refused:  # It may be whole at the next start: what is settled stays so.
                ledger = Ledger()
            else:
                ledger = settlements.ledger(partition.offset_start, partition.offset_end)
                self._store.mark(settlements)
            self._partitions[name] = self._new_partition(name, stream, settlements, ledger)
        for (group_id, topic_id), lanes in orphans.items():
            self._store.forget(group_id, topic_id, lanes)

    def close(self) -> None:
        self._alarm.cancel()
        self._store.close()
        for partition in self._partitions.values():
            partition.close()

    def _new_partition(
        self, name: ShareName, stream: Stream, settlements: Settlements, ledger: Ledger
    ) -> SharePartition:
        return SharePartition(
            name,
            stream,
            settlements,
            ledger,
            self._store,
            self._dead_letters,
            lambda: self.settings.of(name.group),
        )

    def now(self) -> int:
        return self._alarm.now()

    def _ring(self, watched: _Watched) -> None:
        if isinstance(watched, ShareName):
            partition = self._partitions.get(watched)
            if partition is not None:
                partition.expire(self.now())
                self.watch(partition)
            return
        group_id, member_id = watched
        group = self._groups.get(group_id)
        if group is not None:
            log.info("group %s: member %s is not heard of", group_id, member_id)
            session = self.sessions.find(group_id, member_id)
            if session is not None:
                self.end_session(session)
            self._remove_member(group, member_id)

    def watch(self, partition: SharePartition) -> None:
        """After records were locked: be there when the time is up."""
        next_ms = partition.next_ms
        if next_ms is not None:
            self._deadlines.set(partition.name, next_ms)
            self._alarm.arm()

    # --- members

    @property
    def refusal(self) -> str | None:
        """Why no group is known; None when all are."""
        return self._store.refusal

    def has(self, group_id: str) -> bool:
        return group_id in self._groups

    def heartbeat(
        self, group_id: str, request: ShareHeartbeat
    ) -> ShareHeartbeatAnswer | Awaitable[ShareHeartbeatAnswer]:
        """Idle members are answered at once. Raises GroupError, StorageError."""
        if not group_id:
            raise GroupError(Fault.INVALID_REQUEST, "a group's id cannot be empty")
        check(request)
        self._store.check_readable()
        self._forget_deleted()
        group = self._group(group_id, request)
        if request.epoch == LEAVES:
            if not self._remove_member(group, request.member_id):
                raise GroupError(Fault.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member")
            return ShareHeartbeatAnswer(request.member_id, LEAVES, 0, None)
        settings = self.settings.of(group_id)
        answer = group.heartbeat(request, self._broker.catalog, settings.heartbeat_ms)
        self._groups[group_id] = group
        self._deadlines.set((group_id, request.member_id), self.now() + settings.session_ms)
        self._alarm.arm()
        new = self._unknown(group, group.members[request.member_id])
        # Who does not name its topics has named them before, and these are younger than that.
        return self._begin(group, new, answer, is_late=request.topics is None) if new else answer

    def _group(self, group_id: str, request: ShareHeartbeat) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is not None:
            return group
        if request.epoch != JOINS or self._broker.groups.has(group_id):
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
        self._check_room()
        return ShareGroup(group_id)

    def _check_room(self) -> None:
        if len(self._groups) >= limits.SHARE_GROUPS_MAX:
            raise GroupError(Fault.GROUP_MAX_SIZE_REACHED, "there are too many share groups")

    def _remove_member(self, group: ShareGroup, member_id: str) -> bool:
        """One that leaves may still acknowledge: its session ends by itself."""
        self._deadlines.cancel((group.id, member_id))
        was_there = group.remove(member_id)
        if not group.members and not group.partition_counts:
            self._groups.pop(group.id, None)
        return was_there

    # --- sessions

    def end_session(self, session: ShareSession) -> None:
        """What it has is ready for others, as much of it as there are turns for."""
        self.sessions.close(session)
        self._broker.turns.start(self._release(session))

    def _release(self, session: ShareSession) -> Steps[None]:
        for topic, number in list(session.locked):
            partition = self._partitions.get(ShareName(session.group, topic, number))
            if partition is not None:
                partition.release(session)
            yield

    # --- partitions

    def partition(self, group_id: str, topic: Topic, number: int) -> SharePartition:
        """Raises UnknownTopic: also when there is no such group, as clients understand it.
        Raises StorageError when its records or its ledger cannot be read."""
        self._store.check_readable()
        found = self._partitions.get(ShareName(group_id, topic.id, number))
        if found is None:
            raise UnknownTopic(f"the group does not read partition {number} of {topic.name!r}")
        found.stream.partition.check_served()
        return found

    def _unknown(self, group: ShareGroup, member: ShareMember) -> list[Topic]:
        """Topics that the member wants, and that have partitions the group does not know."""
        counts, by_id = group.partition_counts, self._broker.catalog.by_id
        return [
            by_id[topic]
            for topic, numbers in member.assignment.items()
            if counts.get(topic, 0) < len(numbers) and topic in by_id
        ]

    async def _begin(
        self,
        group: ShareGroup,
        topics: Sequence[Topic],
        answer: ShareHeartbeatAnswer,
        *,
        is_late: bool,
    ) -> ShareHeartbeatAnswer:
        await self._store.prepare()
        for topic in topics:
            await self._add_partitions(group, topic.id, is_late=is_late)
        await self._store.kept()
        return answer

    async def _add_partitions(
        self, group: ShareGroup, topic_id: UUID, *, is_late: bool = False
    ) -> None:
        """Those that came after the group did are read from their start: it missed nothing."""
        await self._broker.turns.next()  # There may be thousands of topics with one partition.
        claim = f"{topic_id} {group.id}"
        await self._adding.wait(claim)
        known = group.partition_counts.get(topic_id, 0)
        topic = self._broker.catalog.by_id.get(topic_id)
        if topic is None or known >= topic.partition_count:
            return  # Somebody was faster.
        if len(self._partitions) + topic.partition_count - known > limits.SHARE_PARTITIONS_MAX:
            raise GroupError(Fault.GROUP_MAX_SIZE_REACHED, "share groups read too many partitions")
        self._adding.take(claim)
        new: dict[ShareName, SharePartition] = {}
        try:
            is_whole = is_late or known > 0
            await self._broker.turns.run(self._make_partitions(new, group, topic, known, is_whole))
        finally:
            self._adding.release(claim)
        if topic_id not in self._broker.catalog.by_id or self._groups.get(group.id) is not group:
            for partition in new.values():
                partition.close()
            self._store.forget(group.id, topic_id, [each.settlements for each in new.values()])
            return
        self._partitions.update(new)
        group.partition_counts[topic.id] = topic.partition_count
        self._store.name(group.id, topic.id, topic.partition_count)

    def _make_partitions(
        self,
        new: dict[ShareName, SharePartition],
        group: ShareGroup,
        topic: Topic,
        known: int,
        is_whole: bool,
    ) -> Steps[None]:
        for number in range(known, topic.partition_count):
            try:
                stream = self._broker.stream(topic, number)
            except UnknownTopic:
                return  # It was deleted meanwhile.
            name = ShareName(group.id, topic.id, number)
            offset = stream.partition.offset_start if is_whole else self._first_offset(name, stream)
            settlements = new_settlements(name)
            ledger = settlements.ledger(0, 0)
            new[name] = self._new_partition(name, stream, settlements, ledger)
            if offset:
                new[name].rewind(offset)
            yield

    def _first_offset(self, name: ShareName, stream: Stream) -> int:
        settings, partition = self.settings.of(name.group), stream.partition
        if settings.reset == "earliest":
            return partition.offset_start
        if settings.reset != "latest":
            found = partition.offset_for_time(self._clock.now_ms() - settings.reset_ms)
            return found[0] if found is not None else partition.high_watermark
        return partition.high_watermark

    def _forget_deleted(self) -> None:
        """Topics that are no more."""
        catalog = self._broker.catalog
        if catalog.version == self._version:
            return
        self._version = catalog.version
        for group in list(self._groups.values()):
            for topic in [each for each in group.partition_counts if each not in catalog.by_id]:
                self._forget(group, topic)

    def _forget(self, group: ShareGroup, topic: UUID) -> None:
        names = [
            ShareName(group.id, topic, number)
            for number in range(group.partition_counts.pop(topic))
        ]
        lanes = []
        for name in names:
            partition = self._partitions.pop(name, None)
            if partition is not None:
                partition.close()
                lanes.append(partition.settlements)
        self._store.forget(group.id, topic, lanes)
        if not group.members and not group.partition_counts:
            self._groups.pop(group.id, None)

    # --- tools

    async def alter_settings(self, group_id: str, settings: Mapping[str, str]) -> None:
        """Set exactly these; what is left out goes back to its default. Raises InvalidConfig."""
        if not group_id:
            raise InvalidConfig("a group's id cannot be empty")
        check_settings(settings)
        self.settings.check_room(group_id)
        record = settings_record(group_id, settings)
        self._broker.append_change(record)
        self._broker.catalog.apply(record)
        await self._broker.changes_committed()

    def listed(self) -> list[Listed]:
        return [Listed(each.id, SHARE, each.state_name, SHARE) for each in self._groups.values()]

    def describe(self, group_id: str) -> DescribedShareGroup:
        """Raises GroupError."""
        return self._find(group_id).describe()

    def topics(self, group_id: str) -> list[Topic]:
        """Those it reads. Raises GroupError."""
        self._forget_deleted()
        by_id = self._broker.catalog.by_id
        return [by_id[topic] for topic in self._find(group_id).partition_counts if topic in by_id]

    async def alter_offsets(
        self, group_id: str, offsets: Sequence[tuple[Topic, Mapping[int, int]]]
    ) -> dict[tuple[str, int], Exception]:
        """Where a group without members goes on. A group that is not there is founded.
        Returns what is wrong with single ones. Raises GroupError, StorageError."""
        await self._store.prepare()
        self._forget_deleted()
        group = self._groups.get(group_id)
        if group is None:
            if not group_id or self._broker.groups.has(group_id):
                raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"{group_id!r} is no share group")
            self._check_room()
            group = ShareGroup(group_id)
        self._check_empty(group)
        faults: dict[tuple[str, int], Exception] = {}
        for topic, wanted in offsets:
            self._groups[group_id] = group
            await self._add_partitions(group, topic.id)
            self._check_empty(group)  # Somebody may have come meanwhile.
            await self._broker.turns.run(self._rewind_all(group, topic, wanted, faults))
        await self._store.kept()
        return faults

    def _rewind_all(
        self,
        group: ShareGroup,
        topic: Topic,
        wanted: Mapping[int, int],
        faults: dict[tuple[str, int], Exception],
    ) -> Steps[None]:
        for number, offset in wanted.items():
            try:
                self._rewind(self.partition(group.id, topic, number), offset)
            except (OffsetOutOfRange, UnknownTopic, StorageError) as error:
                faults[topic.name, number] = error
            yield

    def _rewind(self, share: SharePartition, offset: int) -> None:
        partition = share.stream.partition
        if not 0 <= offset <= partition.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in [0, {partition.high_watermark}]")
        share.rewind(max(offset, partition.offset_start))

    async def delete_offsets(self, group_id: str, topics: Iterable[Topic]) -> None:
        """The group no longer reads these. Raises GroupError, StorageError."""
        group = self._find(group_id)
        self._check_empty(group)
        for topic in topics:
            if topic.id in group.partition_counts:
                self._forget(group, topic.id)
        await self._store.kept()

    async def delete(self, group_id: str) -> None:
        """With all that it settled. Raises GroupError, StorageError."""
        group = self._find(group_id)
        self._check_empty(group)
        for topic in list(group.partition_counts):
            self._forget(group, topic)
        self._groups.pop(group_id, None)
        await self._store.kept()

    def _find(self, group_id: str) -> ShareGroup:
        self._store.check_readable()
        group = self._groups.get(group_id)
        if group is None:
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
        return group

    def _check_empty(self, group: ShareGroup) -> None:
        if group.members:
            raise GroupError(Fault.NON_EMPTY_GROUP, f"{group.id!r} has members")
