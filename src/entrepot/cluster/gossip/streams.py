"""What one node tells another in order, and again until it has arrived, over datagrams.

A message is cut into pieces, numbered from 1 on for each receiver. The receiver says up to which
number all have come; it keeps later ones, and takes none twice. What is not acknowledged in time is
sent again: all of it the first time, then only the first piece, until the receiver says something
new. So a node that hears nobody costs one packet now and then.

All of this is within a *view*, a number for the set of nodes that know each other. Pieces of
another view than ours are dropped and not acknowledged: they come again, and count as soon as this
node is in that view, too. A new view begins with nothing under way.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from entrepot.cluster.gossip.framework import Peer, Send, Sends
from entrepot.wire.gossip import limits
from entrepot.wire.gossip.messages import Arrived, Piece

RESEND_TICKS = 2


@dataclass(slots=True)
class _Outgoing:
    last: int = 0  # The number of the piece that was made last.
    sent: int = 0  # Up to which all were sent at least once.
    waiting: dict[int, Piece] = field(default_factory=dict)  # Not acknowledged, in order.
    silent: int = 0  # Ticks since something new was acknowledged, or sent again.
    repeats: int = 0  # Since something new was acknowledged.


@dataclass(slots=True)
class _Incoming:
    up_to: int = 0
    later: dict[int, Piece] = field(default_factory=dict)
    parts: list[bytes] = field(default_factory=list)  # Of a message that is not complete.


class Streams:
    hears: ClassVar[tuple[type, ...]] = (Piece, Arrived)

    def __init__(self, period_s: float) -> None:
        self.period_s = period_s
        self.repeated = 0  # Pieces that were sent again.
        self.dropped = 0  # Messages that were too long, or for a node that has too many waiting.
        self._view = 0
        self._out: dict[Peer, _Outgoing] = {}
        self._in: dict[Peer, _Incoming] = {}
        self._heard: dict[Peer, None] = {}  # Who is to be told what has arrived.

    @property
    def is_active(self) -> bool:
        return any(out.waiting for out in self._out.values())

    @property
    def waiting(self) -> int:
        """Return how many pieces are not acknowledged yet."""
        return sum(len(out.waiting) for out in self._out.values())

    def begin(self, view: int) -> None:
        """Be in another view: what was under way does not count any more."""
        self._view = view
        self._out.clear()
        self._in.clear()
        self._heard.clear()

    def send(self, peer: Peer, body: bytes) -> Sends:
        out = self._out.setdefault(peer, _Outgoing())
        size = limits.CARRIED_BYTES_MAX
        count = max(1, -(-len(body) // size))
        if count > limits.PIECES_MAX or len(out.waiting) + count > limits.PIECES_WAITING_MAX:
            self.dropped += 1
            return ()
        for index in range(count):
            out.last += 1
            part = body[index * size : (index + 1) * size]
            out.waiting[out.last] = Piece(self._view, out.last, index == count - 1, part)
        return self._fresh(peer, out)

    def tick(self, now: float) -> Sends:
        sends: list[Send] = []
        for peer, out in self._out.items():
            out.silent += 1
            if out.waiting and out.silent > RESEND_TICKS:
                end = 1 if out.repeats else limits.PIECES_UNDER_WAY_MAX
                again = [piece for number, piece in out.waiting.items() if number <= out.sent]
                sends += [(peer, piece) for piece in again[:end]]
                self.repeated += len(again[:end])
                out.silent = 0
                out.repeats += 1
        return sends

    def receive(self, sender: Peer, message: Piece | Arrived) -> tuple[Sends, list[bytes]]:
        """Return what is sent in turn, and the messages that are complete now."""
        if message.view != self._view:
            return (), []
        if type(message) is Arrived:
            return self._acknowledged(sender, message.number), []
        assert type(message) is Piece
        return (), self._take(sender, message)

    def acknowledgements(self) -> Sends:
        """Return what tells others what has arrived since the last time."""
        heard, self._heard = self._heard, {}
        return [(peer, Arrived(self._view, self._in[peer].up_to)) for peer in heard]

    def _fresh(self, peer: Peer, out: _Outgoing) -> Sends:
        """Return the pieces that may be sent for the first time now."""
        end = min(out.last, out.last - len(out.waiting) + limits.PIECES_UNDER_WAY_MAX)
        if end <= out.sent:
            return ()
        if out.sent == out.last - len(out.waiting):  # Nothing was under way.
            out.silent = 0
        begin, out.sent = out.sent + 1, end
        return [(peer, out.waiting[number]) for number in range(begin, end + 1)]

    def _acknowledged(self, peer: Peer, number: int) -> Sends:
        out = self._out.get(peer)
        if out is None or number > out.sent or number <= out.last - len(out.waiting):
            return ()
        for each in range(out.last - len(out.waiting) + 1, number + 1):
            del out.waiting[each]
        out.silent = out.repeats = 0
        return self._fresh(peer, out)

    def _take(self, sender: Peer, piece: Piece) -> list[bytes]:
        got = self._in.setdefault(sender, _Incoming())
        self._heard[sender] = None
        if got.up_to < piece.number <= got.up_to + limits.PIECES_UNDER_WAY_MAX:
            got.later[piece.number] = piece
        messages: list[bytes] = []
        while (following := got.later.pop(got.up_to + 1, None)) is not None:
            got.up_to += 1
            if len(got.parts) < limits.PIECES_MAX:  # Longer ones are nobody's who keeps to this.
                got.parts.append(following.body)
            if following.is_last:
                messages.append(b"".join(got.parts))
                got.parts = []
        return messages
