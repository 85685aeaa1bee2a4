"""The classic protocol of a group: everybody joins, one of them divides, everybody syncs.

    EMPTY ──join──▶ PREPARING_REBALANCE ──all joined, or time is up──▶ COMPLETING_REBALANCE
      ▲                 ▲        │                                          │        │
      └──nobody came────┼────────┘              a join, a leave, a death────┤  leader syncs
                        └───────────────────────────────────────────────────┴──── STABLE

Each time round is a generation; who speaks of another one is behind and must join again.
What members say of themselves, and what the leader gives them, are bytes we pass on.

A request that must wait leaves a token; `take_answers` says which token gets which
answer. Deadlines go to a `Deadlines`, and `expire` is called when one comes. The
machine never looks at a clock.
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
    Key,
    Kind,
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

CONSUMER = "consumer"  # The protocol type of consumers; others divide other things.
_JOIN_WAIT_MS = 5 * 60_000  # How long a new member's join may wait: it cannot heartbeat yet.


class State(Enum):
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
        self.state = State.EMPTY
        self.generation = 0
        self.protocol_type: str | None = None  # None: never had members, only offsets.
        self.protocol: str | None = None
        self.roster = Roster()
        self._settings = settings
        self._deadlines = deadlines
        self._is_initial = False  # The rebalance of a group that was empty: others may follow.
        self._initial_end_ms = 0  # Until when at most it waits for them.
        self._has_grown = False  # Somebody did, since the last look.
        self._unsynced: dict[str, None] = {}  # Who has not asked for its part yet.
        self._answers: Answers = []
        self._is_changed = False

    # --- effects

    def take_answers(self) -> Answers:
        answers, self._answers = self._answers, []
        return answers

    def take_changed(self) -> bool:
        """Whether there is something new to keep: see `stored`."""
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
        return Key(Kind.CLASSIC_GROUP, self.id), stored

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
        """Take up what was kept: its members have a session's time to show themselves."""
        self.state = State.STABLE if stored.members else State.EMPTY
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
            self._hear(member, now_ms)
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
        if not self._understands(request):
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

    def _understands(self, request: Join) -> bool:
        """Whether there is a protocol that all members, and this one, speak."""
        if self.state is State.EMPTY:
            return bool(request.protocol_type and request.protocols)
        return request.protocol_type == self.protocol_type and any(
            self.roster.speak_all(name) for name, _ in request.protocols
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
        """A static member has started again: it takes the place, and the part, of its past."""
        self._answer_join(member, JoinAnswer(member.id, Fault.FENCED_INSTANCE_ID))
        self._answer_sync(member, SyncAnswer(Fault.FENCED_INSTANCE_ID))
        self._deadlines.cancel((self.id, Watch.SESSION, member.id))
        former_leader = self.roster.leader
        self._unsynced.pop(member.id, None)
        self.roster.rename(member, request.fresh_id)
        member.client_id, member.client_host = request.client_id, request.client_host
        self._update(member, request, token)
        self._hear(member, now_ms)
        if self.state is State.STABLE and self.roster.elected() == self.protocol:
            self._is_changed = True
            self._answer_replaced(member, request, former_leader)
        elif self.state is State.COMPLETING_REBALANCE:
            self._prepare(now_ms)  # The leader may be dividing for the old id at this moment.
        else:
            self._rebalance_or_go_on(now_ms)

    def _answer_replaced(self, member: Member, request: Join, former_leader: str | None) -> None:
        """The generation goes on. A leader that has forgotten its division must not make a
        new one: it is told to skip that, or, if it would not understand, that another leads."""
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
            self.state is State.COMPLETING_REBALANCE
            or (self.state is State.STABLE and not is_leader)
        ):
            # It did not get its answer. Nothing has changed, so here it is again.
            self._answers.append((token, self._joined(member)))
        else:
            # Also a leader whose words are the same: it has seen that topics changed.
            self._update(member, request, token)
            self._rebalance_or_go_on(now_ms)

    def _update(self, member: Member, request: Join, token: Token) -> None:
        # Of two requests that wait only the later one can still have somebody behind it.
        self._answer_join(member, JoinAnswer(member.id, Fault.REBALANCE_IN_PROGRESS))
        member.session_ms, member.rebalance_ms = request.session_ms, request.rebalance_ms
        self.roster.speak(member, request.protocols)
        self.roster.wait(member, token)

    def _joined(self, member: Member) -> JoinAnswer:
        """What a member of the present generation is told."""
        leader, kind, protocol = self.roster.leader or "", self.protocol_type, self.protocol
        told = self.roster if member.id == leader else ()
        members = tuple((each.id, each.instance_id, each.metadata(protocol)) for each in told)
        return JoinAnswer(member.id, None, self.generation, kind, protocol, leader, members)

    # --- the rebalance

    def rebalance(self, now_ms: int) -> None:
        """Begin anew: the present generation could not be kept."""
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self._prepare(now_ms)

    def _rebalance_or_go_on(self, now_ms: int) -> None:
        if self.state is not State.PREPARING_REBALANCE:
            self._prepare(now_ms)
        elif self.roster.all_joined and not self._is_initial:
            self._complete(now_ms)

    def _prepare(self, now_ms: int) -> None:
        for member in self.roster:
            self._answer_sync(member, SyncAnswer(Fault.REBALANCE_IN_PROGRESS))
        self._deadlines.cancel((self.id, Watch.SYNC, ""))
        self._unsynced.clear()
        self._is_initial = self.state is State.EMPTY
        self.state = State.PREPARING_REBALANCE
        if self._is_initial:
            # Where one starts, others soon start too: one rebalance for all of them.
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
        """Go on with those who have joined."""
        roster = self.roster
        self._is_initial = False
        self._deadlines.cancel((self.id, Watch.JOIN, ""))
        for member in [m for m in roster if m.joining is None and m.instance_id is None]:
            self._remove(member.id)
        if roster and not roster.joining_count:
            # Only static members, and none of them came: their sessions decide.
            self._deadlines.set((self.id, Watch.JOIN, ""), now_ms + self._rebalance_ms())
            return
        self.generation += 1
        if not roster:
            self.state, self.protocol, self._is_changed = State.EMPTY, None, True
            return
        if roster[roster.leader or ""].joining is None:
            roster.leader = next(m.id for m in roster if m.joining is not None)
        self.protocol = roster.elected()
        self.state = State.COMPLETING_REBALANCE
        for member in roster:
            member.is_new, member.assignment = False, b""
            if member.joining is not None:
                self._unsynced[member.id] = None
                self._answer_join(member, self._joined(member))
                self._hear(member, now_ms)
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
        if self.state is State.STABLE:
            self._give_part(member, now_ms)
        elif member.id == self.roster.leader:
            self.state, self._is_changed = State.STABLE, True
            for each in self.roster:
                each.assignment = request.assignments.get(each.id, b"")
                self._give_part(each, now_ms)

    def _check_sync(self, request: Sync) -> Fault | None:
        fault = self._check(request.member_id, request.instance_id, request.generation)
        if fault is not None:
            return fault
        kind, protocol = request.protocol_type, request.protocol
        if kind not in (None, self.protocol_type) or protocol not in (None, self.protocol):
            return Fault.INCONSISTENT_GROUP_PROTOCOL
        is_preparing = self.state is State.PREPARING_REBALANCE
        return Fault.REBALANCE_IN_PROGRESS if is_preparing else None

    def _give_part(self, member: Member, now_ms: int) -> None:
        if member.syncing is not None:
            part = SyncAnswer(None, self.protocol_type, self.protocol, member.assignment)
            self._answer_sync(member, part)
            self._hear(member, now_ms)

    # --- staying and going

    def heartbeat(
        self, member_id: str, instance_id: str | None, generation: int, now_ms: int
    ) -> Fault | None:
        fault = self._check(member_id, instance_id, generation)
        if fault is None:
            self._hear(self.roster[member_id], now_ms)
            if self.state is State.PREPARING_REBALANCE:
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
        """Whether this one may commit offsets. Nobody's are those of tools, and of consumers
        that divide by themselves: fine as long as the group has no members."""
        is_nobody = generation < 0 and not member_id and instance_id is None
        if self.state is State.EMPTY and generation < 0:
            return None
        if is_nobody:
            return None if transactional else Fault.UNKNOWN_MEMBER_ID
        fault = self._check(member_id, instance_id, generation)
        if fault is None and not transactional:
            if self.state is State.COMPLETING_REBALANCE:
                return Fault.REBALANCE_IN_PROGRESS
            self._hear(self.roster[member_id], now_ms)  # It lives.
        return fault

    def leave(self, leaving: Iterable[tuple[str, str | None]], now_ms: int) -> list[Fault | None]:
        """By member id, or, for tools, by instance id alone."""
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
        """A deadline has come."""
        count = len(self.roster)
        if watch is Watch.JOIN and self.state is State.PREPARING_REBALANCE:
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
                return  # It is we who let it wait; its next deadline comes with the answer.
            self._remove(member_id)
        self._after_removal(len(self.roster) < count, now_ms)

    def _after_removal(self, fewer: bool, now_ms: int) -> None:
        if self.state is State.PREPARING_REBALANCE:
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

    def tombstones(self) -> list[Row]:
        """What forgets the group, which has no members."""
        return [(Key(Kind.CLASSIC_GROUP, self.id), None)]

    # --- looking

    def describe(self) -> Described:
        kind, protocol, members = self.protocol_type or "", self.protocol, self._stored_members()
        if self.state is not State.STABLE:  # As in Kafka: what members said may not count yet.
            protocol, members = None, tuple(each._replace(subscription=b"") for each in members)
        return Described(self.state_name, kind, protocol or "", members)

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    def is_subscribed(self, topic: str) -> bool:
        """Whether consumers in it read this topic, as far as we understand them."""
        if self.protocol_type != CONSUMER:
            return False
        told = (subscribed_topics(each.metadata(self.protocol)) for each in self.roster)
        return any(topics is None or topic in topics for topics in told)

    def _check(self, member_id: str, instance_id: str | None, generation: int) -> Fault | None:
        fault = self.roster.check(member_id, instance_id)
        if fault is None and generation != self.generation:
            return Fault.ILLEGAL_GENERATION
        return fault

    def _hear(self, member: Member, now_ms: int) -> None:
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
