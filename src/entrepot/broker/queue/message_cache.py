"""Messages of the log that are in memory: the newest, and what was read ahead.

One cache for all lanes, bounded in bytes: when it is full, what came first goes first,
whosever it is. What is settled goes before that. A lane has a bound of its own, so that a
long queue takes no more memory than a short one: what it gives up lies farthest from what
it puts there. A queue that is drained as fast as it is filled never reads its log; a long
one reads it once.
"""

from __future__ import annotations

from collections import OrderedDict

from entrepot.broker.queue.shelf import Book, Shelf
from entrepot.core import limits


class MessageCache:
    def __init__(
        self,
        bytes_max: int = limits.QUEUE_CACHE_BYTES_MAX,
        lane_bytes_max: int = limits.QUEUE_CACHE_LANE_BYTES_MAX,
    ) -> None:
        self._bytes_max = bytes_max
        self._lane_bytes_max = lane_bytes_max
        self._books: OrderedDict[Book, Shelf] = OrderedDict()  # The oldest first.
        self.size = 0  # Bytes, about.

    def put(self, shelf: Shelf, book: Book) -> None:
        shelf.put(book)
        self._books[book] = shelf
        self.size += book.size
        while shelf.size > self._lane_bytes_max and shelf.opposite(book) is not book:
            farthest = shelf.opposite(book)
            del self._books[farthest]
            self.size -= farthest.size
            shelf.remove(farthest)
        while self.size > self._bytes_max and len(self._books) > 1:
            oldest, holder = self._books.popitem(last=False)
            self.size -= oldest.size
            holder.remove(oldest)

    def drop_before(self, shelf: Shelf, offset: int) -> None:
        """What of that shelf lies wholly below is not needed any more."""
        for book in shelf.pop_before(offset):
            del self._books[book]
            self.size -= book.size
