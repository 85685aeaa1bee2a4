"""Committing offsets: they are stored first, and take effect when that is permanent."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from entrepot.broker.consumer_group.faults import Fault
from entrepot.broker.consumer_group.offsets import Offsets, TopicPartition
from entrepot.broker.consumer_group.records import CommittedOffset, GroupRecordKind, Key, Row
from entrepot.broker.consumer_group.store import GroupStore
from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.core.ports import Clock
from entrepot.core.steps import Steps, parts
from entrepot.log.partition import Waiter

log = logging.getLogger("entrepot.groups")

_NO_PRODUCER = (-1, -1)  # Stands for: not in a transaction.
_FORGOTTEN_AT_ONCE = 1_000  # Offsets of deleted topics, in one record batch.


class Commits:
    def __init__(self, store: GroupStore, clock: Clock) -> None:
        self.offsets = Offsets()
        self._store = store
        self._clock = clock

    async def commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, CommittedOffset],
        producer: tuple[int, int] | None,
    ) -> dict[TopicPartition, Fault]:
        """Commit the offsets. Return the faults of those that are refused; the others are
        committed."""
        faults = {
            place: Fault.OFFSET_METADATA_TOO_LARGE
            for place, offset in offsets.items()
            if len(offset.metadata) > limits.OFFSET_METADATA_SIZE_MAX
        }
        now_ms = self._clock.now_ms()
        rows: list[Row] = [
            (Key(GroupRecordKind.OFFSET, group, *place), offset._replace(commit_ms=now_ms))
            for place, offset in offsets.items()
            if place not in faults
        ]
        await self.keep(group, rows, producer)
        return faults

    def delete(self, group: str, places: Iterable[TopicPartition]) -> Awaitable[None]:
        return self.keep(
            group, [(Key(GroupRecordKind.OFFSET, group, *place), None) for place in places]
        )

    def keep(
        self, group: str, rows: Sequence[Row], producer: tuple[int, int] | None = None
    ) -> Awaitable[None]:
        """Append rows now; the awaitable is done when they are permanent and applied.

        Raises StorageError.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def finish(error: StorageError | None) -> None:
            if done.done():
                return  # The caller was cancelled; the commit happened all the same.
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
        producer_id, _ = producer or _NO_PRODUCER

        def kept(error: StorageError | None) -> None:
            if error is None:
                for number, row in enumerate(rows):
                    self.apply(row, first + number, producer_id)
            finish(error)

        self._store.when_kept(group, kept)

    def apply(self, row: Row, record_offset: int, producer_id: int) -> None:
        """Apply a permanent row, in the order of the log: after a commit, or at a start."""
        key, value = row
        place = TopicPartition(key.name, key.partition)
        if key.kind is not GroupRecordKind.OFFSET:
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
        self, group: str, places: Iterable[TopicPartition] | None, *, require_stable: bool
    ) -> dict[TopicPartition, CommittedOffset | Fault | None]:
        """Return the committed offset of each of these partitions, or of all that have one.

        With `require_stable`, a fault where an open transaction may change it.
        """
        wanted = self.offsets.of(group) if places is None else places
        return {
            place: Fault.UNSTABLE_OFFSET_COMMIT
            if require_stable and self.offsets.is_pending(group, place)
            else self.offsets.get(group, place)
            for place in wanted
        }

    def forget_topics(self, exists: Callable[[str], object]) -> Steps[None]:
        """Delete offsets of topics that do not exist: a new topic of the same name is another
        topic."""
        for group in list(self.offsets.groups()):
            gone: list[TopicPartition] = []
            for place in self.offsets.places_of(group):
                if not exists(place.topic):
                    gone.append(place)
                yield
            for some in parts(gone, _FORGOTTEN_AT_ONCE):
                self._forget(group, some)
                yield

    def expire(
        self,
        group: str,
        since_ms: int | None,
        retention_ms: int,
        is_used: Callable[[str], bool],
    ) -> bool:
        """Delete offsets that are unused for `retention_ms`. Return whether the group has none
        left."""
        before_ms = self._clock.now_ms() - retention_ms
        found = self.offsets.expired(group, since_ms, before_ms)
        expired = [place for place in found if not is_used(place.topic)]
        self._forget(group, expired)
        return len(expired) == len(self.offsets.places_of(group))

    def _forget(self, group: str, places: Sequence[TopicPartition]) -> None:
        """Delete offsets in the background. If that fails they are found again later."""

        def finish(error: StorageError | None) -> None:
            if error is not None:
                log.warning("group %s: old offsets stay: %s", group, error)

        rows: list[Row] = [(Key(GroupRecordKind.OFFSET, group, *place), None) for place in places]
        try:
            self._keep(group, rows, None, finish)
        except StorageError as error:
            finish(error)
