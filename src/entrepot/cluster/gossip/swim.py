"""Membership and failure detection in the way of SWIM.

Every period a node probes one member, each in turn in a random order. Without an answer in time it
asks some others to probe it as well; without theirs at the end of the period, the member is
*suspected*. What is believed of members travels on probes and answers, so that no message is sent
only for it and the load of a node does not depend on how many there are. A member that hears that
it is suspected refutes it, by a higher *incarnation*, which only itself may raise; one that does
not is dead when the time of the suspicion is over. Dead members are remembered for a while and
tried now and then: who was only cut off hears of its death, refutes, and is back. (Das, Gupta,
Motivala, "SWIM"; and from "Lifeguard": a suspected member is the first to be told.)

A node that was stopped for a while does not judge others by answers it could not read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, Protocol

from entrepot.cluster.gossip.framework import Peer, Sends
from entrepot.cluster.gossip.peers import some_of
from entrepot.core.ports import Entropy
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import (
    Ack,
    Join,
    MemberList,
    MemberUpdate,
    Ping,
    PingRequest,
)

TICKS_PER_PERIOD = 10
INDIRECT_TICK = 3  # Of the period, at which others are asked to probe.
LIST_UPDATES = 12  # Members in one packet of the list.
SYNC_PERIODS = 5  # Between two packets of it that a node sends to somebody.
RECONNECT_PERIODS = 5  # Between two attempts to reach somebody who is dead.
RELAYS_MAX = 1_000  # Probes for others that are under way.


class MemberState(IntEnum):  # On the wire: never renumber. Of one incarnation, the higher counts.
    ALIVE = 0
    SUSPECT = 1
    DEAD = 2
    LEFT = 3


class Member(NamedTuple):
    node: Peer
    host: str
    port: int
    state: MemberState
    incarnation: int
    since_s: float  # By the monotonic clock of this node.


class Members(Protocol):
    """The port for those who want to know who is there."""

    def members(self) -> list[Member]:
        """Return what this node believes of every node, itself included, by number."""


@dataclass(frozen=True, slots=True)
class Settings:
    period_s: float = 1.0
    indirect_probes: int = 3
    suspicion_periods: float = 4.0  # Times the logarithm (of 10) of the members, at least once.
    spread: int = 4  # An update is told this often, times the logarithm (of 2) of the members.
    forget_s: float = 3600.0  # How long who is dead is remembered.


@dataclass(slots=True)
class _Known:
    update: MemberUpdate
    since: float


@dataclass(slots=True)
class _Probe:
    node: Peer
    number: int
    began: float
    asked_others: bool = False


class Swim:
    hears: ClassVar[tuple[type, ...]] = (Ping, Ack, PingRequest, Join, MemberList)
    is_active: ClassVar[bool] = True

    def __init__(
        self,
        me: MemberUpdate,
        entropy: Entropy,
        settings: Settings | None = None,
        *,
        known: Iterable[MemberUpdate] = (),
        changed: Callable[[Member], None] | None = None,
    ) -> None:
        """`changed` is told whenever another state of a member is believed, or a new member."""
        self.settings = settings or Settings()
        self.period_s = self.settings.period_s / TICKS_PER_PERIOD
        self.me = me
        self.peers: list[Peer] = []  # The members that are not dead, without this node.
        self._entropy = entropy
        self._changed = changed
        self._known: dict[Peer, _Known] = {}
        self._news: dict[Peer, tuple[MemberUpdate, int]] = {}  # And how often it was told.
        self._round: list[Peer] = []  # Whom to probe, the next one last.
        self._probe: _Probe | None = None
        self._number = 0
        self._relays: dict[int, tuple[Peer, int]] = {}  # Our number: for whom, and its number.
        self._periods = 0
        self._sync_from = 0
        self._ticked: float | None = None
        for each in known:
            self._add(each, 0.0)

    # What this node believes.

    def members(self) -> list[Member]:
        found = [_member(each.update, each.since) for each in self._known.values()]
        return sorted([_member(self.me, 0.0), *found])

    def address(self, node: Peer) -> tuple[str, int] | None:
        known = self._known.get(node)
        return (known.update.host, known.update.port) if known else None

    def state(self, node: Peer) -> MemberState | None:
        known = self._known.get(node)
        return MemberState(known.update.state) if known else None

    def move(self, host: str, port: int) -> None:
        """Tell from now on that this node is there."""
        self.me = MemberUpdate(self.me.node, host, port, self.me.incarnation, self.me.state)

    def join(self) -> Join:
        """Return what is said to a node of which only the address is known."""
        return Join(self.me)

    def leave(self) -> Sends:
        """Return what is said at the end: that this node goes, and is not to be missed."""
        self.me = _with(self.me, MemberState.LEFT, self.me.incarnation)
        told = MemberList((self.me,))
        return [(peer, told) for peer in some_of(self.peers, 8, self._entropy)]

    # The active side.

    def tick(self, now: float) -> Sends:
        was_stopped = self._ticked is not None and now - self._ticked > self.settings.period_s
        if was_stopped and self._ticked is not None:
            self._excuse(now - self._ticked)
        self._ticked = now
        sends: list[tuple[Peer, Any]] = []
        self._bury(now)
        if self._probe is not None:
            sends += self._watch(self._probe, now)
        if self._probe is None:
            sends += self._begin(now)
        return sends

    def _excuse(self, stopped_s: float) -> None:
        """Judge nobody by the time in which this node did nothing."""
        self._probe = None
        for each in self._known.values():
            if each.update.state == MemberState.SUSPECT:
                each.since += stopped_s

    def _begin(self, now: float) -> Sends:
        self._periods += 1
        sends: list[tuple[Peer, Any]] = []
        if self._periods % SYNC_PERIODS == 0 and self.peers:
            sends += [(some_of(self.peers, 1, self._entropy)[0], self._next_list())]
        if self._periods % RECONNECT_PERIODS == 0:
            sends += self._reconnect()
        node = self._next_to_probe()
        if node is not None:
            self._probe = _Probe(node, self._next_number(), now)
            sends.append((node, Ping(self._probe.number, self._updates_for(node))))
        return sends

    def _watch(self, probe: _Probe, now: float) -> Sends:
        """Ask others to probe who has not answered; suspect it at the end of the period."""
        passed = now - probe.began
        if passed >= self.settings.period_s - self.period_s / 2:
            if probe.number:  # Not answered.
                self._suspect(probe.node, now)
            self._probe = None
        elif probe.number and not probe.asked_others and passed >= INDIRECT_TICK * self.period_s:
            probe.asked_others = True
            others = [peer for peer in self.peers if peer != probe.node]
            return [
                (peer, PingRequest(probe.number, probe.node, self._updates_for(peer)))
                for peer in some_of(others, self.settings.indirect_probes, self._entropy)
            ]
        return ()

    def _next_to_probe(self) -> Peer | None:
        while self._round or self.peers:
            if not self._round:
                self._round = some_of(self.peers, len(self.peers), self._entropy)
                for index in range(len(self._round) - 1, 0, -1):
                    other = self._entropy.below(index + 1)
                    row = self._round
                    row[index], row[other] = row[other], row[index]
            node = self._round.pop()
            known = self._known.get(node)
            if known is not None and known.update.state <= MemberState.SUSPECT:
                return node
        return None

    def _next_list(self) -> MemberList:
        """Return some of the members, others each time, and always this node."""
        rows = list(self._known.values())
        begin = self._sync_from % max(len(rows), 1)
        self._sync_from = begin + LIST_UPDATES - 1
        chosen = (rows + rows)[begin : begin + min(LIST_UPDATES - 1, len(rows))]
        return MemberList((self.me, *(each.update for each in chosen)))

    def _reconnect(self) -> Sends:
        gone = [n for n, each in self._known.items() if each.update.state == MemberState.DEAD]
        return [
            (node, Ping(self._next_number(), self._updates_for(node)))
            for node in some_of(gone, 1, self._entropy)
        ]

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    # The passive side.

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        match message:
            case Ping():
                self._hear(message.updates, now)
                return ((sender, Ack(message.number, self.me.node, self._updates_for(sender))),)
            case Ack():
                self._hear(message.updates, now)
                return self._answered(message, now)
            case PingRequest():
                self._hear(message.updates, now)
                return self._relay(sender, message)
            case Join():
                self._hear((message.me,), now)
                return self._first_list(sender)
            case MemberList():
                self._hear(message.updates, now)
        return ()

    def _answered(self, ack: Ack, now: float) -> Sends:
        probe = self._probe
        if probe is not None and ack.number == probe.number and ack.node == probe.node:
            probe.number = 0
            return ()
        asker = self._relays.pop(ack.number, None)
        if asker is None:
            return ()
        return ((asker[0], Ack(asker[1], ack.node, self._updates_for(asker[0]))),)

    def _relay(self, sender: Peer, request: PingRequest) -> Sends:
        number = self._next_number()
        self._relays[number] = (sender, request.number)
        if len(self._relays) > RELAYS_MAX:
            del self._relays[next(iter(self._relays))]
        return ((request.node, Ping(number, self._updates_for(request.node))),)

    def _first_list(self, sender: Peer) -> Sends:
        """Return members for one who has just come; it hears of the others soon."""
        updates = [self.me, *(each.update for each in self._known.values())]
        end = min(len(updates), limits.JOIN_PACKETS_MAX * LIST_UPDATES)
        return [
            (sender, MemberList(tuple(updates[begin : begin + LIST_UPDATES])))
            for begin in range(0, end, LIST_UPDATES)
        ]

    # What is believed, and told.

    def _hear(self, updates: Iterable[MemberUpdate], now: float) -> None:
        for update in updates:
            if update.node == self.me.node:
                self._refute(update)
            else:
                self._believe(update, now)

    def _refute(self, update: MemberUpdate) -> None:
        """Say that this node is alive, and where, if somebody believes something else."""
        if self.me.state == MemberState.LEFT or update.incarnation < self.me.incarnation:
            return
        is_here = (update.host, update.port) == (self.me.host, self.me.port)
        if update.state != MemberState.ALIVE or not is_here:
            self.me = _with(self.me, MemberState.ALIVE, update.incarnation + 1)
            self._news[self.me.node] = (self.me, 0)

    def _believe(self, update: MemberUpdate, now: float) -> None:
        known = self._known.get(update.node)
        if known is None:
            if self._has_room():
                self._add(update, now)
                self._tell(update, now)
            return
        old = known.update
        if (update.incarnation, update.state) > (old.incarnation, old.state):
            known.update = update
            if update.state != old.state:
                known.since = now
                self._count(update)
            self._tell(update, now, is_change=update.state != old.state)

    def _suspect(self, node: Peer, now: float) -> None:
        known = self._known.get(node)
        if known is not None and known.update.state == MemberState.ALIVE:
            update = known.update
            self._believe(_with(update, MemberState.SUSPECT, update.incarnation), now)

    def _bury(self, now: float) -> None:
        """Declare dead whose suspicion is over; forget who has been dead for long."""
        for node, known in list(self._known.items()):
            state = known.update.state
            if state == MemberState.SUSPECT and now - known.since >= self.suspicion_s:
                update = known.update
                self._believe(_with(update, MemberState.DEAD, update.incarnation), now)
            elif state >= MemberState.DEAD and now - known.since >= self.settings.forget_s:
                del self._known[node]
                self._news.pop(node, None)

    @property
    def suspicion_s(self) -> float:
        """Return how long a member may refute a suspicion."""
        logarithm = max(1.0, math.log10(len(self.peers) + 1))
        return self.settings.suspicion_periods * logarithm * self.settings.period_s

    def _has_room(self) -> bool:
        if len(self._known) < limits.MEMBERS_MAX:
            return True
        for node, known in self._known.items():
            if known.update.state >= MemberState.DEAD:
                del self._known[node]
                self._news.pop(node, None)
                return True
        return False

    def _add(self, update: MemberUpdate, now: float) -> None:
        self._known[update.node] = _Known(update, now)
        self._count(update)

    def _count(self, update: MemberUpdate) -> None:
        is_there = update.state <= MemberState.SUSPECT
        if is_there and update.node not in self.peers:
            # At a random place of the round: it is probed as soon as any other.
            self.peers.append(update.node)
            self._round.insert(self._entropy.below(len(self._round) + 1), update.node)
        elif not is_there and update.node in self.peers:
            self.peers.remove(update.node)

    def _tell(self, update: MemberUpdate, now: float, *, is_change: bool = True) -> None:
        self._news[update.node] = (update, 0)
        if self._changed is not None and is_change:
            self._changed(_member(update, now))

    def _updates_for(self, peer: Peer) -> tuple[MemberUpdate, ...]:
        """Return what is told to this peer: first that it is suspected, if it is, then the news
        that were told least often."""
        chosen: dict[Peer, MemberUpdate] = {}
        known = self._known.get(peer)
        if known is not None and known.update.state != MemberState.ALIVE:
            chosen[peer] = known.update
        often = self.settings.spread * math.ceil(math.log2(len(self.peers) + 2))
        for node in sorted(self._news, key=lambda each: self._news[each][1]):
            if len(chosen) >= limits.UPDATES_PER_PACKET_MAX:
                break
            update, told = self._news[node]
            chosen[node] = update
            if told + 1 >= often:
                del self._news[node]
            else:
                self._news[node] = (update, told + 1)
        return tuple(chosen.values())


def _member(update: MemberUpdate, since: float) -> Member:
    state = MemberState(update.state)
    return Member(update.node, update.host, update.port, state, update.incarnation, since)


def _with(update: MemberUpdate, state: MemberState, incarnation: int) -> MemberUpdate:
    return MemberUpdate(update.node, update.host, update.port, incarnation, state)
