"""Committed offsets at the edge: kept in the store first, counted when they are permanent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.consumer_group.offsets import Offsets, Place
from entrepot.broker.consumer_group.records import CommittedOffset, Key, Kind, Row
from entrepot.broker.consumer_group.store import Store
from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.core.ports import Clock
from entrepot.log.partition import Waiter

log = logging.getLogger("entrepot.groups")

_NOBODY = (-1, -1)  # The producer of what is in no transaction.


class Commits:
    def __init__(self, store: Store, clock: Clock) -> None:
        self.offsets = Offsets()
        self._store = store
        self._clock = clock

    async def commit(
        self,
        group: str,
        offsets: Mapping[Place, CommittedOffset],
        producer: tuple[int, int] | None,
    ) -> dict[Place, Fault]:
        """Returns what is wrong with single ones; the others are committed."""
        faults = {
            place: Fault.OFFSET_METADATA_TOO_LARGE
            for place, offset in offsets.items()
            if len(offset.metadata) > limits.OFFSET_METADATA_SIZE_MAX
        }
        now_ms = self._clock.now_ms()
        rows: list[Row] = [
            (Key(Kind.OFFSET, group, *place), offset._replace(commit_ms=now_ms))
            for place, offset in offsets.items()
            if place not in faults
        ]
        await self.keep(group, rows, producer)
        return faults

    def delete(self, group: str, places: Iterable[Place]) -> Awaitable[None]:
        return self.keep(group, [(Key(Kind.OFFSET, group, *place), None) for place in places])

    def keep(
        self, group: str, rows: Sequence[Row], producer: tuple[int, int] | None = None
    ) -> Awaitable[None]:
        """Append now, apply when permanent; await the result for that. Raises StorageError."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: StorageError | None) -> None:
            if done.done():
                return  # Who asked is gone; what was asked for happened.
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._keep(group, rows, producer, finish)
        return done

    def _keep(
        self, group: str, rows: Sequence[Row], producer: tuple[int, int] | None, finish: Waiter
    ) -> None:
        if not rows:
            finish(None)
            return
        first = self._store.append(group, rows, producer)
        producer_id, _ = producer or _NOBODY

        def kept(error: StorageError | None) -> None:
            if error is None:
                for number, row in enumerate(rows):
                    self.apply(row, first + number, producer_id)
            finish(error)

        self._store.when_kept(group, kept)

    def apply(self, row: Row, record_offset: int, producer_id: int) -> None:
        """What is permanent, in the order of the log: now, or when folding."""
        key, value = row
        place = Place(key.name, key.partition)
        if key.kind is not Kind.OFFSET:
            return
        if not isinstance(value, CommittedOffset):
            self.offsets.forget(key.group, place)
            return
        offset = CommittedOffset(*value[:4], record_offset)
        if producer_id < 0:
            self.offsets.commit(key.group, place, offset)
        else:
            self.offsets.commit_pending(producer_id, key.group, place, offset)

    def fetch(
        self, group: str, places: Iterable[Place] | None, *, require_stable: bool
    ) -> dict[Place, CommittedOffset | Fault | None]:
        """Of these, or of all there are. Unstable: a transaction may be about to change it."""
        wanted = self.offsets.of(group) if places is None else places
        return {
            place: Fault.UNSTABLE_OFFSET_COMMIT
            if require_stable and self.offsets.is_pending(group, place)
            else self.offsets.get(group, place)
            for place in wanted
        }

    def forget_topics(self, exists: Callable[[str], object]) -> None:
        """What was committed for topics that are gone: one of the same name is another."""
        for group in list(self.offsets.groups()):
            gone = [place for place in self.offsets.places_of(group) if not exists(place.topic)]
            self._forget(group, gone)

    def expire(
        self,
        group: str,
        since_ms: int | None,
        retention_ms: int,
        is_used: Callable[[str], bool],
    ) -> bool:
        """Forget what was not used for so long; whether nothing is left."""
        before_ms = self._clock.now_ms() - retention_ms
        found = self.offsets.expired(group, since_ms, before_ms)
        expired = [place for place in found if not is_used(place.topic)]
        self._forget(group, expired)
        return len(expired) == len(self.offsets.places_of(group))

    def _forget(self, group: str, places: Sequence[Place]) -> None:
        """In the background: what cannot be forgotten now is found again later."""

        def finish(error: StorageError | None) -> None:
            if error is not None:
                log.warning("group %s: old offsets stay: %s", group, error)

        rows: list[Row] = [(Key(Kind.OFFSET, group, *place), None) for place in places]
        try:
            self._keep(group, rows, None, finish)
        except StorageError as error:
            finish(error)
