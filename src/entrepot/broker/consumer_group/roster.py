"""Who is in a classic group, and what they have in common.

Members stand in the order they came. Static ones are also known by an instance id that
outlives their process. Counts are kept as members come and go, so that a large group
costs each of its members the same as a small one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from entrepot.broker.consumer_group.faults import Fault

Token = object  # Who waits for an answer; the machine only hands it back.
Protocols = tuple[tuple[str, bytes], ...]  # By preference: a name, and what to say there.


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
    joining: Token | None = None  # Waits for the answer to a join. Set by the roster.
    syncing: Token | None = None  # Waits for the answer to a sync.
    is_new: bool = False  # Has never had an answer to a join.

    def metadata(self, protocol: str | None) -> bytes:
        return dict(self.protocols).get(protocol or "", b"")


class Roster:
    def __init__(self) -> None:
        self._members: dict[str, Member] = {}
        self._static: dict[str, str] = {}  # Instance id to member id.
        self._spoken: Counter[str] = Counter()  # How many members speak a protocol.
        self._joining = 0  # How many wait for the answer to a join.
        self.promised: dict[str, None] = {}  # Ids given out whose owners have not joined yet.
        self.leader: str | None = None  # A member whenever there are members.
        self.size = 0  # Bytes that members say of themselves.

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
        """In its place: order is seniority."""
        assert member.instance_id is not None
        self._members = {
            member_id if each is member else each.id: each for each in self._members.values()
        }
        if self.leader == member.id:
            self.leader = member_id
        member.id = self._static[member.instance_id] = member_id

    def speak(self, member: Member, protocols: Protocols) -> None:
        self._count(member, -1)
        member.protocols = protocols
        self._count(member, 1)

    def wait(self, member: Member, token: Token | None) -> None:
        """Let it wait for the answer to a join; None: no longer."""
        self._joining += (token is not None) - (member.joining is not None)
        member.joining = token

    def _count(self, member: Member, sign: int) -> None:
        self._joining += sign * (member.joining is not None)
        self.size += sign * size_of(member.protocols)
        for name in dict(member.protocols):
            self._spoken[name] += sign

    # --- what they have in common

    @property
    def joining_count(self) -> int:
        return self._joining

    @property
    def all_joined(self) -> bool:
        return self._joining == len(self._members) and not self.promised

    def speak_all(self, protocol: str) -> bool:
        return self._spoken[protocol] == len(self._members)

    def elected(self) -> str:
        """Each member votes for what it likes best of what all speak."""
        votes = Counter(
            next(name for name, _ in member.protocols if self.speak_all(name)) for member in self
        )
        return votes.most_common(1)[0][0]

    def check(self, member_id: str, instance_id: str | None) -> Fault | None:
        """What is wrong with one who says to be a member."""
        static = self.static(instance_id)
        if static is not None and static.id != member_id:
            return Fault.FENCED_INSTANCE_ID
        if member_id not in self._members or (instance_id is not None and static is None):
            return Fault.UNKNOWN_MEMBER_ID
        return None
