"""The gossip of one real node: its machines, and packets in and out.

No sockets and no clock: it is told the time and what has arrived, and returns datagrams.

    Swim            who is there
    Store           facts of all nodes: news by rumors, the rest by digests
    Bimodal         events to all who are there now
    Aggregation     average, sum, count, minimum, maximum of one value of each node
    Chord, Scribe   messages to groups, by a tree for each

A machine speaks to nodes by their numbers; where these are, `Swim` knows. Messages to the same
node that arise together share a packet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from entrepot.cluster.gossip.aggregate import Aggregation
from entrepot.cluster.gossip.bimodal import Bimodal
from entrepot.cluster.gossip.framework import Machine, Peer, Sends, Stack
from entrepot.cluster.gossip.peers import Uniform
from entrepot.cluster.gossip.rumor import RumorMonger
from entrepot.cluster.gossip.store import Reconciliation, Store
from entrepot.cluster.gossip.swim import Member, MemberState, Settings, Swim
from entrepot.cluster.multicast.scribe import Scribe
from entrepot.cluster.overlay.chord import Chord
from entrepot.core.ports import Address, Entropy
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Entry, Event, GroupMessage, Join, MemberUpdate
from entrepot.wire.gossip.packet import ANYBODY, NUMBERS_PER_MS, Codec, Reason, Refused

EPOCH_PERIODS = 30  # After which aggregates begin anew.
JOIN_PERIODS = 2  # Between two attempts to join, as long as nobody is known.

Datagram = tuple[Address, bytes]


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
        self.refused: Counter[Reason] = Counter()
        self.too_large = 0  # Messages that did not fit into a packet: a mistake of ours.
        self._codec = Codec(cluster, me.node, secret)
        self._seeds = seeds
        self._join_at = 0.0
        self._epoch_at = 0.0
        self.swim = Swim(me, entropy, self.settings, changed=self._changed)
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
        return self._joining(now, now_ms) + self._packets(sends, now_ms)

    def receive(self, data: bytes, source: Address, now: float, now_ms: int) -> list[Datagram]:
        """Take in a datagram; what is refused is counted and not answered."""
        try:
            packet = self._codec.unpack(data, now_ms)
        except Refused as refused:
            self.refused[refused.reason] += 1
            return []
        sends: list[tuple[Peer, object]] = []
        for message in packet.messages:
            if packet.is_for_anybody and type(message) is not Join:
                self.refused[Reason.MISDIRECTED] += 1
            else:
                sends += self._stack.receive(packet.sender, message, now)
        return self._packets(sends, now_ms, packet.sender, source)

    def put(self, key: str, value: bytes) -> None:
        """Publish a fact of this node."""
        self.rumors.tell(self.store.put(key, value))

    def multicast(self, body: bytes, now: float, now_ms: int) -> list[Datagram]:
        """Send an event to all who are there."""
        sends = self.bimodal.multicast(body, self.swim.peers, now, _number(now, now_ms))
        return self._packets(sends, now_ms)

    def join_group(self, name: str, now_ms: int) -> list[Datagram]:
        return self._packets(self.scribe.join(name), now_ms)

    def leave_group(self, name: str, now_ms: int) -> list[Datagram]:
        return self._packets(self.scribe.leave(name), now_ms)

    def send_to_group(self, name: str, body: bytes, now: float, now_ms: int) -> list[Datagram]:
        return self._packets(self.scribe.send(name, body, _number(now, now_ms)), now_ms)

    def leave(self, now_ms: int) -> list[Datagram]:
        return self._packets(self.swim.leave(), now_ms)

    def _changed(self, member: Member) -> None:
        if member.state >= MemberState.DEAD:
            self.chord.give_up(member.node)
        elif member.state == MemberState.ALIVE:
            self.chord.meet(member.node)
        self._hooks.changed(member)

    def _joining(self, now: float, now_ms: int) -> list[Datagram]:
        if self.swim.peers or now < self._join_at:
            return []
        self._join_at = now + JOIN_PERIODS * self.settings.period_s
        join = self._codec.body(self.swim.join())
        me = (self.swim.me.host, self.swim.me.port)
        return [
            (seed, self._codec.pack(ANYBODY, [join], now_ms)) for seed in self._seeds if seed != me
        ]

    def _keep_epochs(self, now: float) -> None:
        """Begin an epoch of the aggregates now and then: the node with the lowest number does."""
        me = self.swim.me.node
        self.aggregation.counts = all(me < peer for peer in self.swim.peers)
        if now >= self._epoch_at:
            self._epoch_at = now + self.settings.period_s * EPOCH_PERIODS
            if self.aggregation.counts:
                self.aggregation.restart()

    def _packets(
        self,
        sends: Sends,
        now_ms: int,
        sender: Peer | None = None,
        source: Address | None = None,
    ) -> list[Datagram]:
        """Pack messages. Who is no member is answered where its packet came from."""
        bodies: dict[Peer, list[bytes]] = {}
        for peer, message in sends:
            bodies.setdefault(peer, []).append(self._codec.body(message))
        found: list[Datagram] = []
        for peer, theirs in bodies.items():
            address = self.swim.address(peer) or (source if peer == sender else None)
            if address is not None:
                for part in self._parts(theirs):
                    found.append((address, self._codec.pack(peer, part, now_ms)))
        return found

    def _parts(self, bodies: list[bytes]) -> list[list[bytes]]:
        parts: list[list[bytes]] = []
        room = count = 0
        for body in bodies:
            if len(body) > limits.BODY_BYTES_MAX - 3:
                self.too_large += 1
                continue
            if len(body) > room or count == limits.MESSAGES_PER_PACKET_MAX:
                parts.append([])
                room, count = limits.BODY_BYTES_MAX - 3, 0
            parts[-1].append(body)
            room -= len(body)
            count += 1
        return parts


def _number(now: float, now_ms: int) -> int:
    """Return a number that is larger than those before it, also those of an earlier process."""
    return now_ms * NUMBERS_PER_MS + int(now * 1e6) % NUMBERS_PER_MS
