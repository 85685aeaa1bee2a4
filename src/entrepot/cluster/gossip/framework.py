"""The framework of gossip: two sides, and the choices that make a protocol of them.

    active side, every period          passive side, whenever something comes
    -------------------------          --------------------------------------
    select a peer
    push: select what to send, send -> receive
    receive                         <- pull: select what to send, send
    select what to keep                select what to keep
    process what was kept              process what was kept

Which peer is `PeerSelection`'s choice, what is sent and kept is the `Data`'s, and the mode and the
period are values. A side is not a thread: whoever runs a machine calls `tick` every period and
`receive` for what comes, and sends what they return. So one thread, or one simulation, runs any
number of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from entrepot.wire.gossip.messages import (
    Descriptors,
    Entries,
    Pull,
    Push,
    PushPull,
    Reply,
    Share,
)

PERIOD_S = 1.0

Peer = int
Send = tuple[Peer, Any]  # To whom, and a message.
Sends = Sequence[Send]

P = TypeVar("P", Entries, Share, Descriptors)
_PULL = Pull()


class Machine(Protocol):
    """A protocol's part at one node."""

    @property
    def hears(self) -> tuple[type, ...]:
        """Return which messages are for it."""

    @property
    def period_s(self) -> float:
        """Return the time between two ticks."""

    @property
    def is_active(self) -> bool:
        """Return whether `tick` may have something to send. It is called only then."""

    def tick(self, now: float) -> Sends:
        """Do what the active side does every period."""

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        """Take in a message, which is one of those in `hears`."""


class PeerSelection(Protocol):
    def select(self) -> Peer | None:
        """Return the peer to gossip with next; None if there is nobody."""


class Data(Protocol[P]):
    """What is gossiped about."""

    def select_to_send(self, peer: Peer) -> P:
        """Return what this node tells a peer on its own account."""

    def answer(self, peer: Peer, payload: P) -> P:
        """Take in what a peer told, and return what it is told in turn."""

    def keep(self, peer: Peer, payload: P) -> None:
        """Keep what is new in a payload, which nobody waits to have answered, and process it."""


class Mode(Enum):
    PUSH = "push"
    PULL = "pull"
    PUSH_PULL = "push-pull"


class Exchange(Generic[P]):
    """The two sides, over any data, peers and mode."""

    hears: ClassVar[tuple[type, ...]] = (Push, Pull, PushPull, Reply)
    is_active: ClassVar[bool] = True

    def __init__(
        self,
        data: Data[P],
        peers: PeerSelection,
        mode: Mode = Mode.PUSH_PULL,
        period_s: float = PERIOD_S,
    ) -> None:
        self.period_s = period_s
        self._data: Data[P] = data
        self._peers = peers
        self._mode = mode

    def tick(self, now: float) -> Sends:
        peer = self._peers.select()
        if peer is None:
            return ()
        if self._mode is Mode.PULL:
            return ((peer, _PULL),)
        payload = self._data.select_to_send(peer)
        message = PushPull(payload) if self._mode is Mode.PUSH_PULL else Push(payload)
        return ((peer, message),)

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        kind = type(message)
        if kind is PushPull:
            return ((sender, Reply(self._data.answer(sender, message.payload))),)
        if kind is Pull:
            return ((sender, Reply(self._data.select_to_send(sender))),)
        self._data.keep(sender, message.payload)
        return ()


class Stack:
    """Several machines as one node: each gets the messages that it hears."""

    def __init__(self, machines: Iterable[Machine]) -> None:
        self.machines = tuple(machines)
        self._by_message = {
            message: machine for machine in self.machines for message in machine.hears
        }
        self.hears = tuple(self._by_message)
        self.period_s = min(machine.period_s for machine in self.machines)

    @property
    def is_active(self) -> bool:
        return any(machine.is_active for machine in self.machines)

    def tick(self, now: float) -> Sends:
        """Call the active side of each. Only for machines that have the same period."""
        return [
            send for machine in self.machines if machine.is_active for send in machine.tick(now)
        ]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        machine = self._by_message.get(type(message))
        return () if machine is None else machine.receive(sender, message, now)
