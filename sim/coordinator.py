"""A coordinator for all nodes of a simulated world, as unreliable as etcd may be.

One store, as everybody sees it in the end; each node has a door to it, with delays of its own.
What may go wrong, and does when asked to:

- A call is late, or the service is away for a node or for all: then nothing is done, or it is
  done and the answer is lost.
- A lease ends late, never early; or at once, when `lose_lease` says so, as after a member's
  clock has jumped.
- A read that `may_be_stale` sees some revision of the last few.
- A watch tells of changes late, some at a time, never out of order; when what it has to tell was
  compacted meanwhile it says so.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from entrepot.cluster.key_store import KeyStore
from entrepot.core.coordinator import Change, Entry, Event, Expected, Lease, Snapshot
from entrepot.core.errors import CoordinatorUnavailable, LeaseLost

_PAST_MAX = 20  # Revisions that a stale read may see.


@dataclass(slots=True)
class Climate:
    """How it usually is."""

    delay_seconds_max: float = 0.01
    watch_seconds_max: float = 0.05
    lease_late_seconds_max: float = 1.0
    lost_answer_chance: float = 0.0  # A change is made, and its caller hears of a failure.
    silent_seconds: float = 5.0  # How long a call waits for a service that is away.


class SimService:
    """The service itself, which outlives every node."""

    def __init__(self, random: Random, climate: Climate | None = None) -> None:
        self.random = random
        self.climate = climate or Climate()
        self.store = KeyStore()
        self.is_away = False
        self._cut_off: dict[str, None] = {}  # Nodes that cannot reach it.
        self._past = [self.store.range("")]  # The last few states, oldest first.
        self._ends: dict[int, float] = {}  # When each lease ends, by the loop's time.
        self._seconds: dict[int, int] = {}
        self._lease_last = 0
        self._changed = asyncio.Event()
        # Timers are the service's own: they do not die with the node that asked for the lease.
        self._context = contextvars.copy_context()

    def door(self, node: str = "here") -> SimCoordinator:
        return SimCoordinator(self, node)

    # --- trouble

    def cut_off(self, node: str) -> None:
        self._cut_off[node] = None

    def heal(self) -> None:
        self.is_away = False
        self._cut_off.clear()

    def lose_lease(self, lease: int) -> None:
        """End a lease although its holder keeps it alive."""
        self.end_lease(lease)

    def compact(self) -> None:
        """Forget all changes so far."""
        self.store.compact(self.store.revision)

    def reaches(self, node: str) -> bool:
        return not self.is_away and node not in self._cut_off

    # --- for the doors

    def stale(self) -> Snapshot:
        return self.random.choice(self._past)

    def changed(self) -> None:
        """Note a new state, and wake the watches."""
        self._past = [*self._past[-_PAST_MAX:], self.store.range("")]
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def next_change(self) -> None:
        await self._changed.wait()

    def grant(self, seconds: int) -> int:
        self._lease_last += 1
        lease = self._lease_last
        self._seconds[lease] = seconds
        self.store.grant(lease)
        self.renew(lease)
        return lease

    def renew(self, lease: int) -> int:
        """Begin the time of a lease anew; it ends a while after it should."""
        late = self.random.uniform(0, self.climate.lease_late_seconds_max)
        loop = asyncio.get_running_loop()
        end = loop.time() + self._seconds[lease] + late
        self._ends[lease] = end
        loop.call_at(end, self._expire, lease, context=self._context)
        return self._seconds[lease]

    def _expire(self, lease: int) -> None:
        if self._ends.get(lease, float("inf")) <= asyncio.get_running_loop().time():
            self.end_lease(lease)

    def end_lease(self, lease: int) -> None:
        self._ends.pop(lease, None)
        self.store.end_lease(lease)
        self.changed()


class SimCoordinator:
    """The service as one node reaches it."""

    def __init__(self, service: SimService, node: str) -> None:
        self._service = service
        self._node = node

    async def get(self, key: str, *, may_be_stale: bool = False) -> Entry | None:
        await self._delay()
        if may_be_stale:
            found = [each for each in self._service.stale().entries if each.key == key]
            entry = found[0] if found else None
        else:
            entry = self._service.store.get(key)
        await self._delay()
        return entry

    async def range(self, prefix: str, *, may_be_stale: bool = False) -> Snapshot:
        await self._delay()
        snapshot = self._service.stale() if may_be_stale else self._service.store.range("")
        entries = [each for each in snapshot.entries if each.key.startswith(prefix)]
        await self._delay()
        return Snapshot(snapshot.revision, entries)

    async def commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int | None:
        await self._delay()
        before = self._service.store.revision
        revision = self._service.store.commit(expected, changes)
        if self._service.store.revision != before:
            self._service.changed()
        await self._answered()
        return revision

    async def grant(self, seconds: int) -> Lease:
        await self._delay()
        lease = self._service.grant(seconds)
        await self._answered()
        return Lease(lease, seconds)

    async def keep_alive(self, lease: int) -> float:
        await self._delay()
        if not self._service.store.has_lease(lease):
            raise LeaseLost(f"there is no lease {lease}")
        seconds = self._service.renew(lease)
        await self._answered()
        return seconds

    async def revoke(self, lease: int) -> None:
        await self._delay()
        self._service.end_lease(lease)
        await self._answered()

    def watch(self, prefix: str, revision: int) -> _SimWatch:
        return _SimWatch(self._service, self._node, prefix, revision)

    def close(self) -> None:
        """The service stays."""

    async def _delay(self) -> None:
        """Let time pass on the way there or back; forever, if the service is not reached."""
        climate = self._service.climate
        await asyncio.sleep(self._service.random.uniform(0, climate.delay_seconds_max))
        if not self._service.reaches(self._node):
            await asyncio.sleep(climate.silent_seconds)
            raise CoordinatorUnavailable("the coordinator does not answer")

    async def _answered(self) -> None:
        await self._delay()
        if self._service.random.random() < self._service.climate.lost_answer_chance:
            raise CoordinatorUnavailable("the answer was lost")


class _SimWatch:
    def __init__(self, service: SimService, node: str, prefix: str, revision: int) -> None:
        self._service = service
        self._node = node
        self._prefix = prefix
        self._revision = revision

    async def next(self) -> list[Event]:
        service, random = self._service, self._service.random
        while True:
            await asyncio.sleep(random.uniform(0, service.climate.watch_seconds_max))
            if not service.reaches(self._node):  # Nobody says so: it is only silent.
                await asyncio.sleep(service.climate.silent_seconds)
                continue
            if events := service.store.since(self._prefix, self._revision):
                last = random.choice(events).revision  # Some now, and the others later.
                told = [event for event in events if event.revision <= last]
                self._revision = last + 1
                return told
            await service.next_change()

    def close(self) -> None:
        """Nothing is held between two calls."""
