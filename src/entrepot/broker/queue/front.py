"""The front of a lane: what comes next, and what of it is still good.

Most messages need no second look. Those that may not be good any more are told by their
offsets: below one, messages may have brought a time to live of their own; below another,
they are older than the process, and transient ones did not survive it. And the bytes that
are ready are counted only for a queue that limits them, from the moment it needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from entrepot.broker.ledger import NEVER
from entrepot.broker.queue.arrival import Arrival
from entrepot.broker.queue.expiry import expiry_ms, has_own_times
from entrepot.broker.queue.lane import Lane, Piece
from entrepot.broker.queue.message import PropertyReader, Run, Taken
from entrepot.broker.queue.settings import QueueSettings
from entrepot.core import limits
from entrepot.core.envelope import Message
from entrepot.core.errors import StorageError
from entrepot.core.ranges import Ranges


class Popped(NamedTuple):
    """Out of the ledger: each is to be leased, or settled."""

    size: int  # Messages, good or not.
    good: list[Taken]
    expired: list[Piece]
    lost: list[Piece]  # Transient and from before, or gone from the log: then without messages.

    @property
    def are_good(self) -> bool:
        """All of them."""
        return not self.expired and not self.lost

    def before_good(self) -> Popped:
        """Return the part of it that comes before the first good message."""
        if not self.good:
            return self
        end = self.good[0].offsets.start
        expired = [piece for piece in self.expired if piece[0].start < end]
        lost = [piece for piece in self.lost if piece[0].start < end]
        return Popped(sum(len(offsets) for offsets, _ in (*expired, *lost)), [], expired, lost)


NOTHING = Popped(0, [], [], [])
_GONE = Run(0, ())
_PEEKED_AT_ONCE = 10  # They may be large.


class Front:
    def __init__(self, lane: Lane, settings: QueueSettings, reader: PropertyReader) -> None:
        self.lane = lane
        self.ledger = lane.ledger
        self.appended_end = lane.offset_end  # What is appended need not be committed yet.
        # From here on, messages come up for the first time: none of them is overdue.
        self._arriving_from = lane.offset_end
        self._reader = reader
        self._ttl_ms = settings.ttl_ms
        self._transient_end = 0 if settings.keeps_all else lane.offset_recovered
        self._heeds_times = settings.heeds_expiration
        # Below it, messages may have times of their own.
        self._times_end = lane.offset_end if self._heeds_times else 0
        self._counts_bytes = settings.length_bytes_max is not None
        self._ready_bytes: int | None = None  # None: to be counted.
        self._uncounted = Ranges()  # Ready, and not in that count yet.

    # --- what there is

    @property
    def ready_count(self) -> int:
        return self.ledger.ready_count(self.lane.offset_end)

    @property
    def ready_count_most(self) -> int:
        """The same at little cost; deferred ones may be among them."""
        ledger = self.ledger
        return ledger.returned.count + max(0, self.lane.offset_end - ledger.offset_fresh)

    @property
    def waiting_count(self) -> int:
        """Ready now, or when they are committed."""
        return self.ledger.ready_count(self.appended_end)

    @property
    def ready_bytes(self) -> int:
        """As far as they are counted. 0 while they cannot be read: then they are counted another
        time."""
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
        """Count the bytes of a turn's messages. Whether some are left to be counted."""
        if self._uncounted:
            self._count_bytes(self._uncounted.pop(limits.QUEUE_TURN_MESSAGES_MAX))
        return bool(self._uncounted)

    def peek(self, count: int) -> Iterator[Taken]:
        """The next messages, read a few at a time; they stay where they are."""
        for ready in self.ledger.ready(count, self.lane.offset_end):
            while ready:
                offsets, ready = ready[:_PEEKED_AT_ONCE], ready[_PEEKED_AT_ONCE:]
                for each, run in self.lane.read(offsets):
                    yield Taken(each, run, self._attempts(each))

    # --- what comes and goes

    def append(self, arrivals: Sequence[Arrival]) -> list[range]:
        """The offsets of each. Raises StorageError."""
        runs = [arrival.run for arrival in arrivals]
        bytes_before = self._known_bytes() if self._counts_bytes else None
        self.appended_end = self.lane.append(runs)
        offset = self.appended_end - sum(len(run.messages) for run in runs)
        if self._heeds_times and any(has_own_times(run, self._reader) for run in runs):
            self._times_end = self.appended_end
        places: list[range] = []
        for run, _, _, due_ms in arrivals:
            places.append(range(offset, offset + len(run.messages)))
            offset = places[-1].stop
            if due_ms is not None:
                for each in places[-1]:
                    self.defer(each, due_ms)
            elif bytes_before is not None:
                bytes_before += _size(run)
        self._ready_bytes = bytes_before
        return places

    def defer(self, offset: int, due_ms: int) -> None:
        """It was appended just now, or is deferred already."""
        self.ledger.defer(offset, due_ms)
        self.lane.deferred(offset, due_ms)

    def end_times(self, now_ms: int) -> bool:
        """End the delays that are over. Whether there are any."""
        ready = self.ledger.expire(now_ms)
        for each in ready:
            for offset in each:
                self.lane.deferred(offset, None)
        self.came_back(ready)
        return bool(ready)

    def came_back(self, ready: Sequence[range]) -> None:
        """These are ready again."""
        if self._ready_bytes is not None:
            self._count_bytes(ready)

    def pop(self, count: int, now_ms: int) -> Popped:
        """Take out the next messages, at most so many.

        Raises StorageError when they cannot be read; then they are where they were.
        """
        fresh = self.ledger.offset_fresh
        return self._read(self.ledger.pop(count, self.lane.offset_end), now_ms, fresh)

    def pop_overdue(self, now_ms: int) -> Popped:
        """Take out the next messages up to the first good one, at most a turn's.

        None of what it returns is good. Raises StorageError as `pop` does.
        """
        if self.expiry_ms() > now_ms:
            return NOTHING
        end, fresh = self.lane.offset_end, self.ledger.offset_fresh
        ready = self.ledger.ready(limits.QUEUE_TURN_MESSAGES_MAX, end)
        popped = self._judged(ready, now_ms, fresh).before_good()
        self.ledger.pop(popped.size, end)
        self._went(popped)
        return popped

    def pop_at(self, offsets: range) -> Popped:
        """Those of them that are ready, wherever they stand, and however old they are.

        Raises StorageError as `pop` does.
        """
        fresh = self.ledger.offset_fresh
        return self._read(self.ledger.pop_at(offsets, self.lane.offset_end), 0, fresh)

    def _read(self, taken: Sequence[range], now_ms: int, fresh: int) -> Popped:
        try:
            popped = self._judged(taken, now_ms, fresh)
        except BaseException:  # Whatever it is: nobody has them, so they must not stay out.
            for offsets in taken:
                self.ledger.returned.add(offsets.start, offsets.stop)
            raise
        self._went(popped)
        return popped

    def _judged(self, ready: Sequence[range], now_ms: int, fresh: int) -> Popped:
        """Read these messages and say which are good. This is the only place that says so.

        Raises StorageError.
        """
        popped = Popped(sum(map(len, ready)), [], [], [])
        for offsets in ready:
            pieces = self.lane.read(offsets)
            if len(pieces) != 1 or len(pieces[0][0]) != len(offsets):
                popped.lost.extend((gap, _GONE) for gap in gaps(offsets, pieces))
            for piece in pieces:
                self._judge(piece, now_ms, popped, is_fresh=offsets.start >= fresh)
        return popped

    def _went(self, popped: Popped) -> None:
        """They are not ready any more."""
        if self._ready_bytes is not None:
            good = [(taken.offsets, taken.run) for taken in popped.good]
            for offsets, run in (*good, *popped.expired, *popped.lost):
                self._ready_bytes -= self._counted_size(offsets, run)

    def _counted_size(self, offsets: range, run: Run) -> int:
        """Those that are not counted yet need not be any more."""
        uncounted = self._uncounted.remove(offsets.start, offsets.stop)
        size = _size(run)
        for each in uncounted if run.messages else ():
            first = each.start - offsets.start
            size -= sum(len(body) for _, body in run.messages[first : first + len(each)])
        return size

    def came_up(self) -> None:
        """All that is committed had its chance to be handed out."""
        self._arriving_from = self.lane.offset_end

    def discard(self) -> list[range]:
        """All that is ready is settled; whoever asks must tell the lane."""
        self._ready_bytes = 0 if self._counts_bytes else None
        self._uncounted = Ranges()
        return self.ledger.discard(self.ready_count_most, self.lane.offset_end)

    def is_deferred(self, offset: int) -> bool:
        """It waits for a time, and is committed."""
        return offset in self.ledger.deferred and offset < self.lane.offset_end

    def cancel(self, offset: int) -> list[range]:
        """A deferred message is settled; whoever asks must tell the lane."""
        cancelled = range(offset, offset + 1)
        self.ledger.note_settled(cancelled)
        self.lane.deferred(offset, None)
        return [cancelled]

    def rewind(self, offset: int) -> None:
        """From there on everything is ready, as far as it is still kept."""
        offset = min(max(offset, self.lane.offset_start), self.lane.offset_end)
        self.ledger.rewind(offset)
        self.lane.rewound(offset)
        self._times_end = self.appended_end if self._heeds_times else 0
        self._forget_bytes()

    # --- what is good

    @property
    def may_expire(self) -> bool:
        return self._ttl_ms is not None or self.ledger.offset_low < self._times_end

    def expiry_ms(self) -> int:
        """Return when to call `pop_overdue`; NEVER when the next message does not expire."""
        ready = self.ledger.ready(1, self.lane.offset_end) if self.may_expire else []
        if not ready:
            return NEVER
        head = self.lane.read(ready[0])
        if not head:
            return 0  # It is gone, and the one behind it may expire.
        (offsets, run), *_ = head
        if offsets.start < self._transient_end and self._is_transient(run.messages[0]):
            return 0
        if offsets.start < self._times_end:
            return expiry_ms(run, 0, self._ttl_ms, self._reader)
        return NEVER if self._ttl_ms is None else run.time_ms + self._ttl_ms

    def _judge(self, piece: Piece, now_ms: int, popped: Popped, *, is_fresh: bool) -> None:
        start = piece[0].start
        if start >= self._times_end and start >= self._transient_end and self._ttl_ms is None:
            popped.good.append(self._taken(piece, is_fresh=is_fresh))  # Nearly always.
        elif start < self._transient_end:
            for is_lost, part in divide(piece, self._is_transient):
                if is_lost:
                    popped.lost.append(part)
                else:
                    self._judge_age(part, now_ms, popped, is_fresh=is_fresh)
        else:
            self._judge_age(piece, now_ms, popped, is_fresh=is_fresh)

    def _judge_age(self, piece: Piece, now_ms: int, popped: Popped, *, is_fresh: bool) -> None:
        offsets, run = piece
        if offsets.start < self._arriving_from:
            if self._ttl_ms is not None and run.time_ms + self._ttl_ms <= now_ms:
                popped.expired.append(piece)
                return
            if offsets.start < self._times_end:
                for is_overdue, part in divide(piece, self._overdue(run.time_ms, now_ms)):
                    if is_overdue:
                        popped.expired.append(part)
                    else:
                        popped.good.append(self._taken(part, is_fresh=is_fresh))
                return
        popped.good.append(self._taken(piece, is_fresh=is_fresh))

    def _is_transient(self, message: Message) -> bool:
        return not self._reader.facts(message[0].properties).is_persistent

    def _overdue(self, time_ms: int, now_ms: int) -> Callable[[Message], bool]:
        def is_overdue(message: Message) -> bool:
            ttl_ms = self._reader.facts(message[0].properties).ttl_ms
            return ttl_ms is not None and time_ms + ttl_ms <= now_ms

        return is_overdue

    def _taken(self, piece: Piece, *, is_fresh: bool) -> Taken:
        return Taken(*piece, None if is_fresh else self._attempts(piece[0]))

    def _attempts(self, offsets: range) -> Sequence[int] | None:
        attempts = [self.ledger.attempts(offset) for offset in offsets]
        return attempts if any(attempts) else None

    def _count_bytes(self, ready: Iterable[range]) -> None:
        """Add those of these; what cannot be read makes the count unknown."""
        assert self._ready_bytes is not None
        try:
            for offsets in ready:
                for start in range(offsets.start, offsets.stop, limits.QUEUE_TURN_MESSAGES_MAX):
                    stop = min(offsets.stop, start + limits.QUEUE_TURN_MESSAGES_MAX)
                    pieces = self.lane.read(range(start, stop))
                    self._ready_bytes += sum(_size(run) for _, run in pieces)
        except StorageError:
            self._forget_bytes()

    def _forget_bytes(self) -> None:
        self._ready_bytes, self._uncounted = None, Ranges()


def divide(piece: Piece, is_so: Callable[[Message], bool]) -> Iterator[tuple[bool, Piece]]:
    """The piece in parts whose messages are alike."""
    offsets, run = piece
    start = 0
    for answer, alike in groupby(map(is_so, run.messages)):
        stop = start + sum(1 for _ in alike)
        part = Run(run.time_ms, run.messages[start:stop])
        yield answer, (offsets[start:stop], part)
        start = stop


def gaps(offsets: range, pieces: Sequence[Piece]) -> Iterator[range]:
    """Those of the offsets that no piece has."""
    start = offsets.start
    for each, _ in pieces:
        if start < each.start:
            yield range(start, each.start)
        start = each.stop
    if start < offsets.stop:
        yield range(start, offsets.stop)


def _size(run: Run) -> int:
    return sum(len(body) for _, body in run.messages)
