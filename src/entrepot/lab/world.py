"""Worlds for state machines: as many nodes as fit into memory, from one seed.

In `Rounds` each node has one turn a round, and what is sent arrives in the same round: what the
lectures count. On a `Timeline` messages take time, and each node's turns have times of their own.
Both lose what they are told to, and nothing arrives at nodes that are down.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from entrepot.cluster.gossip.framework import Machine, Peer, Sends

Loses = Callable[[Peer, Peer, Any], bool]  # From, to, message.


class SeededEntropy:
    """Chance out of a seed; the same in every run."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def token(self, size: int) -> bytes:
        return self.random.randbytes(size)

    def below(self, end: int) -> int:
        return int(self.random.random() * end)


class Rounds:
    """`in_turn`: what a node sends arrives before the next node has its turn. Otherwise all nodes
    have their turn at the same time, and know what they knew when the round began."""

    def __init__(
        self,
        machines: Sequence[Machine],
        *,
        in_turn: bool = False,
        loses: Loses | None = None,
    ) -> None:
        self.machines = machines
        self.round = 0
        self.sent: Counter[type] = Counter()  # Messages by kind, the lost ones included.
        self.down: dict[Peer, None] = {}
        self._in_turn = in_turn
        self._loses = loses
        self._queue: deque[tuple[Peer, Peer, Any]] = deque()

    def run_round(self) -> None:
        self.round += 1
        for node, machine in enumerate(self.machines):
            if machine.is_active and node not in self.down:
                for peer, message in machine.tick(self.round):
                    self._queue.append((node, peer, message))
                if self._in_turn:
                    self._deliver()
        self._deliver()

    def send(self, sender: Peer, sends: Sends) -> None:
        """Send outside of a node's turn, and deliver what follows from it."""
        self._queue.extend((sender, peer, message) for peer, message in sends)
        self._deliver()

    def _deliver(self) -> None:
        queue, machines, sent, loses = self._queue, self.machines, self.sent, self._loses
        while queue:
            sender, node, message = queue.popleft()
            sent[type(message)] += 1
            if node in self.down or (loses is not None and loses(sender, node, message)):
                continue
            for peer, answer in machines[node].receive(sender, message, self.round):
                queue.append((node, peer, answer))


class Timeline:
    """Events in the order of their times, which are seconds from 0."""

    def __init__(
        self,
        random: Random,
        delay: Callable[[Peer, Peer], float],
        loses: Loses | None = None,
    ) -> None:
        self.now = 0.0
        self.sent: Counter[type] = Counter()
        self.down: dict[Peer, None] = {}
        self.random = random
        self._delay = delay
        self._loses = loses
        self._machines: dict[Peer, Machine] = {}
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def add(self, node: Peer, machine: Machine) -> None:
        """Start a node; its first turn is at a random time of its first period."""
        self.attach(node, machine)
        self.at(self.now + self.random.random() * machine.period_s, lambda: self._turn(node))

    def attach(self, node: Peer, machine: Machine) -> None:
        """Have a node that only answers: it has no turns of its own."""
        self._machines[node] = machine

    def at(self, time: float, event: Callable[[], None]) -> None:
        heappush(self._events, (time, next(self._order), event))

    def send(self, sender: Peer, sends: Sends) -> None:
        for peer, message in sends:
            self.sent[type(message)] += 1
            if self._loses is None or not self._loses(sender, peer, message):
                self.at(self.now + self._delay(sender, peer), self._arrival(sender, peer, message))

    def run_until(self, end: float) -> None:
        while self._events and self._events[0][0] <= end:
            self.now, _, event = heappop(self._events)
            event()
        self.now = end

    def _turn(self, node: Peer) -> None:
        machine = self._machines[node]
        if node not in self.down and machine.is_active:
            self.send(node, machine.tick(self.now))
        self.at(self.now + machine.period_s, lambda: self._turn(node))

    def _arrival(self, sender: Peer, peer: Peer, message: Any) -> Callable[[], None]:
        def arrive() -> None:
            if peer not in self.down:
                self.send(peer, self._machines[peer].receive(sender, message, self.now))

        return arrive
