"""The ledger of a queue: which of its messages are ready, leased, deferred or settled.

Messages have the offsets of the queue's partition. Two numbers describe most of them:

    offset_low      everything below it is settled
    offset_fresh    nothing from it on was ever delivered: ready, up to the watermark

Only messages between the two are tracked one by one: leased ones (by whom, until when),
returned ones (ready again, in their old place, before all that are fresh), and deferred ones
(not due yet; these may also be in the fresh part). A message between the two that is none of
these is settled. So memory is needed only for what is out of order, however long the queue.

Leases are not stored: after a restart leased messages are ready again. The owner of the ledger
stores what was settled, deferred, rewound and how often returned messages were delivered, and
`restore` sets it after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import chain
from operator import attrgetter
from typing import Any

from entrepot.core.ranges import Ranges

NEVER = 2**63 - 1  # A time in ms that never comes.
# Outdated entries that may stay in the heap of times beyond the number of valid ones.
_TIMES_STALE_MAX = 64


@dataclass(frozen=True, slots=True, eq=False)
class Lease:
    """A lease of one or many messages, held by one consumer."""

    owner: Any  # Compared by identity.
    until_ms: int = NEVER


class Ledger:
    def __init__(self, offset_low: int = 0) -> None:
        self.offset_low = offset_low
        self.offset_fresh = offset_low
        self.leased: dict[int, Lease] = {}
        self.returned = Ranges()
        self.deferred: dict[int, int] = {}  # Offset -> until when, in ms.
        self._deferred_fresh = 0  # How many of these are in the fresh part,
        self._deferred_end = 0  # and an offset above all of those.
        # Offset -> how often the message was delivered before it was returned.
        self._attempts: dict[int, int] = {}
        # A heap of (ms, offset): when a lease or a deferral may end.
        self.times: list[tuple[int, int]] = []

    # --- counting and looking

    def ready_count(self, offset_end: int) -> int:
        """Return how many messages below `offset_end` could be delivered now."""
        fresh = max(0, offset_end - self.offset_fresh)
        if self._deferred_fresh:
            fresh -= self._deferred_fresh - self._deferred_from(offset_end)
        return self.returned.count + fresh

    def deferred_count(self, offset_end: int) -> int:
        """Return how many messages below `offset_end` are deferred."""
        return len(self.deferred) - self._deferred_from(offset_end)

    def _deferred_from(self, offset_end: int) -> int:
        """Return how many deferred messages are at or above `offset_end`, not committed yet."""
        beyond = range(max(offset_end, self.offset_fresh), self._deferred_end)
        return sum(1 for each in beyond if each in self.deferred)

    def attempts(self, offset: int) -> int:
        """Return how often the message was delivered and returned."""
        return self._attempts.get(offset, 0)

    @property
    def next_time_ms(self) -> int:
        """Return when `expire` should be called next, in ms."""
        return self.times[0][0] if self.times else NEVER

    def is_settled(self, offset: int) -> bool:
        return offset < self.offset_fresh and not self._holds(offset)

    def unsettled(self) -> Ranges:
        """Return the offsets below `offset_fresh` that are not settled."""
        found = [*self.returned]
        for holder in (self.leased, self.deferred):
            found += rows(sorted(offset for offset in holder if offset < self.offset_fresh))
        return Ranges(sorted(found, key=attrgetter("start")))

    def ready(self, count: int, offset_end: int) -> list[range]:
        """Return what `pop` would return, and leave it in the ledger."""
        if not self.returned.count and not self.deferred:
            start = self.offset_fresh
            stop = min(offset_end, start + count)
            return [range(start, stop)] if start < stop else []
        self._skip_deferred(offset_end)
        found: list[range] = []
        fresh = self._fresh(count - self.returned.count, offset_end)
        for each in chain(self.returned, fresh):
            if count <= 0:
                break
            found.append(each[:count])
            count -= len(found[-1])
        return found

    def ready_within(self, start: int, stop: int) -> list[range]:
        """Return the offsets of ready messages from `start` to `stop`, in their order."""
        found = self.returned.within(start, min(stop, self.offset_fresh))
        start = max(start, self.offset_fresh)
        if self._deferred_fresh:
            for offset in among(range(start, stop), self.deferred):
                if start < offset:
                    found.append(range(start, offset))
                start = offset + 1
        if start < stop:
            found.append(range(start, stop))
        return found

    def _fresh(self, count: int, offset_end: int) -> Iterator[range]:
        """Yield fresh offsets that are not deferred, at least `count` if there are so many."""
        start = self.offset_fresh
        if self._deferred_fresh:
            for offset in range(start, offset_end):
                if offset - start >= count:
                    break  # There are enough; do not look at the rest.
                if offset in self.deferred:
                    if start < offset:
                        yield range(start, offset)
                        count -= offset - start
                    start = offset + 1
        if start < offset_end:
            yield range(start, offset_end)

    def _skip_deferred(self, offset_end: int) -> None:
        """Move `offset_fresh` past deferred messages, so that they are not looked at again."""
        while self.offset_fresh < offset_end and self.offset_fresh in self.deferred:
            self.offset_fresh += 1
            self._deferred_fresh -= 1

    # --- delivering

    def pop(self, count: int, offset_end: int) -> list[range]:
        """Take out the oldest ready messages, at most `count`.

        They count as settled until they are leased. So the caller must lease them next, or call
        `settle_popped` for those it does not lease.
        """
        if not self.returned.count and not self.deferred:  # Nearly always.
            start = self.offset_fresh
            stop = start + count
            if stop > offset_end:
                stop = offset_end
            if start >= stop:
                return []
            self.offset_fresh = stop
            return [range(start, stop)]
        taken = self.returned.pop(count) if self.returned else []
        for each in taken:
            count -= len(each)
        taken += self._pop_fresh(count, offset_end)
        return taken

    def pop_at(self, offsets: range, offset_end: int) -> list[range]:
        """Take out the ready messages among these offsets. The caller must lease or settle them,
        as after `pop`."""
        start, stop = offsets.start, min(offsets.stop, offset_end)
        for passed in self._pop_fresh(stop - self.offset_fresh, stop):
            self.returned.add(passed.start, passed.stop)
        return self.returned.remove(start, stop)

    def lease(self, offsets: range, lease: Lease) -> None:
        """Lease popped messages; the range may have any step."""
        if len(offsets) == 1:
            self.leased[offsets.start] = lease
        else:
            self.leased.update(dict.fromkeys(offsets, lease))
        if lease.until_ms != NEVER:
            for offset in offsets:
                self._remember(lease.until_ms, offset)

    def settle_popped(self, offsets: range) -> None:
        """Settle popped messages; the range may have any step. The others must be leased before."""
        self._forget_attempts(offsets)
        self._advance()

    def renew(self, offset: int, lease: Lease) -> bool:
        """Replace the owner's lease of a message. Return False if the owner has not leased it."""
        held = self.leased.get(offset)
        if held is None or held.owner is not lease.owner:
            return False
        self.leased[offset] = lease
        if lease.until_ms != NEVER:
            self._remember(lease.until_ms, offset)
        return True

    def _pop_fresh(self, count: int, offset_end: int) -> Iterator[range]:
        """Take out fresh messages that are not deferred; deferred ones are skipped and stay."""
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

    # --- settling and returning

    def settle(self, offsets: range, owner: object) -> list[range]:
        """Settle messages that the owner has leased. Return those."""
        settled = self._drop(offsets, owner)
        if self._attempts:
            for each in settled:
                self._forget_attempts(each)
        if settled and settled[0].start == self.offset_low == self.offset_fresh - 1:
            self.offset_low = self.offset_fresh  # It was the only one.
        else:
            self._advance()
        return settled

    def release(self, offsets: range, owner: object, *, is_attempt: bool = True) -> list[range]:
        """Return messages to the queue: ready again, in their old place.

        `is_attempt` counts it as a delivery; false if the consumer cannot have seen them. Returns
        those that the owner had leased.
        """
        released = self._drop(offsets, owner)
        for each in released:
            self._return(each, is_attempt=is_attempt)
        return released

    def hand_over(self, offsets: range, owner: object, lease: Lease) -> list[range]:
        """Give leased messages to another owner. Return those the old owner had."""
        handed = self._drop(offsets, owner)
        for each in handed:
            self.lease(each, lease)
        return handed

    def discard(self, count: int, offset_end: int) -> list[range]:
        """Settle the oldest ready messages, at most `count`. Return them."""
        dropped = self.pop(count, offset_end)
        for each in dropped:
            self._forget_attempts(each)
        self._advance()
        return dropped

    def defer(self, offset: int, until_ms: int) -> None:
        """Defer a ready message, or change until when."""
        self.returned.remove(offset, offset + 1)
        if offset >= self.offset_fresh and offset not in self.deferred:
            self._deferred_fresh += 1
            self._deferred_end = max(self._deferred_end, offset + 1)
        self.deferred[offset] = until_ms
        self._remember(until_ms, offset)

    def expire(self, now_ms: int) -> list[range]:
        """End the leases and deferrals that are over. Return the messages that are ready now."""
        ready: list[int] = []
        while self.times and self.times[0][0] <= now_ms:
            _, offset = heappop(self.times)
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
        """Remove the leases that the owner has of these offsets. Return those offsets."""
        leased = self.leased
        if len(offsets) == 1:  # A short cut for the most frequent case.
            held = leased.get(offsets.start)
            if held is None or held.owner is not owner:
                return []
            del leased[offsets.start]
            # A range of another step may stop later, so make it a new one.
            return [range(offsets.start, offsets.start + 1)]
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
        """Move `offset_low` past settled messages.

        It goes step by step, which is quick when messages are settled in order, but no longer than
        searching all that is held would take.
        """
        low, fresh, leased = self.offset_low, self.offset_fresh, self.leased
        stop = min(fresh, low + 2 * (len(leased) + len(self.deferred)))
        if self.returned.count or self.deferred:
            while low < stop and not self._holds(low):
                low += 1
        else:  # The most frequent case, and quicker.
            while low < stop and low not in leased:
                low += 1
        if low == stop < fresh:
            low = min(
                fresh,
                self.returned.first if self.returned.count else fresh,
                min(self.leased, default=fresh),
                min(self.deferred, default=fresh),
            )
        self.offset_low = low

    def _holds(self, offset: int) -> bool:
        """Return whether the message is leased, returned or deferred."""
        return offset in self.leased or offset in self.returned or offset in self.deferred

    def _remember(self, time_ms: int, offset: int) -> None:
        """Note when a lease or deferral ends; drop outdated entries when there are many."""
        heappush(self.times, (time_ms, offset))
        held = len(self.leased) + len(self.deferred)
        if len(self.times) > 2 * held + _TIMES_STALE_MAX:
            self.times = [(time, offset) for offset, time in self.deferred.items()]
            self.times += [(each.until_ms, offset) for offset, each in self.leased.items()]
            heapify(self.times)

    # --- rewinding and restoring

    def rewind(self, offset: int) -> None:
        """Make everything from the offset on ready, as if it had never been delivered.

        Messages below it stay as they are.
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
        """Make everything from the offset on ready, and settle everything below it."""
        self.leased.clear()
        self.deferred.clear()
        self._deferred_fresh = 0
        self.returned = Ranges()
        self._attempts.clear()
        self.times.clear()
        self.offset_low = self.offset_fresh = offset

    def restore(
        self,
        offset_fresh: int,
        unsettled: Iterable[range],
        deferred: Mapping[int, int],
        attempts: Mapping[int, int],
    ) -> None:
        """Set the state as it was before a restart. Leases are not restored."""
        self.offset_fresh = offset_fresh
        self.returned = Ranges(unsettled)
        self._attempts = dict(attempts)
        for offset, until_ms in deferred.items():
            self.defer(offset, until_ms)
        self._advance()

    def note_settled(self, offsets: range) -> None:
        """Settle messages that nobody has leased. Fresh ones below them stay ready, as returned
        ones."""
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
    """Return the offsets that are in the mapping, ascending. The shorter of the two is searched."""
    if len(holder) < len(offsets):
        return sorted(offset for offset in holder if offset in offsets)
    return [offset for offset in offsets if offset in holder]


def rows(offsets: Iterable[int]) -> list[range]:
    """Return ascending offsets as ranges."""
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
