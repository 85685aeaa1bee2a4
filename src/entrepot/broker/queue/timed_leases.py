"""Leases for clients without a connection: they have an id, and last until a time.

The client must settle its messages before the lease ends, or renew the lease; otherwise they are
ready again. In the queue's ledger such a lease is an owner like any other. Its end is kept here,
once for all of its messages, so renewing costs the same however many there are.

When a lease ends, its messages need not be the cause: the client may have been killed. So it
counts as a delivery attempt only if the client asked for that.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from entrepot.broker.ledger import NEVER, Lease, among, rows
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.timer import Timer
from entrepot.broker.turns import Turns
from entrepot.core import limits
from entrepot.core.errors import TooManyLeases, UnknownLease
from entrepot.core.ports import Clock
from entrepot.core.ranges import Ranges

if TYPE_CHECKING:
    from entrepot.broker.queue.queue import Queue


class TimedLease:
    """A lease. It is also the owner of its messages in the ledger."""

    __slots__ = ("held", "id", "is_attempt", "renewed_ms", "until_ms")

    def __init__(self, name: str, lane_count: int, *, is_attempt: bool) -> None:
        self.id = name
        self.renewed_ms = self.until_ms = 0
        self.is_attempt = is_attempt  # Whether it counts as an attempt if the lease ends by time.
        self.held = [Ranges() for _ in range(lane_count)]  # Its messages in each lane.

    @property
    def count(self) -> int:
        return sum(each.count for each in self.held)


class TimedLeases:
    """The timed leases of one queue."""

    def __init__(self, queue: Queue, clock: Clock, turns: Turns) -> None:
        self._queue = queue
        self._clock = clock
        # Part of each id, so that ids of an earlier process are invalid.
        self._opened_ms = clock.now_ms()
        self._number = 0
        self._leases: dict[str, TimedLease] = {}
        self._timer = Timer(clock, turns, partial(queue.guard, self._on_time))

    # --- leases

    def open(self, lasts_ms: int, *, is_attempt: bool = False) -> TimedLease:
        """Make a lease without messages. Raises TooManyLeases."""
        if len(self._leases) >= limits.QUEUE_TIMED_LEASES_MAX:
            raise TooManyLeases(f"{len(self._leases)} leases of this queue are open")
        lease = TimedLease(self._new_id(), len(self._queue.lanes), is_attempt=is_attempt)
        self._leases[lease.id] = lease
        self.renew(lease, lasts_ms)
        return lease

    def find(self, name: str) -> TimedLease:
        """Return the lease with that id. Raises UnknownLease, also if it has ended."""
        lease = self._leases.get(name)
        if lease is None:
            raise UnknownLease(f"there is no lease {name}; it was never there, or is over")
        return lease

    def renew(self, lease: TimedLease, lasts_ms: int) -> None:
        """Let the lease end `lasts_ms` from now."""
        lease.renewed_ms = self._clock.now_ms()
        lease.until_ms = lease.renewed_ms + lasts_ms
        self._timer.set(lease.until_ms)

    def idle_ms(self, lease: TimedLease) -> int:
        """Return how long ago the lease was made, or last renewed."""
        return self._clock.now_ms() - lease.renewed_ms

    def take_over(self, lease: TimedLease) -> None:
        """Give the lease a new id, so that clients that know only the old one cannot use it."""
        del self._leases[lease.id]
        lease.id = self._new_id()
        self._leases[lease.id] = lease

    def close_if_empty(self, lease: TimedLease) -> None:
        if not lease.count:
            self._leases.pop(lease.id, None)

    def _new_id(self) -> str:
        self._number += 1
        return f"{self._opened_ms:x}-{self._number}"

    # --- messages

    def take(self, lease: TimedLease, count: int) -> list[tuple[int, Taken]]:
        """Take the next messages, at most `count` and at most as many as in one turn.

        Returns runs with their lanes; none if the leases of the queue have reached their limit.
        Raises QueueDown.
        """
        count = min(count, self._room)
        return self._hold(lease, self._queue.take(Lease(lease), count) if count > 0 else [])

    def take_at(
        self, lease: TimedLease, lane: int, offsets: range
    ) -> tuple[list[tuple[int, Taken]], range]:
        """Take the messages at these offsets that are ready, as many as in one turn.

        Returns runs with their lanes, and the offsets that are left for another turn.
        Raises StorageError; TooManyLeases if the leases of the queue would exceed their limit.
        """
        if not 0 <= lane < len(self._queue.lanes):
            return [], range(0)
        if self._room < min(len(offsets), limits.QUEUE_TURN_MESSAGES_MAX):
            raise TooManyLeases("the leases of this queue hold as many messages as they may")
        found, rest = self._queue.take_at(Lease(lease), lane, offsets)
        return self._hold(lease, found), rest

    def _hold(self, lease: TimedLease, found: list[tuple[int, Taken]]) -> list[tuple[int, Taken]]:
        for lane, taken in found:
            lease.held[lane].add(taken.offsets.start, taken.offsets.stop)
        return found

    def leased_by_others(self, lease: TimedLease, lane: int, offsets: range) -> list[range]:
        """Return those of the offsets that are leased to another owner, dying ones included."""
        return self._leased(lane, offsets, lambda owner: owner is not lease)

    def dying(self, lane: int, offsets: range) -> list[range]:
        """Return those of the offsets whose dead letters are published and not yet committed."""
        return self._leased(lane, offsets, lambda owner: owner is self._queue)

    def _leased(
        self, lane: int, offsets: range, is_wanted: Callable[[object], bool]
    ) -> list[range]:
        if not 0 <= lane < len(self._queue.lanes):
            return []
        leased = self._queue.lanes[lane].ledger.leased
        return rows(each for each in among(offsets, leased) if is_wanted(leased[each].owner))

    @property
    def _room(self) -> int:
        held = sum(lease.count for lease in self._leases.values())
        return limits.QUEUE_TIMED_LEASED_MAX - held

    # --- settling and releasing

    def settle(self, lease: TimedLease, lane: int, offsets: range) -> int:
        """Settle messages. Returns how many of them the lease had."""
        had = self._give_up(lease, lane, offsets)
        for each in had:
            self._queue.settle(lease, lane, each)
        return sum(map(len, had))

    def reject(self, lease: TimedLease, lane: int, offsets: range) -> int:
        had = self._give_up(lease, lane, offsets)
        for each in had:
            self._queue.reject(lease, lane, each)
        return sum(map(len, had))

    def release(self, lease: TimedLease, lane: int, offsets: range, *, is_attempt: bool) -> int:
        had = self._give_up(lease, lane, offsets)
        for each in had:
            self._queue.requeue(lease, lane, each, is_attempt=is_attempt)
        return sum(map(len, had))

    def release_all(self, lease: TimedLease, *, is_attempt: bool) -> None:
        """Release all messages of a lease, and end it."""
        self._leases.pop(lease.id, None)
        for lane, held in enumerate(lease.held):
            for each in [*held]:
                self.release(lease, lane, each, is_attempt=is_attempt)

    def _give_up(self, lease: TimedLease, lane: int, offsets: range) -> list[range]:
        """Remove messages from a lease. Returns those that it had."""
        if not 0 <= lane < len(lease.held):
            return []
        return lease.held[lane].remove(offsets.start, offsets.stop)

    def _on_time(self) -> None:
        now_ms = self._clock.now_ms()
        for lease in [*self._leases.values()]:
            if lease.until_ms <= now_ms:
                self.release_all(lease, is_attempt=lease.is_attempt)
        self._timer.set(min((each.until_ms for each in self._leases.values()), default=NEVER))

    def close(self) -> None:
        self._timer.stop()
        self._leases.clear()
