"""One bound for all, and what came first goes first."""

from entrepot.broker.queue.message_cache import MessageCache
from entrepot.broker.queue.shelf import Book, Shelf
from tests.unit.broker.queue.lane_bed import run

SIZE = Book(0, run(b"x" * 100)).size


def offsets(shelf: Shelf) -> list[int]:
    return [book.offset_first for book in shelf]


def test_the_oldest_goes_first_whosever_it_is() -> None:
    cache, one, other = MessageCache(3 * SIZE), Shelf(), Shelf()
    for number, shelf in enumerate((one, other, one, other)):
        cache.put(shelf, Book(number, run(b"x" * 100)))
    assert (offsets(one), offsets(other)) == ([2], [1, 3])
    assert cache.size == 3 * SIZE


def test_what_is_not_needed_makes_room() -> None:
    cache, shelf = MessageCache(3 * SIZE), Shelf()
    for number in range(3):
        cache.put(shelf, Book(number, run(b"x" * 100)))
    cache.drop_before(shelf, 2)
    assert (cache.size, offsets(shelf)) == (SIZE, [2])
    cache.put(shelf, Book(1, run(b"x" * 100)))
    cache.put(shelf, Book(0, run(b"x" * 100)))
    assert offsets(shelf) == [0, 1, 2]


def test_one_lane_gives_up_what_lies_farthest_from_what_it_puts_there() -> None:
    cache, shelf = MessageCache(9 * SIZE, 3 * SIZE), Shelf()
    for number in (4, 5, 6, 7):  # Published.
        cache.put(shelf, Book(number, run(b"x" * 100)))
    assert offsets(shelf) == [5, 6, 7]
    for number in (1, 2):  # Read from the log.
        cache.put(shelf, Book(number, run(b"x" * 100)))
    assert offsets(shelf) == [1, 2, 5]
    assert cache.size == shelf.size == 3 * SIZE


def test_one_lane_keeps_the_last_however_large_it_is() -> None:
    cache, shelf = MessageCache(9 * SIZE, SIZE), Shelf()
    cache.put(shelf, Book(0, run(b"x" * 100)))
    cache.put(shelf, Book(1, run(b"x" * 100, b"y")))
    assert offsets(shelf) == [1]


def test_what_is_larger_than_all_of_it_is_kept_alone() -> None:
    cache, shelf = MessageCache(SIZE), Shelf()
    cache.put(shelf, Book(0, run(b"x" * 100)))
    cache.put(shelf, Book(1, run(b"x" * 100, b"y")))
    assert offsets(shelf) == [1]
