"""A shelf beside a plain dictionary of messages."""

from hypothesis import example, given
from hypothesis import strategies as st

from entrepot.broker.queue import shelf as module
from entrepot.broker.queue.shelf import Book, Shelf, joined
from tests.unit.broker.queue.lane_bed import bodies, flat, run

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, 40), st.integers(1, 6)),
        st.tuples(st.just("remove"), st.integers(0, 45), st.just(0)),
        st.tuples(st.just("pop"), st.integers(0, 45), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 45), st.integers(0, 20)),
    ),
    max_size=60,
)


def book(first: int, count: int) -> Book:
    return Book(first, run(*[b"%d" % number for number in range(first, first + count)]))


@given(STEPS)
@example([("put", 0, 2), ("read", 1, 0)])
def test_a_shelf_holds_what_was_put_there(steps: list[tuple[str, int, int]]) -> None:
    shelf, plain = Shelf(), dict[int, Book]()
    for verb, first, count in steps:
        if verb == "put" and all(offset not in plain for offset in range(first, first + count)):
            new = book(first, count)
            shelf.put(new)
            plain.update(dict.fromkeys(range(first, first + count), new))
        elif verb == "remove" and first in plain:
            shelf.remove(plain[first])
            plain = {offset: each for offset, each in plain.items() if each is not plain[first]}
        elif verb == "pop":
            gone = shelf.pop_before(first)
            assert all(each.offset_end <= first for each in gone)
            plain = {offset: each for offset, each in plain.items() if each.offset_end > first}
        elif verb == "read":
            found = [each.part(first, first + count) for each in shelf.within(first, first + count)]
            expected = [offset for offset in range(first, first + count) if offset in plain]
            assert [offset for offset, *_ in flat(found)] == expected
            assert bodies(found) == [b"%d" % offset for offset in expected]
        assert list(shelf) == [plain[offset] for offset in sorted(plain) if is_first(plain, offset)]
        assert shelf.size == sum(each.size for each in shelf)
        for offset in range(50):
            assert shelf.at(offset) is plain.get(offset)
            starts = [each for each in sorted(plain) if each > offset and is_first(plain, each)]
            assert shelf.next_start(offset, 99) == (starts[0] if starts else 99)


def is_first(plain: dict[int, Book], offset: int) -> bool:
    return plain[offset].offset_first == offset


def test_the_front_is_given_back() -> None:
    shelf = Shelf()
    for number in range(10_000):
        shelf.put(book(number, 1))
        if number >= 10:
            assert len(shelf.pop_before(number - 9)) == 1
    assert len(list(shelf)) == 10
    assert len(shelf._books) <= 10 + module._GONE_MAX + 1
    assert shelf._books[0] is module._GONE


def test_a_book_is_cut_only_where_it_must_be() -> None:
    whole = book(5, 3)
    assert whole.cut(0, 100) is whole
    assert whole.part(0, 100)[1] is whole.run
    assert (whole.cut(6, 7).offset_first, whole.cut(6, 7).offset_end) == (6, 7)
    assert whole.size > whole.cut(6, 7).size > module.MESSAGE_BYTES


def test_runs_are_joined_where_nothing_is_between_them() -> None:
    runs = [run(b"1"), run(b"2", b"3"), run(b"4", key="o"), run(b"5"), run(b"6", time_ms=9)]
    assert [len(each.messages) for each in joined(runs)] == [5, 1], "also under other keys"
    assert joined(runs[1:2]) == runs[1:2]
    assert len(runs[0].messages) == 1, "others may have it too"
