"""Work in steps."""

import pytest

from entrepot.core.steps import Steps, finish, listed, parts


def counting(end: int) -> Steps[int]:
    for _ in range(end):
        yield
    return end


def test_finishing_does_all_of_it() -> None:
    assert finish(counting(0)) == 0
    assert finish(counting(5)) == 5


def test_what_goes_wrong_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        finish(listed(1 // number for number in (1, 0)))


def test_a_list_takes_a_step_for_each_element() -> None:
    made: list[int] = []

    def make(number: int) -> int:
        made.append(number)
        return number

    steps = listed(map(make, range(3)))
    for count in range(1, 4):
        next(steps)
        assert len(made) == count
    assert finish(steps) == [0, 1, 2]


def test_parts() -> None:
    assert list(parts(range(5), 2)) == [[0, 1], [2, 3], [4]]
    assert list(parts((), 2)) == []
