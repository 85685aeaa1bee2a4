"""The coordinator of this node's groups: answers requests when their changes are permanent.

The groups are state machines; this module gives them what they lack: new member ids, the time,
one timer for the earliest of all deadlines, futures for waiting requests, and the `GroupStore`. A
request is answered only when its changes are permanent. If they cannot be made permanent, a
classic group begins a new generation and a modern one stays as it was.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

from entrepot.broker.alarm import Alarm
from entrepot.broker.consumer_group.classic import CONSUMER, Answers, ClassicGroup
from entrepot.broker.consumer_group.commits import Commits
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.interest import Topics
from entrepot.broker.consumer_group.messages import (
    JOINS,
    Described,
    DescribedModern,
    GroupHeartbeat,
    HeartbeatAnswer,
    Join,
    JoinAnswer,
    Listed,
    Sync,
    SyncAnswer,
)
from entrepot.broker.consumer_group.modern import ModernGroup, check
from entrepot.broker.consumer_group.offsets import TopicPartition
from entrepot.broker.consumer_group.records import (
    CommittedOffset,
    GroupRecordKind,
    Row,
    StoredGroup,
    encode,
)
from entrepot.broker.consumer_group.settings import GroupSettings
from entrepot.broker.consumer_group.store import TOPIC, GroupStore, Kept
from entrepot.broker.consumer_group.watch import Watch, Watched
from entrepot.broker.deadlines import Deadlines
from entrepot.broker.one_at_a_time import OneAtATime
from entrepot.broker.ports import TopicStorage
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.errors import NotLeader, StillLoading, StorageError
from entrepot.core.ports import Clock, Entropy
from entrepot.core.steps import Steps, finish, listed

log = logging.getLogger("entrepot.groups")

Group = ClassicGroup | ModernGroup

_RETENTION_EVERY_MS = 10 * 60_000
_RETENTION: Watched = ("", Watch.RETENTION, "")
_RETRY_MS = 1_000  # After this time the removal of a member is tried again, if it failed.
_BEATING_MS = 10  # A deadline that comes during a heartbeat of the same group is put off by this.


class Coordinator:
    topic_name = TOPIC

    def __init__(
        self,
        topics: TopicStorage,
        catalog: Topics,
        turns: Turns,
        is_share_group: Callable[[str], bool],
        clock: Clock,
        entropy: Entropy,
        settings: GroupSettings,
    ) -> None:
        self._topics = topics
        self._catalog = catalog
        self._turns = turns
        self._is_share_group = is_share_group
        self._clock = clock
        self._entropy = entropy
        self._settings = settings
        self._store = GroupStore(topics, clock)
        self._groups: dict[str, Group] = {}
        # Wall time in ms; of classic groups that had members.
        self._empty_since_ms: dict[str, int] = {}
        self._deleted: dict[str, None] = {}  # Topics deleted in this turn of the loop,
        self._forgetting: asyncio.Future[None]  # and what deletes their offsets.
        # In a cluster: what reads partitions of groups that this node leads since a moment ago.
        self._loading: dict[int, asyncio.Future[None]] = {}
        self._commits = Commits(self._store, clock)
        self._beating = OneAtATime()  # Modern groups with a heartbeat in progress.
        self._deadlines: Deadlines[Watched] = Deadlines()
        self._alarm = Alarm(clock, self._deadlines, self._ring, topics.faults)
        self._now = self._alarm.now

    # --- life

    def open(self, *, power_failed: bool = False) -> None:
        """Restore the groups from the stored records."""
        self._store.open()
        classic: dict[str, StoredGroup] = {}
        modern: dict[str, ModernGroup] = {}
        for kept in self._store.read():
            self._fold(kept, classic, modern)
        self._restore(classic, modern)
        for group_id in modern:
            group = self._groups.get(group_id)
            if power_failed and self._store.may_lose(group_id) and group is modern[group_id]:
                self._remove_members(modern[group_id])
        for group_id in self._commits.offsets.groups():
            if group_id not in self._groups:
                self._add_classic(group_id)
        finish(self._commits.forget_topics(self._topics.topics.__contains__))
        self._deadlines.set(_RETENTION, self._now() + _RETENTION_EVERY_MS)
        self._alarm.arm()

    def _restore(
        self, classic: Mapping[str, StoredGroup], modern: Mapping[str, ModernGroup]
    ) -> None:
        for group_id, stored in classic.items():
            self._add_classic(group_id).restore(stored, self._now())
            self._empty_since_ms[group_id] = stored.state_ms
        for group_id, group in modern.items():
            if group.epoch.epoch > 0:  # Otherwise the group was deleted.
                self._groups[group_id] = group
                group.restore(self._now())

    def close(self) -> None:
        self._alarm.cancel()
        for loading in self._loading.values():
            loading.cancel()

    def _remove_members(self, group: ModernGroup) -> None:
        """Remove the members, so that they join again: their newest epochs may be lost.

        Otherwise the same epoch could be given out twice: a consumer that has it from before the
        power failure would be accepted, with partitions that belong to another member by now.
        """
        group.remove_members()
        try:
            self._settle(group)
        except StorageError as error:
            log.warning("group %s: members of before a power failure stay: %s", group.id, error)

    def _fold(
        self, kept: Kept, classic: dict[str, StoredGroup], modern: dict[str, ModernGroup]
    ) -> None:
        if kept.row is None:
            self.complete_transaction(kept.producer_id, kept.committed, kept.partition)
            return
        key, value = kept.row
        if key.kind is GroupRecordKind.OFFSET:
            self._commits.apply(kept.row, kept.offset, kept.producer_id)
        elif isinstance(value, StoredGroup):
            classic[key.group] = value
        elif key.kind is GroupRecordKind.CLASSIC_GROUP:
            classic.pop(key.group, None)
        else:
            if key.group not in modern:
                modern[key.group] = self._new_modern(key.group)
            modern[key.group].apply(kept.row)

    async def prepare(self) -> None:
        """Create the topic that groups are stored in, if needed. Raises StorageError."""
        if not self._store.is_ready:
            await self._store.prepare()

    def check_readable(self, group_id: str) -> None:
        """Raise StorageError when the group's stored records are damaged."""
        self._store.check_readable(group_id)

    @property
    def refusal(self) -> str | None:
        """Return why some groups cannot be read; None when all can."""
        return self._store.refusal

    def partition_of(self, group_id: str) -> int:
        """Return the partition of `__consumer_offsets` that the group is stored in."""
        return self._store.partition_of(group_id)

    # --- in a cluster

    def began_to_lead(self, number: int) -> None:
        """Load the groups that are stored in this partition: this node leads it now."""
        self._store.open()
        loading = asyncio.ensure_future(self._load(number))
        self._loading[number] = loading
        loading.add_done_callback(lambda done: done.cancelled() or done.result())

    async def _load(self, number: int) -> None:
        try:
            await self._turns.run(self._load_in_steps(number))
        except Exception as error:
            self._topics.faults.caught(f"groups of partition {number} are not loaded", error)
        else:
            self._store.begin(number)
            self._alarm.arm()
            log.info("groups of partition %d are loaded", number)

    def _load_in_steps(self, number: int) -> Steps[None]:
        classic: dict[str, StoredGroup] = {}
        modern: dict[str, ModernGroup] = {}
        for kept in self._store.read_partition(number):
            self._fold(kept, classic, modern)
            yield
        self._restore(classic, modern)
        for group_id in list(self._commits.offsets.groups()):
            if group_id not in self._groups:
                self._add_classic(group_id)

    def check_loaded(self, number: int) -> None:
        """Raise StillLoading while the groups of a partition that this node leads are not here."""
        if number not in self._store.led:
            raise StillLoading(f"the groups of partition {number} are loading")

    def ended_to_lead(self, number: int) -> None:
        """Drop the groups that are stored in this partition: another node has them now."""
        loading = self._loading.pop(number, None)
        if loading is not None:
            loading.cancel()
        if not self._store.is_ready:
            return

        def is_there(group_id: str) -> bool:
            return self._store.partition_of(group_id) == number

        self._store.end(number)
        for group_id in [each for each in self._groups if is_there(each)]:
            group = self._groups.pop(group_id)
            self._empty_since_ms.pop(group_id, None)
            if isinstance(group, ClassicGroup):
                group.abandon()
                self._tell(group.take_answers(), None)
        self._commits.offsets.drop(is_there)
        self._deadlines.cancel_all(lambda key: bool(key[0]) and is_there(key[0]))

    # --- time

    def _ring(self, watched: Watched) -> None:
        """Act on a deadline that has come."""
        group_id, watch, member_id = watched
        group = self._groups.get(group_id)
        if watch is Watch.RETENTION:
            self._deadlines.set(_RETENTION, self._now() + _RETENTION_EVERY_MS)
            self._expire_offsets()
        elif group_id in self._beating:
            self._deadlines.set(watched, self._now() + _BEATING_MS)
        elif group is not None:
            group.expire(watch, member_id, self._now())
            try:
                self._settle(group)
            except StorageError as error:
                log.warning("group %s: %s stays: %s", group_id, member_id, error)
                self._deadlines.set(watched, self._now() + _RETRY_MS)

    # --- the classic protocol

    async def join(self, group_id: str, request: Join) -> JoinAnswer:
        """Let a member join a classic group. Raises GroupError, StorageError."""
        _check_id(group_id)
        settings = self._settings
        if not settings.session_ms_min <= request.session_ms <= settings.session_ms_max:
            return JoinAnswer(request.member_id, Fault.INVALID_SESSION_TIMEOUT)
        await self.prepare()
        self.check_readable(group_id)
        group = self._groups.get(group_id)
        if isinstance(group, ModernGroup):
            if not group.is_empty:
                return JoinAnswer(request.member_id, Fault.INCONSISTENT_GROUP_PROTOCOL)
            self._store.append(group_id, group.tombstones())
            group = self._add_classic(group_id)
        elif group is None:
            if request.member_id:
                return JoinAnswer(request.member_id, Fault.UNKNOWN_MEMBER_ID)
            self._check_new(group_id, Fault.INCONSISTENT_GROUP_PROTOCOL)
            group = self._add_classic(group_id)
        answer: asyncio.Future[JoinAnswer] = asyncio.get_running_loop().create_future()
        group.join(request, answer, self._now())
        self._settle(group)
        return await answer

    async def sync(self, group_id: str, request: Sync) -> SyncAnswer:
        """Give a member of a classic group its assignment. Raises GroupError, StorageError."""
        _check_id(group_id)
        self.check_readable(group_id)
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return SyncAnswer(Fault.UNKNOWN_MEMBER_ID)
        answer: asyncio.Future[SyncAnswer] = asyncio.get_running_loop().create_future()
        group.sync(request, answer, self._now())
        self._settle(group)
        return await answer

    def heartbeat(
        self, group_id: str, member_id: str, instance_id: str | None, generation: int
    ) -> Fault | None:
        try:
            self.check_readable(group_id)
        except NotLeader:
            return Fault.NOT_COORDINATOR
        except StorageError:
            return Fault.COORDINATOR_NOT_AVAILABLE
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return Fault.UNKNOWN_MEMBER_ID if group_id else Fault.INVALID_GROUP_ID
        return group.heartbeat(member_id, instance_id, generation, self._now())

    def leave(self, group_id: str, leaving: Sequence[tuple[str, str | None]]) -> list[Fault | None]:
        """Remove members, each (member id, instance id). Return a fault or None for each.

        Raises GroupError, StorageError.
        """
        _check_id(group_id)
        self.check_readable(group_id)
        group = self._groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return [Fault.UNKNOWN_MEMBER_ID for _ in leaving]
        faults = group.leave(leaving, self._now())
        self._settle(group)
        return faults

    def fresh_id(self, name: str = "") -> str:
        """Return a new member id: the instance's or client's name and a random token."""
        token = str(UUID(bytes=self._entropy.token(16), version=4))
        return f"{name}-{token}" if name else token

    # --- the modern protocol

    def heartbeat_modern(
        self, group_id: str, request: GroupHeartbeat
    ) -> HeartbeatAnswer | Awaitable[HeartbeatAnswer]:
        """Process a heartbeat; an idle member is answered at once. Raises GroupError,
        StorageError."""
        if not group_id:
            raise GroupError(Fault.INVALID_REQUEST, "a group's id cannot be empty")
        check(request)
        if not self._store.is_ready or group_id in self._beating:
            return self._heartbeat_later(group_id, request)
        self._beating.enter(group_id)
        answer = self._turns.begin(self._heartbeat(group_id, request))
        if isinstance(answer, HeartbeatAnswer):
            return answer if self._store.is_kept(group_id) else self._answer_kept(group_id, answer)
        return self._answer_later(group_id, answer)

    async def _heartbeat_later(self, group_id: str, request: GroupHeartbeat) -> HeartbeatAnswer:
        await self.prepare()
        await self._beating.wait_and_enter(group_id)
        answer = self._turns.run(self._heartbeat(group_id, request))
        return await self._answer_later(group_id, answer)

    def _heartbeat(self, group_id: str, request: GroupHeartbeat) -> Steps[HeartbeatAnswer]:
        """Process a heartbeat in steps; the caller has entered the group in `_beating`.

        It goes on when the client is gone.
        """
        try:
            self.check_readable(group_id)
            group = self._modern(group_id, request)
            try:
                answer = yield from group.heartbeat(request, self._catalog, self._now())
                if group.has_rows:
                    yield from self._keep_modern(group)
                    self._alarm.arm()
                return answer
            except BaseException:
                group.undo(self._now())
                raise
        finally:
            self._beating.leave(group_id)

    async def _answer_later(
        self, group_id: str, answer: Awaitable[HeartbeatAnswer]
    ) -> HeartbeatAnswer:
        return await self._answer_kept(group_id, await answer)

    async def _answer_kept(self, group_id: str, answer: HeartbeatAnswer) -> HeartbeatAnswer:
        await self._store.kept(group_id)
        return answer

    def _modern(self, group_id: str, request: GroupHeartbeat) -> ModernGroup:
        """Return the group. A member that joins creates it, in place of an empty classic one."""
        group = self._groups.get(group_id)
        if isinstance(group, ModernGroup):
            return group
        if request.epoch != JOINS:
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"there is no modern group {group_id!r}")
        if group is None:
            self._check_new(group_id)
        elif not group.is_empty:
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"{group_id!r} is a classic group")
        else:
            self._store.append(group_id, group.tombstones())
        self._empty_since_ms.pop(group_id, None)
        modern = self._groups[group_id] = self._new_modern(group_id)
        return modern

    # --- keeping

    def has(self, group_id: str) -> bool:
        return group_id in self._groups

    def _check_new(self, group_id: str, fault: Fault = Fault.GROUP_ID_NOT_FOUND) -> None:
        if self._is_share_group(group_id):
            raise GroupError(fault, f"{group_id!r} is a share group")
        if len(self._groups) >= limits.GROUPS_MAX:
            raise GroupError(Fault.GROUP_MAX_SIZE_REACHED, "there are too many groups")

    def _add_classic(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._settings, self._deadlines)
        self._groups[group_id] = group
        return group

    def _new_modern(self, group_id: str) -> ModernGroup:
        return ModernGroup(group_id, self._settings, self._deadlines)

    def _settle(self, group: Group) -> None:
        """Store the group's changes, and answer waiting requests when they are permanent."""
        if isinstance(group, ModernGroup):
            try:
                finish(self._keep_modern(group))
            except StorageError:
                group.undo(self._now())
                raise
        else:
            self._keep_classic(group)
        self._alarm.arm()

    def _keep_modern(self, group: ModernGroup) -> Steps[None]:
        """Store the group's rows. Raises StorageError; then the caller undoes them."""
        records = yield from listed(map(encode, group.take_rows()))
        if records:
            self._store.append_records(group.id, records)
        group.kept()

    def _keep_classic(self, group: ClassicGroup) -> None:
        if group.take_changed():
            now_ms = self._empty_since_ms[group.id] = self._clock.now_ms()
            try:
                self._store.append(group.id, [group.stored(now_ms)])
            except StorageError as error:
                self._not_kept(group, error)
        answers = group.take_answers()
        if answers:

            def answer_all(error: StorageError | None) -> None:
                self._tell(answers, error)
                if error is not None:
                    self._not_kept(group, error)

            self._store.when_kept(group.id, answer_all)

    def _tell(self, answers: Answers, error: StorageError | None) -> None:
        """Answer waiting requests. Each answer resumes one, and there may be ten thousand."""
        self._turns.start_each([partial(_answer, *each, error) for each in answers])

    def _not_kept(self, group: ClassicGroup, error: StorageError) -> None:
        """Begin a new generation, because a crash would undo the assignment of this one."""
        log.warning("group %s: %s", group.id, error)
        self._tell(group.take_answers(), error)
        group.rebalance(self._now())

    # --- offsets

    async def commit_offsets(
        self,
        group_id: str,
        member_id: str,
        generation: int,
        offsets: Mapping[TopicPartition, CommittedOffset],
        *,
        instance_id: str | None = None,
        producer: tuple[int, int] | None = None,
    ) -> dict[TopicPartition, Fault]:
        """Commit offsets. Return the faults of single ones. Raises GroupError, StorageError.

        With a producer (id, epoch) they are pending until `complete_transaction`.
        """
        await self.prepare()
        self.check_readable(group_id)
        group = self._groups.get(group_id)
        # A tool, or a consumer that assigns partitions by itself.
        if group is None and generation < 0:
            self._check_new(group_id)
            group = self._add_classic(group_id)
        fault: Fault | None = Fault.GROUP_ID_NOT_FOUND
        if group is not None:
            fault = group.commit(
                member_id, instance_id, generation, self._now(), transactional=producer is not None
            )
        if fault in (Fault.GROUP_ID_NOT_FOUND, Fault.STALE_MEMBER_EPOCH) and producer is not None:
            fault = Fault.ILLEGAL_GENERATION  # A transactional producer understands no other error.
        if fault is not None:
            raise GroupError(fault)
        return await self._commits.commit(group_id, offsets, producer)

    def complete_transaction(
        self, producer_id: int, committed: bool, partition: int | None = None
    ) -> None:
        """End a producer's transaction: its pending offsets take effect or are dropped.

        With `partition`, only in groups that are stored in that partition of `__consumer_offsets`.
        """

        def is_there(group: str) -> bool:
            return partition is None or self._store.partition_of(group) == partition

        self._commits.offsets.end_transaction(producer_id, committed=committed, among=is_there)

    def check_fetch(self, group_id: str, member_id: str | None, epoch: int) -> None:
        """Raise GroupError if this member may not fetch the group's offsets. Raises
        StorageError."""
        self.check_readable(group_id)
        group = self._groups.get(group_id)
        if isinstance(group, ModernGroup) and (member_id is not None or epoch >= 0):
            fault = group.check_epoch(member_id or "", epoch)
            if fault is not None:
                raise GroupError(fault)

    def fetch_offsets(
        self,
        group_id: str,
        places: Iterable[TopicPartition] | None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, CommittedOffset | Fault | None]:
        """Return the committed offsets of these partitions, or of all that have one."""
        return self._commits.fetch(group_id, places, require_stable=require_stable)

    async def delete_offsets(
        self, group_id: str, places: Sequence[TopicPartition]
    ) -> dict[TopicPartition, Fault]:
        """Delete offsets. Return the faults of single ones. Raises GroupError, StorageError."""
        group = self._find(group_id)
        is_foreign = isinstance(group, ClassicGroup) and group.protocol_type != CONSUMER
        if is_foreign and not group.is_empty:
            raise GroupError(Fault.NON_EMPTY_GROUP)
        faults = {
            place: Fault.GROUP_SUBSCRIBED_TO_TOPIC
            for place in places
            if group.is_subscribed(place.topic)
        }
        offsets = self._commits.offsets
        there = [place for place in dict.fromkeys(places) if offsets.has(group_id, place)]
        await self._commits.delete(group_id, [place for place in there if place not in faults])
        return faults

    def topic_deleted(self, name: str) -> asyncio.Future[None]:
        """Delete the offsets of a deleted topic, from the next turn of the loop on. Return what is
        done when that is in the log: until then there should be no new topic of that name.

        Topics deleted in the same turn are handled together, because all offsets are searched.
        """
        if not self._deleted:
            self._forgetting = asyncio.ensure_future(self._forget_deleted())
        self._deleted[name] = None
        return self._forgetting

    async def _forget_deleted(self) -> None:
        deleted, self._deleted = self._deleted, {}
        await self._turns.run(self._commits.forget_topics(lambda topic: topic not in deleted))

    def _expire_offsets(self) -> None:
        """Delete offsets that are unused for long, and empty groups that have none left."""
        for group in list(self._groups.values()):
            since_ms = self._empty_since_ms.get(group.id) if group.is_empty else None
            is_bare = self._commits.expire(
                group.id, since_ms, self._settings.offsets_retention_ms, group.is_subscribed
            )
            if group.is_empty and is_bare:
                try:
                    self._remove(group)
                except StorageError as error:
                    log.warning("group %s stays: %s", group.id, error)

    # --- tools

    def list(self) -> list[Listed]:
        return [
            Listed(group.id, CONSUMER, group.state_name, "consumer")
            if isinstance(group, ModernGroup)
            else Listed(group.id, group.protocol_type or "", group.state_name, "classic")
            for group in self._groups.values()
        ]

    @property
    def ids(self) -> tuple[str, ...]:
        """Return the ids of all groups."""
        return tuple(self._groups)

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        """Return where a group continues to read; nothing if there is no such group."""
        return self._commits.offsets.of(group_id)

    def describe(self, group_id: str) -> Described:
        """Describe a classic group. Raises GroupError."""
        group = self._find(group_id)
        if isinstance(group, ModernGroup):
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"{group_id!r} is not a classic group")
        return group.describe()

    def describe_modern(self, group_id: str) -> DescribedModern:
        """Describe a modern group. Raises GroupError."""
        group = self._find(group_id)
        if not isinstance(group, ModernGroup):
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"{group_id!r} is a classic group")
        return group.describe()

    async def delete(self, group_id: str) -> None:
        """Delete an empty group and its offsets. Raises GroupError, StorageError."""
        group = self._find(group_id)
        if not group.is_empty:
            raise GroupError(Fault.NON_EMPTY_GROUP)
        deleted = self._commits.delete(group_id, self._commits.offsets.places_of(group_id))
        self._remove(group)
        await deleted
        await self._store.kept(group_id)

    def _find(self, group_id: str) -> Group:
        """Return the group. Raises GroupError, StorageError."""
        self.check_readable(group_id)
        group = self._groups.get(group_id)
        if group is None:
            raise GroupError(Fault.GROUP_ID_NOT_FOUND, f"there is no group {group_id!r}")
        return group

    def _remove(self, group: Group) -> None:
        rows: list[Row] = group.tombstones()
        self._store.append(group.id, rows)
        del self._groups[group.id]
        self._empty_since_ms.pop(group.id, None)


def _check_id(group_id: str) -> None:
    """Raise GroupError if the id is empty. Groups without members may have the empty id, as in
    Kafka."""
    if not group_id:
        raise GroupError(Fault.INVALID_GROUP_ID, "a group's id cannot be empty")


def _answer(token: object, answer: JoinAnswer | SyncAnswer, error: StorageError | None) -> None:
    assert isinstance(token, asyncio.Future)
    if error is not None and answer.fault is None:
        answer = answer._replace(fault=Fault.COORDINATOR_NOT_AVAILABLE)
    if not token.done():  # The connection may be closed.
        token.set_result(answer)
