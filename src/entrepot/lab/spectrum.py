"""The spectrum of consistency: eight models, what each guarantees, and what that costs.

One workload by each: some members tell all others something at the same time, and some answer what
they were told. A part of all messages is lost, and one sender dies in the middle of sending. Then
the sequences of those who are left are compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

from entrepot.cluster.gossip.framework import Peer
from entrepot.lab.delivery_models import (
    PERIOD_S,
    BestEffort,
    Causal,
    Eventual,
    Gossip,
    Happening,
    Model,
    Place,
    PubSub,
    Reliable,
    Rest,
    View,
    VirtualSynchrony,
)
from entrepot.lab.table import Curve, Picture, Table
from entrepot.lab.world import SeededEntropy, Timeline

DELAY_S, LOSS = 0.005, 0.05
SENDERS, EVENTS = 4, 12
VICTIM = 1
END_S = 10.0
LIMITED = 2.0  # The busiest node has so much more to do with four times the members.


@dataclass
class Seen:
    """What became of one workload."""

    lost: float  # The share of deliveries to survivors that did not come.
    is_agreed: bool  # Survivors were told the same, in whatever order.
    out_of_order: int  # Of one sender: first in, first out.
    before_its_cause: int  # An answer before what it answers.
    is_one_order: bool  # What two survivors were both told, they were told in the same order.
    is_one_sequence: bool  # Of messages and views, with a view without the victim.
    messages: float  # For an event.
    busiest: float  # What the node with the most to do sends and receives for an event.
    latency_s: float  # Mean.


@dataclass(frozen=True, slots=True)
class Row:
    make: type[Model]
    guarantee: str
    is_kept: Callable[[Seen], bool]


def _all_of_it(seen: Seen) -> bool:
    return seen.is_agreed and seen.lost == 0


ROWS = {
    "virtual synchrony": Row(
        VirtualSynchrony,
        "all, in one order, with the views",
        lambda seen: _all_of_it(seen) and seen.is_one_sequence,
    ),
    "reliable multicast": Row(Reliable, "all or none, in any order", _all_of_it),
    "causal": Row(
        Causal,
        "all or none, causes first",
        lambda seen: _all_of_it(seen) and not seen.before_its_cause and not seen.out_of_order,
    ),
    "eventual": Row(Eventual, "the same in the end", lambda seen: seen.is_agreed),
    "REST": Row(
        Rest, "the server's state, when asked", lambda seen: _all_of_it(seen) and seen.is_one_order
    ),
    "publish/subscribe": Row(
        PubSub, "the broker has it; to others once", lambda seen: seen.lost < 2 * LOSS
    ),
    "gossip": Row(Gossip, "very likely to all", lambda seen: seen.lost < 4 * LOSS),
    "best effort": Row(BestEffort, "none", lambda seen: True),
}


class _Run:
    """One workload by one model."""

    def __init__(self, make: type[Model], count: int, seed: int) -> None:
        self.entropy = SeededEntropy(seed)
        random = self.entropy.random
        self.handled: Counter[Peer] = Counter()
        self.world = Timeline(random, lambda *_: DELAY_S * (1 + 4 * random.random()), self._loses)
        self.sent: dict[tuple[Peer, int], float] = {}
        self.told: list[list[Happening]] = [[] for _ in range(count + 1)]
        self.sequences: list[list[Happening | View]] = [[] for _ in range(count + 1)]
        self.waits: list[float] = []
        self._numbers: Counter[Peer] = Counter()
        members = tuple(range(count))
        self.machines = [
            make(Place(node, members, self._deliver(node), self.entropy))
            for node in range(count + 1)
        ]
        for node, machine in enumerate(self.machines):
            self.world.add(node, machine)
        for turn in range(EVENTS):
            for sender in range(SENDERS):
                when = 1.7 * PERIOD_S * turn + random.random()
                self.world.at(when, partial(self._send, sender))
        self.world.at(EVENTS * PERIOD_S, self._die)

    def _loses(self, sender: Peer, peer: Peer, message: object) -> bool:
        self.handled[sender] += 1
        is_lost = self.entropy.random.random() < LOSS
        if not is_lost:
            self.handled[peer] += 1
        return is_lost

    def _send(self, sender: Peer, after: tuple[Peer, int] | None = None) -> None:
        if sender in self.world.down:
            return
        self._numbers[sender] += 1
        event = Happening(sender, self._numbers[sender], after)
        self.sent[event.name] = self.world.now
        self.world.send(sender, self.machines[sender].send(event))

    def _die(self) -> None:
        """End one sender, which has got half of its message out."""
        self._numbers[VICTIM] += 1
        event = Happening(VICTIM, self._numbers[VICTIM])
        sends = self.machines[VICTIM].send(event)
        self.world.send(VICTIM, sends[: len(sends) // 2])
        self.world.down[VICTIM] = None

    def _deliver(self, node: Peer) -> Callable[[Happening | View], None]:
        def deliver(event: Happening | View) -> None:
            self.sequences[node].append(event)
            if isinstance(event, View):
                return
            self.told[node].append(event)
            if event.name in self.sent:
                self.waits.append(self.world.now - self.sent[event.name])
            is_asked = event.after is None and event.number % 3 == 0
            if is_asked and node == (event.sender + 1) % SENDERS:
                self._answer(node, event)

        return deliver

    def _answer(self, node: Peer, event: Happening) -> None:
        self.world.at(self.world.now, partial(self._send, node, event.name))

    def seen(self) -> Seen:
        self.world.run_until(END_S)
        staying = [node for node in self.machines[0].members if node not in self.world.down]
        told = [self.told[node] for node in staying]
        names = [[event.name for event in some] for some in told]
        # What the victim had begun, or nobody got, is not counted as lost.
        owed = {name for name in self.sent if name[0] != VICTIM}
        missing = sum(len(owed - set(some)) for some in names)
        sequences = [self.sequences[node] for node in staying]
        views = [event for event in sequences[0] if isinstance(event, View)]
        return Seen(
            lost=missing / (len(owed) * len(staying)),
            is_agreed=all(set(some) == set(names[0]) for some in names),
            out_of_order=sum(map(_out_of_order, told)),
            before_its_cause=sum(map(_before_its_cause, told)),
            is_one_order=all(_is_one_order(one, other) for one, other in pairwise(names)),
            is_one_sequence=bool(views)
            and VICTIM not in views[-1].members
            and all(some == sequences[0] for some in sequences),
            messages=sum(self.world.sent.values()) / len(self.sent),
            busiest=max(self.handled.values()) / len(self.sent),
            latency_s=sum(self.waits) / len(self.waits),
        )


def _out_of_order(told: list[Happening]) -> int:
    last: dict[Peer, int] = {}
    found = 0
    for event in told:
        found += event.number < last.get(event.sender, 0)
        last[event.sender] = event.number
    return found


def _before_its_cause(told: list[Happening]) -> int:
    place = {event.name: number for number, event in enumerate(told)}
    return sum(
        place.get(event.after, len(told)) > place[event.name]
        for event in told
        if event.after is not None
    )


def _is_one_order(one: list[tuple[Peer, int]], other: list[tuple[Peer, int]]) -> bool:
    common = set(one) & set(other)
    return [each for each in one if each in common] == [each for each in other if each in common]


def look(model: str, count: int, seed: int) -> Seen:
    """Run the workload once by a model."""
    return _Run(ROWS[model].make, count, seed).seen()


def spectrum(count: int, seed: int) -> Table:
    rows = []
    for name, row in ROWS.items():
        seen, larger = look(name, count, seed), look(name, 4 * count, seed)
        growth = larger.busiest / seen.busiest
        rows.append(
            (
                name,
                row.guarantee,
                row.is_kept(seen) and row.is_kept(larger),
                100 * seen.lost,
                seen.out_of_order,
                seen.before_its_cause,
                seen.is_one_order,
                seen.messages,
                1_000 * seen.latency_s,
                seen.busiest,
                growth,
                "limited" if growth > LIMITED else "good",
            )
        )
    costs = tuple(Curve(row[0], [place], [row[7]]) for place, row in enumerate(rows, 1))
    return Table(
        "spectrum",
        f"Eight models, the strongest first: {count} members, {LOSS:.0%} of all messages lost, "
        "one sender dies in the middle",
        (
            "model",
            "guarantee",
            "kept",
            "lost_%",
            "not_FIFO",
            "before_cause",
            "one_order",
            "messages",
            "latency_ms",
            "busiest",
            f"growth_to_{4 * count}",
            "scalability",
        ),
        rows,
        (
            "Messages: for an event, with acknowledgements, repetitions, and what is sent when",
            "nothing is to be told. Busiest: what the node with the most to do handles for an",
            f"event; growth: how many times that with {4 * count} members, limited if more than "
            f"{LIMITED:.0f}.",
        ),
        (Picture("models, the strongest first", "messages for an event", costs, are_bars=True),),
    )
