"""What members and tools ask of a group, and what they are answered, whatever the wire says."""

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
    member_id: str  # Empty from one that is new.
    fresh_id: str  # What it will be called then.
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocol_type: str
    protocols: Protocols
    # A new member is first told its id, so that a lost answer leaves no ghost behind.
    id_required: bool = True
    can_skip_assignment: bool = True


class JoinAnswer(NamedTuple):
    member_id: str
    fault: Fault | None = None
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    members: tuple[tuple[str, str | None, bytes], ...] = ()  # For the leader: id, instance, bytes.
    skip_assignment: bool = False


class Sync(NamedTuple):
    member_id: str
    instance_id: str | None
    generation: int
    protocol_type: str | None  # None: it does not say.
    protocol: str | None
    assignments: Mapping[str, bytes]  # From the leader: member id to its part.


class SyncAnswer(NamedTuple):
    fault: Fault | None = None
    protocol_type: str | None = None
    protocol: str | None = None
    assignment: bytes = b""


# --- the modern protocol

_NOTHING_SAID = (None, None, None, None, None)
JOINS = 0  # What a member says as its epoch when it comes
LEAVES = -1  # or goes
LEAVES_FOR_NOW = -2  # or goes and, being static, will be back.


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """None, and -1 as the time: as said before."""

    member_id: str
    epoch: int
    instance_id: str | None
    rack_id: str | None
    rebalance_ms: int
    topics: tuple[str, ...] | None
    regex: str | None
    assignor: str | None
    owned: Assignment | None  # What it has, whatever it should have.
    client_id: str
    client_host: str
    may_see: Callable[[str], bool] = lambda topic: True  # Of the topics a regex names.

    @property
    def is_idle(self) -> bool:
        """Whether it says nothing about what it wants."""
        said = self.topics, self.regex, self.assignor, self.instance_id, self.rack_id
        return said == _NOTHING_SAID and self.rebalance_ms < 0

    @property
    def is_whole(self) -> bool:
        """Whether it says everything, as one does who may have missed an answer."""
        says_topics = self.topics is not None or self.regex is not None
        return self.epoch == JOINS or (
            self.rebalance_ms >= 0 and says_topics and self.owned is not None
        )


class HeartbeatAnswer(NamedTuple):
    member_id: str
    epoch: int
    heartbeat_ms: int
    assignment: Assignment | None  # None: as before.


# --- tools


class Listed(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    kind: str  # "classic" or "consumer".


class Described(NamedTuple):
    """A classic group."""

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
