"""A modern group on a stage: its members do as they are told, unless a test says otherwise."""

from collections.abc import Callable
from uuid import UUID

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.messages import JOINS, GroupHeartbeat, HeartbeatAnswer
from entrepot.broker.consumer_group.modern import ModernGroup, check
from entrepot.broker.consumer_group.records import Assignment, Row
from entrepot.broker.consumer_group.settings import GroupSettings
from entrepot.broker.consumer_group.watch import Watched
from entrepot.broker.deadlines import Deadlines
from entrepot.core.names import TopicName
from entrepot.core.steps import finish

SETTINGS = GroupSettings(members_max=5, heartbeat_ms=1_000, session_ms=10_000)
REBALANCE_MS = 5_000


class Topics:
    """A catalog."""

    def __init__(self, **partition_counts: int) -> None:
        self.topics: dict[str, Topic] = {}
        self.version = 0
        for name, count in partition_counts.items():
            self.set(name, count)

    def set(self, name: str, partition_count: int) -> None:
        self.version += 1
        old = self.topics.get(name)
        identity = old.id if old is not None else UUID(int=self.version)
        self.topics[name] = Topic(TopicName(name), identity, partition_count)

    def delete(self, name: str) -> None:
        self.version += 1
        del self.topics[name]

    def changed_since(self, version: int) -> list[str] | None:
        return None if version < self.version else []


class ModernStage:
    def __init__(self, topics: Topics, settings: GroupSettings = SETTINGS) -> None:
        self.topics = topics
        self.deadlines: Deadlines[Watched] = Deadlines()
        self.group = ModernGroup("g", settings, self.deadlines)
        self.now_ms = 1_000
        self.rows: list[Row] = []  # All that was kept.
        self.epochs: dict[str, int] = {}  # By member, as it was told.
        self.has: dict[str, Assignment] = {}  # By member: what it reads now.

    def beat(
        self,
        who: str,
        epoch: int | None = None,
        *,
        owned: Assignment | None = None,
        topics: tuple[str, ...] | None = None,
        regex: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rebalance_ms: int = -1,
        may_see: Callable[[str], bool] = lambda name: True,
    ) -> HeartbeatAnswer:
        """One heartbeat with just that in it; the member does not act on the answer yet."""
        request = GroupHeartbeat(
            member_id=who,
            epoch=self.epochs.get(who, JOINS) if epoch is None else epoch,
            instance_id=instance,
            rack_id=None,
            rebalance_ms=rebalance_ms,
            topics=topics,
            regex=regex,
            assignor=assignor,
            owned=owned,
            client_id="c",
            client_host="/h",
            may_see=may_see,
        )
        check(request)
        try:
            answer = finish(self.group.heartbeat(request, self.topics, self.now_ms))
        except BaseException:
            self.group.undo(self.now_ms)
            raise
        self._keep()
        return answer

    def _keep(self) -> None:
        self.rows += self.group.take_rows()
        self.group.kept()

    def join(
        self, who: str, *topics: str, instance: str | None = None, **options: str
    ) -> HeartbeatAnswer:
        answer = self.beat(
            who,
            JOINS,
            owned={},
            topics=topics or None,
            regex=options.get("regex"),
            assignor=options.get("assignor"),
            instance=instance,
            rebalance_ms=REBALANCE_MS,
        )
        self.epochs[who] = answer.epoch
        self.has[who] = answer.assignment or {}
        return answer

    def follow(self, who: str, instance: str | None = None) -> None:
        """A heartbeat of one that does what the answer says: lets go, and takes."""
        answer = self.beat(who, owned=self.has[who], instance=instance)
        self.epochs[who] = answer.epoch
        if answer.assignment is not None:
            self.has[who] = answer.assignment

    def settle(self, *members: str) -> None:
        for _ in range(6):
            for who in members:
                self.follow(who)
        assert self.group.state_name == "Stable"

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds
        for _, watch, member_id in self.deadlines.due(self.now_ms):
            self.group.expire(watch, member_id, self.now_ms)
            self._keep()

    def partitions(self, who: str, topic: str = "t") -> tuple[int, ...]:
        found = self.topics.topics.get(topic)
        return self.has[who].get(found.id, ()) if found is not None else ()

    def restarted(self) -> "ModernStage":
        """The same, made of what was kept."""
        again = ModernStage(self.topics)
        for row in self.rows:
            again.group.apply(row)
        again.group.restore(again.now_ms)
        again.epochs, again.has, again.rows = dict(self.epochs), dict(self.has), list(self.rows)
        return again
