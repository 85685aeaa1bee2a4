"""Eight models of telling all members of a group something, as state machines.

Node `hub` is the one that holds the log, the server or the broker, where a model has such; all
other nodes are members. Messages get lost on the way; `Links` is what makes a link reliable, and
first in, first out, for the models that need that; what it costs is counted like everything else.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

from entrepot.cluster.gossip.framework import Peer, Send, Sends
from entrepot.cluster.gossip.peers import Others, Uniform
from entrepot.cluster.gossip.store import Reconciliation, Store
from entrepot.core.ports import Entropy
from entrepot.wire.gossip.messages import Entry

PERIOD_S = 0.1
SILENT_PERIODS_MAX = 10  # Of a member, and it is suspected.
REPEATS_MAX = 20  # Without any acknowledgement, and the other is taken for dead.
FAN_OUT = 4


class Happening(NamedTuple):
    """What is told."""

    sender: Peer
    number: int
    after: tuple[Peer, int] | None = None  # What the sender had been told before, and answers.

    @property
    def name(self) -> tuple[Peer, int]:
        return self.sender, self.number


class View(NamedTuple):
    members: tuple[Peer, ...]


Deliver = Callable[[Happening | View], None]


class _Numbered(NamedTuple):
    number: int
    body: Any


class _Ack(NamedTuple):
    end: int  # All below it have come,
    number: int  # and this one.


class Links:
    """Reliable links to others: numbered, acknowledged, repeated, and perhaps in order."""

    def __init__(self, in_order: bool) -> None:
        self._in_order = in_order
        self._unacked: dict[Peer, dict[int, Any]] = {}
        self._repeats: dict[Peer, int] = {}  # Since the last acknowledgement.
        self._next: dict[Peer, int] = {}
        self._expected: dict[Peer, int] = {}
        self._early: dict[Peer, dict[int, Any]] = {}

    def post(self, peer: Peer, body: Any) -> Send:
        number = self._next.get(peer, 0)
        self._next[peer] = number + 1
        self._unacked.setdefault(peer, {})[number] = body
        return peer, _Numbered(number, body)

    def repeat(self) -> list[Send]:
        sends: list[Send] = []
        for peer in [each for each, bodies in self._unacked.items() if bodies]:
            self._repeats[peer] = self._repeats.get(peer, 0) + 1
            if self._repeats[peer] > REPEATS_MAX:
                self.forget(peer)
            else:
                bodies = self._unacked[peer].items()
                sends += [(peer, _Numbered(number, body)) for number, body in bodies]
        return sends

    def forget(self, peer: Peer) -> None:
        """Send nothing more to somebody who is gone."""
        self._unacked.pop(peer, None)

    def hear(self, sender: Peer, message: Any) -> tuple[list[Any], list[Send]]:
        """Return what is new, and what is to be sent."""
        if isinstance(message, _Ack):
            self._repeats[sender] = 0
            left = self._unacked.get(sender, {})
            for number in [each for each in left if each < message.end or each == message.number]:
                del left[number]
            return [], []
        early, new = self._early.setdefault(sender, {}), []
        expected = self._expected.get(sender, 0)
        if message.number >= expected and message.number not in early:
            early[message.number] = message.body
            if not self._in_order:
                new.append(message.body)
        while expected in early:
            body = early.pop(expected)
            if self._in_order:
                new.append(body)
            expected += 1
        self._expected[sender] = expected
        return new, [(sender, _Ack(expected, message.number))]


class Place(NamedTuple):
    """Where a machine is."""

    me: Peer
    members: tuple[Peer, ...]
    deliver: Deliver
    chance: Entropy


class Model:
    """A member, or the hub. What it is told of it delivers."""

    hears: ClassVar[tuple[type, ...]] = ()
    is_active: ClassVar[bool] = True
    needs_order: ClassVar[bool] = True  # Of links.

    def __init__(self, place: Place) -> None:
        self.period_s = PERIOD_S
        self.me = place.me
        self.members = place.members
        self.hub = len(place.members)
        self.deliver = place.deliver
        self.chance = place.chance
        self.links = Links(self.needs_order)
        self.others = tuple(each for each in place.members if each != place.me)

    def send(self, event: Happening) -> Sends:
        raise NotImplementedError

    def tick(self, now: float) -> Sends:
        return self.links.repeat()

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        new, sends = self.links.hear(sender, message)
        for body in new:
            sends += self.take_in(sender, body)
        return sends

    def take_in(self, sender: Peer, body: Any) -> list[Send]:
        """Take in what came over a reliable link."""
        raise NotImplementedError


class VirtualSynchrony(Model):
    """One log orders messages and views; who is silent is not in the next view."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._silent = dict.fromkeys(self.members, 0)  # At the hub.

    def send(self, event: Happening) -> Sends:
        return [self.links.post(self.hub, event)]

    def tick(self, now: float) -> Sends:
        if self.me != self.hub:
            return [*self.links.repeat(), (self.hub, _Ack(0, -1))]  # It is there.
        sends: list[Send] = []
        for member in self._silent:
            self._silent[member] += 1
        gone = [each for each, count in self._silent.items() if count > SILENT_PERIODS_MAX]
        for member in gone:
            del self._silent[member]
            self.links.forget(member)
        if gone:
            sends += self._tell(View(tuple(self._silent)))
        return [*self.links.repeat(), *sends]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if sender in self._silent:
            self._silent[sender] = 0
        return super().receive(sender, message, now)

    def take_in(self, sender: Peer, body: Any) -> list[Send]:
        if self.me == self.hub:
            return self._tell(body)
        self.deliver(body)
        return []

    def _tell(self, body: Any) -> list[Send]:
        return [self.links.post(member, body) for member in self._silent]


class Reliable(Model):
    """Whoever gets a message for the first time sends it to all others."""

    needs_order: ClassVar[bool] = False

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._known: set[tuple[Peer, int]] = set()

    def send(self, event: Happening) -> Sends:
        return self.take_in(self.me, event)

    def take_in(self, sender: Peer, body: Any) -> list[Send]:
        if self.name_of(body) in self._known:
            return []
        self._known.add(self.name_of(body))
        sends = [self.links.post(peer, body) for peer in self.others if peer != sender]
        self.arrived(body)
        return sends

    def name_of(self, body: Any) -> tuple[Peer, int]:
        name: tuple[Peer, int] = body.name
        return name

    def arrived(self, body: Any) -> None:
        self.deliver(body)


class _Stamped(NamedTuple):
    event: Happening
    clock: tuple[int, ...]  # How many of each member were delivered before it.


class Causal(Reliable):
    """The same, with vector clocks: a message waits for those that were before it."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._clock = [0] * len(self.members)
        self._waiting: list[_Stamped] = []

    def send(self, event: Happening) -> Sends:
        return self.take_in(self.me, _Stamped(event, tuple(self._clock)))

    def name_of(self, body: Any) -> tuple[Peer, int]:
        name: tuple[Peer, int] = body.event.name
        return name

    def arrived(self, body: Any) -> None:
        self._waiting.append(body)
        while ready := next((each for each in self._waiting if self._is_next(each)), None):
            self._waiting.remove(ready)
            self._clock[ready.event.sender] += 1
            self.deliver(ready.event)

    def _is_next(self, stamped: _Stamped) -> bool:
        return all(here >= before for here, before in zip(self._clock, stamped.clock, strict=True))


class Eventual(Model):
    """Each node keeps what it knows, and compares with another every period: push-pull."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._store = Store(self.me, lambda entry: self.deliver(_happening(entry)))
        peers = Uniform(Others(len(self.members), self.me), self.chance)
        self._exchange = Reconciliation(self._store, peers, PERIOD_S)

    def send(self, event: Happening) -> Sends:
        self.deliver(event)
        self._store.put(str(event.number), _body(event))
        return ()

    def tick(self, now: float) -> Sends:
        return () if self.me == self.hub else self._exchange.tick(now)

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        return self._exchange.receive(sender, message, now)


class _Get(NamedTuple):
    position: int


class _Got(NamedTuple):
    position: int
    events: tuple[Happening, ...]


class Rest(Model):
    """A server has the state: members post to it, and ask it every period for what is new."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._all: list[Happening] = []

    def send(self, event: Happening) -> Sends:
        return [self.links.post(self.hub, event)]

    def tick(self, now: float) -> Sends:
        if self.me == self.hub:
            return ()
        return [*self.links.repeat(), (self.hub, _Get(len(self._all)))]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if isinstance(message, _Get):
            return [(sender, _Got(message.position, tuple(self._all[message.position :])))]
        if isinstance(message, _Got):
            for event in message.events if message.position == len(self._all) else ():
                self._all.append(event)
                self.deliver(event)
            return ()
        return super().receive(sender, message, now)

    def take_in(self, sender: Peer, body: Any) -> list[Send]:
        self._all.append(body)
        return []


class PubSub(Model):
    """A broker gets it for sure, and sends it once to each subscriber, as QoS 0 does."""

    def send(self, event: Happening) -> Sends:
        return [self.links.post(self.hub, event)]

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if isinstance(message, Happening):
            self.deliver(message)
            return ()
        return super().receive(sender, message, now)

    def take_in(self, sender: Peer, body: Any) -> list[Send]:
        return [(member, body) for member in self.members]


class Gossip(Model):
    """Whoever hears it for the first time tells it to some, by chance, and once."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._known: set[tuple[Peer, int]] = set()
        self._peers = Uniform(Others(len(self.members), self.me), self.chance)

    def send(self, event: Happening) -> Sends:
        return self.receive(self.me, event, 0.0)

    def tick(self, now: float) -> Sends:
        return ()

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        if message.name in self._known:
            return ()
        self._known.add(message.name)
        self.deliver(message)
        chosen = dict.fromkeys(self._peers.select() for _ in range(FAN_OUT))
        return [(peer, message) for peer in chosen if peer is not None]


class BestEffort(Model):
    """One message to each, and nothing else."""

    def send(self, event: Happening) -> Sends:
        self.deliver(event)
        return [(peer, event) for peer in self.others]

    def tick(self, now: float) -> Sends:
        return ()

    def receive(self, sender: Peer, message: Any, now: float) -> Sends:
        self.deliver(message)
        return ()


def _body(event: Happening) -> bytes:
    after = "" if event.after is None else f"{event.after[0]},{event.after[1]}"
    return f"{event.number};{after}".encode()


def _happening(entry: Entry) -> Happening:
    number, _, after = entry.value.decode().partition(";")
    before = tuple(map(int, after.split(","))) if after else None
    return Happening(entry.owner, int(number), before)  # type: ignore[arg-type]
