"""The members of a share group and their assignments: all partitions they subscribe to.

A record is locked for one consumer at a time, so partitions need not be divided: every
member gets every partition of its topics (the KIP's simple assignor). So no partition waits
for a slow consumer, and nothing is negotiated: a member has its assignment with the answer to
its heartbeat.

The group's epoch goes up whenever members join, leave or subscribe to other topics, or topics
change. Members are not stored: after a restart they join again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

from entrepot.broker.catalog import Topic
from entrepot.broker.consumer_group.faults import Fault, GroupError
from entrepot.broker.consumer_group.interest import Topics
from entrepot.broker.consumer_group.messages import JOINS, LEAVES
from entrepot.core import limits

Assignment = Mapping[UUID, tuple[int, ...]]


class ShareHeartbeat(NamedTuple):
    """A heartbeat. None means: unchanged since the last one."""

    member_id: str
    epoch: int
    rack_id: str | None
    topics: tuple[str, ...] | None
    client_id: str
    client_host: str


class ShareHeartbeatAnswer(NamedTuple):
    member_id: str
    epoch: int
    heartbeat_ms: int
    assignment: Assignment | None  # None means: unchanged.


@dataclass(slots=True)
class ShareMember:
    id: str
    rack_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]  # Ascending.
    epoch: int = 0
    previous_epoch: int = 0
    assignment: Assignment = field(default_factory=dict)

    @property
    def size(self) -> int:
        """Return about how many bytes it takes."""
        return sum(map(len, self.topics))


class DescribedShareGroup(NamedTuple):
    state: str
    epoch: int
    members: tuple[ShareMember, ...]


class ShareGroup:
    def __init__(self, group_id: str) -> None:
        self.id = group_id
        self.epoch = 0
        self.members: dict[str, ShareMember] = {}
        # Topic id -> number of partitions it reads. Stored.
        self.partition_counts: dict[UUID, int] = {}
        self._size = 0  # Bytes of all subscriptions.
        self._version = -1  # The version of the topics when they were last compared.
        self._topics_hash = 0

    @property
    def state_name(self) -> str:
        return "Stable" if self.members else "Empty"

    def describe(self) -> DescribedShareGroup:
        return DescribedShareGroup(self.state_name, self.epoch, tuple(self.members.values()))

    # --- heartbeats

    def heartbeat(
        self, request: ShareHeartbeat, topics: Topics, heartbeat_ms: int
    ) -> ShareHeartbeatAnswer:
        """Process the heartbeat of a member that joins or stays.

        Raises GroupError; then nothing has changed.
        """
        member = self._member(request)
        wants_others = request.topics is not None and self._subscribe(member, request.topics)
        member.client_host = request.client_host
        member.rack_id = request.rack_id or member.rack_id
        self._update_epoch(topics, anew=wants_others)
        if member.epoch == self.epoch and request.topics is None:
            return ShareHeartbeatAnswer(member.id, member.epoch, heartbeat_ms, None)
        member.previous_epoch, member.epoch = member.epoch, self.epoch
        assignment = {
            topic.id: tuple(range(topic.partition_count)) for topic in _wanted(member, topics)
        }
        is_news = request.topics is not None or assignment != member.assignment
        member.assignment = assignment
        return ShareHeartbeatAnswer(
            member.id, member.epoch, heartbeat_ms, assignment if is_news else None
        )

    def _member(self, request: ShareHeartbeat) -> ShareMember:
        """Return the member; a new one if it joins. Raises GroupError."""
        member = self.members.get(request.member_id)
        if request.epoch == JOINS:
            if member is not None:
                return member
            if len(self.members) >= limits.GROUP_MEMBERS_MAX:
                raise GroupError(Fault.GROUP_MAX_SIZE_REACHED)
            new = ShareMember(
                request.member_id, request.rack_id, request.client_id, request.client_host, ()
            )
            return new
        if member is None:
            raise GroupError(Fault.UNKNOWN_MEMBER_ID, f"{request.member_id} is not a member")
        if request.epoch not in (member.epoch, member.previous_epoch):
            raise GroupError(
                Fault.FENCED_MEMBER_EPOCH,
                f"the member's epoch is {member.epoch}, not {request.epoch}; it must join again",
            )
        return member

    def _subscribe(self, member: ShareMember, topics: Iterable[str]) -> bool:
        """Update the member's subscription. Return whether it is new or its topics changed."""
        names, before = tuple(sorted(dict.fromkeys(topics))), member.topics
        size = self._size - member.size + sum(map(len, names))
        if size > limits.GROUP_BYTES_MAX:
            raise GroupError(Fault.GROUP_MAX_SIZE_REACHED)
        self._size, member.topics = size, names
        is_new = member.id not in self.members
        self.members[member.id] = member
        return is_new or names != before

    def _update_epoch(self, topics: Topics, *, anew: bool) -> None:
        """Begin a new epoch if `anew`, or if the topics changed."""
        if topics.version == self._version and not anew:
            return
        self._version = topics.version
        found = frozenset((each.id.int, each.partition_count) for each in self.wanted(topics))
        topics_hash = hash(found)
        if anew or topics_hash != self._topics_hash:
            self._topics_hash = topics_hash
            self.epoch += 1

    def wanted(self, topics: Topics) -> list[Topic]:
        """Return the existing topics that members subscribe to."""
        names = dict.fromkeys(name for each in self.members.values() for name in each.topics)
        return [topics.topics[name] for name in names if name in topics.topics]

    def remove(self, member_id: str) -> bool:
        """Remove a member. Return whether there was one."""
        gone = self.members.pop(member_id, None)
        if gone is not None:
            self._size -= gone.size
            self.epoch += 1
        return gone is not None


def _wanted(member: ShareMember, topics: Topics) -> list[Topic]:
    return [topics.topics[name] for name in member.topics if name in topics.topics]


def check(request: ShareHeartbeat) -> None:
    """Check the parts of a heartbeat that do not depend on the group. Raises GroupError."""
    fault = Fault.INVALID_REQUEST
    if not request.member_id:
        raise GroupError(fault, "a member's id cannot be empty")
    if request.rack_id == "":
        raise GroupError(fault, "a rack's id cannot be empty")
    if request.epoch < LEAVES:
        raise GroupError(fault, f"{request.epoch} is not an epoch")
    if request.epoch == JOINS and not request.topics:
        raise GroupError(fault, "who joins says which topics it wants")
