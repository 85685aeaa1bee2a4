"""Ranges beside a plain set."""

from hypothesis import given
from hypothesis import strategies as st

from entrepot.core.ranges import Ranges

SPANS = st.tuples(st.integers(0, 30), st.integers(0, 8)).map(lambda each: (each[0], sum(each)))
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), SPANS),
        st.tuples(st.just("remove"), SPANS),
        st.tuples(st.just("pop"), st.tuples(st.integers(-1, 12))),
    ),
    max_size=30,
)


@given(STEPS)
def test_it_holds_what_a_set_holds(steps: list[tuple[str, tuple[int, ...]]]) -> None:
    ranges, plain = Ranges(), set[int]()
    for verb, arguments in steps:
        gone = getattr(ranges, verb)(*arguments)
        if verb == "add":
            plain |= {*range(*arguments)}
            continue
        if verb == "remove":
            expected = sorted(plain & {*range(*arguments)})
        else:
            expected = sorted(plain)[: max(0, arguments[0])]
        assert [number for each in gone for number in each] == expected
        plain -= {*expected}
        _check(ranges, plain)


def _check(ranges: Ranges, plain: set[int]) -> None:
    assert [number for each in ranges for number in each] == sorted(plain)
    assert ranges.count == len(plain)
    assert bool(ranges) == bool(plain)
    assert all(number in ranges for number in plain)
    assert not any(number in ranges for number in range(-1, 50) if number not in plain)
    starts = [each.start for each in ranges]
    ends = [each.stop for each in ranges]
    assert all(end < start for end, start in zip(ends, starts[1:], strict=False)), "no touch"
    if plain:
        assert ranges.first == min(plain)


def test_ten_million_in_a_row_are_one_range() -> None:
    ranges = Ranges([range(5_000_000), range(5_000_000, 10_000_000)])
    assert [*ranges] == [range(10_000_000)]
