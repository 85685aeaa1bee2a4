"""The modern protocol of a group (KIP-848): the broker assigns partitions, and members follow.

Whenever the members or their topics change, the group's *epoch* goes up, and an assignor
computes a new *target* assignment for all members. Each member then moves there by itself, as
the answers to its heartbeats tell it:

    STABLE ──a new target──▶ UNREVOKED: it is to let go of some partitions, and says
       ▲                         │      in its heartbeat what it still has
       │                         ▼ it has let go
       └──all are free── UNRELEASED: it has the target's epoch, and waits for partitions
                                     that others have not let go of

A partition is assigned to a member only when no other member has it.

Every change of state is a row for the store, made with `_put`; replaying the rows gives the
same state. If they cannot be stored, `undo` takes them back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import IntEnum
from uuid import UUID

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.assignors import ASSIGNORS, Subscriber
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.interest import Interest, Topics, compile_regex, hash_of
from entrepot.broker.consumer_group.messages import (
    JOINS,
    LEAVES,
    LEAVES_FOR_NOW,
    DescribedModern,
    DescribedModernMember,
    GroupHeartbeat,
    HeartbeatAnswer,
)
from entrepot.broker.consumer_group.partitions import (
    Holders,
    difference,
    has_any,
    intersection,
    is_same,
)
from entrepot.broker.consumer_group.records import (
    Assignment,
    Current,
    GroupEpoch,
    GroupRecordKind,
    Key,
    Row,
    Subscription,
    Value,
)
from entrepot.broker.consumer_group.settings import GroupSettings
from entrepot.broker.consumer_group.watch import Watch, Watched
from entrepot.broker.deadlines import Deadlines
from entrepot.core import limits
from entrepot.core.steps import Steps


class Phase(IntEnum):  # Persisted: Kafka's numbers.
    STABLE = 0
    UNREVOKED = 1
    UNRELEASED = 2


# How often a target may be computed: for 10,000 members, or 50,000 topics, once a second.
_MEMBERS_PER_MS, _TOPICS_PER_MS = 10, 50
_NOTHING: Assignment = {}
_NEW = Current(JOINS, JOINS, Phase.STABLE, _NOTHING, _NOTHING)


class ModernGroup:
    def __init__(
        self, group_id: str, settings: GroupSettings, deadlines: Deadlines[Watched]
    ) -> None:
        self.id = group_id
        self._settings = settings
        self._deadlines = deadlines
        self.epoch = GroupEpoch(0, 0)
        self.target_epoch = 0
        self._subscriptions: dict[str, Subscription] = {}  # By member id. Every member has one.
        self._currents: dict[str, Current] = {}
        self._targets: dict[str, Assignment] = {}
        self._size = 0  # Bytes of all subscriptions.
        self._static: dict[str, str] = {}  # Instance id -> member id.
        self._holders = Holders()
        self._interest = Interest()
        # Members that may not know their assignment yet: it is sent until they confirm it.
        self._unconfirmed: dict[str, None] = {}
        self._divided_ms = 0  # When the target was last computed,
        self._topic_count = 0  # and for how many topics.
        self._version = -1  # The version of the topics when they were last matched.
        self._rows: list[Row] = []  # Rows to be stored,
        self._undo: list[Row] = []  # and the rows that restore the state before.

    # --- effects

    @property
    def has_rows(self) -> bool:
        return bool(self._rows)

    def take_rows(self) -> list[Row]:
        rows, self._rows = self._rows, []
        return rows

    def kept(self) -> None:
        """Note that the rows are stored: they cannot be undone any more."""
        self._undo.clear()

    def undo(self, now_ms: int) -> None:
        """Take back all changes since `kept`, because they could not be stored."""
        self._rows.clear()
        while self._undo:
            self.apply(self._undo.pop())
        self._version = -1  # So that the topics are matched again.
        self._divided_ms = 0
        for member_id in self._subscriptions:
            if self._deadlines.get((self.id, Watch.SESSION, member_id)) is None:
                self._restart_session(member_id, now_ms)

    def _put(self, kind: GroupRecordKind, member_id: str, value: Value | None) -> None:
        """Change the state, and note the row to be stored and the one that undoes it."""
        key = Key(kind, self.id, member_id)
        self._undo.append((key, self._value(key)))
        self._rows.append((key, value))
        self.apply((key, value))

    def _value(self, key: Key) -> Value | None:
        match key.kind:
            case GroupRecordKind.GROUP_EPOCH:
                return self.epoch
            case GroupRecordKind.TARGET_EPOCH:
                return self.target_epoch
            case GroupRecordKind.SUBSCRIPTION:
                return self._subscriptions.get(key.name)
            case GroupRecordKind.TARGET:
                return self._targets.get(key.name)
        return self._currents.get(key.name)

    def apply(self, row: Row) -> None:
        """Apply a row to the state."""
        key, value = row
        if key.kind is GroupRecordKind.GROUP_EPOCH:
            self.epoch = value if isinstance(value, GroupEpoch) else GroupEpoch(0, 0)
        elif key.kind is GroupRecordKind.TARGET_EPOCH:
            self.target_epoch = value if isinstance(value, int) else 0
        elif key.kind is GroupRecordKind.TARGET:
            if isinstance(value, Mapping):
                self._targets[key.name] = value
            else:
                self._targets.pop(key.name, None)
        elif key.kind is GroupRecordKind.SUBSCRIPTION:
            self._apply_subscription(key.name, value)
        elif key.kind is GroupRecordKind.CURRENT:
            self._apply_current(key.name, value)

    def _apply_subscription(self, member_id: str, value: Value | None) -> None:
        old = self._subscriptions.get(member_id)
        if old is not None:
            self._size -= old.size
            if self._static.get(old.instance_id or "") == member_id:
                del self._static[old.instance_id or ""]
        if isinstance(value, Subscription):
            self._size += value.size
            self._subscriptions[member_id] = value
            if value.instance_id is not None:
                self._static[value.instance_id] = member_id
        else:
            self._subscriptions.pop(member_id, None)

    def _apply_current(self, member_id: str, value: Value | None) -> None:
        old = self._currents.pop(member_id, None)
        if old is not None:
            self._holders.clear(member_id, old.assigned)
            self._holders.clear(member_id, old.revoking)
        if isinstance(value, Current):
            self._currents[member_id] = value
            self._holders.set(member_id, value.assigned)
            self._holders.set(member_id, value.revoking)

    def restore(self, now_ms: int) -> None:
        """Finish restoring: members have a session timeout to send a heartbeat."""
        for member_id in self._subscriptions:
            self._currents.setdefault(member_id, _NEW)
            self._restart_session(member_id, now_ms)
            self._watch_revocation(member_id, now_ms)

    # --- heartbeats

    def heartbeat(
        self, request: GroupHeartbeat, topics: Topics, now_ms: int
    ) -> Steps[HeartbeatAnswer]:
        """Process a heartbeat; the rows to be stored are then in `take_rows`.

        Raises GroupError, perhaps half way: then the caller calls `undo`. Nothing else may be done
        with the group until it is done or undone.
        """
        if request.epoch in (LEAVES, LEAVES_FOR_NOW):
            return self._leave(request)
        before = yield from self._member(request)
        wants_others = self._subscribe(request)
        yield from self._update_target(request, topics, now_ms, anew=wants_others)
        # With an older epoch, it did not get the last answer, or this request is late. What it says
        # to have is then out of date, so it is told its assignment again before anything else.
        is_behind = request.epoch not in (JOINS, before.epoch)
        after = before if is_behind else (yield from self._reconcile(request, now_ms))
        self._restart_session(request.member_id, now_ms)
        member_id = request.member_id
        if after is not before and after.assigned != before.assigned:
            self._unconfirmed[member_id] = None
        elif request.owned is not None and (yield from is_same(request.owned, after.assigned)):
            self._unconfirmed.pop(member_id, None)
        is_news = is_behind or request.is_whole or member_id in self._unconfirmed
        told = after.assigned if is_news else None
        return HeartbeatAnswer(member_id, after.epoch, self._settings.heartbeat_ms, told)

    def _member(self, request: GroupHeartbeat) -> Steps[Current]:
        """Return the member's state; it may be new or come back. Raises GroupError."""
        member_id, former = request.member_id, self._static.get(request.instance_id or "")
        if request.instance_id is not None and former is not None and former != member_id:
            self._replace(former, request)
        current = self._currents.get(member_id)
        if request.epoch == JOINS:
            if current is None and len(self._currents) >= self._settings.members_max:
                raise GroupError(Fault.GROUP_MAX_SIZE_REACHED)
            return current or _NEW
        if current is None or (request.instance_id is not None and former is None):
            raise GroupError(Fault.UNKNOWN_MEMBER_ID, f"{member_id} is not a member")
        yield from _check_epoch(request, current)
        return current

    def _replace(self, former: str, request: GroupHeartbeat) -> None:
        """Give a static member that comes back under another id the assignment it had."""
        current, target = self._currents[former], self._targets.get(former, _NOTHING)
        if request.epoch != JOINS:
            raise GroupError(Fault.FENCED_INSTANCE_ID, f"{request.instance_id} is {former} now")
        if current.epoch != LEAVES_FOR_NOW:
            raise GroupError(
                Fault.UNRELEASED_INSTANCE_ID, f"{request.instance_id} is still used by {former}"
            )
        subscription = self._subscriptions[former]
        self._forget(former)
        self._put(GroupRecordKind.SUBSCRIPTION, request.member_id, subscription)
        self._put(GroupRecordKind.TARGET, request.member_id, target)
        back = current._replace(epoch=JOINS, previous_epoch=JOINS)
        self._put(GroupRecordKind.CURRENT, request.member_id, back)

    def _subscribe(self, request: GroupHeartbeat) -> bool:
        """Update the member's subscription. Return whether its topics changed."""
        old = self._subscriptions.get(request.member_id)
        if old is None:
            old = Subscription(None, None, "", "", (), None, -1, None)
        elif request.is_idle and old.client_host == request.client_host:
            return False
        new = Subscription(
            request.instance_id or old.instance_id,
            request.rack_id or old.rack_id,
            request.client_id,
            request.client_host,
            old.topics if request.topics is None else tuple(sorted(dict.fromkeys(request.topics))),
            old.regex if request.regex is None else request.regex or None,
            request.rebalance_ms if request.rebalance_ms >= 0 else old.rebalance_ms,
            request.assignor or old.assignor,
        )
        is_new = request.member_id not in self._subscriptions
        if self._size - old.size + new.size > limits.GROUP_BYTES_MAX:
            raise GroupError(Fault.GROUP_MAX_SIZE_REACHED)
        if is_new or new != old:
            self._put(GroupRecordKind.SUBSCRIPTION, request.member_id, new)
        return is_new or (new.topics, new.regex) != (old.topics, old.regex)

    # --- the target

    def _update_target(
        self, request: GroupHeartbeat, topics: Topics, now_ms: int, *, anew: bool
    ) -> Steps[None]:
        """Begin a new epoch and compute a new target, if subscriptions or topics changed.

        That is work for each member: a large group that many join at once does it only now and
        then, and not before all expressions are matched. New members wait for it.
        """
        epoch, is_behind = self.epoch.epoch, self.epoch.epoch > self.target_epoch
        version = topics.version
        if not (anew or is_behind or version != self._version):
            return
        wanted = None
        rest_ms = len(self._subscriptions) // _MEMBERS_PER_MS + self._topic_count // _TOPICS_PER_MS
        if self.target_epoch == 0 or now_ms >= self._divided_ms + rest_ms:
            wanted = yield from self._interest.wanted(self._subscriptions, topics, request.may_see)
        if wanted is None:
            if anew:
                self._put(GroupRecordKind.GROUP_EPOCH, "", self.epoch._replace(epoch=epoch + 1))
            return
        alike = {id(each): each for each in wanted.values()}
        everything = {topic.id: topic for each in alike.values() for topic in each}
        topics_hash = yield from hash_of(everything.values())
        self._version = version
        if anew or topics_hash != self.epoch.topics_hash:
            # A member that left may have begun a new epoch already.
            epoch += anew or not is_behind
            self._put(GroupRecordKind.GROUP_EPOCH, "", GroupEpoch(epoch, topics_hash))
        if epoch > self.target_epoch:
            self._divided_ms, self._topic_count = now_ms, len(everything)
            counts = {topic.id: topic.partition_count for topic in everything.values()}
            yield from self._set_targets(wanted, counts)

    def _set_targets(
        self, wanted: Mapping[str, tuple[Topic, ...]], partition_counts: Mapping[UUID, int]
    ) -> Steps[None]:
        # The same object for members with equal subscriptions.
        ids: dict[int, tuple[UUID, ...]] = {}
        subscribers: list[Subscriber] = []
        for member_id, topics in wanted.items():
            if id(topics) not in ids:
                ids[id(topics)] = tuple([topic.id for topic in topics])
            instance_id = self._subscriptions[member_id].instance_id
            target = self._targets.get(member_id, _NOTHING)
            subscribers.append(Subscriber(member_id, instance_id, ids[id(topics)], target))
            yield
        targets = yield from ASSIGNORS[self.assignor](subscribers, partition_counts)
        for member_id, target in targets.items():
            if target != self._targets.get(member_id):
                self._put(GroupRecordKind.TARGET, member_id, target)
            yield
        self._put(GroupRecordKind.TARGET_EPOCH, "", self.epoch.epoch)

    @property
    def assignor(self) -> str:
        """Return the assignor that most members ask for."""
        names = (each.assignor for each in self._subscriptions.values())
        votes = Counter(name for name in names if name is not None)
        return votes.most_common(1)[0][0] if votes else next(iter(ASSIGNORS))

    # --- moving to the target

    def _reconcile(self, request: GroupHeartbeat, now_ms: int) -> Steps[Current]:
        """Move the member one step towards its target. Return its new state."""
        member_id = request.member_id
        current = self._currents.get(member_id, _NEW)
        following = yield from self._next_state(member_id, current, request.owned)
        if following != self._currents.get(member_id):
            self._put(GroupRecordKind.CURRENT, member_id, following)
            self._watch_revocation(member_id, now_ms)
        return following

    def _next_state(
        self, member_id: str, current: Current, owned: Assignment | None
    ) -> Steps[Current]:
        """Return the member's next state on the way to its target, or the current one."""
        if current.state == Phase.STABLE and current.epoch == self.target_epoch:
            return current
        epoch = current.epoch
        if current.state == Phase.UNREVOKED:
            if (yield from has_any(owned, current.revoking)):
                return current
            epoch += 1
        target = self._targets.get(member_id, _NOTHING)
        revoking = yield from difference(current.assigned, target)
        if revoking and (yield from has_any(owned, revoking)):
            kept = yield from intersection(current.assigned, target)
            return Current(epoch, current.epoch, Phase.UNREVOKED, kept, revoking)
        assigned = yield from self._holders.free(member_id, target)
        phase = Phase.STABLE if assigned == target else Phase.UNRELEASED
        if (self.target_epoch, phase, assigned) == (epoch, current.state, current.assigned):
            return current
        return Current(self.target_epoch, current.epoch, phase, assigned, _NOTHING)

    # --- leaving

    def _leave(self, request: GroupHeartbeat) -> HeartbeatAnswer:
        member_id = request.member_id
        if request.instance_id is not None:
            static = self._static.get(request.instance_id)
            if static is not None and static != member_id:
                raise GroupError(Fault.FENCED_INSTANCE_ID, f"{request.instance_id} is {static} now")
            if static is None:
                raise GroupError(Fault.UNKNOWN_MEMBER_ID, f"{member_id} is not a member")
        if member_id not in self._currents:
            raise GroupError(Fault.UNKNOWN_MEMBER_ID, f"{member_id} is not a member")
        if request.epoch == LEAVES_FOR_NOW:
            current = self._currents[member_id]
            away = Current(LEAVES_FOR_NOW, current.epoch, Phase.STABLE, current.assigned, _NOTHING)
            self._put(GroupRecordKind.CURRENT, member_id, away)
            self._deadlines.cancel((self.id, Watch.REVOCATION, member_id))
        else:
            self._remove(member_id)
        return HeartbeatAnswer(member_id, request.epoch, 0, None)

    def expire(self, watch: Watch, member_id: str, now_ms: int) -> None:
        """Remove a member whose session ended or that did not give up its partitions in time."""
        if member_id in self._currents and watch in (Watch.SESSION, Watch.REVOCATION):
            self._remove(member_id)

    def remove_members(self) -> None:
        """Remove all members: they have to join again, and hear that they own nothing."""
        for member_id in [*self._currents]:
            self._remove(member_id)

    def _remove(self, member_id: str) -> None:
        self._forget(member_id)
        self._put(GroupRecordKind.GROUP_EPOCH, "", self.epoch._replace(epoch=self.epoch.epoch + 1))

    def _forget(self, member_id: str) -> None:
        self._unconfirmed.pop(member_id, None)
        for kind in (GroupRecordKind.CURRENT, GroupRecordKind.TARGET, GroupRecordKind.SUBSCRIPTION):
            self._put(kind, member_id, None)
        self._deadlines.cancel((self.id, Watch.SESSION, member_id))
        self._deadlines.cancel((self.id, Watch.REVOCATION, member_id))

    def tombstones(self) -> list[Row]:
        """Return the rows that delete the stored group, which must be empty."""
        kinds = (GroupRecordKind.TARGET_EPOCH, GroupRecordKind.GROUP_EPOCH)
        return [(Key(kind, self.id), None) for kind in kinds]

    # --- looking

    @property
    def state_name(self) -> str:
        if not self._subscriptions:
            return "Empty"
        if self.epoch.epoch > self.target_epoch:
            return "Assigning"
        arrived = (Phase.STABLE, self.target_epoch)
        if any((each.state, each.epoch) != arrived for each in self._currents.values()):
            return "Reconciling"
        return "Stable"

    @property
    def is_empty(self) -> bool:
        return not self._subscriptions

    def commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        now_ms: int,
        *,
        transactional: bool,
    ) -> Fault | None:
        """Return why this member may not commit offsets, or None.

        Without a member id it may while the group has no members, and not otherwise.
        """
        return None if epoch < 0 and self.is_empty else self.check_epoch(member_id, epoch)

    def check_epoch(self, member_id: str, epoch: int) -> Fault | None:
        current = self._currents.get(member_id)
        if current is None:
            return Fault.UNKNOWN_MEMBER_ID
        return None if current.epoch == epoch else Fault.STALE_MEMBER_EPOCH

    def is_subscribed(self, topic: str) -> bool:
        return any(self._interest.covers(each, topic) for each in self._subscriptions.values())

    def describe(self) -> DescribedModern:
        members = tuple(
            DescribedModernMember(
                member_id,
                subscription,
                self._currents.get(member_id, _NEW),  # A member that is just joining has none yet.
                self._targets.get(member_id, _NOTHING),
            )
            for member_id, subscription in self._subscriptions.items()
        )
        return DescribedModern(
            self.state_name, self.epoch.epoch, self.target_epoch, self.assignor, members
        )

    def _restart_session(self, member_id: str, now_ms: int) -> None:
        self._deadlines.set((self.id, Watch.SESSION, member_id), now_ms + self._settings.session_ms)

    def _watch_revocation(self, member_id: str, now_ms: int) -> None:
        key = (self.id, Watch.REVOCATION, member_id)
        if self._currents[member_id].state == Phase.UNREVOKED:
            self._deadlines.set(key, now_ms + self._subscriptions[member_id].rebalance_ms)
        else:
            self._deadlines.cancel(key)


def check(request: GroupHeartbeat) -> None:
    """Check the parts of a heartbeat that do not depend on the group. Raises GroupError."""
    if request.is_idle and request.member_id and request.epoch > 0:
        return
    fault = Fault.INVALID_REQUEST
    if not request.member_id:
        raise GroupError(fault, "a member's id cannot be empty")
    if request.instance_id == "" or request.rack_id == "":
        raise GroupError(fault, "an instance's id, and a rack's, cannot be empty")
    if request.epoch < LEAVES_FOR_NOW:
        raise GroupError(fault, f"{request.epoch} is not an epoch")
    if request.epoch == LEAVES_FOR_NOW and request.instance_id is None:
        raise GroupError(fault, "only a static member can leave for now")
    if request.epoch == JOINS:
        if request.rebalance_ms < 0:
            raise GroupError(fault, "who joins says how long a rebalance may take")
        if request.owned is None or request.owned:
            raise GroupError(fault, "who joins has no partitions, and says so")
        if request.topics is None and request.regex is None:
            raise GroupError(fault, "who joins says which topics it wants")
    if request.assignor is not None and request.assignor not in ASSIGNORS:
        known = ", ".join(ASSIGNORS)
        raise GroupError(Fault.UNSUPPORTED_ASSIGNOR, f"{request.assignor} is not one of {known}")
    if request.regex:
        compile_regex(request.regex)


def _check_epoch(request: GroupHeartbeat, current: Current) -> Steps[None]:
    """Raise GroupError if the epoch is wrong. The previous one is right if the last answer may
    be lost."""
    if request.epoch == current.epoch:
        return
    is_lost = request.epoch == current.previous_epoch and request.owned is not None
    if is_lost and not (yield from difference(request.owned or _NOTHING, current.assigned)):
        return
    raise GroupError(
        Fault.FENCED_MEMBER_EPOCH,
        f"the member's epoch is {current.epoch}, not {request.epoch}; it must join again",
    )
