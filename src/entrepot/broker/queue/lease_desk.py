"""Messages for those who keep no connection: leased until a time, and named by an id.

Who takes messages here must settle them before the time is over, or renew the lease; else
they are ready again, for anybody. In the queue's ledger such a lease is an owner like any
other. Its time is kept here, once for all of its messages, so renewing it costs the same
however many there are.

That a time is over need not mean that a message was too much for somebody: a process that
was killed says nothing either. So it counts as an attempt only where that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

from entrepot.broker.ledger import NEVER, Lease, rows
from entrepot.broker.queue.front import NOTHING, Front, Popped
from entrepot.broker.queue.message import Taken
from entrepot.broker.queue.outcome import Outcome
from entrepot.broker.queue.timer import Timer
from entrepot.core import limits
from entrepot.core.errors import Corruption, StorageError, TooManyLeases, UnknownLease
from entrepot.core.ports import Clock
from entrepot.core.ranges import Ranges


class Ways(Protocol):
    """What becomes of leased messages, as a queue does it."""

    def settle(self, owner: object, lane: int, offsets: Sequence[int]) -> None: ...

    def reject(self, owner: object, lane: int, offsets: Sequence[int]) -> None: ...

    def requeue(
        self, owner: object, lane: int, offsets: Sequence[int], *, is_attempt: bool = True
    ) -> None: ...

    def guard(self, call: Callable[..., object], *arguments: object) -> None: ...


class TimedLease:
    """The owner of its messages, in the ledger."""

    __slots__ = ("held", "id", "is_attempt", "renewed_ms", "until_ms")

    def __init__(self, name: str, lane_count: int, *, is_attempt: bool) -> None:
        self.id = name
        self.renewed_ms = self.until_ms = 0
        self.is_attempt = is_attempt  # That its time is over.
        self.held = [Ranges() for _ in range(lane_count)]

    @property
    def count(self) -> int:
        return sum(each.count for each in self.held)


class LeaseDesk:
    def __init__(self, fronts: Sequence[Front], outcome: Outcome, ways: Ways, clock: Clock) -> None:
        self._fronts = fronts
        self._outcome = outcome
        self._ways = ways
        self._clock = clock
        self._opened_ms = clock.now_ms()  # In each id: those of an earlier process mean nothing.
        self._number = 0
        self._leases: dict[str, TimedLease] = {}
        self.turn_count = limits.QUEUE_TURN_MESSAGES_MAX  # Messages that are read at once.
        self._timer = Timer(clock, partial(ways.guard, self._on_time))

    # --- leases

    def open(self, lasts_ms: int, *, is_attempt: bool = False) -> TimedLease:
        """It has no messages yet. Raises TooManyLeases."""
        if len(self._leases) >= limits.QUEUE_TIMED_LEASES_MAX:
            raise TooManyLeases(f"{len(self._leases)} leases of this queue are open")
        lease = TimedLease(self._new_id(), len(self._fronts), is_attempt=is_attempt)
        self._leases[lease.id] = lease
        self.renew(lease, lasts_ms)
        return lease

    def find(self, name: str) -> TimedLease:
        """Raises UnknownLease, also when its time is over."""
        lease = self._leases.get(name)
        if lease is None:
            raise UnknownLease(f"there is no lease {name}; it was never there, or is over")
        return lease

    def renew(self, lease: TimedLease, lasts_ms: int) -> None:
        """From now on."""
        lease.renewed_ms = self._clock.now_ms()
        lease.until_ms = lease.renewed_ms + lasts_ms
        self._timer.set(lease.until_ms)

    def idle_ms(self, lease: TimedLease) -> int:
        """How long ago it was made, or renewed."""
        return self._clock.now_ms() - lease.renewed_ms

    def take_over(self, lease: TimedLease) -> None:
        """Give it a new id, so that whoever knows only the old one can do nothing with it."""
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
        """Some of the next messages, each run with its lane: at most so many, and not more than
        a turn's. None: there are none, or the queue's leases hold as much as they may.

        Raises Corruption when the queue is down."""
        count = min(count, self.turn_count, self._room)
        now_ms = self._clock.now_ms()
        for number in reversed(range(len(self._fronts))):  # The highest priority first.
            front = self._fronts[number]
            while count > 0 and front.ready_count_most:
                try:
                    popped = front.pop(count, now_ms)
                except Corruption:
                    raise
                except StorageError:  # The log says so itself. They stay.
                    popped = NOTHING
                self._lease(number, popped, lease)
                if popped.good:
                    return [(number, taken) for taken in popped.good]
                if not popped.size:
                    break
        return []

    def take_at(self, lease: TimedLease, lane: int, offsets: range) -> list[tuple[int, Taken]]:
        """Those of them that are ready. The offsets are a turn's at most.

        Raises StorageError; TooManyLeases when they would be more than leases may hold.
        """
        if not 0 <= lane < len(self._fronts):
            return []
        if self._room < len(offsets):
            raise TooManyLeases("the leases of this queue hold as many messages as they may")
        popped = self._fronts[lane].pop_at(offsets)
        self._lease(lane, popped, lease)
        return [(lane, taken) for taken in popped.good]

    def leased_by_others(self, lease: TimedLease, lane: int, offsets: range) -> list[range]:
        """Those of them that somebody else has; dying ones are among them."""
        return self._leased(lane, offsets, lambda owner: owner is not lease)

    def dying(self, lane: int, offsets: range) -> list[range]:
        """Those of them whose dead letters are on their way."""
        if not self._outcome.dying_count:
            return []
        return self._leased(lane, offsets, lambda owner: owner is self._outcome)

    def _leased(
        self, lane: int, offsets: range, is_wanted: Callable[[object], bool]
    ) -> list[range]:
        if not 0 <= lane < len(self._fronts):
            return []
        leased = self._fronts[lane].ledger.leased
        return rows(each for each in offsets if each in leased and is_wanted(leased[each].owner))

    def _lease(self, lane: int, popped: Popped, lease: TimedLease) -> None:
        for taken in popped.good:
            self._fronts[lane].ledger.lease(taken.offsets, Lease(lease))
            lease.held[lane].add(taken.offsets.start, taken.offsets.stop)
            weight = max(1, len(taken.run.messages[-1][1]))
            self.turn_count = min(
                limits.QUEUE_TURN_MESSAGES_MAX, max(1, limits.QUEUE_TURN_BYTES_MAX // weight)
            )
        self._outcome.finish(lane, popped)

    @property
    def _room(self) -> int:
        held = sum(lease.count for lease in self._leases.values())
        return limits.QUEUE_TIMED_LEASED_MAX - held

    # --- what becomes of them

    def settle(self, lease: TimedLease, lane: int, offsets: range) -> int:
        """How many of them the lease had."""
        had = self._give_up(lease, lane, offsets)
        for each in had:
            self._ways.settle(lease, lane, each)
        return sum(map(len, had))

    def reject(self, lease: TimedLease, lane: int, offsets: range) -> int:
        had = self._give_up(lease, lane, offsets)
        for each in had:
            self._ways.reject(lease, lane, each)
        return sum(map(len, had))

    def release(self, lease: TimedLease, lane: int, offsets: range, *, is_attempt: bool) -> int:
        had = self._give_up(lease, lane, offsets)
        for each in had:
            self._ways.requeue(lease, lane, each, is_attempt=is_attempt)
        return sum(map(len, had))

    def release_all(self, lease: TimedLease, *, is_attempt: bool) -> None:
        """And forget the lease."""
        self._leases.pop(lease.id, None)
        for lane, held in enumerate(lease.held):
            for each in [*held]:
                self.release(lease, lane, each, is_attempt=is_attempt)

    def _give_up(self, lease: TimedLease, lane: int, offsets: range) -> list[range]:
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
