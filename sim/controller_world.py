"""Nodes that elect a controller, and a controller that assigns leaders, while all sorts of things
go wrong: nodes die and come back, are cut off from the coordinator, lose their leases; the
coordinator is away, takes longer than a lease lasts, loses answers, and forgets its history.

Checked with every change of a partition's assignment, and at the end, when all is well again:

- An epoch has one leader, and a new leader has a higher epoch.
- A new leader was in sync; whoever is in sync is a replica; somebody always is.
- In the end there is one controller, and every partition is led by a node that is alive.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from entrepot.cluster.membership import Membership
from entrepot.cluster.placement import place
from entrepot.cluster.state import (
    CONTROLLER,
    NOBODY,
    NODES,
    PARTITIONS,
    Assignment,
    Node,
    encode,
    read_assignment,
)
from entrepot.core.coordinator import Put
from entrepot.log.policy import Durability
from sim.clock import SimClock
from sim.coordinator import Climate, SimService
from sim.loop import Process, SimLoop, run

LEASE_SECONDS = 3
CALM_SECONDS = 60.0


class Violation(AssertionError):
    """What must never be."""


@dataclass
class History:
    """All assignments that there were."""

    last: dict[str, Assignment] = field(default_factory=dict)
    leaders: dict[tuple[str, int], int] = field(default_factory=dict)  # By key and epoch.
    changes: int = 0

    def add(self, key: str, now: Assignment) -> None:
        before = self.last.get(key)
        if now == before:
            return
        self.changes += 1
        self.last[key] = now
        if not now.in_sync or not set(now.in_sync) <= set(now.replicas):
            raise Violation(f"{key}: in sync are {now.in_sync} of {now.replicas}")
        if now.leader != NOBODY:
            if self.leaders.setdefault((key, now.leader_epoch), now.leader) != now.leader:
                raise Violation(f"{key}: epoch {now.leader_epoch} has two leaders")
            if now.leader not in now.in_sync:
                raise Violation(f"{key}: leader {now.leader} is not in sync")
        if before is not None:
            if now.leader_epoch < before.leader_epoch:
                raise Violation(f"{key}: epoch {now.leader_epoch} after {before.leader_epoch}")
            if now.leader != before.leader and now.leader_epoch == before.leader_epoch:
                raise Violation(f"{key}: another leader in epoch {now.leader_epoch}")
            if now.leader not in (NOBODY, *before.in_sync):
                raise Violation(f"{key}: leader {now.leader} was not in sync")


class World:
    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._random: Random = loop.random("world")
        self._clock = SimClock(loop)
        climate = Climate(
            delay_seconds_max=self._random.choice((0.01, 0.5, 1.5, 3.0)),
            lost_answer_chance=self._random.choice((0.0, 0.05, 0.2)),
        )
        self.service = SimService(loop.random("coordinator"), climate)
        self.history = History()
        racks = self._random.choice((("", "", ""), ("a", "b", "a", "b"), ("a", "b", "c", "a", "b")))
        self.nodes = [Node(n, f"host{n}", 9000 + n, rack) for n, rack in enumerate(racks, 1)]
        self._processes: dict[int, Process] = {}
        self.members: dict[int, Membership] = {}

    async def run(self, seconds: float) -> None:
        watching = self._loop.create_task(self._watch())
        await self._create_partitions()
        for node in self.nodes:
            self._start(node)
        end = self._loop.time() + seconds
        while self._loop.time() < end:
            await asyncio.sleep(self._random.expovariate(1.0))
            self._trouble()
        self.service.heal()
        self.service.climate = Climate()
        for node in self.nodes:
            if node.id not in self._processes:
                self._start(node)
        await asyncio.sleep(CALM_SECONDS)
        if watching.done():
            watching.result()
        self._check_end()

    async def _create_partitions(self) -> None:
        placed = place(self.nodes, 6, 3)
        changes = [
            Put(f"{PARTITIONS}t/{n}", encode(Assignment(tuple(nodes), tuple(nodes), nodes[0], 0)))
            for n, nodes in enumerate(placed)
        ]
        self.service.store.commit([], changes)
        self.service.changed()

    def _start(self, node: Node) -> None:
        process = self._processes[node.id] = Process(self._loop)
        door = self.service.door(str(node.id))
        member = self.members[node.id] = Membership(door, self._clock, node, LEASE_SECONDS)
        process.start(member.run())

    def _trouble(self) -> None:
        """One more thing goes wrong, or all of it right again."""
        node = self._random.choice(self.nodes)
        match self._random.randrange(8):
            case 0 | 1 if node.id in self._processes:
                self._processes.pop(node.id).kill()
                del self.members[node.id]
            case 2 | 3 if node.id not in self._processes:
                self._start(node)
            case 4:
                self.service.cut_off(str(node.id))
            case 5:
                leases = [each.lease for each in self.service.store.range("").entries if each.lease]
                if leases:
                    self.service.lose_lease(self._random.choice(leases))
            case 6:
                self.service.compact()
                self.service.is_away = self._random.random() < 0.3
            case 7:
                self.service.heal()

    async def _watch(self) -> None:
        """See every change, as the service makes it."""
        while True:
            for entry in self.service.store.range(PARTITIONS).entries:
                self.history.add(entry.key, read_assignment(entry.value))
            await self.service.next_change()

    def _check_end(self) -> None:
        entries = {each.key: each for each in self.service.store.range("").entries}
        alive = [node.id for node in self.nodes if f"{NODES}{node.id}" in entries]
        if alive != [node.id for node in self.nodes]:
            raise Violation(f"only {alive} are registered")
        deciding = [number for number, member in self.members.items() if member.is_controller]
        if len(deciding) != 1 or str(deciding[0]).encode() != entries[CONTROLLER].value:
            raise Violation(f"{deciding} take themselves for the controller")
        for key, assignment in self.history.last.items():
            if assignment.leader not in alive:
                raise Violation(f"{key}: led by {assignment.leader}")


class Result(NamedTuple):
    changes: int  # Of assignments, the first ones included.
    history: History


def controller_world(
    seconds: float, *, sync_is_noop: bool = False, durability: Durability = Durability.FSYNC
) -> Callable[[SimLoop], Coroutine[Any, Any, Result]]:
    """Return the world. There is no disk in it, so it does not matter what that does."""

    async def main(loop: SimLoop) -> Result:
        world = World(loop)
        await world.run(seconds)
        return Result(world.history.changes, world.history)

    return main


def simulate(seed: int, seconds: float = 60.0) -> Result:
    """Run the world of a seed. Raises Violation."""
    return run(seed, controller_world(seconds))
