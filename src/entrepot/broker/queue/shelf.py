"""Runs of messages by their offsets: found by a binary search, mostly taken from the front.

What stands on a shelf never overlaps. Room at the front is given back now and then, so
that taking the first costs the same however many there are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from entrepot.broker.queue.lane import Piece
from entrepot.broker.queue.message import Run
from entrepot.core.envelope import Message, kinds

MESSAGE_BYTES = 200  # About what Python takes for a message beside its bytes.
_GONE_MAX = 1_000  # Places at the front that may be empty, or as many as are taken.


class Book:
    """One run, from an offset on."""

    __slots__ = ("live", "offset_end", "offset_first", "run", "size")

    def __init__(self, offset_first: int, run: Run) -> None:
        self.offset_first = offset_first
        self.offset_end = offset_first + len(run.messages)
        self.run = run
        self.live = len(run.messages)  # Those that are not settled, where that is counted.
        self.size = _held(run.messages) + MESSAGE_BYTES * self.live  # Bytes, about.

    def part(self, first: int, end: int) -> Piece:
        """What of it lies there; something does."""
        run, start, stop = self.run, max(first, self.offset_first), min(end, self.offset_end)
        if stop - start < len(run.messages):
            base = self.offset_first
            run = run._replace(messages=run.messages[start - base : stop - base])
        return range(start, stop), run

    def cut(self, first: int, end: int) -> Book:
        """The same as a book, itself if that is all of it."""
        offsets, run = self.part(first, end)
        return self if run is self.run else Book(offsets.start, run)


def _held(messages: Sequence[Message]) -> int:
    """Bodies, and properties, which are there once for all that share them."""
    if not messages:
        return 0
    return sum(map(len, kinds(messages))) + sum([len(body) for _, body in messages])


def joined(runs: Sequence[Run]) -> Sequence[Run]:
    """The same messages in fewer runs: those of one time in a row are one."""
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


class Shelf:
    def __init__(self) -> None:
        self._books: list[Book] = []
        self._starts: list[int] = []
        self._head = 0  # Those before it are gone.
        self.size = 0  # Of all books together.

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
        """The one that holds the offset."""
        place = bisect_right(self._starts, offset, self._head) - 1
        if place < self._head or self._books[place].offset_end <= offset:
            return None
        return self._books[place]

    def next_start(self, offset: int, default: int) -> int:
        """Where the first one behind the offset begins."""
        place = bisect_right(self._starts, offset, self._head)
        return self._starts[place] if place < len(self._starts) else default

    def opposite(self, book: Book) -> Book:
        """The one at the other end of the shelf; itself if it is the only one."""
        last = self._books[-1]
        return self._books[self._head] if book is last else last

    def within(self, first: int, end: int) -> list[Book]:
        """Those that have something there."""
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
        """Take away those that lie wholly below."""
        if self._head == len(self._books) or self._books[self._head].offset_end > offset:
            return []  # Nearly always.
        stop = bisect_left(self._starts, offset, self._head)
        if stop > self._head and self._books[stop - 1].offset_end > offset:
            stop -= 1
        gone = self._books[self._head : stop]
        if gone:
            self.size -= sum([book.size for book in gone])
            self._cut(stop)
        return gone

    def _cut(self, head: int) -> None:
        for place in range(self._head, head):
            self._books[place] = _GONE
        self._head = head
        if head == len(self._books) or head > max(_GONE_MAX, len(self._books) // 2):
            del self._books[:head], self._starts[:head]
            self._head = 0


_GONE = Book(0, Run(0, ()))
