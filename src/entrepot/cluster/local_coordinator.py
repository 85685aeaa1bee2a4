"""The coordinator of a node alone: one file in its data directory, and no service.

Each change replaces the file as a whole, so that a crash leaves the state before it or after it;
there is one node, which changes little. A lease does not outlive the process, because its holder
was in the same one: at the start, the keys that leases held are deleted.

When a write fails it is not known which state the disk has. From then on every call is refused,
until the next start reads the file.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec

from entrepot.cluster.key_store import KeyStore
from entrepot.core.coordinator import Change, Entry, Event, Expected, Lease, Snapshot
from entrepot.core.errors import CoordinatorUnavailable, Corruption, LeaseLost
from entrepot.core.ports import Disk
from entrepot.log import layout
from entrepot.log.files import load, replace

T = TypeVar("T")


class _Row(msgspec.Struct, array_like=True):
    key: str
    value: bytes
    revision: int
    lease: int

    def entry(self) -> Entry:
        return Entry(self.key, self.value, self.revision, self.lease)


class _State(msgspec.Struct, array_like=True):
    revision: int
    lease_last: int  # No lease up to this one is given again.
    rows: list[_Row]


class LocalCoordinator:
    def __init__(self, disk: Disk) -> None:
        """Read what the disk has. Raises Corruption if that is damaged."""
        self._disk = disk
        state = _read(disk)
        self._store = KeyStore(state.revision, [row.entry() for row in state.rows])
        for row in state.rows:
            self._store.end_lease(row.lease)
        self._lease_last = state.lease_last
        self._lease_seconds: dict[int, float] = {}
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        # Reads wait for writes: what is not on disk may not be seen.
        self._lock = asyncio.Lock()
        self._failure: str | None = None
        self._changed = asyncio.Event()

    # --- reading

    async def get(self, key: str, *, may_be_stale: bool = False) -> Entry | None:
        async with self._held():
            return self._store.get(key)

    async def range(self, prefix: str, *, may_be_stale: bool = False) -> Snapshot:
        async with self._held():
            return self._store.range(prefix)

    def watch(self, prefix: str, revision: int) -> _LocalWatch:
        return _LocalWatch(self, prefix, revision)

    async def since(self, prefix: str, revision: int) -> list[Event]:
        """Return the changes from that revision on; wait until there are some."""
        while True:
            async with self._held():
                if events := self._store.since(prefix, revision):
                    return events
                changed = self._changed
            await changed.wait()

    # --- changing

    async def commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int | None:
        return await self._whole(self._commit(expected, changes))

    async def grant(self, seconds: int) -> Lease:
        return await self._whole(self._grant(seconds))

    async def keep_alive(self, lease: int) -> float:
        async with self._held():
            if not self._store.has_lease(lease):
                raise LeaseLost(f"there is no lease {lease}")
            self._count_down(lease)
            return self._lease_seconds[lease]

    async def revoke(self, lease: int) -> None:
        await self._whole(self._end(lease))

    async def _whole(self, work: Coroutine[None, None, T]) -> T:
        """Do it to its end, also if the caller is cancelled: half a write is a failure."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return await asyncio.shield(task)

    async def _commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int | None:
        async with self._held():
            before = self._store.revision
            revision = self._store.commit(expected, changes)
            if self._store.revision != before:
                await self._save()
            return revision

    async def _grant(self, seconds: int) -> Lease:
        async with self._held():
            self._lease_last += 1
            lease = self._lease_last
            await self._save()  # Its number must not be given again, however short its life.
            self._store.grant(lease)
            self._lease_seconds[lease] = seconds
            self._count_down(lease)
            return Lease(lease, seconds)

    def _count_down(self, lease: int) -> None:
        if timer := self._timers.get(lease):
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[lease] = loop.call_later(self._lease_seconds[lease], self._expire, lease)

    def _expire(self, lease: int) -> None:
        task = asyncio.get_running_loop().create_task(self._end(lease, self._timers[lease]))
        self._tasks[task] = None
        task.add_done_callback(self._expired)

    def _expired(self, task: asyncio.Task[None]) -> None:
        del self._tasks[task]
        if not task.cancelled():
            task.exception()  # Who calls next is told of the failure.

    async def _end(self, lease: int, timer: asyncio.TimerHandle | None = None) -> None:
        """End a lease; if its timer has ended, unless it was kept alive at the last moment."""
        async with self._held():
            if timer is not None and self._timers.get(lease) is not timer:
                return
            self._lease_seconds.pop(lease, None)
            if running := self._timers.pop(lease, None):
                running.cancel()
            before = self._store.revision
            self._store.end_lease(lease)
            if self._store.revision != before:
                await self._save()

    # --- the file

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        """Hold the state for one call. Raises CoordinatorUnavailable after a failure."""
        async with self._lock:
            if self._failure is not None:
                raise CoordinatorUnavailable(self._failure)
            yield

    async def _save(self) -> None:
        rows = [_Row(*entry) for entry in self._store.range("").entries]
        state = _State(self._store.revision, self._lease_last, rows)
        payload = msgspec.msgpack.encode(state)
        try:
            await replace(self._disk, "", layout.COORDINATOR_CHECKPOINT, payload)
        except OSError as error:
            self._failure = f"{layout.COORDINATOR_CHECKPOINT}: {error.strerror}"
            raise CoordinatorUnavailable(self._failure) from error
        finally:
            changed, self._changed = self._changed, asyncio.Event()
            changed.set()  # After a failure, too: watches must notice it.

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()


class _LocalWatch:
    def __init__(self, coordinator: LocalCoordinator, prefix: str, revision: int) -> None:
        self._coordinator = coordinator
        self._prefix = prefix
        self._revision = revision

    async def next(self) -> list[Event]:
        events = await self._coordinator.since(self._prefix, self._revision)
        self._revision = events[-1].revision + 1
        return events

    def close(self) -> None:
        """Nothing is held between two calls."""


def _read(disk: Disk) -> _State:
    path = layout.COORDINATOR_CHECKPOINT
    payload = load(disk, path)
    if payload is None:
        if disk.exists(path):
            raise Corruption(f"{path} is damaged")
        return _State(1, 0, [])
    try:
        return msgspec.msgpack.decode(payload, type=_State)
    except msgspec.DecodeError as error:
        raise Corruption(f"{path}: {error}") from None
