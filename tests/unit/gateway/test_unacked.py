"""Runs of what is not acknowledged, against a list that knows every message."""

from random import Random

import pytest

from entrepot.gateway.unacked import Held, Unacked, UnknownTag


class Somebody:
    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name

    def settle(self, lane: int, offsets: range) -> None: ...

    reject = requeue = settle

    def when_settled(self, waiter: object) -> None: ...

    def release(self) -> None: ...


ANA, BEN = Somebody("ana"), Somebody("ben")


def single(held: list[Held]) -> list[tuple[int, Somebody, int, int]]:
    """Each message by itself."""
    return [
        (tag, run.holder, run.lane, offset)  # type: ignore[misc]
        for run in held
        for tag, offset in zip(range(run.tag_first, run.tag_end), run.offsets, strict=True)
    ]


def test_deliveries_in_a_row_are_one_run() -> None:
    unacked = Unacked()
    unacked.add(1, ANA, 0, range(10, 20))
    unacked.add(11, ANA, 0, range(20, 21))
    unacked.add(12, ANA, 0, range(21, 100))
    assert [run.offsets for run in unacked] == [range(10, 100)]
    assert unacked.count == 90


def test_every_second_message_is_a_run_too() -> None:
    unacked = Unacked()
    unacked.add(1, ANA, 0, range(10, 11))
    unacked.add(2, ANA, 0, range(12, 13))
    unacked.add(3, ANA, 0, range(14, 19, 2))
    unacked.add(6, ANA, 0, range(19, 20))
    assert [list(run.offsets) for run in unacked] == [[10, 12, 14, 16, 18], [19]]


def test_others_and_other_lanes_are_other_runs() -> None:
    unacked = Unacked()
    unacked.add(1, ANA, 0, range(5))
    unacked.add(6, BEN, 0, range(5, 10))
    unacked.add(11, BEN, 1, range(10, 15))
    assert len(list(unacked)) == 3


def test_in_order_nothing_is_cut() -> None:
    unacked = Unacked()
    unacked.add(1, ANA, 0, range(100))
    taken, end = unacked.take(1, 51)
    assert (taken, end) == ([Held(1, 51, ANA, 0, range(50))], 51)
    assert list(unacked) == [Held(51, 101, ANA, 0, range(50, 100))]
    assert unacked.take_through(100) == [Held(51, 101, ANA, 0, range(50, 100))]
    assert unacked.count == 0


@pytest.mark.parametrize("tag", [0, 1, 5, 9, 100])
def test_tags_that_are_not_there(tag: int) -> None:
    unacked = Unacked()
    unacked.add(2, ANA, 0, range(3))
    unacked.add(6, ANA, 0, range(9, 12))
    assert unacked.take(tag, tag + 1) == ([], tag)
    assert unacked.count == 6
    if tag:
        with pytest.raises(UnknownTag, match=f"unknown delivery tag {tag}$"):
            unacked.take_through(tag)


def test_up_to_the_first_that_is_not_there() -> None:
    unacked = Unacked()
    unacked.add(1, ANA, 0, range(10))
    unacked.take(5, 6)
    taken, end = unacked.take(3, 8)
    assert (single(taken), end) == ([(3, ANA, 0, 2), (4, ANA, 0, 3)], 5)


def test_any_history(seed: int) -> None:
    random = Random(seed)
    unacked, model = Unacked(), {}
    tag = 1
    for _ in range(300):
        choice = random.random()
        tags = sorted(model)
        if choice < 0.4 or not tags:
            first, step = random.randrange(1_000), random.choice((1, 1, 2, 3))
            offsets = range(first, first + step * random.randrange(1, 10), step)
            holder, lane = random.choice((ANA, BEN)), random.choice((0, 0, 1))
            unacked.add(tag, holder, lane, offsets)
            for offset in offsets:
                model[tag] = (tag, holder, lane, offset)
                tag += 1
            tag += random.choice((0, 0, 1))
        elif choice < 0.8:
            first = random.choice(tags)
            end = first + random.randrange(1, 6)
            known = next((each for each in range(first, end) if each not in model), end)
            taken, found_end = unacked.take(first, end)
            assert found_end == known
            assert single(taken) == [model.pop(each) for each in range(first, known)]
        elif choice < 0.9:
            last = random.choice(tags)
            expected = [model.pop(each) for each in tags if each <= last]
            assert single(unacked.take_through(last)) == expected
        else:
            taken, _ = unacked.take(tags[0], tags[0] + 1)
            unacked.restore(taken)
        assert unacked.count == len(model)
        assert single(list(unacked)) == [model[each] for each in sorted(model)]
    assert single(unacked.take_through(0)) == [model[each] for each in sorted(model)]
