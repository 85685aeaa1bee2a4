"""One cluster's part of a coordinator: all keys that begin with its name."""

from __future__ import annotations

from collections.abc import Sequence

from entrepot.core.coordinator import (
    Change,
    Coordinator,
    Delete,
    Entry,
    Event,
    Expected,
    Lease,
    Put,
    Snapshot,
    Watch,
)


class PrefixedCoordinator:
    def __init__(self, coordinator: Coordinator, prefix: str) -> None:
        self._coordinator = coordinator
        self._prefix = prefix

    async def get(self, key: str, *, may_be_stale: bool = False) -> Entry | None:
        entry = await self._coordinator.get(self._prefix + key, may_be_stale=may_be_stale)
        return None if entry is None else entry._replace(key=key)

    async def range(self, prefix: str, *, may_be_stale: bool = False) -> Snapshot:
        found = await self._coordinator.range(self._prefix + prefix, may_be_stale=may_be_stale)
        entries = [each._replace(key=self._without(each.key)) for each in found.entries]
        return Snapshot(found.revision, entries)

    async def commit(self, expected: Sequence[Expected], changes: Sequence[Change]) -> int | None:
        return await self._coordinator.commit(
            [each._replace(key=self._prefix + each.key) for each in expected],
            [self._with(each) for each in changes],
        )

    async def grant(self, seconds: int) -> Lease:
        return await self._coordinator.grant(seconds)

    async def keep_alive(self, lease: int) -> float:
        return await self._coordinator.keep_alive(lease)

    async def revoke(self, lease: int) -> None:
        await self._coordinator.revoke(lease)

    def watch(self, prefix: str, revision: int) -> Watch:
        return _PrefixedWatch(self, self._coordinator.watch(self._prefix + prefix, revision))

    def close(self) -> None:
        self._coordinator.close()

    def _with(self, change: Change) -> Change:
        if isinstance(change, Delete):
            return Delete(self._prefix + change.key)
        return Put(self._prefix + change.key, change.value, change.lease)

    def _without(self, key: str) -> str:
        return key.removeprefix(self._prefix)


class _PrefixedWatch:
    def __init__(self, owner: PrefixedCoordinator, watch: Watch) -> None:
        self._owner = owner
        self._watch = watch

    async def next(self) -> list[Event]:
        found = await self._watch.next()
        return [each._replace(key=self._owner._without(each.key)) for each in found]

    def close(self) -> None:
        self._watch.close()
