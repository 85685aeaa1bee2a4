"""The gossip of one real node: its machines, and packets in and out.

No sockets and no clock: it is told the time and what has arrived, and returns datagrams.

    Swim            who is there
    Store           facts of all nodes: news by rumors, the rest by digests
    Bimodal         events to all who are there now
    Aggregation     average, sum, count, minimum, maximum of one value of each node
    Chord, Scribe   messages to groups, by a tree for each

A machine speaks to nodes by their numbers; where these are, `Swim` knows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from entrepot.cluster.gossip.aggregate import Aggregation
from entrepot.cluster.gossip.bimodal import Bimodal
from entrepot.cluster.gossip.framework import Machine, Peer, Stack
from entrepot.cluster.gossip.packets import JOIN_PERIODS, Datagram, Packets
from entrepot.cluster.gossip.peers import Uniform
from entrepot.cluster.gossip.rumor import RumorMonger
from entrepot.cluster.gossip.store import Reconciliation, Store
from entrepot.cluster.gossip.swim import Member, MemberState, Settings, Swim
from entrepot.cluster.multicast.scribe import Scribe
from entrepot.cluster.overlay.chord import Chord
from entrepot.core.ports import Address, Entropy
from entrepot.wire.gossip.messages import Entry, Event, GroupMessage, MemberUpdate
from entrepot.wire.gossip.packet import NUMBERS_PER_MS

EPOCH_PERIODS = 30  # After which aggregates begin anew.


class Hooks(NamedTuple):
    """Who is told of what. None of these may raise."""

    changed: Callable[[Member], None] = lambda member: None
    fact: Callable[[Entry], None] = lambda entry: None
    event: Callable[[Event], None] = lambda event: None
    group_message: Callable[[GroupMessage], None] = lambda message: None


class Agent:
    def __init__(
        self,
        me: MemberUpdate,
        cluster: str,
        entropy: Entropy,
        *,
        secret: bytes | None = None,
        seeds: Sequence[Address] = (),
        settings: Settings | None = None,
        value: float = 0.0,
        hooks: Hooks | None = None,
    ) -> None:
        """`value` is what this node brings into the aggregates."""
        hooks = hooks or Hooks()
        self.settings = settings or Settings()
        self._epoch_at = 0.0
        self.swim = Swim(me, entropy, self.settings, changed=self._changed)
        self.packets = Packets(self.swim, cluster, secret, seeds)
        peers = Uniform(self.swim.peers, entropy)
        period = self.settings.period_s
        self.store = Store(me.node, hooks.fact)
        self.rumors = RumorMonger(self.store, peers, entropy, k=3, period_s=period / 5)
        self.bimodal = Bimodal(
            me.node, peers, lambda event, _: hooks.event(event), period_s=period / 10
        )
        self.aggregation = Aggregation(value, peers, period_s=period)
        self.chord = Chord(me.node, period / 2)
        self.scribe = Scribe(self.chord, hooks.group_message)
        self._hooks = hooks
        self._stack = Stack(
            (
                self.swim,
                self.rumors,
                Reconciliation(self.store, peers, period),
                self.bimodal,
                self.aggregation,
                self.chord,
                self.scribe,
            )
        )
        self._due: dict[Machine, float] = {}

    def members(self) -> list[Member]:
        return self.swim.members()

    def start(self, now: float) -> None:
        self._due = {machine: now + machine.period_s for machine in self._stack.machines}
        self._epoch_at = now + self.settings.period_s * JOIN_PERIODS

    def wake_at(self) -> float:
        """Return when `tick` is to be called next."""
        return min(self._due.values())

    def tick(self, now: float, now_ms: int) -> list[Datagram]:
        """Call the machines whose time has come. One that missed its time is called once."""
        sends = [
            send
            for machine, due in self._due.items()
            if due <= now and machine.is_active
            for send in machine.tick(now)
        ]
        if not self.chord.successors and self.swim.peers:
            self.chord.meet(self.swim.peers[0])
        for machine, due in self._due.items():
            if due <= now:
                self._due[machine] = max(due + machine.period_s, now)
        self._keep_epochs(now)
        return self.packets.joining(now, now_ms) + self.packets.make(sends, now_ms)

    def receive(self, data: bytes, source: Address, now: float, now_ms: int) -> list[Datagram]:
        """Take in a datagram; what is refused is counted and not answered."""
        packet = self.packets.read(data, now_ms)
        if packet is None:
            return []
        sends: list[tuple[Peer, object]] = []
        for message in packet.messages:
            sends += self._stack.receive(packet.sender, message, now)
        return self.packets.make(sends, now_ms, packet.sender, source)

    def put(self, key: str, value: bytes) -> None:
        """Publish a fact of this node."""
        self.rumors.tell(self.store.put(key, value))

    def multicast(self, body: bytes, now: float, now_ms: int) -> list[Datagram]:
        """Send an event to all who are there."""
        sends = self.bimodal.multicast(body, self.swim.peers, now, number_of(now, now_ms))
        return self.packets.make(sends, now_ms)

    def join_group(self, name: str, now_ms: int) -> list[Datagram]:
        return self.packets.make(self.scribe.join(name), now_ms)

    def leave_group(self, name: str, now_ms: int) -> list[Datagram]:
        return self.packets.make(self.scribe.leave(name), now_ms)

    def send_to_group(self, name: str, body: bytes, now: float, now_ms: int) -> list[Datagram]:
        return self.packets.make(self.scribe.send(name, body, number_of(now, now_ms)), now_ms)

    def leave(self, now_ms: int) -> list[Datagram]:
        return self.packets.make(self.swim.leave(), now_ms)

    def _changed(self, member: Member) -> None:
        if member.state >= MemberState.DEAD:
            self.chord.give_up(member.node)
        elif member.state == MemberState.ALIVE:
            self.chord.meet(member.node)
        self._hooks.changed(member)

    def _keep_epochs(self, now: float) -> None:
        """Begin an epoch of the aggregates now and then: the node with the lowest number does."""
        me = self.swim.me.node
        self.aggregation.counts = all(me < peer for peer in self.swim.peers)
        if now >= self._epoch_at:
            self._epoch_at = now + self.settings.period_s * EPOCH_PERIODS
            if self.aggregation.counts:
                self.aggregation.restart()


def number_of(now: float, now_ms: int) -> int:
    """Return a number that is larger than those before it, also those of an earlier process."""
    return now_ms * NUMBERS_PER_MS + int(now * 1e6) % NUMBERS_PER_MS
