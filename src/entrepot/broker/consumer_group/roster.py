"""The members of a classic group, and the protocols they have in common.

Members are in the order in which they joined. Static members also have an instance id that
outlives their process. Counts are updated as members come and go, so that a request costs the
same in a large group as in a small one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from entrepot.broker.consumer_group.faults import Fault

Token = object  # Stands for a request that waits for its answer; the group only hands it back.
# In order of preference: a protocol's name and the member's metadata for it.
Protocols = tuple[tuple[str, bytes], ...]


def size_of(protocols: Protocols) -> int:
    return sum(len(name) + len(data) for name, data in protocols)


@dataclass(slots=True)
class Member:
    id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_ms: int
    rebalance_ms: int
    protocols: Protocols
    assignment: bytes = b""
    joining: Token | None = None  # A join that waits for its answer. Set by the roster.
    syncing: Token | None = None  # A sync that waits for its answer.
    is_new: bool = False  # Its first join was not answered yet.

    def metadata(self, protocol: str | None) -> bytes:
        return dict(self.protocols).get(protocol or "", b"")


class Roster:
    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}  # Instance id -> member id.
        self._supporters: Counter[str] = Counter()  # How many members support each protocol.
        self._joining = 0  # How many members wait for the answer to a join.
        # Member ids that were given out and have not joined yet.
        self.promised: dict[str, None] = {}
        # The leader's member id; None only when there are no members.
        self.leader: str | None = None
        self.size = 0  # Bytes of the members' protocols and metadata.

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def __getitem__(self, member_id: str) -> Member:
        return self._members[member_id]

    def get(self, member_id: str) -> Member | None:
        return self._members.get(member_id)

    def static(self, instance_id: str | None) -> Member | None:
        """Return the static member with that instance id."""
        member_id = self._static.get(instance_id) if instance_id is not None else None
        return self._members[member_id] if member_id is not None else None

    # --- coming and going

    def add(self, member: Member) -> None:
        self.promised.pop(member.id, None)
        self._members[member.id] = member
        if member.instance_id is not None:
            self._static[member.instance_id] = member.id
        if self.leader is None:
            self.leader = member.id
        self._count(member, 1)

    def remove(self, member_id: str) -> Member | None:
        self.promised.pop(member_id, None)
        member = self._members.pop(member_id, None)
        if member is not None:
            self._count(member, -1)
            if member.instance_id is not None:
                del self._static[member.instance_id]
            if self.leader == member_id:
                self.leader = next(iter(self._members), None)
        return member

    def rename(self, member: Member, member_id: str) -> None:
        """Give a static member another id; it keeps its position."""
        assert member.instance_id is not None
        self._members = {
            member_id if each is member else each.id: each for each in self._members.values()
        }
        if self.leader == member.id:
            self.leader = member_id
        member.id = self._static[member.instance_id] = member_id

    def set_protocols(self, member: Member, protocols: Protocols) -> None:
        """Change the protocols that a member supports."""
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def wait(self, member: Member, token: Token | None) -> None:
        """Set the join that the member waits for; None means: it was answered."""
        self._joining += (token is not None) - (member.joining is not None)
        member.joining = token

    def _count(self, member: Member, sign: int) -> None:
        self._joining += sign * (member.joining is not None)
        self.size += sign * size_of(member.protocols)
        for name in dict(member.protocols):
            self._supporters[name] += sign

    # --- what they have in common

    @property
    def joining_count(self) -> int:
        return self._joining

    @property
    def all_joined(self) -> bool:
        return self._joining == len(self._members) and not self.promised

    def all_support(self, protocol: str) -> bool:
        """Return whether all members support the protocol."""
        return self._supporters[protocol] == len(self._members)

    def elected(self) -> str:
        """Return the protocol that most members prefer among those that all support."""
        votes = Counter(
            next(name for name, _ in member.protocols if self.all_support(name)) for member in self
        )
        return votes.most_common(1)[0][0]

    def check(self, member_id: str, instance_id: str | None) -> Fault | None:
        """Return why this is not a member, or None if it is."""
        static = self.static(instance_id)
        if static is not None and static.id != member_id:
            return Fault.FENCED_INSTANCE_ID
        if member_id not in self._members or (instance_id is not None and static is None):
            return Fault.UNKNOWN_MEMBER_ID
        return None
