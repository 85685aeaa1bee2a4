from uuid import UUID

from entrepot.broker.consumer_group.partitions import (
    difference,
    has_any,
    intersection,
    is_same,
    partitions,
)

A, B = UUID(int=1), UUID(int=2)


def test_sets_of_partitions() -> None:
    one, other = {A: (0, 1, 2), B: (5,)}, {A: (1, 7), B: (5,)}
    assert intersection(one, other) == {A: (1,), B: (5,)}
    assert difference(one, other) == {A: (0, 2)}
    assert list(partitions(one, {A: (9,)})) == [(A, 0), (A, 1), (A, 2), (B, 5), (A, 9)]
    assert is_same({A: (1, 0)}, {A: (0, 1)})
    assert not is_same({A: (0,)}, {A: (0, 1)})
    assert not is_same({A: (0, 1)}, {A: (0,)})


def test_whether_it_has_any() -> None:
    assert has_any({A: (0,)}, {A: (0, 1)})
    assert not has_any({A: (2,)}, {A: (0, 1)})
    assert has_any(None, {A: (0,)}), "who does not say may have it"
    assert not has_any(None, {})
