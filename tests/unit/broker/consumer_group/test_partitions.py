from uuid import UUID

from entrepot.broker.consumer_group.partitions import (
    Holders,
    difference,
    has_any,
    intersection,
    is_same,
)
from entrepot.core.steps import finish

A, B = UUID(int=1), UUID(int=2)


def test_sets_of_partitions() -> None:
    one, other = {A: (0, 1, 2), B: (5,)}, {A: (1, 7), B: (5,)}
    assert finish(intersection(one, other)) == {A: (1,), B: (5,)}
    assert finish(difference(one, other)) == {A: (0, 2)}
    assert finish(is_same({A: (1, 0)}, {A: (0, 1)}))
    assert not finish(is_same({A: (0,)}, {A: (0, 1)}))
    assert not finish(is_same({A: (0, 1)}, {A: (0,)}))


def test_whether_it_has_any() -> None:
    assert finish(has_any({A: (0,)}, {A: (0, 1)}))
    assert not finish(has_any({A: (2,)}, {A: (0, 1)}))
    assert finish(has_any(None, {A: (0,)})), "who does not say may have it"
    assert not finish(has_any(None, {}))


def test_who_holds_what() -> None:
    holders, wanted = Holders(), {A: (0, 1, 2), B: (5,)}
    holders.set("one", {A: (0, 1), B: (5,)})
    assert finish(holders.free("one", wanted)) == wanted
    assert finish(holders.free("two", wanted)) == {A: (2,)}
    holders.set("two", {A: (1,)})
    holders.clear("one", {A: (0, 1)})
    assert finish(holders.free("three", wanted)) == {A: (0, 2)}, "1 is the other's by now"
