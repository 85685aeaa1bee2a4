"""Requests of members and tools to a group, and the answers, independent of the wire format."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.consumer_group.records import (
    Assignment,
    Current,
    StoredMember,
    Subscription,
)
from entrepot.broker.consumer_group.roster import Protocols

# --- the classic protocol


@dataclass(frozen=True, slots=True)
class Join:
    member_id: str  # Empty for a new member.
    fresh_id: str  # The id that a new member gets.
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: Protocols
    # A new member is first told its id and joins again with it, so that a lost answer leaves no
    # member behind that nobody knows.
    id_required: bool = True
    can_skip_assignment: bool = True


class JoinAnswer(NamedTuple):
    member_id: str
    fault: Fault | None = None
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    # For the leader: member id, instance id, metadata.
    members: tuple[tuple[str, str | None, bytes], ...] = ()
    skip_assignment: bool = False


class Sync(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None  # None means: the request does not have it.
    protocol: str | None
    assignments: Mapping[str, bytes]  # From the leader: member id -> assignment.


class SyncAnswer(NamedTuple):
    fault: Fault | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


# --- the modern protocol

_NOTHING_SAID = (None, None, None, None, None)
JOINS = 0  # A member's epoch in a heartbeat when it joins,
LEAVES = -1  # leaves,
LEAVES_FOR_NOW = -2  # or, being static, leaves and will be back.


@dataclass(frozen=True, slots=True)
class GroupHeartbeat:
    """A heartbeat. None, and -1 for `rebalance_ms`, mean: unchanged since the last one."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_ms: int
    topics: tuple[str, ...] | None
    regex: str | None
    assignor: str | None
    owned: Assignment | None  # The partitions it has, whatever its target is.
    client_id: str
    client_host: str
    # Whether the member may see a topic that its regex matches.
    may_see: Callable[[str], bool] = lambda topic: True

    @property
    def is_idle(self) -> bool:
        """Return whether it says nothing about the subscription."""
        said = self.topics, self.regex, self.assignor, self.instance_id, self.rack_id
        return said == _NOTHING_SAID and self.rebalance_ms < 0

    @property
    def is_whole(self) -> bool:
        """Return whether it repeats the whole subscription: the member may have missed an
        answer."""
        says_topics = self.topics is not None or self.regex is not None
        return self.epoch == JOINS or (
            self.rebalance_ms >= 0 and says_topics and self.owned is not None
        )


class HeartbeatAnswer(NamedTuple):
    member_id: str
    epoch: int
    heartbeat_ms: int
    assignment: Assignment | None  # None means: unchanged.


# --- tools


class Listed(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str  # "classic" or "consumer".


class Described(NamedTuple):
    """A classic group, as tools are shown it."""

    state: str
    protocol_type: str
    protocol: str
    members: tuple[StoredMember, ...]


class DescribedModernMember(NamedTuple):
    id: str
    subscription: Subscription
    current: Current
    target: Assignment


class DescribedModern(NamedTuple):
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    members: tuple[DescribedModernMember, ...]
