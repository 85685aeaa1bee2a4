"""Packets of a real node: messages in and out, for nodes whose addresses `Swim` knows.

Messages to the same node that arise together share a packet. What is refused is counted and not
answered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from entrepot.cluster.gossip.framework import Peer, Sends
from entrepot.cluster.gossip.swim import Swim
from entrepot.core.ports import Address
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Join
from entrepot.wire.gossip.packet import ANYBODY, Codec, Packet, Reason, Refused

JOIN_PERIODS = 2  # Between two attempts to join, as long as nobody is known.

Datagram = tuple[Address, bytes]


class Packets:
    def __init__(
        self, swim: Swim, cluster: str, secret: bytes | None, seeds: Sequence[Address]
    ) -> None:
        self.refused: Counter[Reason] = Counter()
        self.too_large = 0  # Messages that did not fit into a packet: a mistake of ours.
        self._swim = swim
        self._codec = Codec(cluster, swim.me.node, secret)
        self._seeds = seeds
        self._join_at = 0.0

    def read(self, data: bytes, now_ms: int) -> Packet | None:
        """Return what a datagram holds; None if nothing of it is for this node."""
        try:
            packet = self._codec.unpack(data, now_ms)
        except Refused as refused:
            self.refused[refused.reason] += 1
            return None
        if packet.is_for_anybody:
            joins = tuple(each for each in packet.messages if type(each) is Join)
            if len(joins) < len(packet.messages):
                self.refused[Reason.MISDIRECTED] += len(packet.messages) - len(joins)
            return packet._replace(messages=joins)
        return packet

    def make(
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
            address = self._swim.address(peer) or (source if peer == sender else None)
            if address is not None:
                for part in self._parts(theirs):
                    found.append((address, self._codec.pack(peer, part, now_ms)))
        return found

    def joining(self, now: float, now_ms: int) -> list[Datagram]:
        """Return what a node that knows nobody says to those it was told of."""
        if self._swim.peers or now < self._join_at:
            return []
        self._join_at = now + JOIN_PERIODS * self._swim.settings.period_s
        join = self._codec.body(self._swim.join())
        me = (self._swim.me.host, self._swim.me.port)
        return [
            (seed, self._codec.pack(ANYBODY, [join], now_ms)) for seed in self._seeds if seed != me
        ]

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
