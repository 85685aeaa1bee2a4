"""A classic group on a stage: time is a number, and who waits is a name."""

from collections.abc import Mapping

from entrepot.broker.consumer_group.classic import ClassicGroup
from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.consumer_group.messages import Join, JoinAnswer, Sync, SyncAnswer
from entrepot.broker.consumer_group.records import GroupRecordKind, Key, StoredGroup
from entrepot.broker.consumer_group.settings import GroupSettings
from entrepot.broker.consumer_group.watch import Watched
from entrepot.broker.deadlines import Deadlines

SESSION_MS = 10_000
REBALANCE_MS = 30_000
DELAY_MS = 100
SETTINGS = GroupSettings(initial_rebalance_delay_ms=DELAY_MS, members_max=5)


class Stage:
    def __init__(self, settings: GroupSettings = SETTINGS) -> None:
        self.deadlines: Deadlines[Watched] = Deadlines()
        self.group = ClassicGroup("g", settings, self.deadlines)
        self.now_ms = 1_000
        self.answers: dict[str, JoinAnswer | SyncAnswer] = {}  # By who asked.
        self.stored: list[StoredGroup] = []  # What was kept, in order.

    # --- what members do; the answer, or None when it has to wait

    def join(
        self,
        who: str,
        member_id: str | None = None,
        *,
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"r"),),
        protocol_type: str = "consumer",
        session_ms: int = SESSION_MS,
        rebalance_ms: int = REBALANCE_MS,
        id_required: bool = False,
        can_skip: bool = True,
    ) -> JoinAnswer | None:
        """A member is called by its name unless it says otherwise; a new one says nothing."""
        request = Join(
            member_id="" if member_id is None else member_id,
            fresh_id=who,
            instance_id=instance,
            client_id=f"client of {who}",
            client_host="/here",
            session_ms=session_ms,
            rebalance_ms=rebalance_ms,
            protocol_type=protocol_type,
            protocols=protocols,
            id_required=id_required,
            can_skip_assignment=can_skip,
        )
        self.answers.pop(who, None)
        self.group.join(request, who, self.now_ms)
        self._collect()
        answer = self.answers.get(who)
        assert answer is None or isinstance(answer, JoinAnswer)
        return answer

    def sync(
        self,
        who: str,
        generation: int | None = None,
        parts: Mapping[str, bytes] | None = None,
        *,
        instance: str | None = None,
        protocol: str | None = None,
    ) -> SyncAnswer | None:
        mine = self.group.generation if generation is None else generation
        request = Sync(who, instance, mine, None, protocol, parts or {})
        self.answers.pop(who, None)
        self.group.sync(request, who, self.now_ms)
        self._collect()
        answer = self.answers.get(who)
        assert answer is None or isinstance(answer, SyncAnswer)
        return answer

    def heartbeat(
        self, who: str, generation: int | None = None, instance: str | None = None
    ) -> Fault | None:
        mine = self.group.generation if generation is None else generation
        return self.group.heartbeat(who, instance, mine, self.now_ms)

    def commit(
        self, who: str, generation: int, instance: str | None = None, *, transactional: bool = False
    ) -> Fault | None:
        return self.group.commit(
            who, instance, generation, self.now_ms, transactional=transactional
        )

    def leave(self, *leaving: tuple[str, str | None]) -> list[Fault | None]:
        faults = self.group.leave(leaving, self.now_ms)
        self._collect()
        return faults

    # --- what time does

    def wait(self, milliseconds: int) -> None:
        end_ms = self.now_ms + milliseconds
        while (next_ms := self.deadlines.next_ms) is not None and next_ms <= end_ms:
            self.now_ms = max(self.now_ms, next_ms)
            for _, watch, member_id in self.deadlines.due(self.now_ms):
                self.group.expire(watch, member_id, self.now_ms)
                self._collect()
        self.now_ms = end_ms

    def wait_alive(self, milliseconds: int, *living: str) -> None:
        """The same, while these send heartbeats."""
        for _ in range(milliseconds // 1_000):
            self.wait(1_000)
            for who in living:
                self.heartbeat(who)

    # --- short cuts

    def stable(self, *names: str) -> None:
        """A generation of these; each has a part of its own name."""
        for name in names:
            known = name if name in self.group.roster else None
            self.join(name, known)
        self.wait(2 * DELAY_MS)
        leader = self.group.roster.leader
        assert leader is not None
        for name in names:
            if name != leader:
                assert self.sync(name) is None
        self.sync(leader, parts={name: name.encode() for name in names})
        assert self.group.state_name == "Stable"
        assert [self.assignment(name) for name in names] == [name.encode() for name in names]

    def joined(self, who: str) -> JoinAnswer:
        answer = self.answers[who]
        assert isinstance(answer, JoinAnswer)
        return answer

    def assignment(self, who: str) -> bytes:
        answer = self.answers[who]
        assert isinstance(answer, SyncAnswer)
        assert answer.fault is None
        return answer.assignment

    def fault(self, who: str) -> Fault | None:
        return self.answers[who].fault

    def _collect(self) -> None:
        if self.group.take_changed():
            key, stored = self.group.stored(77)
            assert key == Key(GroupRecordKind.CLASSIC_GROUP, "g")
            assert isinstance(stored, StoredGroup)
            self.stored.append(stored)
        for token, answer in self.group.take_answers():
            assert isinstance(token, str)
            self.answers[token] = answer
