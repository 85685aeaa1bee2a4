"""Scribe: a tree for each group, grown along the routes of Chord.

A group's id is the key of its name, and its root the node that is responsible for that key. Who
joins sends a join towards the root; each node on the way adds the sender as a child, becomes a
forwarder if it was none, and hands the join on only then: it stops at the first node that is
already in the tree. A message goes to the root and down the tree.

Children say every period that they are still there; by where their way to the root leads then,
the tree repairs itself, and who is silent is no child any more. (Rowstron and others, "Scribe",
over Pastry.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from entrepot.cluster.gossip.framework import Peer, Sends
from entrepot.cluster.overlay.chord import HOPS_MAX, Chord, key_of, packed
from entrepot.wire.gossip.messages import GroupJoin, GroupLeave, GroupMessage, GroupSend

SILENT_TICKS = 3
GROUPS_MAX = 10_000  # Of which a node is a member or a forwarder.
SEEN_MAX = 10_000


@dataclass(slots=True)
class _Group:
    children: dict[Peer, int] = field(default_factory=dict)  # And the ticks of their silence.
    parent: Peer | None = None  # None: this node is the root, or the tree is being repaired.
    is_member: bool = False


class Scribe:
    hears: ClassVar[tuple[type, ...]] = (GroupJoin, GroupLeave, GroupSend, GroupMessage)

    def __init__(self, chord: Chord, deliver: Callable[[GroupMessage], None]) -> None:
        self.period_s = chord.period_s
        self._chord = chord
        self._deliver = deliver
        self._groups: dict[bytes, _Group] = {}
        self._number = 0
        self._seen: dict[tuple[bytes, Peer, int], None] = {}

    @property
    def is_active(self) -> bool:
        return bool(self._groups)

    def join(self, name: str) -> Sends:
        """Become a member of a group."""
        key = packed(key_of(name))
        is_new = key not in self._groups
        group = self._groups.setdefault(key, _Group())
        group.is_member = True
        return self._towards_root(key, group) if is_new else ()

    def leave(self, name: str) -> Sends:
        """Be no member any more; who has children stays a forwarder."""
        key = packed(key_of(name))
        group = self._groups.get(key)
        if group is None:
            return ()
        group.is_member = False
        return self._prune(key, group)

    def send(self, name: str, body: bytes, number: int | None = None) -> Sends:
        """Send to a group, of which this node need not be a member."""
        self._number = self._number + 1 if number is None else number
        key = packed(key_of(name))
        return self._up(GroupSend(key, self._chord.me, self._number, 0, body))

    def children(self, name: str) -> list[Peer]:
        group = self._groups.get(packed(key_of(name)))
        return list(group.children) if group else []

    @property
    def children_count(self) -> int:
        """Return how many children this node has in all trees together."""
        return sum(len(group.children) for group in self._groups.values())

    def is_in_tree(self, name: str) -> bool:
        return packed(key_of(name)) in self._groups

    def tick(self, now: float) -> Sends:
        sends: list[tuple[Peer, Any]] = []
        for key, group in list(self._groups.items()):
            for child, silent in list(group.children.items()):
                if silent >= SILENT_TICKS:
                    del group.children[child]
                else:
                    group.children[child] = silent + 1
            if group.is_member or group.children:
                sends += self._towards_root(key, group)
            else:
                sends += self._prune(key, group)
        return sends

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        match message:
            case GroupJoin():
                return self._adopt(sender, message.group)
            case GroupLeave():
                group = self._groups.get(message.group)
                if group is not None and group.children.pop(sender, None) is not None:
                    return self._prune(message.group, group)
            case GroupSend():
                return self._up(message)
            case GroupMessage():
                return self._down(message)
        return ()

    def _adopt(self, sender: Peer, key: bytes) -> Sends:
        group = self._groups.get(key)
        is_new = group is None
        if group is None:
            if len(self._groups) >= GROUPS_MAX:
                return ()
            group = self._groups[key] = _Group()
        group.children[sender] = 0
        return self._towards_root(key, group) if is_new else ()

    def _towards_root(self, key: bytes, group: _Group) -> Sends:
        """Tell the next node on the way that this one is its child."""
        parent = self._chord.next_hop(int.from_bytes(key, "big"))
        sends: list[tuple[Peer, Any]] = []
        if group.parent not in (None, parent):
            assert group.parent is not None
            sends.append((group.parent, GroupLeave(key)))
        group.parent = parent
        if parent is not None:
            group.children.pop(parent, None)  # Two must not be each other's children.
            sends.append((parent, GroupJoin(key)))
        return sends

    def _prune(self, key: bytes, group: _Group) -> Sends:
        if group.is_member or group.children:
            return ()
        del self._groups[key]
        return () if group.parent is None else ((group.parent, GroupLeave(key)),)

    def _up(self, message: GroupSend) -> Sends:
        following = self._chord.next_hop(int.from_bytes(message.group, "big"))
        if following is None:
            return self._down(
                GroupMessage(
                    message.group, message.origin, message.number, message.hops, message.body
                )
            )
        if message.hops >= HOPS_MAX:
            return ()
        further = GroupSend(
            message.group, message.origin, message.number, message.hops + 1, message.body
        )
        return ((following, further),)

    def _down(self, message: GroupMessage) -> Sends:
        group = self._groups.get(message.group)
        name = (message.group, message.origin, message.number)
        if group is None or name in self._seen:
            return ()
        self._seen[name] = None
        if len(self._seen) > SEEN_MAX:
            del self._seen[next(iter(self._seen))]
        if group.is_member:
            self._deliver(message)
        further = GroupMessage(
            message.group, message.origin, message.number, message.hops + 1, message.body
        )
        return [(child, further) for child in group.children]
