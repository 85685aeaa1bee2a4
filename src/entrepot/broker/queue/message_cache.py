"""A cache of messages of the log: those appended last, and those read ahead.

There is one cache for all lanes, with a limit in bytes: when it is full, the oldest entries are
dropped, of whatever lane. Settled messages are dropped before that. Each lane also has a limit, so
that a long queue takes no more memory than a short one: it drops the run at the other end from
the one it adds. A queue that is consumed as fast as it is published to never reads its log; a
long one reads it once.
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
        """Add a run to a lane's shelf, and drop others if there is too much."""
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
        """Drop the runs of a lane that are wholly below the offset: they are settled."""
        for book in shelf.pop_before(offset):
            del self._books[book]
            self.size -= book.size
