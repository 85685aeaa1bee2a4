"""A node's part in the cluster: its registration, its lease, and the election of the controller.

A node registers under its id, with a lease that it keeps alive, and watches everything. Whoever
finds that there is no controller tries to become it, under the same lease: one succeeds. When the
lease is gone, the node registers again. When the coordinator has forgotten changes that the watch
was to tell, or does not answer, it reads everything and watches from there.

A process that begins may have lost what its predecessor wrote and did not make permanent. So it
gives up, before it registers, what the coordinator still has of its predecessor: its leaderships,
and its places in sync where others are. An epoch that it leads has begun after it did.

Whether a node is a member is judged by its own clock, from before its last call that was answered:
it stops believing so no later than the coordinator does.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from entrepot.cluster.controller import Controller, settle
from entrepot.cluster.state import (
    CONTROLLER,
    NODES,
    PARTITIONS,
    Node,
    encode,
    node_key,
    read_assignment,
)
from entrepot.core.coordinator import Coordinator, Entry, Expected, Put, Snapshot
from entrepot.core.errors import CoordinatorUnavailable, LeaseLost, RevisionCompacted
from entrepot.core.ports import Clock

log = logging.getLogger("entrepot.cluster")

_RETRY_S = 0.5
_KEEP_ALIVE_PER_LEASE = 4  # So often a lease is kept alive before it would end.


class Observer(Protocol):
    """Who is told of everything that the coordinator has, besides the controller."""

    def began(self, snapshot: Snapshot) -> None:
        """Take in everything there is: at the beginning, and again after a gap."""

    def told(self, key: str, value: bytes | None, revision: int) -> None:
        """Take in a change; None means: the key is gone."""


class Membership:
    def __init__(
        self,
        coordinator: Coordinator,
        clock: Clock,
        node: Node,
        lease_seconds: int,
        observer: Observer | None = None,
    ) -> None:
        self._coordinator = coordinator
        self._observer = observer
        self._lease = 0  # 0 means: none.
        self._is_new = True  # This process was never registered.
        self._clock = clock
        self._node = node
        self._lease_seconds = lease_seconds
        self._member_until = 0.0  # By the monotonic clock.
        self._controller: Controller | None = None

    @property
    def is_member(self) -> bool:
        """Return whether the others take this node for alive."""
        return self._clock.monotonic() < self._member_until

    @property
    def is_controller(self) -> bool:
        """Return whether this node decides, as far as it knows."""
        return self._controller is not None and self.is_member

    async def leave(self) -> None:
        """Say that this node has no part in the cluster any more, once `run` has ended: others lead
        what it led, without waiting for its lease to end."""
        self._member_until = 0.0
        if self._lease:
            await self._coordinator.revoke(self._lease)

    async def run(self) -> None:
        """Take part for ever."""
        while True:
            try:
                await self._take_part()
            except (CoordinatorUnavailable, LeaseLost) as error:
                if isinstance(error, LeaseLost):  # Perhaps before its time: do not wait for that.
                    self._member_until = 0.0
                log.warning("node %d: %s", self._node.id, error)
            await asyncio.sleep(_RETRY_S)

    async def _take_part(self) -> None:
        """Register and take part until something goes wrong. Raises that."""
        key = node_key(self._node.id)
        if self._is_new:
            await self._give_up_predecessors(key)
        before = self._clock.monotonic()
        lease = await self._coordinator.grant(self._lease_seconds)
        put = Put(key, encode(self._node), lease.id)
        if await self._coordinator.commit([Expected(key, 0)], [put]) is None:
            # Another node has this id; or we had it, and that lease has not ended yet.
            await self._coordinator.revoke(lease.id)
            raise LeaseLost(f"the id {self._node.id} is taken")
        self._member_until = before + lease.seconds
        self._lease, self._is_new = lease.id, False
        tasks = [
            asyncio.get_running_loop().create_task(work)
            for work in (self._keep_alive(lease.id), self._keep_following(lease.id))
        ]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task in done:
                    task.result()
        finally:
            self._controller = None
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in tasks:
                if not task.cancelled():
                    task.exception()  # One of them was raised.

    async def _give_up_predecessors(self, key: str) -> None:
        """Give up the roles that an earlier process of this node had. Raises LeaseLost while that
        is registered, or another node with the same id."""
        snapshot = await self._coordinator.range("")
        nodes = [each.key for each in snapshot.entries if each.key.startswith(NODES)]
        if key in nodes:
            raise LeaseLost(f"the id {self._node.id} is taken")
        alive = [int(each.removeprefix(NODES)) for each in nodes]
        for entry in snapshot.entries:
            if not entry.key.startswith(PARTITIONS):
                continue
            present: Entry | None = entry
            while present is not None:
                assignment = read_assignment(present.value)
                if self._node.id not in (assignment.leader, *assignment.in_sync):
                    break
                left = settle(assignment, alive)
                expected = [Expected(entry.key, present.revision)]
                is_done = left == assignment or await self._coordinator.commit(
                    expected, [Put(entry.key, encode(left))]
                )
                if is_done:
                    break
                present = await self._coordinator.get(entry.key)

    async def _keep_alive(self, lease: int) -> None:
        """Keep the lease alive; a call without an answer is repeated while there is time."""
        while True:
            await asyncio.sleep(self._lease_seconds / _KEEP_ALIVE_PER_LEASE)
            before = self._clock.monotonic()
            try:
                self._member_until = before + await self._coordinator.keep_alive(lease)
            except CoordinatorUnavailable:
                if not self.is_member:
                    raise

    async def _keep_following(self, lease: int) -> None:
        """Follow what the coordinator has; begin anew when it does not answer, or forgot."""
        while True:
            try:
                await self._follow(lease)
            except (CoordinatorUnavailable, RevisionCompacted) as error:
                log.warning("node %d: %s", self._node.id, error)
            self._controller = None
            await asyncio.sleep(_RETRY_S)

    async def _follow(self, lease: int) -> None:
        """Read everything, then take in each change; as the controller, decide. Return when
        there is another controller, or none. Raises LeaseLost when the node is not registered."""
        own = node_key(self._node.id)
        snapshot = await self._coordinator.range("")
        await self._elect(snapshot, lease)
        snapshot = await self._coordinator.range("")
        if not any(entry.key == own for entry in snapshot.entries):
            raise LeaseLost(f"node {self._node.id} is not registered any more")
        self._begin(snapshot, lease)
        if self._observer is not None:
            self._observer.began(snapshot)
        watch = self._coordinator.watch("", snapshot.revision + 1)
        try:
            while True:
                await self._decide()
                for key, value, revision in await watch.next():
                    if self._observer is not None:
                        self._observer.told(key, value, revision)
                    if key == own and value is None:
                        raise LeaseLost(f"node {self._node.id} is not registered any more")
                    if key == CONTROLLER:
                        return
                    if self._controller is not None:
                        self._controller.told(key, value, revision)
        finally:
            watch.close()

    async def _elect(self, snapshot: Snapshot, lease: int) -> None:
        """Become the controller if there is none."""
        if not any(entry.key == CONTROLLER for entry in snapshot.entries):
            put = Put(CONTROLLER, str(self._node.id).encode(), lease)
            await self._coordinator.commit([Expected(CONTROLLER, 0)], [put])

    def _begin(self, snapshot: Snapshot, lease: int) -> None:
        """Begin as the controller if it is us."""
        for entry in snapshot.entries:
            if entry.key == CONTROLLER and entry.lease == lease:
                self._controller = Controller(entry.revision)
                for key, value, revision, _ in snapshot.entries:
                    self._controller.told(key, value, revision)

    async def _decide(self) -> None:
        if self._controller is not None:
            for expected, changes in self._controller.decide():
                await self._coordinator.commit(expected, changes)
