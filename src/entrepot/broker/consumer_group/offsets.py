"""Committed offsets: for each group and partition, where the group continues to read.

An offset committed in a transaction is pending until the transaction ends; then it takes
effect, unless a plain commit came after it. There is no I/O here: changes are applied in the
order of the log when they are permanent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from entrepot.broker.consumer_group.records import CommittedOffset


class TopicPartition(NamedTuple):
    topic: str
    partition: int


class Offsets:
    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}  # By group.
        # By producer id, then by group.
        self._pending: dict[int, dict[str, dict[TopicPartition, CommittedOffset]]] = {}

    # --- changing

    def commit(self, group: str, place: TopicPartition, offset: CommittedOffset) -> None:
        self._committed.setdefault(group, {})[place] = offset

    def commit_pending(
        self, producer_id: int, group: str, place: TopicPartition, offset: CommittedOffset
    ) -> None:
        self._pending.setdefault(producer_id, {}).setdefault(group, {})[place] = offset

    def forget(self, group: str, place: TopicPartition) -> None:
        """Delete an offset, also a pending one."""
        stores = [self._committed, *self._pending.values()]
        for offsets in stores:
            places = offsets.get(group, {})
            places.pop(place, None)
            if not places:
                offsets.pop(group, None)

    def drop(self, is_meant: Callable[[str], bool]) -> None:
        """Forget all offsets of the groups that are meant: another node has them now."""
        for offsets in (self._committed, *self._pending.values()):
            for group in [group for group in offsets if is_meant(group)]:
                del offsets[group]
        self._pending = {each: groups for each, groups in self._pending.items() if groups}

    def end_transaction(
        self,
        producer_id: int,
        *,
        committed: bool,
        among: Callable[[str], bool] | None = None,
    ) -> None:
        """End a transaction: its pending offsets take effect if `committed`, and are dropped
        otherwise.

        `among` selects groups: when the log is read at a start, a transaction ends in each
        partition at another time.
        """
        pending = self._pending.get(producer_id, {})
        for group in [each for each in pending if among is None or among(each)]:
            for place, offset in pending.pop(group).items():
                now = self.get(group, place)
                if committed and (now is None or now.record_offset < offset.record_offset):
                    self.commit(group, place, offset)
        if not pending:
            self._pending.pop(producer_id, None)

    # --- looking

    def get(self, group: str, place: TopicPartition) -> CommittedOffset | None:
        return self._committed.get(group, {}).get(place)

    def of(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        return self._committed.get(group, {})

    def groups(self) -> Iterator[str]:
        yield from self._committed

    def is_pending(self, group: str, place: TopicPartition) -> bool:
        return any(place in groups.get(group, {}) for groups in self._pending.values())

    def has_pending(self, group: str) -> bool:
        return any(group in groups for groups in self._pending.values())

    def has(self, group: str, place: TopicPartition) -> bool:
        """Return whether there is an offset, committed or pending."""
        return self.get(group, place) is not None or self.is_pending(group, place)

    def places_of(self, group: str) -> list[TopicPartition]:
        """Return the partitions with an offset, committed or pending."""
        found = dict.fromkeys(self.of(group))
        for groups in self._pending.values():
            found |= dict.fromkeys(groups.get(group, {}))
        return list(found)

    def expired(self, group: str, since_ms: int | None, before_ms: int) -> list[TopicPartition]:
        """Return the partitions whose offsets were committed before `before_ms`.

        `since_ms` is when the group became empty: offsets are kept for the whole retention after
        that.
        """
        return [
            place
            for place, offset in self.of(group).items()
            if (offset.commit_ms if since_ms is None else max(since_ms, offset.commit_ms))
            < before_ms
            and not self.is_pending(group, place)
        ]
