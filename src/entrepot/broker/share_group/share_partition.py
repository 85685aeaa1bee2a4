"""The state of one partition's records in one share group: a ledger, and locks that time out.

A record that a consumer acquires is locked for it until it is acknowledged, the consumer is
gone, or the lock times out. Then it is settled, or ready again in its old place. A record that
is rejected, or has been delivered as often as allowed, is settled; if the group has a
dead-letter topic it is copied there first. Until the copy is permanent the record is leased to
this class itself, so that no consumer gets it.

Settled records, and the delivery counts of returned ones, are stored. Locks are not: after a
restart, locked records are ready again.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import IntEnum
from itertools import groupby
from typing import NamedTuple

from entrepot.broker.ledger import Lease, Ledger
from entrepot.broker.served_partition import ServedPartition
from entrepot.broker.settlements import Settlements
from entrepot.broker.share_group.acquisition import Bounds, Found, find
from entrepot.broker.share_group.dead_letter import Dead, ShareDeadLetterCause, ShareDeadLetters
from entrepot.broker.share_group.settings import ShareSettings
from entrepot.broker.share_group.store import ShareGroupStore, ShareName
from entrepot.core import limits
from entrepot.core.errors import InvalidAcknowledgement, InvalidRecordState, PeerError, StorageError
from entrepot.core.ports import FileRange
from entrepot.core.ranges import Ranges

log = logging.getLogger("entrepot.share")

_LOCKS_STALE_MAX = 64  # Ended locks that may stay in the heap beyond the number of locked records.
# How long to wait before dead letters are copied again, at first and at most.
_RETRY_S, _RETRY_S_MAX = 1.0, 60.0


class AcknowledgeType(IntEnum):
    """How a consumer acknowledges a record. Numbers are Kafka's."""

    GAP = 0  # There is no record at this offset.
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acknowledgement(NamedTuple):
    offsets: range
    acks: Sequence[int]  # One for all offsets, or one for each.


class Acquired(NamedTuple):
    offsets: range
    delivery_count: int  # Including this delivery.


class ShareDelivery(NamedTuple):
    acquired: list[Acquired]
    batches: list[FileRange]  # They may also hold records that were not acquired.


class SharePartition:
    def __init__(
        self,
        name: ShareName,
        served: ServedPartition,
        settlements: Settlements,
        ledger: Ledger,
        store: ShareGroupStore,
        dead_letters: ShareDeadLetters,
        settings: Callable[[], ShareSettings],
    ) -> None:
        self.name = name
        self.served = served
        self.settlements = settlements
        self.ledger = ledger
        self._store = store
        self._dead_letters = dead_letters
        self._settings = settings
        # A heap of (end in ms, serial, lease, offsets). Some may have been released before.
        self._locks: list[tuple[int, int, Lease, range]] = []
        self._serial = 0  # Orders locks with equal ends.
        self._dead_letter_lease = Lease(
            self
        )  # Holds records that wait to be copied as dead letters.
        self._dead: list[Dead] = []
        self._copying: asyncio.Task[None] | None = None
        # Done when copying has succeeded or failed once.
        self._copy_tried: asyncio.Future[None] | None = None
        self._listeners: dict[object, Callable[[], None]] = {}

    # --- what there is

    @property
    def offset_limit(self) -> int:
        """Return the exclusive end of what may be read."""
        is_committed = self._settings().is_committed
        return self.served.last_stable_offset if is_committed else self._high_watermark

    @property
    def _high_watermark(self) -> int:
        return self.served.partition.high_watermark

    @property
    def lag(self) -> int:
        """Return how many records are not settled."""
        return self.ledger.ready_count(self._high_watermark) + len(self.ledger.leased)

    def available(self) -> int:
        """Estimate how many bytes could be acquired now."""
        ledger, limit = self.ledger, self.offset_limit
        if ledger.returned and ledger.returned.first < limit:
            return limits.FETCH_BYTES_MAX  # Returned records are to be delivered at once.
        offset = max(ledger.offset_fresh, self.served.partition.offset_start)
        ahead = ledger.offset_low + self._settings().locks_max
        return self.served.partition.available(offset) if offset < min(limit, ahead) else 0

    @property
    def next_ms(self) -> int | None:
        """Return when `expire` should be called next, in ms; None without locks."""
        return self._locks[0][0] if self._locks else None

    def listen(self, token: object, listener: Callable[[], None]) -> None:
        """Call the listener whenever there may be more to acquire, until `unlisten`."""
        self._listeners[token] = listener
        self.served.partition.listen(token, listener)

    def unlisten(self, token: object) -> None:
        self._listeners.pop(token, None)
        self.served.partition.unlisten(token)

    def _wake(self) -> None:
        for listener in list(self._listeners.values()):
            listener()

    # --- acquiring

    def acquire(
        self, owner: object, records_max: int, bytes_max: int, now_ms: int, *, is_strict: bool
    ) -> ShareDelivery | None:
        """Acquire the oldest ready records and lock them for this owner. Raises StorageError."""
        self._skip_deleted()
        while True:
            settings = self._settings()
            bounds = Bounds(
                records_max,
                is_strict,
                bytes_max,
                self.offset_limit,
                self.ledger.offset_low + settings.locks_max,
                settings.is_committed,
            )
            found = find(self.ledger, self.served, bounds)
            if not found.offsets:
                return None
            records = self._take(found, Lease(owner), now_ms + settings.lock_ms)
            if records:
                acquired = [part for each in records for part in self._counted(each)]
                return ShareDelivery(acquired, found.batches)

    def _take(self, found: Found, lease: Lease, until_ms: int) -> Ranges:
        """Take the offsets out of the ledger, lock the records and settle the missing ones.

        Returns the offsets with a record.
        """
        self.ledger.pop(sum(map(len, found.offsets)), found.offsets[-1].stop)
        records = Ranges(found.offsets)
        for each in found.missing:
            records.remove(each.start, each.stop)
        for each in records:
            self._lock(each, lease, until_ms)
        for each in found.missing:
            self.ledger.settle_popped(each)
        self._note(found.missing)
        return records

    def _lock(self, offsets: range, lease: Lease, until_ms: int) -> None:
        self.ledger.lease(offsets, lease)
        self._serial += 1
        heapq.heappush(self._locks, (until_ms, self._serial, lease, offsets))
        if len(self._locks) > 2 * len(self.ledger.leased) + _LOCKS_STALE_MAX:
            leased = self.ledger.leased
            self._locks = [
                lock for lock in self._locks if any(leased.get(o) is lock[2] for o in lock[3])
            ]
            heapq.heapify(self._locks)

    def _counted(self, offsets: range) -> Iterator[Acquired]:
        """Split offsets into ranges with equal delivery counts."""
        for attempts, part in groupby(offsets, key=self.ledger.attempts):
            row = list(part)
            yield Acquired(range(row[0], row[-1] + 1), attempts + 1)

    def _skip_deleted(self) -> None:
        """Settle records that were deleted from the log."""
        ledger, start = self.ledger, self.served.partition.offset_start
        if ledger.offset_low >= start:
            return
        gone = sum(map(len, ledger.returned.within(ledger.offset_low, start)))
        gone += max(0, start - ledger.offset_fresh)
        if gone:
            self._note(ledger.discard(gone, start))

    # --- acknowledging

    def acknowledge(
        self, owner: object, acknowledgements: Sequence[Acknowledgement], now_ms: int
    ) -> None:
        """Apply the acknowledgements, all or none; `kept` waits until they are permanent.

        Raises PeerError.
        """
        known = self._checked(owner, acknowledgements)
        settled: list[range] = []
        for offsets, ack in known:
            match ack:
                case AcknowledgeType.ACCEPT | AcknowledgeType.GAP:
                    settled += self.ledger.settle(offsets, owner)
                case AcknowledgeType.RELEASE:
                    self._give_back(offsets, owner)
                case AcknowledgeType.REJECT:
                    for part in self._counted(offsets):
                        self._end(part, owner, ShareDeadLetterCause.REJECTED)
                case AcknowledgeType.RENEW:
                    self._renew(offsets, owner, now_ms)
        self._note(settled)
        self._wake()

    def _checked(
        self, owner: object, acknowledgements: Sequence[Acknowledgement]
    ) -> list[tuple[range, AcknowledgeType]]:
        """Check the acknowledgements; return ranges with one type each. Raises PeerError.

        Records that are deleted from the log need not be locked.
        """
        leased, start = self.ledger.leased, self.served.partition.offset_start
        known: list[tuple[range, AcknowledgeType]] = []
        end = 0
        for offsets, acks in acknowledgements:
            if not end <= offsets.start < offsets.stop:
                raise InvalidAcknowledgement("records are acknowledged once, in their order")
            end = offsets.stop
            if offsets.stop - offsets.start > len(leased) + max(0, start - offsets.start):
                raise InvalidRecordState("some records are not locked for this consumer")
            for row, ack in _rows(offsets, acks):
                if ack is AcknowledgeType.RENEW and not self._settings().can_renew:
                    raise InvalidAcknowledgement("locks cannot be renewed in this group")
                for offset in row:
                    held = leased.get(offset)
                    if (held is None or held.owner is not owner) and offset >= start:
                        raise InvalidRecordState(f"record {offset} is not locked for this consumer")
                known.append((row, ack))
        return known

    def _renew(self, offsets: range, owner: object, now_ms: int) -> None:
        lease = Lease(owner)
        held = [offset for offset in offsets if self.ledger.renew(offset, lease)]
        for row in _in_rows(held):
            self._lock(row, lease, now_ms + self._settings().lock_ms)

    def release(self, owner: object) -> None:
        """Release all locks of an owner that is gone."""
        leased = self.ledger.leased
        held = sorted(offset for offset, lease in leased.items() if lease.owner is owner)
        for row in _in_rows(held):
            self._give_back(row, owner)
        if held:
            self._wake()

    def expire(self, now_ms: int) -> None:
        """End the locks that have timed out."""
        leased, is_any = self.ledger.leased, False
        while self._locks and self._locks[0][0] <= now_ms:
            _, _, lease, offsets = heapq.heappop(self._locks)
            held = [offset for offset in offsets if leased.get(offset) is lease]
            for row in _in_rows(held):
                self._give_back(row, lease.owner)
                is_any = True
        if is_any:
            self._wake()

    def _give_back(self, offsets: range, owner: object) -> None:
        """Make locked records ready again, but for those that were delivered as often as
        allowed."""
        deliveries_max = self._settings().deliveries_max
        for part in self._counted(offsets):
            if part.delivery_count < deliveries_max:
                self._note_attempts(self.ledger.release(part.offsets, owner))
            else:
                self._end(part, owner, ShareDeadLetterCause.DELIVERED_TOO_OFTEN)

    def _end(self, part: Acquired, owner: object, cause: ShareDeadLetterCause) -> None:
        """Settle records, or first hand them over to be copied as dead letters."""
        if not self._settings().dead_letter_topic:
            self._note(self.ledger.settle(part.offsets, owner))
            return
        for row in self.ledger.hand_over(part.offsets, owner, self._dead_letter_lease):
            self._dead.append(Dead(row, part.delivery_count, cause))
        if self._copying is None:
            self._copying = asyncio.ensure_future(self._copy_dead_letters())
            self._copy_tried = asyncio.get_running_loop().create_future()

    async def _copy_dead_letters(self) -> None:
        """Copy dead letters and settle their records, and retry for as long as it takes."""
        delay_s = _RETRY_S
        while self._dead:
            waiting = self._dead
            dead = waiting[: limits.SHARE_DEAD_LETTERS_MAX]
            settings = self._settings()
            try:
                if settings.dead_letter_topic:  # The setting may have been removed since.
                    await self._dead_letters.copy(self.name, self.served, dead, settings)
            except (PeerError, StorageError, OSError) as error:
                log.warning("dead letters of group %s wait: %s", self.name.group, error)
                self._set_copy_tried()
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_S_MAX)
                continue
            if waiting is not self._dead:  # Rewound meanwhile: the records are not dead any more.
                continue
            del waiting[: len(dead)]
            self._note([row for each in dead for row in self.ledger.settle(each.offsets, self)])
            self._wake()
        self._copying = None
        self._set_copy_tried()

    def _set_copy_tried(self) -> None:
        if self._copy_tried is not None and not self._copy_tried.done():
            self._copy_tried.set_result(None)

    def _note(self, settled: Iterable[range]) -> None:
        """Note settled offsets, to be stored."""
        rows = list(settled)
        if rows:
            self.settlements.note(rows, self.ledger.offset_low)
            self._store.mark(self.settlements)

    def _note_attempts(self, released: Sequence[range]) -> None:
        """Note the delivery counts of returned records, to be stored."""
        if released:
            self.settlements.note_attempts(released, self.ledger.attempts)
            self._store.mark(self.settlements)

    async def kept(self) -> None:
        """Wait until what was acknowledged so far is permanent. Raises StorageError.

        It waits until dead letters are copied or copying failed: then they are copied later, and if
        the node stops before that, their records are delivered again.
        """
        if self._copy_tried is not None:
            await asyncio.shield(self._copy_tried)
        await self._store.kept()

    # --- rewinding

    def rewind(self, offset: int) -> None:
        """Make all records from the offset on ready, and settle those below it."""
        self._dead = []
        self._locks.clear()
        self.ledger.reset(offset)
        self.settlements.rewound(offset, offset)
        self._store.mark(self.settlements)
        self._wake()

    def close(self) -> None:
        if self._copying is not None:
            self._copying.cancel()


def _rows(offsets: range, acks: Sequence[int]) -> Iterator[tuple[range, AcknowledgeType]]:
    """Split offsets into ranges with one type of acknowledgement each. Raises PeerError."""
    if len(acks) not in (1, offsets.stop - offsets.start):
        raise InvalidAcknowledgement(f"{len(acks)} acknowledgements of other than so many records")
    if any(ack not in AcknowledgeType.__members__.values() for ack in acks):
        raise InvalidAcknowledgement("an acknowledgement of an unknown type")
    if len(acks) == 1:
        yield offsets, AcknowledgeType(acks[0])
        return
    offset = offsets.start
    for ack, row in groupby(acks):
        count = sum(1 for _ in row)
        yield range(offset, offset + count), AcknowledgeType(ack)
        offset += count


def _in_rows(offsets: Sequence[int]) -> Iterator[range]:
    """Return ascending offsets as ranges."""
    return iter(Ranges(range(offset, offset + 1) for offset in offsets))
