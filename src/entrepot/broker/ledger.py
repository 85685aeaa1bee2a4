"""What became of a queue's messages: which are ready, leased, deferred or settled.

Messages have the offsets of the queue's partition. Most of them are told by two numbers:

    offset_low      below it, everything is settled
    offset_fresh    from it on, nothing was ever handed out: ready, up to the watermark

Only between the two there is something to remember one by one: who has a message and until
when (leased), what came back (returned: ready again, in its old place, before all that is
fresh), and what is not due yet (deferred, which may also stand in the fresh part). What is
none of these is settled. So memory is spent on what is out of order, however long the queue.

Leases are promises of this process: a restart forgets them, and the messages are ready
again. Settling, deferring, rewinding and counting what came back are recorded by whoever
owns the ledger, and told to its successor by `restore`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import Any

from entrepot.core.ranges import Ranges

NEVER = 2**63 - 1  # A time.
_TIMES_STALE_MAX = 64  # Times of leases and delays that are over, beside as many as are not.


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """Held by one consumer, for one message or for many."""

    owner: Any  # Known by its identity alone.
    until_ms: int = NEVER


class Ledger:
    def __init__(self, offset_low: int = 0) -> None:
        self.offset_low = offset_low
        self.offset_fresh = offset_low
        self.leased: dict[int, Lease] = {}
        self.returned = Ranges()
        self.deferred: dict[int, int] = {}  # Until when, in ms.
        self._deferred_fresh = 0  # How many of them stand in the fresh part,
        self._deferred_end = 0  # and an offset above all of them.
        # How often those were handed out before that came back.
        self._attempts: dict[int, int] = {}
        self._times: list[tuple[int, int]] = []  # A heap: when a lease or a delay may end.

    # --- what there is

    def ready_count(self, offset_end: int) -> int:
        """Messages that could be handed out now; the queue ends at `offset_end`."""
        fresh = max(0, offset_end - self.offset_fresh)
        if self._deferred_fresh:
            fresh -= self._deferred_fresh - self._deferred_beyond(offset_end)
        return self.returned.count + fresh

    def deferred_count(self, offset_end: int) -> int:
        """Messages below `offset_end` that are not due yet."""
        return len(self.deferred) - self._deferred_beyond(offset_end)

    def _deferred_beyond(self, offset_end: int) -> int:
        """How many of the deferred ones are not committed."""
        beyond = range(max(offset_end, self.offset_fresh), self._deferred_end)
        return sum(1 for each in beyond if each in self.deferred)

    def attempts(self, offset: int) -> int:
        """How often it was handed out before."""
        return self._attempts.get(offset, 0)

    @property
    def next_time_ms(self) -> int:
        """When `expire` may have something to do."""
        return self._times[0][0] if self._times else NEVER

    def is_settled(self, offset: int) -> bool:
        return offset < self.offset_fresh and not self._holds(offset)

    def unsettled(self) -> Ranges:
        """What is not settled below `offset_fresh`."""
        found = [*self.returned]
        for holder in (self.leased, self.deferred):
            found += rows(sorted(offset for offset in holder if offset < self.offset_fresh))
        return Ranges(sorted(found, key=attrgetter("start")))

    def ready(self, count: int, offset_end: int) -> list[range]:
        """What `pop` would take out, which stays."""
        self._pass_deferred(offset_end)
        found: list[range] = []
        fresh = self._fresh(count - self.returned.count, offset_end)
        for each in chain(self.returned, fresh):
            if count <= 0:
                break
            found.append(each[:count])
            count -= len(found[-1])
        return found

    def _fresh(self, count: int, offset_end: int) -> Iterator[range]:
        """Those that are not deferred: at least so many, if there are."""
        start = self.offset_fresh
        if self._deferred_fresh:
            for offset in range(start, offset_end):
                if offset - start >= count:
                    break  # However many are behind it.
                if offset in self.deferred:
                    if start < offset:
                        yield range(start, offset)
                        count -= offset - start
                    start = offset + 1
        if start < offset_end:
            yield range(start, offset_end)

    def _pass_deferred(self, offset_end: int) -> None:
        """Those at the beginning of the fresh part, so that nobody looks at them again."""
        while self.offset_fresh < offset_end and self.offset_fresh in self.deferred:
            self.offset_fresh += 1
            self._deferred_fresh -= 1

    # --- handing out

    def pop(self, count: int, offset_end: int) -> list[range]:
        """Take out the oldest messages that are ready, at most so many.

        They count as settled until they are leased, so that must come next; or
        `settle_popped`, for those that are not.
        """
        taken = self.returned.pop(count) if self.returned else []
        for each in taken:
            count -= len(each)
        taken += self._pop_fresh(count, offset_end)
        return taken

    def pop_at(self, offsets: range, offset_end: int) -> list[range]:
        """Take out those of them that are ready, wherever they stand; then as after `pop`."""
        start, stop = offsets.start, min(offsets.stop, offset_end)
        for passed in self._pop_fresh(stop - self.offset_fresh, stop):
            self.returned.add(passed.start, passed.stop)
        return self.returned.remove(start, stop)

    def lease(self, offsets: range, lease: Lease) -> None:
        """Of those that were popped: any of them, in any step."""
        self.leased.update(dict.fromkeys(offsets, lease))
        if lease.until_ms != NEVER:
            for offset in offsets:
                self._remember(lease.until_ms, offset)

    def settle_popped(self, offsets: range) -> None:
        """Of those that were popped: done with, in any step. The others are leased before."""
        self._forget_attempts(offsets)
        self._advance()

    def renew(self, offset: int, lease: Lease) -> bool:
        """Another lease for the same owner; False when it has none."""
        held = self.leased.get(offset)
        if held is None or held.owner is not lease.owner:
            return False
        self.leased[offset] = lease
        if lease.until_ms != NEVER:
            self._remember(lease.until_ms, offset)
        return True

    def _pop_fresh(self, count: int, offset_end: int) -> Iterator[range]:
        """Those that are not deferred; the others are passed by and stay where they are."""
        while count > 0 and self.offset_fresh < offset_end:
            start, stop = self.offset_fresh, min(offset_end, self.offset_fresh + count)
            if self.deferred:
                stop = next((each for each in range(start, stop) if each in self.deferred), stop)
            if start < stop:
                yield range(start, stop)
                count -= stop - start
            while stop < offset_end and stop in self.deferred:
                stop += 1
                self._deferred_fresh -= 1
            self.offset_fresh = stop

    # --- what comes of it

    def settle(self, offsets: range, owner: object) -> list[range]:
        """The owner is done with them. Returns those it had."""
        settled = self._drop(offsets, owner)
        for each in settled:
            self._forget_attempts(each)
        self._advance()
        return settled

    def release(self, offsets: range, owner: object, *, is_attempt: bool = True) -> list[range]:
        """The owner hands them back: ready again, in their old place.

        Counts as an attempt, unless the message cannot have been seen. Returns those it had.
        """
        released = self._drop(offsets, owner)
        for each in released:
            self._return(each, is_attempt=is_attempt)
        return released

    def hand_over(self, offsets: range, owner: object, lease: Lease) -> list[range]:
        """Another owner has them from now on. Returns those the old one had."""
        handed = self._drop(offsets, owner)
        for each in handed:
            self.lease(each, lease)
        return handed

    def discard(self, count: int, offset_end: int) -> list[range]:
        """Settle the oldest messages that are ready, at most so many."""
        dropped = self.pop(count, offset_end)
        for each in dropped:
            self._forget_attempts(each)
        self._advance()
        return dropped

    def defer(self, offset: int, until_ms: int) -> None:
        """Keep a message that is ready back until then; or change until when."""
        self.returned.remove(offset, offset + 1)
        if offset >= self.offset_fresh and offset not in self.deferred:
            self._deferred_fresh += 1
            self._deferred_end = max(self._deferred_end, offset + 1)
        self.deferred[offset] = until_ms
        self._remember(until_ms, offset)

    def expire(self, now_ms: int) -> list[range]:
        """End the leases and delays that are over. Returns what is ready again, or now."""
        ready: list[int] = []
        while self._times and self._times[0][0] <= now_ms:
            _, offset = heappop(self._times)
            held = self.leased.get(offset)
            if held is not None and held.until_ms <= now_ms:
                del self.leased[offset]
                self._return(range(offset, offset + 1), is_attempt=True)
                ready.append(offset)
            elif self.deferred.get(offset, NEVER) <= now_ms:
                self._undefer(offset)
                if offset < self.offset_fresh:
                    self.returned.add(offset, offset + 1)
                ready.append(offset)
        return rows(sorted(ready))

    def _undefer(self, offset: int) -> None:
        del self.deferred[offset]
        if offset >= self.offset_fresh:
            self._deferred_fresh -= 1

    def _drop(self, offsets: range, owner: object) -> list[range]:
        leased = self.leased
        if len(offsets) == 1:  # Nearly always.
            held = leased.get(offsets.start)
            if held is None or held.owner is not owner:
                return []
            del leased[offsets.start]
            return [range(offsets.start, offsets.start + 1)]  # Of any step, it may end later.
        found = [each for each in among(offsets, leased) if leased[each].owner is owner]
        for offset in found:
            del leased[offset]
        return rows(found)

    def _return(self, offsets: range, *, is_attempt: bool) -> None:
        self.returned.add(offsets.start, offsets.stop)
        if is_attempt:
            for offset in offsets:
                self._attempts[offset] = self._attempts.get(offset, 0) + 1

    def _forget_attempts(self, offsets: range) -> None:
        if self._attempts:
            for offset in among(offsets, self._attempts):
                del self._attempts[offset]

    def _advance(self) -> None:
        """Move the low end past what is settled: step by step, which is what acks in order
        need, but not for longer than looking at all that is held would take."""
        low, fresh, leased = self.offset_low, self.offset_fresh, self.leased
        stop = min(fresh, low + 2 * (len(leased) + len(self.deferred)))
        if self.returned or self.deferred:
            while low < stop and not self._holds(low):
                low += 1
        else:  # Nearly always.
            while low < stop and low not in leased:
                low += 1
        if low == stop < fresh:
            low = min(
                fresh,
                self.returned.first if self.returned else fresh,
                min(self.leased, default=fresh),
                min(self.deferred, default=fresh),
            )
        self.offset_low = low

    def _holds(self, offset: int) -> bool:
        return offset in self.leased or offset in self.returned or offset in self.deferred

    def _remember(self, time_ms: int, offset: int) -> None:
        heappush(self._times, (time_ms, offset))
        held = len(self.leased) + len(self.deferred)
        if len(self._times) > 2 * held + _TIMES_STALE_MAX:
            self._times = [(time, offset) for offset, time in self.deferred.items()]
            self._times += [(each.until_ms, offset) for offset, each in self.leased.items()]
            heapify(self._times)

    # --- another history

    def rewind(self, offset: int) -> None:
        """From there on, everything is ready again, as if it had never been handed out.

        What is below stays as it is.
        """
        self.returned.remove(offset, max(offset, self.offset_fresh))
        holders: tuple[dict[int, Any], ...] = (self.leased, self.deferred, self._attempts)
        for holder in holders:
            for each in [each for each in holder if each >= offset]:
                del holder[each]
        self.offset_fresh = min(self.offset_fresh, offset)
        self._deferred_fresh = sum(1 for each in self.deferred if each >= self.offset_fresh)
        self.offset_low = min(self.offset_low, offset)
        self._advance()

    def reset(self, offset: int) -> None:
        """The same, and everything below is settled."""
        self.leased.clear()
        self.deferred.clear()
        self._deferred_fresh = 0
        self.returned = Ranges()
        self._attempts.clear()
        self._times.clear()
        self.offset_low = self.offset_fresh = offset

    def restore(
        self,
        offset_fresh: int,
        unsettled: Iterable[range],
        deferred: Mapping[int, int],
        attempts: Mapping[int, int],
    ) -> None:
        """What a predecessor knew, except for its leases."""
        self.offset_fresh = offset_fresh
        self.returned = Ranges(unsettled)
        self._attempts = dict(attempts)
        for offset, until_ms in deferred.items():
            self.defer(offset, until_ms)
        self._advance()

    def note_settled(self, offsets: range) -> None:
        """These are settled, though nobody has them. What is passed by on the way is not."""
        start, stop = offsets.start, offsets.stop
        self.returned.remove(start, stop)
        for offset in among(offsets, self.deferred):
            self._undefer(offset)
        if stop > self.offset_fresh:
            first = max(start, self.offset_fresh)
            for passed in self._pop_fresh(first - self.offset_fresh, first):
                self.returned.add(passed.start, passed.stop)
            self.offset_fresh = stop
        self._forget_attempts(offsets)
        self._advance()


def among(offsets: range, holder: Mapping[int, object]) -> list[int]:
    """Which of them are in there, ascending; the shorter one is walked."""
    if len(holder) < len(offsets):
        return sorted(offset for offset in holder if offset in offsets)
    return [offset for offset in offsets if offset in holder]


def rows(offsets: Iterable[int]) -> list[range]:
    """Ascending numbers as ranges."""
    found: list[range] = []
    start = end = -1
    for offset in offsets:
        if offset != end:
            if end > start:
                found.append(range(start, end))
            start = offset
        end = offset + 1
    if end > start:
        found.append(range(start, end))
    return found
