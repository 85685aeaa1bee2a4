"""Runs of messages in memory, sorted by offset and found by binary search.

A `Book` is a run with its offsets; a `Shelf` is a sorted list of books whose offsets do not
overlap. Books are mostly removed from the front: the list is shortened only now and then, so
that removing the first costs the same however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.message import Run
from entrepot.core.message import Message, distinct

MESSAGE_BYTES = 200  # About what Python needs for a message beside its bytes.
_GONE_MAX = 1_000  # The list is shortened if more, and more than half of it, is removed.


class Book:
    """One run, with its offsets, which are consecutive."""

    __slots__ = ("live", "offset_end", "offset_first", "run", "size")

    def __init__(self, offset_first: int, run: Run) -> None:
        messages = run.messages
        count = len(messages)
        self.offset_first = offset_first
        self.offset_end = offset_first + count
        self.run = run
        self.live = count  # Messages that are not settled. Only a lane in memory counts them.
        if count == 1:
            ((envelope, body),) = messages
            size = len(envelope.head) + len(envelope.section or b"") + len(body)
        else:
            size = _held(messages)
        self.size = size + MESSAGE_BYTES * count  # Bytes, about.

    def part(self, first: int, end: int) -> Piece:
        """Return its messages with offsets from `first` to `end`. There must be some."""
        run, start, stop = self.run, max(first, self.offset_first), min(end, self.offset_end)
        if stop - start < len(run.messages):
            base = self.offset_first
            run = run._replace(messages=run.messages[start - base : stop - base])
        return range(start, stop), run

    def cut(self, first: int, end: int) -> Book:
        """Return a book of the messages from `first` to `end`; itself if these are all."""
        offsets, run = self.part(first, end)
        return self if run is self.run else Book(offsets.start, run)


def _held(messages: Sequence[Message]) -> int:
    """Return the bytes of the bodies, and of the properties, once for each envelope."""
    if not messages:
        return 0
    return sum([len(each.head) + len(each.section or b"") for each in distinct(messages)]) + sum(
        [len(body) for _, body in messages]
    )


def joined(runs: Sequence[Run]) -> Sequence[Run]:
    """Return the same messages in fewer runs: join neighbouring runs of the same time."""
    if len(runs) == 1:
        return runs
    output: list[Run] = []
    for _, group in groupby(runs, key=attrgetter("time_ms")):
        first, *others = group
        if others:
            messages = [message for run in (first, *others) for message in run.messages]
            first = first._replace(messages=messages)
        output.append(first)
    return output


def first_of(pieces: Sequence[Piece], bytes_max: int) -> list[Piece]:
    """Return the first messages of these pieces, about so many bytes; at least one message."""
    found: list[Piece] = []
    for offsets, run in pieces:
        count = 0
        for _, body in run.messages:
            count += 1
            bytes_max -= len(body)
            if bytes_max <= 0:
                break
        found.append((offsets[:count], run._replace(messages=run.messages[:count])))
        if bytes_max <= 0:
            break
    return found


class Shelf:
    def __init__(self) -> None:
        self._books: list[Book] = []
        self._starts: list[int] = []
        self._head = 0  # The index of the first book; those before it are removed.
        self.size = 0  # Bytes of all books together.

    def __iter__(self) -> Iterator[Book]:
        return iter(self._books[self._head :])

    def put(self, book: Book) -> None:
        start = book.offset_first
        self.size += book.size
        if not self._starts or start > self._starts[-1]:  # Nearly always.
            self._starts.append(start)
            self._books.append(book)
        else:
            place = bisect_left(self._starts, start, self._head)
            self._starts.insert(place, start)
            self._books.insert(place, book)

    def at(self, offset: int) -> Book | None:
        """Return the book that has the offset, if there is one."""
        place = bisect_right(self._starts, offset, self._head) - 1
        if place < self._head or self._books[place].offset_end <= offset:
            return None
        return self._books[place]

    def next_start(self, offset: int, default: int) -> int:
        """Return the first offset of the first book that begins after `offset`, or `default`."""
        place = bisect_right(self._starts, offset, self._head)
        return self._starts[place] if place < len(self._starts) else default

    def opposite(self, book: Book) -> Book:
        """Return the last book, or the first one if `book` is the last."""
        last = self._books[-1]
        return self._books[self._head] if book is last else last

    def within(self, first: int, end: int) -> list[Book]:
        """Return the books that have messages with offsets from `first` to `end`."""
        if first >= end:
            return []
        left = max(self._head, bisect_right(self._starts, first, self._head) - 1)
        books = self._books[left : bisect_left(self._starts, end, self._head)]
        if books and books[0].offset_end <= first:
            del books[0]
        return books

    def remove(self, book: Book) -> None:
        place = bisect_left(self._starts, book.offset_first, self._head)
        assert self._books[place] is book
        self.size -= book.size
        if place == self._head:
            self._cut(place + 1)
        else:
            del self._starts[place], self._books[place]

    def pop_before(self, offset: int) -> list[Book]:
        """Remove and return the books that are wholly below the offset."""
        if self._head == len(self._books) or self._books[self._head].offset_end > offset:
            return []  # Nearly always.
        if self._head + 1 == len(self._books):  # The last one: when messages come one at a time.
            gone, self._books, self._starts = self._books[self._head :], [], []
            self.size, self._head = 0, 0
            return gone
        stop = bisect_left(self._starts, offset, self._head)
        if stop > self._head and self._books[stop - 1].offset_end > offset:
            stop -= 1
        gone = self._books[self._head : stop]
        if gone:
            self.size -= sum([book.size for book in gone])
            self._cut(stop)
        return gone

    def _cut(self, head: int) -> None:
        """Remove the books before that index; shorten the list if much of it is removed."""
        for place in range(self._head, head):
            self._books[place] = _GONE
        self._head = head
        if head == len(self._books) or head > max(_GONE_MAX, len(self._books) // 2):
            del self._books[:head], self._starts[:head]
            self._head = 0


_GONE = Book(0, Run(0, ()))
