"""A lane in memory: its messages are lost when the broker ends.

Settled messages are freed even if older ones are not settled: a message that is leased for hours
keeps a few of its neighbours in memory, not all that were published after it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from entrepot.broker.ledger import Ledger, rows
from entrepot.broker.queue.lane import Piece, Waiter
from entrepot.broker.queue.memory_use import MemoryUse
from entrepot.broker.queue.message import Run
from entrepot.broker.queue.shelf import Book, Shelf, first_of, joined
from entrepot.core.ranges import Ranges

# The settled messages of a run are freed when all but one in so many are settled. Earlier would
# be wasted work: while several consumers settle a run out of order, the rest is soon settled, too.
_SPARSE = 16


class MemoryLane:
    is_in_memory = True
    loaded = 0

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
        """Return None: messages in memory can always be read."""

    # --- messages

    async def prepare(self, run: Run) -> None:
        """Do nothing: there is nothing to write."""

    def append(self, runs: Sequence[Run]) -> int:
        for run in joined(runs) if len(runs) > 1 else runs:
            if run.messages:
                book = Book(self.offset_end, run)
                self._shelf.put(book)
                self.bytes_kept += book.size
                self._memory_use.change(book.size)
                self.offset_end = book.offset_end
        return self.offset_end

    def when_committed(self, offset_end: int, waiter: Waiter) -> None:
        assert offset_end <= self.offset_end
        waiter(None)

    def read(self, offsets: range, bytes_max: int | None = None) -> list[Piece]:
        first, end = offsets.start, offsets.stop
        book = self._shelf.at(first)
        is_whole = book is not None and book.offset_first == first and book.offset_end == end
        if book is not None and is_whole and (bytes_max is None or book.size <= bytes_max):
            return [(offsets, book.run)]
        books = self._shelf.within(first, end)
        pieces = [book.part(first, end) for book in books]
        if bytes_max is not None and sum([book.size for book in books]) > bytes_max:
            return first_of(pieces, bytes_max)
        return pieces

    def offset_for_time(self, time_ms: int) -> int:
        found = (book.offset_first for book in self._shelf if book.run.time_ms >= time_ms)
        return next(found, self.offset_end)

    # --- recording changes of the ledger

    def settled(self, offsets: Iterable[range]) -> None:
        freed = 0
        for book in self._shelf.pop_before(self.ledger.offset_low):
            freed += book.size
        if freed:
            self.bytes_kept -= freed
            self._memory_use.change(-freed)
        if not self._shelf.size:
            return
        for each in offsets:
            for book in self._shelf.within(each.start, each.stop):
                self._settle(book, each)

    def hurry(self) -> None:
        """Do nothing: what is in memory does not outlive the process."""

    def attempted(self, offsets: Iterable[range]) -> None:
        """Do nothing: the ledger has the attempts."""

    def deferred(self, offset: int, until_ms: int | None) -> None:
        """Do nothing: the ledger has the time."""

    def rewound(self, offset: int) -> None:
        """Count the messages from the offset on that are still in memory as not settled."""
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

    # --- memory

    def _settle(self, book: Book, offsets: range) -> None:
        """Count the messages that were settled in a run, and free them if few others are left."""
        first, end = offsets.start, min(offsets.stop, book.offset_end)
        if first < book.offset_first:
            first += -((first - book.offset_first) // offsets.step) * offsets.step
        book.live -= len(range(first, end, offsets.step))
        if book.live * _SPARSE <= len(book.run.messages):
            self._thin_out(book)

    def _thin_out(self, book: Book) -> None:
        """Free the settled messages of a run: replace it by runs of the others."""
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
