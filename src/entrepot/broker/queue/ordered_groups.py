"""Groups of messages: which messages of a lane are taken out next, if each belongs to a group.

With *ordered* groups a group's messages are taken out in their order, and none of them while an
earlier one is in flight: leased to somebody, or about to become a dead letter. Other groups do not
wait for it. Messages without a group are a group of their own.

With *fair* groups no group waits for its own messages, but groups of which many messages are in
flight wait for those of which few are: whoever sends very much does not make the others wait.

Which group a message belongs to is read from the message, when the search for one that may be
taken out comes to it. What was read is kept here, in memory, until the message is settled; so
the search begins where the last one ended. It goes no further than QUEUE_GROUPED_MAX messages
that are not settled: behind so many messages of blocked groups, other groups wait, too. One call
reads as much as in one turn; `is_behind` says whether the next one would find more.

Nothing of this is stored. It follows from the messages and the ledger, and is read again after a
restart, when nothing is in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from entrepot.broker.ledger import among, rows
from entrepot.core import limits

if TYPE_CHECKING:
    from entrepot.broker.queue.lane import Lane

_READ_AT_ONCE = 16  # Messages: they may be large.
_OFFERS_STALE_MAX = 64  # Outdated entries in the heap of groups beyond the number of groups.


class _Group:
    """The messages of one group that were read and are not settled."""

    __slots__ = ("count", "held", "name", "ready")

    def __init__(self, name: str | None) -> None:
        self.name = name
        self.count = 0  # Messages in whatever state.
        self.held = 0  # Those in flight.
        self.ready: list[int] = []  # A heap of offsets. Some may be outdated.


class OrderedGroups:
    """The groups of one lane."""

    is_ordered = True  # What is in flight of a group must be with one consumer.

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self._ledger = lane.ledger
        self.reset()

    def reset(self) -> None:
        """Forget what was read. For a ledger that was changed as a whole."""
        self._groups: dict[str | None, _Group] = {}
        self._group_of: dict[int, _Group] = {}  # By offset: messages that are not settled.
        self._held: dict[int, None] = {}  # Of these, those in flight,
        self._ready: dict[int, None] = {}  # and those in the heap of their group.
        # A heap of groups from which messages may be taken, by their rank and the offset of their
        # first message. Entries may be outdated: they count if both are still so.
        self._offers: list[tuple[int, int, str | None]] = []
        # What is still to be read: offsets that were handed out once, and all from this one on.
        self._unread = deque(self._ledger.unsettled())
        self._read_end = self._ledger.offset_fresh

    def _rank(self, group: _Group) -> int | None:
        """Return which groups come before this one; None if nothing may be taken from it."""
        return None if group.held else 0

    # --- taking out

    @property
    def is_behind(self) -> bool:
        """Return whether there are messages that were not looked at, and may be."""
        has_more = bool(self._unread) or self._read_end < self._lane.offset_end
        return has_more and len(self._group_of) < limits.QUEUE_GROUPED_MAX

    def pop(self, count: int) -> list[range]:
        """Take the next messages of one group out of the ledger, at most `count`.

        It is the group whose first message is the oldest. The caller must lease or settle them,
        as after `Ledger.pop`. Raises StorageError if messages cannot be read; none is taken then.
        """
        group = self._search(count)
        if group is None:
            return []
        end = self._lane.offset_end
        taken: list[int] = []
        while len(taken) < count:
            offset = self._first(group)
            if offset is None:
                break
            del self._ready[heappop(group.ready)]
            if self._ledger.pop_at(range(offset, offset + 1), end):
                taken.append(offset)
        found = rows(taken)
        self.took(found)
        return found

    def _search(self, count: int) -> _Group | None:
        """Return the group to take messages from; read more if it has fewer than `count`."""
        left, size = limits.QUEUE_TURN_MESSAGES_MAX, limits.QUEUE_TURN_BYTES_MAX
        while True:
            group = self._offered()
            is_found = group is not None and len(group.ready) >= count
            if is_found or left <= 0 or size <= 0 or not self.is_behind:
                return group
            if group is not None:
                left = min(left, count)  # Not much further: the rest of the group may be far.
            read, read_bytes = self._read_more(_READ_AT_ONCE)
            left -= read
            size -= read_bytes

    def _offered(self) -> _Group | None:
        while self._offers:
            rank, offset, name = self._offers[0]
            group = self._groups.get(name)
            if group is not None and self._rank(group) == rank and self._first(group) == offset:
                return group
            heappop(self._offers)
        return None

    def _first(self, group: _Group) -> int | None:
        """Return the offset of the group's first message that is ready."""
        ready = group.ready
        while ready and ready[0] not in self._ready:
            heappop(ready)
        return ready[0] if ready else None

    def took(self, taken: Iterable[range]) -> None:
        """Note that these messages were taken out of the ledger, here or elsewhere."""
        for offsets in taken:
            for offset in among(offsets, self._group_of):
                if offset not in self._held:
                    self._held[offset] = None
                    self._group_of[offset].held += 1
                self._ready.pop(offset, None)

    # --- what became of messages

    def came_back(self, ready: Iterable[range]) -> None:
        """Note that these messages are ready: they were in flight, or deferred."""
        for offsets in ready:
            for offset in among(offsets, self._group_of):
                group = self._group_of[offset]
                if offset in self._held:
                    del self._held[offset]
                    group.held -= 1
                self._add_ready(group, offset)
                self._offer(group)

    def settled(self, settled: Iterable[range]) -> bool:
        """Forget settled messages. Returns whether a group may be taken from that could not."""
        is_free = False
        for offsets in settled:
            for offset in among(offsets, self._group_of):
                group = self._group_of.pop(offset)
                group.count -= 1
                self._ready.pop(offset, None)
                if offset in self._held:
                    del self._held[offset]
                    group.held -= 1
                if not group.count:
                    del self._groups[group.name]
                elif self._offer(group):
                    is_free = True
        return is_free or self.is_behind

    def _add_ready(self, group: _Group, offset: int) -> None:
        if offset not in self._ready:
            self._ready[offset] = None
            heappush(group.ready, offset)

    def _offer(self, group: _Group) -> bool:
        """Note that messages may be taken from a group, if that is so. Returns whether it is."""
        offer = self._offer_of(group)
        if offer is None:
            return False
        heappush(self._offers, offer)
        if len(self._offers) > 2 * len(self._groups) + _OFFERS_STALE_MAX:
            offers = map(self._offer_of, self._groups.values())
            self._offers = [each for each in offers if each is not None]
            heapify(self._offers)
        return True

    def _offer_of(self, group: _Group) -> tuple[int, int, str | None] | None:
        rank = self._rank(group)
        first = None if rank is None else self._first(group)
        return None if rank is None or first is None else (rank, first, group.name)

    # --- reading

    def _read_more(self, count: int) -> tuple[int, int]:
        """Read the groups of the next messages.

        Returns how many offsets and bytes were read; a read from the disk counts as some more.
        """
        count = min(count, limits.QUEUE_GROUPED_MAX - len(self._group_of))
        if self._unread:
            offsets = self._unread[0][:count]
        else:
            stop = min(self._lane.offset_end, self._read_end + count)
            offsets = range(self._read_end, stop)
        names: dict[int, str | None] = {}
        loaded, size = self._lane.loaded, 0
        for each, run in self._lane.read(offsets):
            for offset, (envelope, body) in zip(each, run.messages, strict=True):
                names[offset] = envelope.handling.group
                size += len(body)
        size += (self._lane.loaded - loaded) * limits.QUEUE_READ_RUN_BYTES
        if self._unread:
            self._unread[0] = self._unread[0][len(offsets) :]
            if not self._unread[0]:
                self._unread.popleft()
        else:
            self._read_end = offsets.stop
        for offset in offsets:
            if not self._ledger.is_settled(offset):
                # One that retention has deleted is of no group; it is found missing when taken.
                self._add(offset, names.get(offset))
        return len(offsets), size

    def _add(self, offset: int, name: str | None) -> None:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = _Group(name)
        group.count += 1
        self._group_of[offset] = group
        if offset in self._ledger.leased:
            self._held[offset] = None
            group.held += 1
        elif offset not in self._ledger.deferred:
            self._add_ready(group, offset)
            self._offer(group)


class FairGroups(OrderedGroups):
    """The groups of a lane, of which the one with the fewest messages in flight comes first."""

    is_ordered = False

    def _rank(self, group: _Group) -> int | None:
        return group.held

    def pop(self, count: int) -> list[range]:
        """Take the next messages out of the ledger, at most `count`: one after the other, each of
        the group of which the fewest are in flight then, and of those the oldest one.

        The caller must lease or settle them, as after `Ledger.pop`. Raises StorageError if messages
        cannot be read; none is taken then.
        """
        end = self._lane.offset_end
        left, left_bytes = limits.QUEUE_TURN_MESSAGES_MAX, limits.QUEUE_TURN_BYTES_MAX
        taken: list[int] = []
        while len(taken) < count:
            group = self._offered()
            # There may be more, of groups of which fewer are in flight.
            while (group is None or group.held) and self.is_behind and min(left, left_bytes) > 0:
                read, read_bytes = self._read_more(_READ_AT_ONCE)
                left, left_bytes = left - read, left_bytes - read_bytes
                group = self._offered()
            if group is None:
                break
            offset = heappop(group.ready)
            del self._ready[offset]
            if self._ledger.pop_at(range(offset, offset + 1), end):
                taken.append(offset)
            self.took([range(offset, offset + 1)])
        if taken:
            return rows(sorted(taken))
        # All that may be looked at is in flight: whatever comes next.
        found = [] if self.is_behind else self._ledger.pop(count, end)
        self.took(found)
        return found

    def took(self, taken: Iterable[range]) -> None:
        for offsets in taken:
            groups = {self._group_of[each].name: each for each in among(offsets, self._group_of)}
            super().took([offsets])
            for name in groups:
                self._offer(self._groups[name])

    def settled(self, settled: Iterable[range]) -> bool:
        super().settled(settled)
        return False  # Nothing is held up by messages in flight.
