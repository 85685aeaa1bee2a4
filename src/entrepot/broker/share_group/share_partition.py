"""What became of one partition's records in one share group: a ledger, with locks in time.

A record that a consumer acquires is locked for it: its own until it is acknowledged, its
consumer is gone, or the time is up. Then it is settled, or ready again in its old place,
or, when it was rejected or has been delivered as often as it may be, it ends: settled, and
copied to the group's dead-letter topic before that if there is one. Until the copy is
permanent the record is held by nobody's lock, so that no consumer gets it.

What is settled is recorded, and how often a record was delivered that came back. Locks are
not: after a restart, what was locked is ready again.
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
from entrepot.broker.settlements import Settlements
from entrepot.broker.share_group.acquisition import Bounds, Found, find
from entrepot.broker.share_group.dead_letter import Cause, Dead, DeadLetters
from entrepot.broker.share_group.settings import ShareSettings
from entrepot.broker.share_group.store import ShareName, Store
from entrepot.broker.stream import Stream
from entrepot.core import limits
from entrepot.core.errors import InvalidAcknowledgement, InvalidRecordState, PeerError, StorageError
from entrepot.core.ports import FileRange
from entrepot.core.ranges import Ranges

log = logging.getLogger("entrepot.share")

_LOCKS_STALE_MAX = 64  # Locks that are over, beside as many as are not.
_RETRY_S, _RETRY_S_MAX = 1.0, 60.0  # When dead letters could not be copied.


class Ack(IntEnum):
    """What a consumer says of a record. Numbers are Kafka's."""

    GAP = 0  # There is none at this offset.
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Acknowledgement(NamedTuple):
    offsets: range
    acks: Sequence[int]  # One for all, or one for each.


class Acquired(NamedTuple):
    offsets: range
    delivery_count: int  # This time included.


class Delivery(NamedTuple):
    acquired: list[Acquired]
    batches: list[FileRange]  # Some of their records may be others'.


class SharePartition:
    def __init__(
        self,
        name: ShareName,
        stream: Stream,
        settlements: Settlements,
        ledger: Ledger,
        store: Store,
        dead_letters: DeadLetters,
        settings: Callable[[], ShareSettings],
    ) -> None:
        self.name = name
        self.stream = stream
        self.settlements = settlements
        self.ledger = ledger
        self._store = store
        self._dead_letters = dead_letters
        self._settings = settings
        # A heap: when which lock ends, of which offsets. Some may have ended otherwise.
        self._locks: list[tuple[int, int, Lease, range]] = []
        self._serial = 0  # Of equal times, the first comes first.
        self._grave = Lease(self)  # Holds what is ended but not settled.
        self._dead: list[Dead] = []
        self._burial: asyncio.Task[None] | None = None
        self._tried: asyncio.Future[None] | None = None  # Done when a copy was made, or not.
        self._listeners: dict[object, Callable[[], None]] = {}

    # --- what there is

    @property
    def offset_limit(self) -> int:
        """Of what may be read."""
        is_committed = self._settings().is_committed
        return self.stream.last_stable_offset if is_committed else self._high_watermark

    @property
    def _high_watermark(self) -> int:
        return self.stream.partition.high_watermark

    @property
    def lag(self) -> int:
        """How many records are not settled."""
        return self.ledger.ready_count(self._high_watermark) + len(self.ledger.leased)

    def available(self) -> int:
        """About how many bytes could be acquired now."""
        ledger, limit = self.ledger, self.offset_limit
        if ledger.returned and ledger.returned.first < limit:
            return limits.FETCH_BYTES_MAX  # Nobody should wait before them.
        offset = max(ledger.offset_fresh, self.stream.partition.offset_start)
        ahead = ledger.offset_low + self._settings().locks_max
        return self.stream.partition.available(offset) if offset < min(limit, ahead) else 0

    @property
    def next_ms(self) -> int | None:
        """When `expire` may have something to do."""
        return self._locks[0][0] if self._locks else None

    def listen(self, token: object, listener: Callable[[], None]) -> None:
        """Call whenever there may be more to acquire, until `unlisten`."""
        self._listeners[token] = listener
        self.stream.partition.listen(token, listener)

    def unlisten(self, token: object) -> None:
        self._listeners.pop(token, None)
        self.stream.partition.unlisten(token)

    def _wake(self) -> None:
        for listener in list(self._listeners.values()):
            listener()

    # --- acquiring

    def acquire(
        self, owner: object, records_max: int, bytes_max: int, now_ms: int, *, is_strict: bool
    ) -> Delivery | None:
        """The oldest records that are ready, locked for this owner. Raises StorageError."""
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
            found = find(self.ledger, self.stream, bounds)
            if not found.offsets:
                return None
            records = self._take(found, Lease(owner), now_ms + settings.lock_ms)
            if records:
                acquired = [part for each in records for part in self._counted(each)]
                return Delivery(acquired, found.batches)

    def _take(self, found: Found, lease: Lease, until_ms: int) -> Ranges:
        """Returns those where there is a record."""
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
        """Parts that were delivered equally often."""
        for attempts, part in groupby(offsets, key=self.ledger.attempts):
            row = list(part)
            yield Acquired(range(row[0], row[-1] + 1), attempts + 1)

    def _skip_deleted(self) -> None:
        """What retention or a request has taken from the log, nobody will get."""
        ledger, start = self.ledger, self.stream.partition.offset_start
        if ledger.offset_low >= start:
            return
        gone = sum(map(len, ledger.returned.within(ledger.offset_low, start)))
        gone += max(0, start - ledger.offset_fresh)
        if gone:
            self._note(ledger.discard(gone, start))

    # --- what comes of it

    def acknowledge(
        self, owner: object, acknowledgements: Sequence[Acknowledgement], now_ms: int
    ) -> None:
        """All of it or nothing; `kept` says when it is permanent. Raises PeerError."""
        known = self._checked(owner, acknowledgements)
        settled: list[range] = []
        for offsets, ack in known:
            match ack:
                case Ack.ACCEPT | Ack.GAP:
                    settled += self.ledger.settle(offsets, owner)
                case Ack.RELEASE:
                    self._give_back(offsets, owner)
                case Ack.REJECT:
                    for part in self._counted(offsets):
                        self._end(part, owner, Cause.REJECTED)
                case Ack.RENEW:
                    self._renew(offsets, owner, now_ms)
        self._note(settled)
        self._wake()

    def _checked(
        self, owner: object, acknowledgements: Sequence[Acknowledgement]
    ) -> list[tuple[range, Ack]]:
        """Rows with one meaning each. Of what is gone from the log, nothing need be said."""
        leased, start = self.ledger.leased, self.stream.partition.offset_start
        known: list[tuple[range, Ack]] = []
        end = 0
        for offsets, acks in acknowledgements:
            if not end <= offsets.start < offsets.stop:
                raise InvalidAcknowledgement("records are acknowledged once, in their order")
            end = offsets.stop
            if offsets.stop - offsets.start > len(leased) + max(0, start - offsets.start):
                raise InvalidRecordState("some records are not locked for this consumer")
            for row, ack in _rows(offsets, acks):
                if ack is Ack.RENEW and not self._settings().can_renew:
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
        """The owner is gone: what it has is ready for others."""
        leased = self.ledger.leased
        held = sorted(offset for offset, lease in leased.items() if lease.owner is owner)
        for row in _in_rows(held):
            self._give_back(row, owner)
        if held:
            self._wake()

    def expire(self, now_ms: int) -> None:
        """End the locks whose time is up."""
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
        """Ready again, but for what was delivered as often as it may be."""
        deliveries_max = self._settings().deliveries_max
        for part in self._counted(offsets):
            if part.delivery_count < deliveries_max:
                self._note_attempts(self.ledger.release(part.offsets, owner))
            else:
                self._end(part, owner, Cause.DELIVERED_TOO_OFTEN)

    def _end(self, part: Acquired, owner: object, cause: Cause) -> None:
        if not self._settings().dead_letter_topic:
            self._note(self.ledger.settle(part.offsets, owner))
            return
        for row in self.ledger.hand_over(part.offsets, owner, self._grave):
            self._dead.append(Dead(row, part.delivery_count, cause))
        if self._burial is None:
            self._burial = asyncio.ensure_future(self._bury())
            self._tried = asyncio.get_running_loop().create_future()

    async def _bury(self) -> None:
        """Copy what is dead, then settle it; as long as it takes."""
        delay_s = _RETRY_S
        while self._dead:
            dead = self._dead[: limits.SHARE_DEAD_LETTERS_MAX]
            settings = self._settings()
            try:
                if settings.dead_letter_topic:  # Nobody may want them by now.
                    await self._dead_letters.copy(self.name, self.stream, dead, settings)
            except (PeerError, StorageError, OSError) as error:
                log.warning("dead letters of group %s wait: %s", self.name.group, error)
                self._has_tried()
                await asyncio.sleep(delay_s)
                delay_s = min(2 * delay_s, _RETRY_S_MAX)
                continue
            del self._dead[: len(dead)]
            self._note([row for each in dead for row in self.ledger.settle(each.offsets, self)])
            self._wake()
        self._burial = None
        self._has_tried()

    def _has_tried(self) -> None:
        if self._tried is not None and not self._tried.done():
            self._tried.set_result(None)

    def _note(self, settled: Iterable[range]) -> None:
        rows = list(settled)
        if rows:
            self.settlements.note(rows, self.ledger.offset_low)
            self._store.mark(self.settlements)

    def _note_attempts(self, released: Sequence[range]) -> None:
        if released:
            self.settlements.note_attempts(released, self.ledger.attempts)
            self._store.mark(self.settlements)

    async def kept(self) -> None:
        """Wait until what was acknowledged so far is permanent. Raises StorageError.

        Dead letters are waited for until they are copied or cannot be for now: then they are
        copied later, and if the node stops before that, their records come again.
        """
        if self._tried is not None:
            await asyncio.shield(self._tried)
        await self._store.kept()

    # --- another history

    def rewind(self, offset: int) -> None:
        """From there on, everything is to be delivered."""
        self._dead.clear()
        self._locks.clear()
        self.ledger.reset(offset)
        self.settlements.rewound(offset, offset)
        self._store.mark(self.settlements)
        self._wake()

    def close(self) -> None:
        if self._burial is not None:
            self._burial.cancel()


def _rows(offsets: range, acks: Sequence[int]) -> Iterator[tuple[range, Ack]]:
    """Parts that are acknowledged alike. Raises PeerError."""
    if len(acks) not in (1, offsets.stop - offsets.start):
        raise InvalidAcknowledgement(f"{len(acks)} acknowledgements of other than so many records")
    if any(ack not in Ack.__members__.values() for ack in acks):
        raise InvalidAcknowledgement("an acknowledgement of an unknown type")
    if len(acks) == 1:
        yield offsets, Ack(acks[0])
        return
    offset = offsets.start
    for ack, row in groupby(acks):
        count = sum(1 for _ in row)
        yield range(offset, offset + count), Ack(ack)
        offset += count


def _in_rows(offsets: Sequence[int]) -> Iterator[range]:
    """Ascending numbers as ranges."""
    return iter(Ranges(range(offset, offset + 1) for offset in offsets))
