"""A lane that lives as long as the broker: messages that may be lost with it.

What is settled is let go of, also out of order: a message that somebody holds for hours
keeps a few of its neighbours, not all that came after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from entrepot.broker.ledger import Ledger, rows
from entrepot.broker.queue.lane import Piece, Waiter
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Run
from entrepot.broker.queue.shelf import Book, Shelf, joined
from entrepot.core.ranges import Ranges

# A run is thinned out when it is so many times what is left of it. Several consumers settle a
# run in no order, and that is soon over: it should not be taken apart for that.
_SPARSE = 16


class MemoryLane:
    def __init__(self, memory_use: MemoryUse) -> None:
        self.ledger = Ledger()
        self.offset_end = 0
        self.offset_recovered = 0
        self.bytes_kept = 0
        self._shelf = Shelf()
        self._memory_use = memory_use

    @property
    def offset_start(self) -> int:
        return self.ledger.offset_low

    @property
    def fault(self) -> None:
        """What is in memory can be read."""

    # --- messages

    async def prepare(self, run: Run) -> None:
        """It is where it stays."""

    def append(self, runs: Sequence[Run]) -> int:
        for run in joined(runs):
            if run.messages:
                self._put(Book(self.offset_end, run))
                self.offset_end += len(run.messages)
        return self.offset_end

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        assert offset_end <= self.offset_end
        waiter(None)

    def read(self, offsets: range) -> list[Piece]:
        first, end = offsets.start, offsets.stop
        return [book.part(first, end) for book in self._shelf.within(first, end)]

    def offset_for_time(self, time_ms: int) -> int:
        found = (book.offset_first for book in self._shelf if book.run.time_ms >= time_ms)
        return next(found, self.offset_end)

    # --- what the ledger was told

    def settled(self, offsets: Iterable[range]) -> None:
        for book in self._shelf.pop_before(self.ledger.offset_low):
            self._count(-book.size)
        for each in offsets:
            for book in self._shelf.within(each.start, each.stop):
                self._settle(book, each)

    def attempted(self, offsets: Iterable[range]) -> None:
        """The ledger counts."""

    def deferred(self, offset: int, until_ms: int | None) -> None:
        """The ledger remembers it, for as long as there is anything to remember."""

    def rewound(self, offset: int) -> None:
        """What is gone is gone; the others count again."""
        for book in self._shelf:
            if book.offset_end > offset:
                book.live = len(book.run.messages)

    def unsettled(self) -> Ranges | None:
        return None

    def when_settlements_committed(self, waiter: Waiter) -> None:
        waiter(None)

    def drop(self) -> None:
        self._shelf = Shelf()
        self._count(-self.bytes_kept)

    # --- room

    def _settle(self, book: Book, offsets: range) -> None:
        first, end = offsets.start, min(offsets.stop, book.offset_end)
        if first < book.offset_first:
            first += -((first - book.offset_first) // offsets.step) * offsets.step
        book.live -= len(range(first, end, offsets.step))
        if book.live * _SPARSE <= len(book.run.messages):
            self._thin_out(book)

    def _thin_out(self, book: Book) -> None:
        self._shelf.remove(book)
        self._count(-book.size)
        is_settled = self.ledger.is_settled
        offsets = range(book.offset_first, book.offset_end)
        for row in rows(offset for offset in offsets if not is_settled(offset)):
            self._put(Book(row.start, book.part(row.start, row.stop)[1]))

    def _put(self, book: Book) -> None:
        self._shelf.put(book)
        self._count(book.size)

    def _count(self, size: int) -> None:
        self.bytes_kept += size
        self._memory_use.change(size)
