"""The coordinator of this node's share groups: members, partitions, sessions, offsets.

A group exists while it has members or reads topics. Which topics it reads, and which of their
records are settled, is stored (`store`); requests that change it are answered when that is
permanent. Where a group begins to read is decided when it first gets a partition, so that no
record is missed between its subscription and its first fetch.

In a cluster there are no share groups yet: their state does not move with the partitions that they
read. Whoever asks is told what Kafka says where they are switched off.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from uuid import UUID

from entrepot.broker.alarm import Alarm
from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.messages import JOINS, LEAVES, Listed
from entrepot.broker.deadlines import Deadlines
from entrepot.broker.ledger import Ledger
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.settlements import Settlements
from entrepot.broker.share_group.dead_letter import ShareDeadLetters
from entrepot.broker.share_group.group import (
    DescribedShareGroup,
    ShareGroup,
    ShareHeartbeat,
    ShareHeartbeatAnswer,
    ShareMember,
    check,
)
from entrepot.broker.share_group.ports import ShareTopics
from entrepot.broker.share_group.sessions import ShareSession, ShareSessions
from entrepot.broker.share_group.settings import GroupSettingsView, check_settings, settings_record
from entrepot.broker.share_group.share_partition import SharePartition
from entrepot.broker.share_group.store import ShareGroupStore, ShareName, new_settlements
from entrepot.broker.virtual_host.claims import Claims
from entrepot.core import limits
from entrepot.core.errors import InvalidConfig, OffsetOutOfRange, StorageError, UnknownTopic
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps

log = logging.getLogger("entrepot.share")

SHARE = "share"  # The protocol and the kind of these groups.

# What a deadline is about: a partition's locks, or (group, member).
_Watched = ShareName | tuple[str, str]


class ShareCoordinator:
    def __init__(self, topics: ShareTopics, clock: Clock) -> None:
        self._topics = topics
        self._clock = clock
        self.settings = GroupSettingsView()
        self.sessions = ShareSessions()
        self._groups: dict[str, ShareGroup] = {}
        self._partitions: dict[ShareName, SharePartition] = {}
        self._adding = Claims()  # Held while a topic's partitions are added to a group.
        self._store = ShareGroupStore(topics, clock)
        self._dead_letters = ShareDeadLetters(topics, clock)
        self._deadlines: Deadlines[_Watched] = Deadlines()
        self._alarm = Alarm(clock, self._deadlines, self._ring, topics.faults)
        self._version = -1  # The catalog's version when deleted topics were last looked for.

    # --- life

    def open(self) -> None:
        """Restore the groups from the store."""
        orphans: dict[tuple[str, UUID], list[Settlements]] = {}
        for name, settlements in self._store.open().items():
            topic = self._topics.catalog.by_id.get(name.topic)
            if topic is None:
                orphans.setdefault((name.group, name.topic), []).append(settlements)
                continue
            group = self._groups.setdefault(name.group, ShareGroup(name.group))
            # Partitions come in ascending order.
            group.partition_counts[name.topic] = name.partition + 1
            served = self._topics.served_partition(topic, name.partition)
            partition = served.partition
            # It may be readable again at the next start: keep its settlements.
            if partition.refused:
                ledger = Ledger()
            else:
                ledger = settlements.ledger(partition.offset_start, partition.offset_end)
                self._store.mark(settlements)
            self._partitions[name] = self._new_partition(name, served, settlements, ledger)
        for (group_id, topic_id), lanes in orphans.items():
            self._store.forget(group_id, topic_id, lanes)

    def close(self) -> None:
        self._alarm.cancel()
        self._store.close()
        for partition in self._partitions.values():
            partition.close()

    def _new_partition(
        self, name: ShareName, served: ServedPartition, settlements: Settlements, ledger: Ledger
    ) -> SharePartition:
        return SharePartition(
            name,
            served,
            settlements,
            ledger,
            self._store,
            self._dead_letters,
            lambda: self.settings.of(name.group),
        )

    def now(self) -> int:
        return self._alarm.now()

    def _ring(self, watched: _Watched) -> None:
        """Act on a deadline that has come."""
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
        """Set the deadline of the partition's next lock."""
        next_ms = partition.next_ms
        if next_ms is not None:
            self._deadlines.set(partition.name, next_ms)
            self._alarm.arm()

    # --- members

    @property
    def refusal(self) -> str | None:
        """Return why groups cannot be read; None when they can."""
        return self._store.refusal

    def check_served(self) -> None:
        """Raise GroupError in a cluster, and StorageError when groups cannot be read."""
        if self._topics.cluster is not None:
            text = "share groups are not served in a cluster yet"
            raise GroupError(Fault.UNSUPPORTED_VERSION, text)
        self._store.check_readable()

    def has(self, group_id: str) -> bool:
        return group_id in self._groups

    def heartbeat(
        self, group_id: str, request: ShareHeartbeat
    ) -> ShareHeartbeatAnswer | Awaitable[ShareHeartbeatAnswer]:
        """Process a heartbeat; an idle member is answered at once. Raises GroupError,
        StorageError."""
        if not group_id:
            raise GroupError(Fault.INVALID_REQUEST, "a group's id cannot be empty")
        check(request)
        self.check_served()
        self._forget_deleted()
        group = self._group(group_id, request)
        if request.epoch == LEAVES:
            if not self._remove_member(group, request.member_id):
                raise GroupError(Fault.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member")
            return ShareHeartbeatAnswer(request.member_id, LEAVES, 0, None)
        settings = self.settings.of(group_id)
        answer = group.heartbeat(request, self._topics.catalog, settings.heartbeat_ms)
        self._groups[group_id] = group
        self._deadlines.set((group_id, request.member_id), self.now() + settings.session_ms)
        self._alarm.arm()
        new = self._topics_to_add(group, group.members[request.member_id])
        # A member that does not name its topics has named them before. Partitions that are new to
        # the group were made since then.
        return self._begin(group, new, answer, is_late=request.topics is None) if new else answer

    def _group(self, group_id: str, request: ShareHeartbeat) -> ShareGroup:
        group = self._groups.get(group_id)
        if group is not None:
            return group
        if request.epoch != JOINS or self._topics.groups.has(group_id):
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
        self._check_room()
        return ShareGroup(group_id)

    def _check_room(self) -> None:
        if len(self._groups) >= limits.SHARE_GROUPS_MAX:
            raise GroupError(Fault.GROUP_MAX_SIZE_REACHED, "there are too many share groups")

    def _remove_member(self, group: ShareGroup, member_id: str) -> bool:
        """Remove a member; return whether it was one. Its session stays, so that it may still
        acknowledge."""
        self._deadlines.cancel((group.id, member_id))
        was_there = group.remove(member_id)
        if not group.members and not group.partition_counts:
            self._groups.pop(group.id, None)
        return was_there

    # --- sessions

    def end_session(self, session: ShareSession) -> None:
        """End a session and release its locks, in the background."""
        self.sessions.close(session)
        self._topics.turns.start(self._release(session))

    def _release(self, session: ShareSession) -> Steps[None]:
        for topic, number in list(session.locked):
            partition = self._partitions.get(ShareName(session.group, topic, number))
            if partition is not None:
                partition.release(session)
            yield

    # --- partitions

    def partition(self, group_id: str, topic: Topic, number: int) -> SharePartition:
        """Return the group's partition.

        Raises UnknownTopic, also when there is no such group, as clients expect; StorageError when
        its records or its ledger cannot be read; GroupError.
        """
        self.check_served()
        found = self._partitions.get(ShareName(group_id, topic.id, number))
        if found is None:
            raise UnknownTopic(f"the group does not read partition {number} of {topic.name!r}")
        found.served.partition.check_served()
        return found

    def _topics_to_add(self, group: ShareGroup, member: ShareMember) -> list[Topic]:
        """Return the member's topics with partitions that the group does not know yet."""
        counts, by_id = group.partition_counts, self._topics.catalog.by_id
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
        """Add the topics' partitions to the group, then answer when that is permanent."""
        await self._store.prepare()
        for topic in topics:
            await self._add_partitions(group, topic.id, is_late=is_late)
        await self._store.kept()
        return answer

    async def _add_partitions(
        self, group: ShareGroup, topic_id: UUID, *, is_late: bool = False
    ) -> None:
        """Add a topic's new partitions to the group.

        Partitions that are younger than the group's subscription are read from their start.
        """
        await self._topics.turns.next()  # There may be thousands of topics.
        claim = f"{topic_id} {group.id}"
        await self._adding.wait(claim)
        known = group.partition_counts.get(topic_id, 0)
        topic = self._topics.catalog.by_id.get(topic_id)
        if topic is None or known >= topic.partition_count:
            return  # Another request has added them.
        if len(self._partitions) + topic.partition_count - known > limits.SHARE_PARTITIONS_MAX:
            raise GroupError(Fault.GROUP_MAX_SIZE_REACHED, "share groups read too many partitions")
        self._adding.take(claim)
        new: dict[ShareName, SharePartition] = {}
        try:
            is_whole = is_late or known > 0
            await self._topics.turns.run(self._make_partitions(new, group, topic, known, is_whole))
        finally:
            self._adding.release(claim)
        if topic_id not in self._topics.catalog.by_id or self._groups.get(group.id) is not group:
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
                served = self._topics.served_partition(topic, number)
            except UnknownTopic:
                return  # The topic was deleted meanwhile.
            name = ShareName(group.id, topic.id, number)
            offset = served.partition.offset_start if is_whole else self._first_offset(name, served)
            settlements = new_settlements(name)
            ledger = settlements.ledger(0, 0)
            new[name] = self._new_partition(name, served, settlements, ledger)
            if offset:
                new[name].rewind(offset)
            yield

    def _first_offset(self, name: ShareName, served: ServedPartition) -> int:
        """Return where the group begins to read a partition that it did not know."""
        settings, partition = self.settings.of(name.group), served.partition
        if settings.reset == "earliest":
            return partition.offset_start
        if settings.reset != "latest":
            found = partition.offset_for_time(self._clock.now_ms() - settings.reset_ms)
            return found[0] if found is not None else partition.high_watermark
        return partition.high_watermark

    def _forget_deleted(self) -> None:
        """Remove deleted topics from all groups."""
        catalog = self._topics.catalog
        if catalog.version == self._version:
            return
        self._version = catalog.version
        for group in list(self._groups.values()):
            for topic in [each for each in group.partition_counts if each not in catalog.by_id]:
                self._forget(group, topic)

    def _forget(self, group: ShareGroup, topic: UUID) -> None:
        """Remove a topic from a group, with its settlements."""
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
        """Set exactly these settings; others go back to their defaults. Raises InvalidConfig."""
        if not group_id:
            raise InvalidConfig("a group's id cannot be empty")
        check_settings(settings)
        self.settings.check_room(group_id)
        record = settings_record(group_id, settings)
        await self._topics.change_catalog(record)

    def listed(self) -> list[Listed]:
        return [Listed(each.id, SHARE, each.state_name, SHARE) for each in self._groups.values()]

    def describe(self, group_id: str) -> DescribedShareGroup:
        """Describe the group. Raises GroupError."""
        return self._find(group_id).describe()

    def topics(self, group_id: str) -> list[Topic]:
        """Return the topics that the group reads. Raises GroupError."""
        self._forget_deleted()
        by_id = self._topics.catalog.by_id
        return [by_id[topic] for topic in self._find(group_id).partition_counts if topic in by_id]

    async def alter_offsets(
        self, group_id: str, offsets: Iterable[tuple[Topic, Mapping[int, int]]]
    ) -> dict[tuple[str, int], Exception]:
        """Set where a group without members continues to read; create the group if needed.

        Returns the errors of single partitions. Raises GroupError, StorageError.
        """
        self.check_served()
        await self._store.prepare()
        self._forget_deleted()
        group = self._groups.get(group_id)
        if group is None:
            if not group_id or self._topics.groups.has(group_id):
                raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"{group_id!r} is no share group")
            self._check_room()
            group = ShareGroup(group_id)
        self._check_empty(group)
        faults: dict[tuple[str, int], Exception] = {}
        for topic, wanted in offsets:
            self._groups[group_id] = group
            await self._add_partitions(group, topic.id)
            self._check_empty(group)  # A member may have joined meanwhile.
            await self._topics.turns.run(self._rewind_all(group, topic, wanted, faults))
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
        partition = share.served.partition
        if not 0 <= offset <= partition.high_watermark:
            raise OffsetOutOfRange(f"offset {offset} is not in [0, {partition.high_watermark}]")
        share.rewind(max(offset, partition.offset_start))

    async def delete_offsets(self, group_id: str, topics: Iterable[Topic]) -> None:
        """Remove topics from a group without members. Raises GroupError, StorageError."""
        group = self._find(group_id)
        self._check_empty(group)
        for topic in topics:
            if topic.id in group.partition_counts:
                self._forget(group, topic.id)
        await self._store.kept()

    async def delete(self, group_id: str) -> None:
        """Delete a group without members. Raises GroupError, StorageError."""
        group = self._find(group_id)
        self._check_empty(group)
        for topic in list(group.partition_counts):
            self._forget(group, topic)
        self._groups.pop(group_id, None)
        await self._store.kept()

    def _find(self, group_id: str) -> ShareGroup:
        """Return the group. Raises GroupError, StorageError."""
        self.check_served()
        group = self._groups.get(group_id)
        if group is None:
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"there is no share group {group_id!r}")
        return group

    def _check_empty(self, group: ShareGroup) -> None:
        if group.members:
            raise GroupError(Fault.NON_EMPTY_GROUP, f"{group.id!r} has members")
