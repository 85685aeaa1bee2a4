"""The front of a lane: takes out the next messages, and finds those that have expired or are lost.

A message expires after its own TTL or its queue's, whichever is less, counted from when it was
published. That is checked only when the message is at the front: behind one with a longer TTL it
may be overdue and still there. Only `_judged` decides whether a message is good, that is, neither
expired nor lost.

For most messages this is decided by their offsets alone: only below `_times_end` may messages
have a TTL of their own, and only below `_transient_end` are they older than the process, so that
transient ones are lost. The bytes of ready messages are counted only if the queue limits them,
and from the first time that they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.lane import Lane, Piece
from entrepot.broker.queue.message import Pending, Run, Taken
from entrepot.broker.queue.ordered_groups import FairGroups, OrderedGroups
from entrepot.broker.queue.selection import Progress
from entrepot.broker.queue.settings import QueueSettings
from entrepot.core import limits
from entrepot.core.errors import StorageError
from entrepot.core.message import Message, distinct
from entrepot.core.ranges import Ranges


class Popped:
    """Messages that were taken out of a ledger. The caller must lease or settle each of them."""

    __slots__ = ("expired", "good", "is_cut", "lost", "size")

    def __init__(self) -> None:
        self.size = 0  # Messages, good or not.
        self.is_cut = False  # Whether they are fewer than there are because they are large.
        self.good: list[Taken] = []
        self.expired: list[Piece] = []
        # Transient and older than the process; or deleted from the log, then with an empty run.
        self.lost: list[Piece] = []

    def cut_at_good(self) -> None:
        """Keep only the messages before the first good one."""
        if self.good:
            end = self.good[0].offsets.start
            self.good = []
            self.expired = [piece for piece in self.expired if piece[0].start < end]
            self.lost = [piece for piece in self.lost if piece[0].start < end]
            self.size = sum([len(offsets) for offsets, _ in (*self.expired, *self.lost)])

    @property
    def pieces(self) -> list[Piece]:
        """Return all these messages; not in their order."""
        good = [(taken.offsets, taken.run) for taken in self.good]
        return [*good, *self.expired, *self.lost]

    @property
    def weight(self) -> int:
        """Return the bytes of all these messages."""
        return sum([_size(run) for _, run in self.pieces])

    @property
    def offset_end(self) -> int:
        """Return the offset behind the last of these messages; there must be some."""
        return max([offsets.stop for offsets, _ in self.pieces])


_GONE = Run(0, ())
_PEEKED_AT_ONCE = 10  # Messages that `peek` reads at once: they may be large.


class Front:
    def __init__(self, lane: Lane, settings: QueueSettings) -> None:
        self.lane = lane
        self.ledger = lane.ledger
        self.appended_end = lane.offset_end  # Includes what is not committed yet.
        # From this offset on, messages can be delivered for the first time: none has expired.
        self._arriving_from = lane.offset_end
        self._ttl_ms = settings.ttl_ms
        self._transient_end = 0 if settings.keeps_all else lane.offset_recovered
        self._heeds_times = settings.heeds_expiration
        # Only below it may messages have a TTL of their own.
        self._times_end = lane.offset_end if self._heeds_times else 0
        self._counts_bytes = settings.length_bytes_max is not None
        self._ready_bytes: int | None = None  # None means: not counted.
        self._uncounted = Ranges()  # Ready, and not in that count yet.
        # The first ready message, if it was found to be good, and when it expires.
        self._good_first: tuple[int, int] | None = None
        self.selecting: list[Progress] = []  # Of consumers that select messages.
        self.groups: OrderedGroups | None = OrderedGroups(lane) if settings.has_groups else None

    def become_fair(self) -> None:
        """Take messages out by fair groups from now on, unless groups are ordered."""
        if self.groups is None:
            self.groups = FairGroups(self.lane)

    def change_settings(self, settings: QueueSettings) -> None:
        """Follow other settings: from now on messages expire by these."""
        self._ttl_ms = settings.ttl_ms
        self._good_first = None

    # --- counting and peeking

    @property
    def ready_count(self) -> int:
        return self.ledger.ready_count(self.lane.offset_end)

    @property
    def ready_count_most(self) -> int:
        """Return an upper bound of `ready_count` quickly: deferred messages may be included."""
        ledger = self.ledger
        fresh = self.lane.offset_end - ledger.offset_fresh
        return ledger.returned.count + fresh if fresh > 0 else ledger.returned.count

    @property
    def waiting_count(self) -> int:
        """Return how many messages are ready, or will be when they are committed."""
        return self.ledger.ready_count(self.appended_end)

    @property
    def ready_bytes(self) -> int:
        """Return the bytes of ready messages that are counted so far; 0 if they cannot be read."""
        return self._known_bytes() or 0

    def _known_bytes(self) -> int | None:
        if self._ready_bytes is None:
            self._begin_to_count()
        return self._ready_bytes

    def _begin_to_count(self) -> None:
        self._ready_bytes = 0
        self._uncounted = Ranges(self.ledger.ready(NEVER, self.lane.offset_end))
        self.count_more()

    def count_more(self) -> bool:
        """Count the bytes of some more messages. Returns whether any are left to be counted."""
        count, left = limits.QUEUE_TURN_MESSAGES_MAX, limits.QUEUE_TURN_BYTES_MAX
        try:
            while self._uncounted and count > 0 and left > 0:
                offsets, loaded = next(iter(self._uncounted))[:count], self.lane.loaded
                pieces = self.lane.read(offsets, left)
                counted = range(offsets.start, pieces[-1][0].stop if pieces else offsets.stop)
                self._uncounted.remove(counted.start, counted.stop)
                size = sum([_size(run) for _, run in pieces])
                self._ready_bytes = (self._ready_bytes or 0) + size
                count, left = count - len(counted), left - size - self.cost_since(loaded)
        except StorageError:  # Counting begins anew later.
            self._forget_bytes()
        return bool(self._uncounted)

    def peek(self, count: int) -> Iterator[Taken]:
        """Yield the next messages without taking them out, read a few at a time."""
        for ready in self.ledger.ready(count, self.lane.offset_end):
            while ready:
                offsets, ready = ready[:_PEEKED_AT_ONCE], ready[_PEEKED_AT_ONCE:]
                for each, run in self.lane.read(offsets):
                    yield self.copied(each, run)

    def copied(self, offsets: range, run: Run) -> Taken:
        """Return the first messages of a run as they would be delivered, without taking them."""
        count = len(offsets)
        if count < len(run.messages):
            run = Run(run.time_ms, run.messages[:count])
        return Taken(offsets, run, self._attempts(offsets))

    # --- adding and taking out

    def append(self, pending: Sequence[Pending]) -> None:
        """Append these runs, and set the `offsets` of each. Raises StorageError."""
        bytes_before = self._known_bytes() if self._counts_bytes else None
        if len(pending) == 1:
            run = pending[0].run
            runs, count = [run], len(run.messages)
        else:
            runs = [each.run for each in pending]
            count = sum([len(run.messages) for run in runs])
        end = self.appended_end = self.lane.append(runs)
        offset = end - count
        for each in pending:
            messages = each.run.messages
            each.offsets = range(offset, offset + len(messages))
            offset = each.offsets.stop
            is_plain = len(messages) == 1 and messages[0][0].is_plain
            if self._heeds_times and not is_plain and has_own_times(messages):
                self._times_end = end
            if each.due_ms is not None:
                for deferred in each.offsets:
                    self.defer(deferred, each.due_ms)
            elif bytes_before is not None:
                bytes_before += _size(each.run)
        self._ready_bytes = bytes_before

    def defer(self, offset: int, due_ms: int) -> None:
        """Defer a message until `due_ms`. It must be just appended, or deferred already."""
        self.ledger.defer(offset, due_ms)
        self.lane.deferred(offset, due_ms)

    def end_times(self, now_ms: int) -> bool:
        """Make deferred messages ready whose time has come. Returns whether there were any."""
        ready = self.ledger.expire(now_ms)
        for each in ready:
            for offset in each:
                self.lane.deferred(offset, None)
        self.came_back(ready)
        self.count_more()
        return bool(ready)

    def cost_since(self, loaded: int) -> int:
        """Return what reads from the disk have cost since `lane.loaded` was this, in bytes."""
        return (self.lane.loaded - loaded) * limits.QUEUE_READ_RUN_BYTES

    def came_back(self, ready: Sequence[range]) -> None:
        """Note that messages are ready again. `count_more` counts their bytes."""
        for progress in self.selecting:
            progress.came_back(ready)
        if self.groups is not None:
            self.groups.came_back(ready)
        if self._ready_bytes is not None:
            for offsets in ready:
                self._uncounted.add(offsets.start, offsets.stop)

    def pop(self, count: int, now_ms: int) -> Popped:
        """Take out the next messages, at most `count`, expired ones included.

        There are fewer if they are large: about QUEUE_TURN_BYTES_MAX are read at once. With
        ordered groups they are of one group; with fair ones they need not be the oldest.
        Raises StorageError if they cannot be read; then they stay ready.
        """
        fresh = self.ledger.offset_fresh
        if self.groups is not None:
            return self._read(self.groups.pop(count), now_ms, fresh)
        return self._read(self.ledger.pop(count, self.lane.offset_end), now_ms, fresh)

    def pop_overdue(self, now_ms: int) -> tuple[Popped, int]:
        """Take out the next messages before the first good one, at most as many as in one turn.

        Returns them, and when to call again: NEVER if the next message does not expire.
        Raises StorageError as `pop` does.
        """
        end, fresh = self.lane.offset_end, self.ledger.offset_fresh
        first = self.ledger.ready(1, end)
        if first and self._good_first is not None:
            offset, until_ms = self._good_first
            if offset == first[0].start and now_ms < until_ms:
                return Popped(), until_ms  # Reading it again may be a read from the disk.
        popped = self._judged(first, now_ms, fresh)
        if popped.size and not popped.good and self.ready_count_most > 1:
            ready = self.ledger.ready(limits.QUEUE_TURN_MESSAGES_MAX, end)
            popped = self._judged(ready, now_ms, fresh)
        again_ms, self._good_first = 0 if popped.size else NEVER, None
        if popped.good:
            again_ms = self._expiry_ms(popped.good[0])
            self._good_first = popped.good[0].offsets.start, again_ms
        popped.cut_at_good()
        if popped.size:
            taken = self.ledger.pop(popped.size, end)
            if self.groups is not None:
                self.groups.took(taken)
            if not again_ms and not self.ready_count_most:
                again_ms = NEVER  # Those were all.
            if self._ready_bytes is not None:
                self._uncount(popped, self._ready_bytes)
        return popped, again_ms

    def pop_at(self, offsets: range, now_ms: int) -> Popped:
        """Take out the messages at these offsets that are ready, expired ones included.

        There are fewer if they are large. Raises StorageError as `pop` does.
        """
        fresh = self.ledger.offset_fresh
        taken = self.ledger.pop_at(offsets, self.lane.offset_end)
        if self.groups is not None:
            self.groups.took(taken)
        return self._read(taken, now_ms, fresh)

    def _read(self, taken: Sequence[range], now_ms: int, fresh: int) -> Popped:
        try:
            popped = self._judged(taken, now_ms, fresh)
        except BaseException:  # Whatever it is, they must be ready again: nobody has them.
            self._put_back(taken, 0)
            raise
        if popped.is_cut:
            self._put_back(taken, popped.size)
        if self._ready_bytes is not None:
            self._uncount(popped, self._ready_bytes)
        return popped

    def _put_back(self, taken: Sequence[range], count: int) -> None:
        """Make these messages ready again, but for the first `count` of them."""
        for offsets in taken:
            rest = offsets[count:]
            self.ledger.returned.add(rest.start, rest.stop)
            count = max(0, count - len(offsets))
            if self.groups is not None:
                self.groups.came_back([rest])

    def _uncount(self, popped: Popped, ready_bytes: int) -> None:
        """Subtract the bytes of messages that are not ready any more."""
        for offsets, run in popped.pieces:
            ready_bytes -= self._counted_size(offsets, run)
        self._ready_bytes = ready_bytes

    def _counted_size(self, offsets: range, run: Run) -> int:
        """Return how many of the run's bytes were counted. The rest will not be counted."""
        uncounted = self._uncounted.remove(offsets.start, offsets.stop)
        size = _size(run)
        for each in uncounted if run.messages else ():
            first = each.start - offsets.start
            size -= sum(len(body) for _, body in run.messages[first : first + len(each)])
        return size

    def came_up(self) -> bool:
        """Note that all committed messages could have been delivered: now they may expire.

        Returns whether any may expire, or is deferred or leased until a certain time.
        """
        self._arriving_from = self.lane.offset_end
        ledger = self.ledger
        return self._ttl_ms is not None or ledger.offset_low < self._times_end or bool(ledger.times)

    def discard(self) -> list[range]:
        """Settle all ready messages in the ledger. The caller must record that in the lane."""
        self._ready_bytes = 0 if self._counts_bytes else None
        self._uncounted = Ranges()
        return self.ledger.discard(self.ready_count_most, self.lane.offset_end)

    def is_deferred(self, offset: int) -> bool:
        """Return whether the message is deferred and committed."""
        return offset in self.ledger.deferred and offset < self.lane.offset_end

    def cancel(self, offset: int) -> list[range]:
        """Settle a deferred message in the ledger. The caller must record that in the lane."""
        cancelled = range(offset, offset + 1)
        self.ledger.note_settled(cancelled)
        self.lane.deferred(offset, None)
        return [cancelled]

    def rewind_preview(self, offset: int) -> tuple[int, int]:
        """Return how many messages a rewind would make ready that are not, and how many of these
        are leased."""
        kept = range(self._kept(offset), self.lane.offset_end)
        ready = sum(map(len, self.ledger.ready_within(kept.start, kept.stop)))
        return len(kept) - ready, sum(each in kept for each in self.ledger.leased)

    def _kept(self, offset: int) -> int:
        """Return the offset, or the nearest to it that is still kept."""
        return min(max(offset, self.lane.offset_start), self.lane.offset_end)

    def rewind(self, offset: int) -> None:
        """Make all messages from that offset on ready again that are still kept."""
        offset = self._kept(offset)
        self.ledger.rewind(offset)
        self.lane.rewound(offset)
        if self.groups is not None:
            self.groups.reset()
        self._times_end = self.appended_end if self._heeds_times else 0
        self._good_first = None
        self._forget_bytes()
        for progress in self.selecting:
            progress.rewound(offset)

    # --- expired and lost messages

    @property
    def may_expire(self) -> bool:
        return self._ttl_ms is not None or self.ledger.offset_low < self._times_end

    def _judged(self, ready: Sequence[range], now_ms: int, fresh: int) -> Popped:
        """Read these messages, and sort them into good, expired and lost. Raises StorageError.

        If they are large, only the first of them. From the offset `fresh` on, messages were
        never delivered before.
        """
        popped, left = Popped(), limits.QUEUE_TURN_BYTES_MAX
        for wanted in ready:
            if left <= 0:
                popped.is_cut = True
                break
            loaded = self.lane.loaded
            offsets, pieces = wanted, self.lane.read(wanted, left)
            if pieces and pieces[-1][0].stop < wanted.stop:
                offsets, left = range(wanted.start, pieces[-1][0].stop), 0
                popped.is_cut = True
            elif len(ready) > 1:
                left -= sum([_size(run) for _, run in pieces]) + self.cost_since(loaded)
            popped.size += len(offsets)
            if len(pieces) != 1 or len(pieces[0][0]) != len(offsets):
                popped.lost.extend((gap, _GONE) for gap in gaps(offsets, pieces))
            for piece in pieces:
                start, is_fresh = piece[0].start, offsets.start >= fresh
                if start < self._transient_end:
                    for is_lost, part in divide(piece, _is_transient):
                        if is_lost:
                            popped.lost.append(part)
                        else:
                            self._judge_age(part, now_ms, popped, is_fresh=is_fresh)
                elif start < self._times_end or self._ttl_ms is not None:
                    self._judge_age(piece, now_ms, popped, is_fresh=is_fresh)
                elif is_fresh:  # Nearly always.
                    popped.good.append(Taken(piece[0], piece[1], None))
                else:
                    popped.good.append(self._taken(piece, is_fresh=False))
        return popped

    def _judge_age(self, piece: Piece, now_ms: int, popped: Popped, *, is_fresh: bool) -> None:
        offsets, run = piece
        if offsets.start < self._arriving_from:
            if self._ttl_ms is not None and run.time_ms + self._ttl_ms <= now_ms:
                popped.expired.append(piece)
                return
            if offsets.start < self._times_end:
                for is_overdue, part in divide(piece, _overdue(run.time_ms, now_ms)):
                    if is_overdue:
                        popped.expired.append(part)
                    else:
                        popped.good.append(self._taken(part, is_fresh=is_fresh))
                return
        popped.good.append(self._taken(piece, is_fresh=is_fresh))

    def _expiry_ms(self, taken: Taken) -> int:
        """Return when the first of these messages expires; NEVER if it does not."""
        own_ms = None
        if taken.offsets.start < self._times_end:
            own_ms = taken.run.messages[0][0].handling.ttl_ms
        times_ms = [each for each in (own_ms, self._ttl_ms) if each is not None]
        return taken.run.time_ms + min(times_ms) if times_ms else NEVER

    def _taken(self, piece: Piece, *, is_fresh: bool) -> Taken:
        offsets, run = piece
        return Taken(offsets, run, None if is_fresh else self._attempts(offsets))

    def _attempts(self, offsets: range) -> Sequence[int] | None:
        attempts = [self.ledger.attempts(offset) for offset in offsets]
        return attempts if any(attempts) else None

    def _forget_bytes(self) -> None:
        self._ready_bytes, self._uncounted = None, Ranges()


def divide(piece: Piece, is_so: Callable[[Message], bool]) -> Iterator[tuple[bool, Piece]]:
    """Cut the piece into parts of neighbouring messages for which `is_so` returns the same."""
    offsets, run = piece
    start = 0
    for answer, alike in groupby(map(is_so, run.messages)):
        stop = start + sum(1 for _ in alike)
        part = Run(run.time_ms, run.messages[start:stop])
        yield answer, (offsets[start:stop], part)
        start = stop


def gaps(offsets: range, pieces: Sequence[Piece]) -> Iterator[range]:
    """Yield the offsets that are in no piece."""
    start = offsets.start
    for each, _ in pieces:
        if start < each.start:
            yield range(start, each.start)
        start = each.stop
    if start < offsets.stop:
        yield range(start, offsets.stop)


def has_own_times(messages: Sequence[Message]) -> bool:
    """Return whether any of these messages has a TTL of its own."""
    return any(each.handling.ttl_ms is not None for each in distinct(messages))


def _is_transient(message: Message) -> bool:
    return not message[0].handling.is_persistent


def _overdue(time_ms: int, now_ms: int) -> Callable[[Message], bool]:
    def is_overdue(message: Message) -> bool:
        ttl_ms = message[0].handling.ttl_ms
        return ttl_ms is not None and time_ms + ttl_ms <= now_ms

    return is_overdue


def _size(run: Run) -> int:
    return sum([len(body) for _, body in run.messages])
