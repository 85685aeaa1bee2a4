"""The classic protocol of a group: all members join, the leader assigns, all members sync.

    EMPTY ──join──▶ PREPARING_REBALANCE ──all joined, or time is up──▶ COMPLETING_REBALANCE
      ▲                 ▲        │                                          │        │
      └──nobody came────┼────────┘              a join, a leave, a death────┤  leader syncs
                        └───────────────────────────────────────────────────┴──── STABLE

Each time round is a generation; a member that names another one is behind and must join again.
Members' metadata and the leader's assignments are bytes that the broker passes on unread.

A request that must wait leaves a token; `take_answers` says which token gets which answer.
Deadlines go to a `Deadlines`, and `expire` is called when one comes. It is a state machine
that never looks at a clock.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum

from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.consumer_group.messages import (
    Described,
    Join,
    JoinAnswer,
    Sync,
    SyncAnswer,
)
from entrepot.broker.consumer_group.records import (
    GroupRecordKind,
    Key,
    Row,
    StoredGroup,
    StoredMember,
    subscribed_topics,
)
from entrepot.broker.consumer_group.roster import Member, Roster, Token, size_of
from entrepot.broker.consumer_group.settings import GroupSettings
from entrepot.broker.consumer_group.watch import Watch, Watched
from entrepot.broker.deadlines import Deadlines
from entrepot.core import limits

CONSUMER = "consumer"  # The protocol type of consumers; there are others.
_JOIN_WAIT_MS = 5 * 60_000  # How long a new member waits for its first answer, at most.


class ClassicState(Enum):
    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"


Answers = list[tuple[Token, JoinAnswer | SyncAnswer]]


class ClassicGroup:
    def __init__(
        self, group_id: str, settings: GroupSettings, deadlines: Deadlines[Watched]
    ) -> None:
        self.id = group_id
        self.state = ClassicState.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None  # None means: it never had members.
        self.protocol: str | None = None
        self.roster = Roster()
        self._settings = settings
        self._deadlines = deadlines
        self._is_initial = False  # In the first rebalance of an empty group: wait for more members.
        self._initial_end_ms = 0  # The latest end of that wait.
        self._has_grown = False  # A member joined since that wait was last extended.
        self._unsynced: dict[str, None] = {}  # Members that have not sent a sync yet.
        self._answers: Answers = []
        self._is_changed = False

    # --- effects

    def take_answers(self) -> Answers:
        answers, self._answers = self._answers, []
        return answers

    def take_changed(self) -> bool:
        """Return whether the group must be stored again: see `stored`."""
        changed, self._is_changed = self._is_changed, False
        return changed

    def stored(self, state_ms: int) -> Row:
        stored = StoredGroup(
            self.protocol_type or "",
            self.generation,
            self.protocol,
            self.roster.leader,
            state_ms,
            self._stored_members(),
        )
        return Key(GroupRecordKind.CLASSIC_GROUP, self.id), stored

    def _stored_members(self) -> tuple[StoredMember, ...]:
        return tuple(
            StoredMember(
                each.id,
                each.instance_id,
                each.client_id,
                each.client_host,
                each.rebalance_ms,
                each.session_ms,
                each.metadata(self.protocol),
                each.assignment,
            )
            for each in self.roster
        )

    def restore(self, stored: StoredGroup, now_ms: int) -> None:
        """Restore a stored group: its members have a session timeout to send a heartbeat."""
        self.state = ClassicState.STABLE if stored.members else ClassicState.EMPTY
        self.generation = stored.generation
        self.protocol_type = stored.protocol_type or None
        self.protocol = stored.protocol
        self.roster = Roster()
        for kept in stored.members:
            member = Member(
                kept.id,
                kept.instance_id,
                kept.client_id,
                kept.client_host,
                kept.session_ms,
                kept.rebalance_ms,
                ((stored.protocol or "", kept.subscription),),
                kept.assignment,
            )
            self.roster.add(member)
            self._restart_session(member, now_ms)
        self.roster.leader = stored.leader

    # --- joining

    def join(self, request: Join, token: Token, now_ms: int) -> None:
        fault = self._check_join(request)
        if fault is not None:
            self._answers.append((token, JoinAnswer(request.member_id, fault)))
        elif request.member_id in self.roster:
            self._join_again(self.roster[request.member_id], request, token, now_ms)
        elif request.member_id:
            self._add(request.member_id, request, token, now_ms)
        else:
            self._join_new(request, token, now_ms)

    def _check_join(self, request: Join) -> Fault | None:
        if not self._has_room(request):
            return Fault.GROUP_MAX_SIZE_REACHED
        if not self._has_common_protocol(request):
            return Fault.INCONSISTENT_GROUP_PROTOCOL
        is_promised = request.member_id in self.roster.promised and request.instance_id is None
        if request.member_id and not is_promised:
            return self.roster.check(request.member_id, request.instance_id)
        return None

    def _has_room(self, request: Join) -> bool:
        roster = self.roster
        if request.member_id in roster or roster.static(request.instance_id) is not None:
            return True
        others = len(roster) + len(roster.promised) - (request.member_id in roster.promised)
        size = roster.size + size_of(request.protocols)
        return others < self._settings.members_max and size <= limits.GROUP_BYTES_MAX

    def _has_common_protocol(self, request: Join) -> bool:
        """Return whether there is a protocol that all members and this one support."""
        if self.state is ClassicState.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and any(
            self.roster.all_support(name) for name, _ in request.protocols
        )

    def _join_new(self, request: Join, token: Token, now_ms: int) -> None:
        fresh_id, former = request.fresh_id, self.roster.static(request.instance_id)
        if former is not None:
            self._replace(former, request, token, now_ms)
        elif request.instance_id is None and request.id_required:
            self.roster.promised[fresh_id] = None
            self._watch_session(fresh_id, now_ms + request.session_ms)
            self._answers.append((token, JoinAnswer(fresh_id, Fault.MEMBER_ID_REQUIRED)))
        else:
            self._add(fresh_id, request, token, now_ms)

    def _add(self, member_id: str, request: Join, token: Token, now_ms: int) -> None:
        if not self.roster:
            self.protocol_type = request.protocol_type
        member = Member(
            member_id,
            request.instance_id,
            request.client_id,
            request.client_host,
            request.session_ms,
            request.rebalance_ms,
            request.protocols,
            joining=token,
            is_new=True,
        )
        self.roster.add(member)
        self._has_grown = True
        self._watch_session(member_id, now_ms + _JOIN_WAIT_MS)
        self._rebalance_or_go_on(now_ms)

    def _replace(self, member: Member, request: Join, token: Token, now_ms: int) -> None:
        """Let a static member that was restarted take its old place and its assignment."""
        self._answer_join(member, JoinAnswer(member.id, Fault.FENCED_INSTANCE_ID))
        self._answer_sync(member, SyncAnswer(Fault.FENCED_INSTANCE_ID))
        self._deadlines.cancel((self.id, Watch.SESSION, member.id))
        former_leader = self.roster.leader
        self._unsynced.pop(member.id, None)
        self.roster.rename(member, request.fresh_id)
        member.client_id, member.client_host = request.client_id, request.client_host
        self._update(member, request, token)
        self._restart_session(member, now_ms)
        if self.state is ClassicState.STABLE and self.roster.elected() == self.protocol:
            self._is_changed = True
            self._answer_replaced(member, request, former_leader)
        elif self.state is ClassicState.COMPLETING_REBALANCE:
            self._prepare(now_ms)  # The leader may be computing an assignment for the old id now.
        else:
            self._rebalance_or_go_on(now_ms)

    def _answer_replaced(self, member: Member, request: Join, former_leader: str | None) -> None:
        """Answer a restarted static member. If it is the leader it must not assign again: it is
        told to skip that or, if it does not know the field, that another leads."""
        answer = self._joined(member)
        if request.can_skip_assignment:
            answer = answer._replace(skip_assignment=member.id == self.roster.leader)
        else:
            answer = answer._replace(members=(), leader=former_leader or "")
        self._answer_join(member, answer)

    def _join_again(self, member: Member, request: Join, token: Token, now_ms: int) -> None:
        is_same = member.protocols == request.protocols
        is_leader = member.id == self.roster.leader
        if is_same and (
            self.state is ClassicState.COMPLETING_REBALANCE
            or (self.state is ClassicState.STABLE and not is_leader)
        ):
            # It did not get its answer. Nothing has changed, so it gets the same again.
            self._answers.append((token, self._joined(member)))
        else:
            # Also a leader whose metadata is the same: it has seen that topics changed.
            self._update(member, request, token)
            self._rebalance_or_go_on(now_ms)

    def _update(self, member: Member, request: Join, token: Token) -> None:
        # Of two waiting requests, only the later one can still be waited for by the client.
        self._answer_join(member, JoinAnswer(member.id, Fault.REBALANCE_IN_PROGRESS))
        member.session_ms, member.rebalance_ms = request.session_ms, request.rebalance_ms
        self.roster.set_protocols(member, request.protocols)
        self.roster.wait(member, token)

    def _joined(self, member: Member) -> JoinAnswer:
        """Return the answer to a join for a member of this generation."""
        leader, kind, protocol = self.roster.leader or "", self.protocol_type, self.protocol
        told = self.roster if member.id == leader else ()
        members = tuple((each.id, each.instance_id, each.metadata(protocol)) for each in told)
        return JoinAnswer(member.id, None, self.generation, kind, protocol, leader, members)

    # --- the rebalance

    def rebalance(self, now_ms: int) -> None:
        """Begin a new generation, because this one could not be stored."""
        if self.state in (ClassicState.STABLE, ClassicState.COMPLETING_REBALANCE):
            self._prepare(now_ms)

    def _rebalance_or_go_on(self, now_ms: int) -> None:
        if self.state is not ClassicState.PREPARING_REBALANCE:
            self._prepare(now_ms)
        elif self.roster.all_joined and not self._is_initial:
            self._complete(now_ms)

    def _prepare(self, now_ms: int) -> None:
        for member in self.roster:
            self._answer_sync(member, SyncAnswer(Fault.REBALANCE_IN_PROGRESS))
        self._deadlines.cancel((self.id, Watch.SYNC, ""))
        self._unsynced.clear()
        self._is_initial = self.state is ClassicState.EMPTY
        self.state = ClassicState.PREPARING_REBALANCE
        if self._is_initial:
            # Other members probably start at the same time: wait for them.
            self._has_grown = False
            self._initial_end_ms = now_ms + self._rebalance_ms()
            self._wait_for_more(now_ms)
        elif self.roster.all_joined:
            self._complete(now_ms)
        else:
            self._deadlines.set((self.id, Watch.JOIN, ""), now_ms + self._rebalance_ms())

    def _wait_for_more(self, now_ms: int) -> None:
        wait_ms = min(self._settings.initial_rebalance_delay_ms, self._initial_end_ms - now_ms)
        self._deadlines.set((self.id, Watch.JOIN, ""), now_ms + wait_ms)

    def _rebalance_ms(self) -> int:
        return max((each.rebalance_ms for each in self.roster), default=0)

    def _complete(self, now_ms: int) -> None:
        """End the wait for joins, and begin a generation of the members that have joined."""
        roster = self.roster
        self._is_initial = False
        self._deadlines.cancel((self.id, Watch.JOIN, ""))
        for member in [m for m in roster if m.joining is None and m.instance_id is None]:
            self._remove(member.id)
        if roster and not roster.joining_count:
            # Only static members are left and none of them joined: wait for their sessions to end.
            self._deadlines.set((self.id, Watch.JOIN, ""), now_ms + self._rebalance_ms())
            return
        self.generation += 1
        if not roster:
            self.state, self.protocol, self._is_changed = ClassicState.EMPTY, None, True
            return
        if roster[roster.leader or ""].joining is None:
            roster.leader = next(m.id for m in roster if m.joining is not None)
        self.protocol = roster.elected()
        self.state = ClassicState.COMPLETING_REBALANCE
        for member in roster:
            member.is_new, member.assignment = False, b""
            if member.joining is not None:
                self._unsynced[member.id] = None
                self._answer_join(member, self._joined(member))
                self._restart_session(member, now_ms)
        self._deadlines.set((self.id, Watch.SYNC, ""), now_ms + self._rebalance_ms())

    # --- syncing

    def sync(self, request: Sync, token: Token, now_ms: int) -> None:
        fault = self._check_sync(request)
        if fault is not None:
            self._answers.append((token, SyncAnswer(fault)))
            return
        member = self.roster[request.member_id]
        self._answer_sync(member, SyncAnswer(Fault.REBALANCE_IN_PROGRESS))
        member.syncing = token
        self._unsynced.pop(member.id, None)
        if not self._unsynced:
            self._deadlines.cancel((self.id, Watch.SYNC, ""))
        if self.state is ClassicState.STABLE:
            self._answer_with_assignment(member, now_ms)
        elif member.id == self.roster.leader:
            self.state, self._is_changed = ClassicState.STABLE, True
            for each in self.roster:
                each.assignment = request.assignments.get(each.id, b"")
                self._answer_with_assignment(each, now_ms)

    def _check_sync(self, request: Sync) -> Fault | None:
        fault = self._check(request.member_id, request.instance_id, request.generation)
        if fault is not None:
            return fault
        kind, protocol = request.protocol_type, request.protocol
        if kind not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            return Fault.INCONSISTENT_GROUP_PROTOCOL
        is_preparing = self.state is ClassicState.PREPARING_REBALANCE
        return Fault.REBALANCE_IN_PROGRESS if is_preparing else None

    def _answer_with_assignment(self, member: Member, now_ms: int) -> None:
        if member.syncing is not None:
            part = SyncAnswer(None, self.protocol_type, self.protocol, member.assignment)
            self._answer_sync(member, part)
            self._restart_session(member, now_ms)

    # --- staying and going

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> Fault | None:
        fault = self._check(member_id, instance_id, generation)
        if fault is None:
            self._restart_session(self.roster[member_id], now_ms)
            if self.state is ClassicState.PREPARING_REBALANCE:
                return Fault.REBALANCE_IN_PROGRESS
        return fault

    def commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        now_ms: int,
        *,
        transactional: bool,
    ) -> Fault | None:
        """Return why this member may not commit offsets, or None. Without a member id (tools, and
        consumers that assign by themselves) it may if the group is empty, or in a transaction."""
        is_nobody = generation < 0 and not member_id and instance_id is None
        if self.state is ClassicState.EMPTY and generation < 0:
            return None
        if is_nobody:
            return None if transactional else Fault.UNKNOWN_MEMBER_ID
        fault = self._check(member_id, instance_id, generation)
        if fault is None and not transactional:
            if self.state is ClassicState.COMPLETING_REBALANCE:
                return Fault.REBALANCE_IN_PROGRESS
            self._restart_session(self.roster[member_id], now_ms)  # A commit counts as a heartbeat.
        return fault

    def leave(self, leaving: Iterable[tuple[str, str | None]], now_ms: int) -> list[Fault | None]:
        """Remove members by member id or, for tools, by instance id; return each one's fault."""
        count = len(self.roster)
        faults = [self._leave(*identity) for identity in leaving]
        self._after_removal(len(self.roster) < count, now_ms)
        return faults

    def _leave(self, member_id: str, instance_id: str | None) -> Fault | None:
        if not member_id:
            static = self.roster.static(instance_id)
            if static is None:
                return Fault.UNKNOWN_MEMBER_ID
            member_id = static.id
        if member_id not in self.roster.promised:
            fault = self.roster.check(member_id, instance_id)
            if fault is not None:
                return fault
        self._remove(member_id)
        return None

    def expire(self, watch: Watch, member_id: str, now_ms: int) -> None:
        """Act on a deadline that has come."""
        count = len(self.roster)
        if watch is Watch.JOIN and self.state is ClassicState.PREPARING_REBALANCE:
            if self._is_initial and self._has_grown and now_ms < self._initial_end_ms:
                self._has_grown = False
                self._wait_for_more(now_ms)
            else:
                self._complete(now_ms)
            return
        if watch is Watch.SYNC:
            for late_id in list(self._unsynced):
                self._remove(late_id)
        elif watch is Watch.SESSION:
            silent = self.roster.get(member_id)
            if silent is not None and not silent.is_new and (silent.joining or silent.syncing):
                return  # It waits for our answer; its next deadline is set with that.
            self._remove(member_id)
        self._after_removal(len(self.roster) < count, now_ms)

    def _after_removal(self, fewer: bool, now_ms: int) -> None:
        if self.state is ClassicState.PREPARING_REBALANCE:
            if self.roster.all_joined and not (self._is_initial and self.roster):
                self._complete(now_ms)
        elif fewer:
            self._prepare(now_ms)

    def _remove(self, member_id: str) -> None:
        self._deadlines.cancel((self.id, Watch.SESSION, member_id))
        self._unsynced.pop(member_id, None)
        member = self.roster.remove(member_id)
        if member is not None:
            self._answer_join(member, JoinAnswer("", Fault.UNKNOWN_MEMBER_ID))
            self._answer_sync(member, SyncAnswer(Fault.UNKNOWN_MEMBER_ID))

    def abandon(self) -> None:
        """Answer all who wait: another node has the group now."""
        for member in self.roster:
            joined = JoinAnswer(member.id, Fault.NOT_COORDINATOR)
            self._answer_join(member, joined)
            self._answer_sync(member, SyncAnswer(Fault.NOT_COORDINATOR))

    def tombstones(self) -> list[Row]:
        """Return the rows that delete the stored group, which must be empty."""
        return [(Key(GroupRecordKind.CLASSIC_GROUP, self.id), None)]

    # --- looking

    def describe(self) -> Described:
        kind, protocol, members = self.protocol_type or "", self.protocol, self._stored_members()
        if self.state is not ClassicState.STABLE:  # As in Kafka: these may still change.
            protocol, members = None, tuple(each._replace(subscription=b"") for each in members)
        return Described(self.state_name, kind, protocol or "", members)

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is ClassicState.EMPTY

    def is_subscribed(self, topic: str) -> bool:
        """Return whether consumers of the group subscribe to this topic, as far as known."""
        if self.protocol_type != CONSUMER:
            return False
        told = (subscribed_topics(each.metadata(self.protocol)) for each in self.roster)
        return any(topics is None or topic in topics for topics in told)

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> Fault | None:
        fault = self.roster.check(member_id, instance_id)
        if fault is None and generation != self.generation:
            return Fault.ILLEGAL_GENERATION
        return fault

    def _restart_session(self, member: Member, now_ms: int) -> None:
        self._watch_session(member.id, now_ms + member.session_ms)

    def _watch_session(self, member_id: str, when_ms: int) -> None:
        self._deadlines.set((self.id, Watch.SESSION, member_id), when_ms)

    def _answer_join(self, member: Member, answer: JoinAnswer) -> None:
        if member.joining is not None:
            self._answers.append((member.joining, answer))
            if member.id in self.roster:
                self.roster.wait(member, None)

    def _answer_sync(self, member: Member, answer: SyncAnswer) -> None:
        if member.syncing is not None:
            self._answers.append((member.syncing, answer))
            member.syncing = None
